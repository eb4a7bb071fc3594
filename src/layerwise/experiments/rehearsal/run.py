"""A rehearsal, ready to be performed: the models of a run, or a single one, each meeting the same losses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerwise.data.model_location import location_of
from layerwise.experiments.experiment import Inputs, Prepared
from layerwise.experiments.opening import open_model, quiet_transformers
from layerwise.experiments.rehearsal.config import Rehearsal, levels
from layerwise.experiments.rehearsal.rows import Level, Values, columns_of, rows
from layerwise.experiments.rehearsal.trial import DeadNodes, Outcome, Stage, Times, answers, measured_times, passes
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.robustness.config import is_run
from layerwise.experiments.sentences import describe_model
from layerwise.experiments.splits import read_splits
from layerwise.experiments.training_runs import as_trained, describe_splits, manifest_of_trainings, training_manifest
from layerwise.experiments.trainings import finished_models
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.vocabulary import COMMONEST, REHEARSAL, REHEARSAL_DRAW
from layerwise.stack import Stack, weight_hash
from layerwise.swarm.gathering import order_of
from layerwise.swarm.rehearsal.bound import Load, slowest_token
from layerwise.swarm.routing.quorum import Quorum
from layerwise.swarm.settings import SwarmSettings
from layerwise.train.load_trained import open_trained

PROMPT = 16
"""Tokens of a prompt: the beginning of a window of the text."""

WINDOWS = 24
"""Windows of text on which the cost of missing layers is measured."""

DRAWN = ("task", "arm", "seed", "condition", "amount")
"""The columns that tell one draw of one model from another."""


@dataclass(frozen=True)
class RehearsedModel:
    """A model that is rehearsed, where it lies, and how it is opened."""

    arm: str
    seed: int
    location: str
    open: Callable[[], Stack]


class PreparedRehearsal(Prepared):
    """Models, the examples that they are asked about, and what hops and layers take."""

    def __init__(self, config: Rehearsal, reporter: Reporter, inputs: Inputs) -> None:
        quiet_transformers()
        self.config = config
        self.models = _models(config, inputs)
        self.stack = self.models[0].open()
        self.levels = levels(config.kill, config.nodes)
        if inputs.stack is None and is_run(config.model):
            trained = manifest_of_trainings(Path(config.model).expanduser())
            self.stack.source = replace(self.stack.source, name=trained.model)
            config = as_trained(config, trained)
        location = None if inputs.stack is not None else self.models[0].location
        self.splits = read_splits(config, self.stack, location, reporter, seed=config.seed, corpus=inputs.corpus)
        self.writes = getattr(self.stack.model, "main_input_name", "") != "pixel_values"
        self.inputs, self.labels = self._requests()
        self.times = self._times()
        self.manifest = training_manifest(self.stack, weight_hash(self.stack.model), self.splits, seed=config.seed)
        names = (
            "nodes",
            "replicas",
            "kill",
            "requests",
            "draws",
            "streams",
            "new_tokens",
            "on_loss",
            "quorum",
            "seed",
            "ray",
        )
        options = {name: getattr(config, name) for name in names}
        self.recipe = {"rehearsal": options, "models": [each.location for each in self.models]}

    def settings(self, location: str) -> SwarmSettings:
        """The rules of the swarm of a model: its layers may run in any order where it was trained for that."""
        config = self.config
        settings = SwarmSettings(order_of(location), config.on_loss, Quorum.parse(config.quorum), spot_share=0.0)
        return settings if config.ray is not None else replace(settings, first_deadline=1.0)

    def describe(self) -> Iterator[str]:
        """The models, the data, the losses, and the bound of the slowest token."""
        config = self.config
        yield describe_model(self.stack)
        yield describe_splits(self.splits)
        arms = len({each.arm for each in self.models})
        yield (
            f"{len(self.models)} models of {arms} arms on {config.nodes} nodes, with {_listed(self.replicas)} "
            f"replicas; {_listed(self.levels)} nodes die, drawn {config.draws} times; {len(self.inputs)} requests "
            f"each, {config.streams} at once"
        )
        hop, layer = (1000 * seconds for seconds in (self.times.hop, self.times.layer))
        if config.ray is not None:
            yield f"nodes are processes of the Ray cluster {config.ray}, and are killed; times are those of a clock"
            return
        yield f"a hop takes {hop:.3g} ms and a layer {layer:.3g} ms, of virtual time"
        held = -(-self.stack.depth * config.replicas // config.nodes)
        read, new = (PROMPT, config.new_tokens) if self.writes else (self.positions, 1)
        load = Load(config.streams, self.stack.depth, held, read, new, self.times.hop, self.times.layer)
        bound = slowest_token(load, self.settings(self.models[0].location), max(self.levels))
        what = "token" if self.writes else "pass"
        yield f"no {what} takes longer than {bound:.3g} s of virtual time, deadlines and replays included"

    @property
    def stage(self) -> Stage:
        """Where the rehearsal takes place."""
        return Stage(self.times, self.config.streams, self.config.ray)

    @property
    def positions(self) -> int:
        """The tokens of a request that is answered in one pass: those of all its images."""
        with torch.inference_mode():
            return math.prod(self.stack.capture(**self.inputs[0]).state.shape[:-1])

    @property
    def replicas(self) -> tuple[int, ...]:
        """One, and as many as were asked for."""
        return tuple(sorted({1, self.config.replicas}))

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Let every model meet every loss, and store the rows."""
        if run.store.scores(REHEARSAL):
            return
        drawn: dict[str, dict[Level, list[list[Values]]]] = defaultdict(dict)
        stored = run.store.scores(REHEARSAL_DRAW)
        known = _by_draw(stored)
        total = len(self.models) * len(self.replicas) * len(self.levels) * self.config.draws
        done = 0
        with self._cluster():
            for model in self.models:
                respond = None
                for replicas, dead, draw in product(self.replicas, self.levels, range(self.config.draws)):
                    own = {"task": f"draw {draw}", "seed": model.seed, **columns_of(model.arm, replicas, dead)}
                    name = tuple(own[column] for column in DRAWN)
                    if name not in known:
                        respond = respond or self._answered(model.open(), self.settings(model.location))
                        known[name] = respond(
                            DeadNodes.drawn(self.config.nodes, replicas, dead, f"{self.config.seed}/{draw}")
                        )
                        stored += [Score.of(REHEARSAL_DRAW, *each, **own) for each in known[name].items()]
                        run.store.replace_scores(REHEARSAL_DRAW, stored)
                    cells = drawn[model.arm].setdefault((replicas, dead), [[] for _ in range(self.config.draws)])
                    cells[draw].append(known[name])
                    done += 1
                    reporter.progress(f"{model.arm}/{model.seed}", done / total)
        means = {
            arm: {level: [_mean(seeds) for seeds in cells] for level, cells in by_level.items()}
            for arm, by_level in drawn.items()
        }
        run.store.replace_scores(REHEARSAL, [*rows(means, self.config.nodes), *self._nulls(means)])
        run.store.replace_notes(REHEARSAL, tuple(self.describe())[2:])

    @contextmanager
    def _cluster(self) -> Iterator[None]:
        """A connection to the cluster for all swarms of the rehearsal; none on virtual time."""
        if self.config.ray is None:
            yield
            return
        from layerwise.swarm.cluster.connection import Connection

        with closing(Connection(self.config.ray, self.config.nodes)):
            yield

    def _nulls(self, arms: Any) -> Iterator[Any]:
        counts = np.unique(self.labels, return_counts=True)[1] if self.labels else np.ones(1)
        if not self.writes:
            for arm in arms:
                share = float(counts.max() / counts.sum())
                yield Score.of(REHEARSAL, "accuracy", share, arm=arm, against=COMMONEST)

    def _requests(self) -> tuple[list[Any], list[int]]:
        """What is asked in every draw: batches of all images, or prompts; and the labels of the images."""
        count = max(1, round(self.config.requests / self.config.draws))
        test = self.splits.test
        if self.writes:
            windows = [test[number % len(test)]["input_ids"][:PROMPT].tolist() for number in range(count)]
            return windows, []
        size = -(-len(test) // count)
        chunks = [range(start, min(start + size, len(test))) for start in range(0, len(test), size)]
        batches = [self.splits.collate([test[number] for number in chunk]) for chunk in chunks]
        labels = [int(label) for batch in batches for label in batch["labels"]]
        return [{"pixel_values": batch["pixel_values"]} for batch in batches], labels

    def _times(self) -> Times:
        hop, layer = self.config.hop_seconds, self.config.layer_seconds
        if hop is not None and layer is not None:
            return Times(hop, layer)
        sample = {"input_ids": torch.tensor([self.inputs[0]])} if self.writes else self.inputs[0]
        measured = measured_times(self.stack, sample)
        return Times(measured.hop if hop is None else hop, measured.layer if layer is None else layer)

    def _answered(self, stack: Stack, settings: SwarmSettings) -> Callable[[DeadNodes], Values]:
        """From a loss to what the swarm of this model did under it."""
        if not self.writes:
            inputs = [{name: tensor.to(stack.device) for name, tensor in each.items()} for each in self.inputs]
            return lambda loss: self._classified(passes(stack, loss, self.stage, settings, inputs))
        whole = self._whole(stack, settings)
        nll: dict[str, float] = {}

        def respond(loss: DeadNodes) -> Values:
            outcome = answers(stack, loss, self.stage, settings, self.inputs, self.config.new_tokens)
            return self._written(stack, outcome, whole, nll)

        return respond

    def _whole(self, stack: Stack, settings: SwarmSettings) -> list[tuple[int, ...]]:
        none = DeadNodes(self.config.nodes, self.config.replicas, (), 0)
        virtual = replace(self.stage, address=None)
        undisturbed = answers(stack, none, virtual, settings, self.inputs, self.config.new_tokens)
        return [each.answer.tokens if each.answer else () for each in undisturbed.later]

    def _classified(self, outcome: Outcome) -> Values:
        start, right, answered = 0, 0.0, 0
        for batch, each in zip(self.inputs, outcome.later, strict=True):
            size = len(batch["pixel_values"])
            if each.output is not None:
                chosen: Tensor = each.output.argmax(dim=-1).cpu()
                right += float((chosen == torch.tensor(self.labels[start : start + size])).sum())
                answered += size
            start += size
        quality = {"accuracy": right / answered} if answered else {}
        return {**quality, **_common(outcome)}

    def _written(self, stack: Stack, outcome: Outcome, whole: Sequence[Sequence[int]], nll: dict[str, float]) -> Values:
        shares, added = [], []
        for tokens, each in zip(whole, outcome.later, strict=True):
            if each.answer is None:
                continue
            same = sum(left == right for left, right in zip(tokens, each.answer.tokens, strict=False))
            shares.append(same / max(len(tokens), 1))
            for plan in (f"0-{stack.depth - 1}", each.answer.plan):
                if plan not in nll:
                    windows: Any = [self.splits.test[number] for number in range(min(WINDOWS, len(self.splits.test)))]
                    nll[plan] = evaluate(stack, Plan.parse(plan), windows, self.splits.collate).mean_nll
            added.append(nll[each.answer.plan] - nll[f"0-{stack.depth - 1}"])
        quality = {"agreement": float(np.mean(shares)), "nll_added": float(np.mean(added))} if shares else {}
        return {**quality, **_common(outcome)}


def _common(outcome: Outcome) -> dict[str, float]:
    """What is counted of every kind of request."""
    seconds = outcome.seconds
    latency = {f"p{share}": float(np.percentile(seconds, share)) for share in (50, 95, 99)} if seconds else {}
    missing = [len(each.answer.missing) for each in outcome.later if each.answer is not None]
    count = len(outcome.ended)
    return {
        **latency,
        "refused": outcome.refused,
        **({"missing": float(np.mean(missing))} if missing else {}),
        "replays": outcome.events["replayed"] / count,
        "hedged": outcome.hedges / max(outcome.calls, 1),
    }


def _by_draw(rows: Sequence[Score]) -> dict[tuple[object, ...], Values]:
    """What each model did in each draw, by the columns of model and draw."""
    known: dict[tuple[object, ...], dict[str, float]] = defaultdict(dict)
    for row in rows:
        known[tuple(getattr(row, column) for column in DRAWN)][row.metric] = row.value
    return dict(known)


def _mean(values: Sequence[Values]) -> Values:
    names = dict.fromkeys(name for each in values for name in each)
    return {name: float(np.mean([each[name] for each in values if name in each])) for name in names}


def _models(config: Rehearsal, inputs: Inputs) -> tuple[RehearsedModel, ...]:
    path = Path(config.model).expanduser()
    if inputs.stack is None and is_run(config.model):
        return tuple(
            RehearsedModel(
                each.arm, each.seed, str(each.folder),
                lambda folder=each.folder: open_trained(folder, device=config.device, dtype=config.dtype).stack,  # type: ignore[misc]
            )
            for each in finished_models(path)
        )  # fmt: skip

    def opened() -> Stack:
        return inputs.stack or open_model(
            config, model=config.model, dtype=config.dtype, trust_remote_code=config.trust_remote_code
        )

    return (RehearsedModel(Path(config.model).name, 0, location_of(config.model) or config.model, opened),)


def _listed(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last
