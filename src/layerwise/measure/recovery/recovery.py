"""Recovery: damage one layer, fine-tune, and measure how long the loss stays above that of an undamaged twin.

Rows of measure `recovery`, by layer, damage (condition) and trained part (arm), Student's 95 % intervals over seeds:

    initial_damage   nats/token above the twin before the first step (the only row at or below the tolerance)
    steps, area      restricted mean of the steps to recover, and nat-steps above the twin, both up to the cap
    censored         share of seeds that did not recover (Wilson), or whose loss became non-finite
    steps_to_untouched, censored_untouched   the same relative to the original model, as published
    steps, area      against `twin`: the twin relative to the original model; `equal_damage` is tuned on the test text
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from layerwise.errors import MeasureError, UnsupportedModel, near_matches
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.recovery.associations import Recovered, associations
from layerwise.measure.recovery.damage import DAMAGES, PUBLISHED_SCALE, Damage, displaced, equal_scale, noise_direction
from layerwise.measure.recovery.finetuning import SCOPES, RecoveryRecipe, RecoveryTraining, Scope
from layerwise.measure.recovery.loss_curve import (
    LossCurve,
    LossCurveKey,
    RecoveryTime,
    as_rows,
    from_rows,
    mean_over_seeds,
    recovery_rows,
    recovery_time,
    untouched,
)
from layerwise.measure.stats.ranks import FEWEST_LAYERS
from layerwise.results.rows import Score
from layerwise.results.vocabulary import RECOVERY, TWIN
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights, random_twin

TREATMENTS = tuple(f"{damage}/{scope}" for damage in DAMAGES for scope in SCOPES)
"""Every damage with every scope of the fine-tuning after it."""

Treatment = tuple[str, str]
"""A damage, and what is trained after it: the condition and the arm of the rows."""

DEFAULT_TREATMENTS = ("noise_50/layer", "equal_damage/layer")

DEFAULT_LAYERS = 12
"""Layers by default, evenly spaced; a rank correlation over 6 is known to +-0.88, over 12 to +-0.57, 30 to +-0.38."""


@dataclass(frozen=True)
class RecoveryCache:
    """Earlier results and callbacks that make a long measurement resumable.

    `known` are rows of measure `recovery_run` from a call with the same arguments; complete runs are not recomputed.
    `sink` receives the rows of each run, `progress` the share done, `log` a sentence about what was skipped.
    """

    known: tuple[Score, ...] = ()
    sink: Callable[[Sequence[Score]], None] = lambda rows: None
    progress: Callable[[float], None] = lambda share: None
    log: Callable[[str], None] = lambda text: None


def recovery(
    stack: Stack,
    data: EvalData,
    *,
    layers: Sequence[int] | None = None,
    treatments: Sequence[str] = DEFAULT_TREATMENTS,
    seeds: int = 3,
    recipe: RecoveryRecipe | None = None,
    seed: int = 0,
    effects: Sequence[Score] = (),
    cache: RecoveryCache | None = None,
) -> list[Score]:
    """Damage `layers` one at a time, fine-tune on half of the documents of `data`, evaluate on the other half.

    `treatments` are of `TREATMENTS`; `effects` are rows of `ablation` to correlate with (metric `skip`, task `all`).
    The model itself is not changed. `reinitialise` is skipped, with a call of `cache.log`, if the initialization is
    unknown; so is `equal_damage` in a layer whose target no noise reaches.

    Raises `MeasureError` for fewer than 4 layers, unknown names and weights that are not finite, `DataError` for fewer
    than 2 documents.
    """
    chosen = _checked(stack, layers, treatments, seeds)
    recipe = recipe or RecoveryRecipe()
    cache = cache or RecoveryCache()
    study = _Study(stack, data, recipe, seed, seeds, cache)
    runs = study.runs(chosen, treatments)
    times = _recovery_times(runs, recipe.tolerance)
    rows: list[Score] = []
    for treatment in dict.fromkeys([*times, *(treatment for treatment, _ in study.spared)]):
        by_layer = times.get(treatment, {})
        spared = {layer: damage for (of, layer), damage in study.spared.items() if of == treatment}
        about: dict[str, Any] = dict(zip(("condition", "arm"), treatment, strict=True))
        for layer, (damaged, twins, published) in by_layer.items():
            columns = {"layer": layer, **about}
            rows += recovery_rows(columns, damaged, twins, published, recipe.steps, *study.evaluated)
        for layer, damage in spared.items():
            mean = mean_over_seeds(damage)
            assert mean is not None, "every seed of a layer that was spared was damaged"
            documents, tokens = study.evaluated
            row = Score(RECOVERY, "initial_damage", *mean, documents=documents, tokens=tokens, layer=layer, **about)
            rows.append(row)
        if spared:
            cache.log(_left_out("/".join(treatment), spared, recipe.tolerance))
        recovered = [_recovered(layer, damaged) for layer, (damaged, *_) in by_layer.items()]
        rows += associations(treatment, [*recovered, *map(Recovered.at_once, spared)], effects, seed)
    return rows


def evenly_spaced_layers(depth: int, count: int) -> tuple[int, ...]:
    """At most `count` of the layers 0 to depth - 1, evenly spaced, the first and the last among them.

    >>> evenly_spaced_layers(30, 4)
    (0, 10, 19, 29)
    """
    return tuple(int(layer) for layer in np.unique(np.linspace(0, depth - 1, min(count, depth)).round()))


@dataclass
class _Study:
    stack: Stack
    data: EvalData
    recipe: RecoveryRecipe
    seed: int
    seeds: int
    cache: RecoveryCache
    known: dict[LossCurveKey, LossCurve] = field(init=False)
    initial: dict[tuple[int, int], dict[str, Tensor]] = field(default_factory=dict)
    spared: dict[tuple[Treatment, int], list[float]] = field(default_factory=dict)
    """By treatment and layer, the damage of each seed where it is too small to recover from."""
    tuning: RecoveryTraining = field(init=False)

    def __post_init__(self) -> None:
        self.known = from_rows(self.cache.known, self.recipe.evaluations)
        self.tuning = RecoveryTraining(self.stack, self.data, self.recipe, self.seed)

    @property
    def evaluated(self) -> tuple[int, int]:
        return self.tuning.evaluation.documents, self.tuning.evaluation.tokens

    def runs(self, layers: Sequence[int], treatments: Sequence[str]) -> dict[LossCurveKey, LossCurve]:
        curves: dict[LossCurveKey, LossCurve] = {}
        units = list(product(layers, self._possible(treatments, layers)))
        for done, (layer, treatment) in enumerate(units):
            self.cache.progress(done / len(units))
            damage, scope = _parts(treatment)
            twins = [_twin_of(layer, scope, number) for number in range(self.seeds)]
            for twin_run in twins:
                if twin_run not in curves:
                    curves[twin_run] = self._run(twin_run, layer, scope, {})
            curves |= self._damaged(layer, damage, scope, curves[twins[0]].nll[0])
        self.cache.progress(1.0)
        return curves

    def _damaged(self, layer: int, damage: Damage, scope: Scope, untouched: float) -> dict[LossCurveKey, LossCurve]:
        runs = [LossCurveKey(layer, damage, scope, number) for number in range(self.seeds)]
        if all(run in self.known for run in runs):
            return {run: self.known[run] for run in runs}
        weights = {run: self._weights(layer, damage, run.seed, untouched) for run in runs if run not in self.known}
        there = {run: own for run, own in weights.items() if own is not None}
        if damage != "equal_damage" and len(there) == len(runs):
            losses = [self.tuning.loss(layer, own) - untouched for own in there.values()]
            if all(map(math.isfinite, losses)) and float(np.mean(losses)) <= self.recipe.tolerance:
                self.spared[(damage, scope), layer] = losses
                return {}
        known = {run: self.known[run] for run in runs if run in self.known}
        return known | {run: self._run(run, layer, scope, own) for run, own in there.items()}

    def _run(self, run: LossCurveKey, layer: int, scope: Scope, weights: Mapping[str, Tensor]) -> LossCurve:
        if run in self.known:
            return self.known[run]
        trajectory = self.tuning.trajectory(layer, scope, weights, (self.seed, run.seed))
        if not trajectory.nll and run.damage == TWIN:
            raise MeasureError(
                "the model itself gives a loss that is not finite on the evaluation text, before anything is done to "
                "it; check the checkpoint"
            )
        self.cache.sink(as_rows(run, trajectory))
        return trajectory

    def _weights(self, layer: int, damage: Damage, number: int, untouched: float) -> dict[str, Tensor] | None:
        if damage == "reinitialise":
            return self.initial[layer, number]
        weights = layer_weights(self.stack, layer)
        try:
            direction = noise_direction(weights, (self.seed, layer, number))
        except MeasureError as error:
            raise MeasureError(f"layer {layer}: {error}") from error
        if damage == "noise_50":
            return displaced(weights, direction, PUBLISHED_SCALE)
        scale = equal_scale(
            lambda scale: self.tuning.loss(layer, displaced(weights, direction, scale)) - untouched,
            self.recipe.equal_damage,
            self.recipe.equal_tolerance,
        )
        if scale is None:
            self.cache.log(
                f"recovery: no noise in layer {layer} costs {self.recipe.equal_damage:g} nats a token (seed {number}), "
                "so it has no run of equal damage there"
            )
            return None
        return displaced(weights, direction, scale)

    def _possible(self, treatments: Sequence[str], layers: Sequence[int]) -> Sequence[str]:
        if not any(_parts(treatment)[0] == "reinitialise" for treatment in treatments):
            return treatments
        try:
            for number in range(self.seeds):
                fresh = random_twin(self.stack, self.seed * self.seeds + number)
                for layer in layers:
                    self.initial[layer, number] = layer_weights(fresh, layer)
        except UnsupportedModel as error:
            self.cache.log(f"recovery: reinitialise is left out: {error}")
            return [treatment for treatment in treatments if _parts(treatment)[0] != "reinitialise"]
        return treatments


def _parts(treatment: str) -> tuple[Damage, Scope]:
    return next((damage, scope) for damage in DAMAGES for scope in SCOPES if f"{damage}/{scope}" == treatment)


def _twin_of(layer: int, scope: Scope, seed: int) -> LossCurveKey:
    return LossCurveKey(None if scope == "model" else layer, TWIN, scope, seed)


RecoveryTimes = dict[Treatment, dict[int, tuple[list[RecoveryTime], list[RecoveryTime], list[RecoveryTime]]]]


def _recovery_times(runs: Mapping[LossCurveKey, LossCurve], tolerance: float) -> RecoveryTimes:
    times: RecoveryTimes = {}
    for run, trajectory in runs.items():
        if run.damage == TWIN or run.layer is None:
            continue
        own, whole = (LossCurveKey(layer, TWIN, run.scope, run.seed) for layer in (run.layer, None))
        beside = runs.get(own) or runs[whole]
        damaged, twins, published = times.setdefault((run.damage, run.scope), {}).setdefault(run.layer, ([], [], []))
        damaged.append(recovery_time(trajectory, beside, tolerance))
        twins.append(recovery_time(beside, untouched(beside), tolerance))
        published.append(recovery_time(trajectory, untouched(beside), 0.0))
    return times


def _recovered(layer: int, times: Sequence[RecoveryTime]) -> Recovered:
    return Recovered(
        layer,
        damage=_mean(each.initial_damage for each in times),
        area=_mean(each.area for each in times),
    )


def _left_out(task: str, spared: Iterable[int], tolerance: float) -> str:
    layers = ", ".join(map(str, sorted(spared)))
    return (
        f"{task} costs no more than {tolerance:g} nats a token in layers {layers}: they have nothing to recover from, "
        "and are left out of the correlations"
    )


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def _checked(stack: Stack, layers: Sequence[int] | None, treatments: Sequence[str], seeds: int) -> tuple[int, ...]:
    if stack.depth < FEWEST_LAYERS:
        raise MeasureError(f"recovery needs at least {FEWEST_LAYERS} layers; this model has {stack.depth}")
    if seeds < 1:
        raise MeasureError(f"recovery with {seeds} seeds has no runs: use 3 or more, so that intervals mean something")
    for treatment in treatments:
        if treatment not in TREATMENTS:
            raise MeasureError(f"unknown treatment {treatment!r}; {near_matches(treatment, TREATMENTS)}")
    chosen = evenly_spaced_layers(stack.depth, DEFAULT_LAYERS) if layers is None else tuple(sorted(set(layers)))
    for layer in chosen:
        if not 0 <= layer < stack.depth:
            raise MeasureError(f"there is no layer {layer} to damage: this model has layers 0 to {stack.depth - 1}")
    return chosen
