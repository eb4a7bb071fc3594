"""The layers that adapters are trained in: those that were chosen, and as many others beside them.

Which layers should LoRA train? `--method lora:4,5,8-10` names them, `--method lora:RUN:3` takes the three layers whose
removal costs most in a run of `layerwise diagnose`, or of a sweep that leaves single layers out. Beside the arm
`chosen-layers` as many of the last and of the first layers are trained, layers drawn anew for every seed (the null),
and all layers of the plan. With k_l weights of an adapter of rank 1 in layer l, C the chosen layers and r their rank,

    rank of an arm with layers S = floor(r * sum_{l in C} k_l / sum_{l in S} k_l)

so that each arm has as many trainable weights as the chosen layers or, by rounding, fewer. Rates are tuned for each.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from layerwise.bounded import named
from layerwise.errors import MeasureError, PlanError, TrainError
from layerwise.experiments.options.plans import whole_numbers
from layerwise.measure.interventions.importance import importance_of, source_of
from layerwise.plan import Plan
from layerwise.results import Run, Score
from layerwise.results import vocabulary as vocab
from layerwise.results.run import is_run
from layerwise.results.selection import Rows

_NUMBERS = re.compile(r"[\d,\s-]+", re.ASCII)


def chosen_layers(text: str, plan: Plan) -> tuple[int, ...]:
    """The layers that `text` names among those of `plan`, ascending: "4,5,8-10", or "RUN:3".

    Raises `PlanError` for layers that the plan leaves out, for all of its layers, and for a text that is neither.

    >>> chosen_layers("4,8-9", Plan.parse("0-11"))
    (4, 8, 9)
    """
    among = sorted(plan.layers())
    if _NUMBERS.fullmatch(text):
        layers = whole_numbers("--method lora:", text, least=0)
    else:
        folder, _, count = text.rpartition(":")
        if not count.isdecimal() or not is_run(folder):
            raise PlanError(
                f"--method lora: takes layers, as in lora:4,5,8-10, or a run and how many of its layers, as in "
                f"lora:runs/sweep:3; found {named(repr(text))}"
                + (f", and there is no run {named(folder)}" if count.isdecimal() else "")
            )
        costs = {layer: cost for layer, cost in removal_costs(Path(folder).expanduser()).items() if layer in among}
        layers = tuple(sorted(sorted(costs, key=lambda layer: (-costs[layer], layer))[: int(count)]))
        if not layers or len(layers) < int(count):
            raise PlanError(
                f"{count} layers of the run {folder} were asked for, and it has the cost of {len(costs)} layers of the "
                f"plan {plan}; write a number from 1 to {max(1, len(costs) - 1)}, or the layers themselves"
            )
    missing = [str(layer) for layer in layers if layer not in among]
    if missing:
        raise PlanError(f"the plan {plan} does not run layer {', '.join(missing)}, so that no adapter can learn there")
    if len(layers) == len(among):
        raise PlanError(
            f"layers {text} are all that the plan {plan} runs, and there is nothing to compare them with: name fewer, "
            "or write --method lora"
        )
    return layers


def removal_costs(folder: Path) -> dict[int, float]:
    """What leaving out each layer costs, nats a token, by the run of a diagnosis or of a sweep.

    Raises `PlanError` for a run that has no such effects.
    """
    with Run.open(folder) as run:
        scores = Rows(run.store.scores())
        records = run.store.plans()
    try:
        if source_of(scores) is not None:
            return {layer: each.value for layer, each in enumerate(importance_of(scores))}
    except MeasureError as refusal:
        raise PlanError(f"the run {folder}: {refusal}") from None
    effects = scores.where(measure=vocab.EFFECT, metric=vocab.DELTA)
    tasks = effects.axis("task")
    costs = {}
    for record in records:
        row = effects.one(plan=record.plan, task=tasks[0]) if record.family == "leave_one_out" and tasks else None
        if row is not None:
            kept = Plan.parse(record.plan).layers()
            (layer,) = set(range(len(kept) + 1)) - kept
            costs[layer] = row.value
    if not costs:
        raise PlanError(
            f"the run {folder} does not say what leaving out single layers costs; give that of layerwise sweep "
            "--families leave_one_out, that of layerwise diagnose, or the layers themselves, as in lora:4,5,8-10"
        )
    return costs


@dataclass(frozen=True, slots=True)
class AdaptedLayers:
    """Sets of layers to train adapters in: `chosen` of those `among`, at `rank`.

    `weights` are those of an adapter of rank 1 in each layer of the model.
    """

    chosen: tuple[int, ...]
    among: tuple[int, ...]
    weights: Mapping[int, int]
    rank: int

    def arms(self) -> tuple[str, ...]:
        """The arms by name, the chosen layers first; sets that are the chosen layers themselves are left out."""
        others = (vocab.LAST_LAYERS, vocab.FIRST_LAYERS, vocab.RANDOM_LAYERS, vocab.ALL_LAYERS)
        return (vocab.CHOSEN_LAYERS, *(arm for arm in others if self.layers(arm, 0) != self.chosen))

    def layers(self, arm: str, seed: int) -> tuple[int, ...]:
        """The layers of an arm, ascending; those at random are drawn from `seed`, and are others than the chosen ones.

        >>> sets = AdaptedLayers((1, 4), (0, 1, 2, 4, 5), dict.fromkeys(range(6), 10), rank=16)
        >>> [sets.layers(arm, 0) for arm in ("last-layers", "first-layers", "random-layers")]
        [(4, 5), (0, 1), (1, 2)]
        """
        count = len(self.chosen)
        chance = random.Random(f"{seed}/{vocab.RANDOM_LAYERS}")
        drawn = self.chosen
        while arm == vocab.RANDOM_LAYERS and drawn == self.chosen:
            drawn = tuple(sorted(chance.sample(self.among, count)))
        last, first = self.among[-count:], self.among[:count]
        sets = {vocab.LAST_LAYERS: last, vocab.FIRST_LAYERS: first, vocab.ALL_LAYERS: self.among}
        return sets.get(arm, drawn)

    def rank_of(self, layers: Collection[int]) -> int:
        """The rank at which adapters in `layers` have at most as many weights as those in the chosen ones.

        Raises `TrainError` where that is below 1.

        >>> sets = AdaptedLayers((1, 4), (0, 1, 2, 4, 5), dict.fromkeys(range(6), 10), rank=16)
        >>> sets.rank_of(sets.among)
        6
        """
        own, other = (sum(self.weights[layer] for layer in each) for each in (self.chosen, layers))
        rank = self.rank * own // other
        if rank < 1:
            raise TrainError(
                f"adapters of rank {self.rank} in layers {', '.join(map(str, self.chosen))} have {self.rank * own:,} "
                f"weights, and those of rank 1 in {len(layers)} layers {other:,}; write --set rank={-(-other // own)} "
                "or more"
            )
        return rank

    def describe(self) -> Iterator[str]:
        """Which layers every arm trains, at which rank, and with how many weights."""
        for arm in self.arms():
            layers = self.layers(arm, 0)
            rank = self.rank_of(layers)
            weights = rank * sum(self.weights[layer] for layer in layers)
            which = f"{len(layers)} drawn for every seed" if arm == vocab.RANDOM_LAYERS else Plan.of(layers)
            yield f"{arm}: adapters of rank {rank} in layers {which}, {weights:,} weights"

    def rows(self, seeds: int) -> Iterator[Score]:
        """The rank of the adapters in every layer of every arm; layers at random are those of a seed."""
        for arm in self.arms():
            for seed in range(seeds) if arm == vocab.RANDOM_LAYERS else (None,):
                layers = self.layers(arm, seed or 0)
                for layer in layers:
                    yield Score(
                        vocab.HEALING_LAYER, "rank", float(self.rank_of(layers)), arm=arm, seed=seed, layer=layer
                    )
