"""The steps of a rehearsal: the models of a run, or a single one, each meeting the same losses of nodes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerwise.data.model_location import location_of
from layerwise.data.splits import Splits
from layerwise.experiments.engines.call import RoundsUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.opening import open_model, quiet_transformers
from layerwise.experiments.rehearsal.trial import (
    DeadNodes,
    Level,
    Outcome,
    Stage,
    Times,
    Values,
    answers,
    columns_of,
    measured_times,
    passes,
    rows,
)
from layerwise.experiments.reporter import Reporter, describe_model
from layerwise.experiments.robustness.config import Rehearsal, levels
from layerwise.experiments.training_runs import (
    as_trained,
    describe_splits,
    finished_models,
    manifest_of_trainings,
    read_splits,
    training_manifest,
)
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.plan import Plan
from layerwise.report.text.wording import counted
from layerwise.results import Score
from layerwise.results.run import is_run
from layerwise.results.vocabulary import COMMONEST, REHEARSAL, REHEARSAL_DRAW
from layerwise.stack import Stack, weight_hash
from layerwise.swarm.gathering import order_of
from layerwise.swarm.rehearsal import Load, slowest_token
from layerwise.swarm.settings import Quorum, SwarmSettings
from layerwise.train.load_trained import open_trained

PROMPT = 16
"""Tokens of a prompt: the beginning of a window of the text."""

WINDOWS = 24
"""Windows of text on which the cost of missing layers is measured."""

DRAWN = ("task", "arm", "seed", "condition", "amount")
"""The columns that tell one draw of one model from another."""

Drawn = tuple[Any, ...]
"""Their values."""

_NAMES = ("nodes", "replicas", "kill", "requests", "draws", "streams", "new_tokens", "on_loss", "quorum", "seed", "ray")
"""The options that the run folder is named by."""


@dataclass(frozen=True)
class RehearsedModel:
    """A model that is rehearsed, where it lies, and how it is opened."""

    arm: str
    seed: int
    location: str
    open: Callable[[], Stack]

    @property
    def label(self) -> str:
        """What it is called where progress is reported."""
        return f"{self.arm}/{self.seed}"


def rehearsal(config: Rehearsal, reporter: Reporter, inputs: Inputs) -> Steps:
    """Let every model meet every loss, draw after draw, and add up what is left."""
    reporter.log(f"loading {config.model}")
    quiet_transformers()
    models = _models(config, inputs)
    stack = models[0].open()
    read = config
    if inputs.stack is None and is_run(config.model):
        trained = manifest_of_trainings(Path(config.model).expanduser())
        stack.source = replace(stack.source, name=trained.model)
        read = as_trained(config, trained)
    location = None if inputs.stack is not None else models[0].location
    splits = read_splits(read, stack, location, reporter, seed=read.seed, corpus=inputs.corpus)
    requests = Requests.of(config, stack, splits)
    dead, replicas = levels(config.kill, config.nodes), tuple(sorted({1, config.replicas}))

    def says() -> Iterator[str]:
        yield describe_model(stack)
        yield describe_splits(splits)
        arms = len({each.arm for each in models})
        yield (
            f"{counted(len(models), 'model')} of {counted(arms, 'arm')} on {config.nodes} nodes, with "
            f"{_listed(replicas)} replicas; {_listed(dead)} nodes die, drawn {config.draws} times; "
            f"{len(requests.inputs)} requests each, {config.streams} at once"
        )
        yield from requests.bound(stack, settings_of(config, models[0].location), max(dead))

    yield Outline(
        training_manifest(stack, weight_hash(stack.model), splits, seed=read.seed),
        says,
        recipe={
            "rehearsal": {name: getattr(read, name) for name in _NAMES},
            "models": [each.location for each in models],
        },
    )
    pieces = {
        _drawn(task=f"draw {draw}", seed=model.seed, **columns_of(model.arm, copies, count)): (
            model,
            copies,
            count,
            draw,
        )
        for model in models
        for copies, count, draw in product(replicas, dead, range(config.draws))
    }

    @lru_cache(maxsize=1)  # one model at a time is open
    def respond(model: RehearsedModel) -> Callable[[DeadNodes], Values]:
        return requests.answered(model.open(), settings_of(config, model.location))

    def once(piece: Drawn) -> Iterator[Score]:
        model, copies, count, draw = pieces[piece]
        values = respond(model)(DeadNodes.drawn(config.nodes, copies, count, f"{config.seed}/{draw}"))
        return (Score(REHEARSAL_DRAW, *each, **dict(zip(DRAWN, piece, strict=True))) for each in values.items())

    with _cluster(config):
        drawn = yield from RoundsUnit(
            REHEARSAL_DRAW,
            list(pieces),
            lambda row: tuple(getattr(row, column) for column in DRAWN),
            lambda: once,
            lambda piece: pieces[piece][0].label,
        )
    means = _means(pieces, drawn)
    made = [*rows(means, config.nodes), *requests.nulls(means)]
    return Completed(made, {REHEARSAL: tuple(says())[2:]})


def _drawn(**columns: Any) -> Drawn:
    return tuple(columns[column] for column in DRAWN)


def settings_of(config: Rehearsal, location: str) -> SwarmSettings:
    """The rules of the swarm of a model: its layers may run in any order where it was trained for that."""
    settings = SwarmSettings(order_of(location), config.on_loss, Quorum.parse(config.quorum), spot_share=0.0)
    return settings if config.ray is not None else replace(settings, first_deadline=1.0)


def _cluster(config: Rehearsal) -> AbstractContextManager[Any]:
    """A connection to the cluster for all swarms of the rehearsal; none on virtual time."""
    if config.ray is None:
        return nullcontext()
    from layerwise.swarm.cluster.connection import Connection

    return closing(Connection(config.ray, config.nodes))


def _means(
    pieces: Mapping[Drawn, tuple[RehearsedModel, int, int, int]],
    drawn: Mapping[Drawn, Sequence[Score]],
) -> dict[str, dict[Level, list[Values]]]:
    """What every arm did in every draw, by its level: the mean over its seeds."""
    draws: dict[tuple[str, Level], dict[int, list[Values]]] = defaultdict(lambda: defaultdict(list))
    for piece, (model, copies, count, draw) in pieces.items():
        draws[model.arm, (copies, count)][draw].append({row.metric: row.value for row in drawn[piece]})
    means: dict[str, dict[Level, list[Values]]] = defaultdict(dict)
    for (arm, level), by_draw in draws.items():
        means[arm][level] = [_mean(seeds) for seeds in by_draw.values()]
    return means


@dataclass(frozen=True)
class Requests:
    """What is asked in every draw: batches of all images with their labels, or prompts; and what a hop and a layer
    take."""

    config: Rehearsal
    splits: Splits
    writes: bool
    inputs: list[Any]
    labels: list[int]
    times: Times

    @classmethod
    def of(cls, config: Rehearsal, stack: Stack, splits: Splits) -> Requests:
        """The requests of the options; times that they do not name are measured."""
        writes = getattr(stack.model, "main_input_name", "") != "pixel_values"
        inputs, labels = _requested(config, splits, writes)
        hop, layer = config.hop_seconds, config.layer_seconds
        if hop is not None and layer is not None:
            return cls(config, splits, writes, inputs, labels, Times(hop, layer))
        times = measured_times(stack, {"input_ids": torch.tensor([inputs[0]])} if writes else inputs[0])
        times = replace(times, hop=times.hop if hop is None else hop, layer=times.layer if layer is None else layer)
        return cls(config, splits, writes, inputs, labels, times)

    def bound(self, stack: Stack, settings: SwarmSettings, dead: int) -> Iterator[str]:
        """What hops and layers take, and the bound of the slowest token, in sentences."""
        config = self.config
        hop, layer = (1000 * seconds for seconds in (self.times.hop, self.times.layer))
        if config.ray is not None:
            yield f"nodes are processes of the Ray cluster {config.ray}, and are killed; times are those of a clock"
            return
        measured = f" ({self.times.measured})" if self.times.measured else ""
        yield f"a hop takes {hop:.3g} ms and a layer {layer:.3g} ms, of virtual time{measured}"
        held = -(-stack.depth * config.replicas // config.nodes)
        read, new = (PROMPT, config.new_tokens) if self.writes else (self._positions(stack), 1)
        load = Load(config.streams, stack.depth, held, read, new, self.times.hop, self.times.layer)
        what = "token" if self.writes else "pass"
        yield (
            f"no {what} takes longer than {slowest_token(load, settings, dead):.3g} s of virtual time, deadlines and "
            "replays included"
        )

    def nulls(self, arms: Mapping[str, object]) -> Iterator[Score]:
        """What the commonest label alone gets right, of models of images."""
        if not self.writes:
            counts = np.unique(self.labels, return_counts=True)[1] if self.labels else np.ones(1)
            for arm in arms:
                share = float(counts.max() / counts.sum())
                yield Score(REHEARSAL, "accuracy", share, arm=arm, against=COMMONEST)

    @property
    def stage(self) -> Stage:
        """Where the rehearsal takes place."""
        return Stage(self.times, self.config.streams, self.config.ray)

    def _positions(self, stack: Stack) -> int:
        """The tokens of a request that is answered in one pass: those of all its images."""
        with torch.inference_mode():
            return math.prod(stack.capture(**self.inputs[0]).state.shape[:-1])

    def answered(self, stack: Stack, settings: SwarmSettings) -> Callable[[DeadNodes], Values]:
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


def _requested(config: Rehearsal, splits: Splits, writes: bool) -> tuple[list[Any], list[int]]:
    """Batches of all images, or prompts; and the labels of the images."""
    count = max(1, round(config.requests / config.draws))
    test = splits.test
    if writes:
        return [test[number % len(test)]["input_ids"][:PROMPT].tolist() for number in range(count)], []
    size = -(-len(test) // count)
    chunks = [range(start, min(start + size, len(test))) for start in range(0, len(test), size)]
    batches = [splits.collate([test[number] for number in chunk]) for chunk in chunks]
    labels = [int(label) for batch in batches for label in batch["labels"]]
    return [{"pixel_values": batch["pixel_values"]} for batch in batches], labels


def _common(outcome: Outcome) -> dict[str, float]:
    """What is counted of every kind of request."""
    seconds = outcome.seconds
    latency = {f"p{share}": float(np.percentile(seconds, share)) for share in (50, 95, 99)} if seconds else {}
    missing = [len(each.answer.missing) for each in outcome.later if each.answer is not None]
    return {
        **latency,
        "refused": outcome.refused,
        **({"missing": float(np.mean(missing))} if missing else {}),
        "replays": outcome.events["replayed"] / len(outcome.ended),
    }


def _mean(values: Sequence[Values]) -> Values:
    names = dict.fromkeys(name for each in values for name in each)
    return {name: float(np.mean([each[name] for each in values if name in each])) for name in names}


def _models(config: Rehearsal, inputs: Inputs) -> tuple[RehearsedModel, ...]:
    path = Path(config.model).expanduser()
    if inputs.stack is None and is_run(config.model):
        return tuple(
            RehearsedModel(
                each.arm,
                each.seed,
                str(each.folder),
                lambda folder=each.folder: open_trained(folder, device=config.device, dtype=config.dtype).stack,  # type: ignore[misc]
            )
            for each in finished_models(path)
        )

    def opened() -> Stack:
        return inputs.stack or open_model(
            config, model=config.model, dtype=config.dtype, trust_remote_code=config.trust_remote_code
        )

    return (RehearsedModel(Path(config.model).name, 0, location_of(config.model) or config.model, opened),)


def _listed(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last
