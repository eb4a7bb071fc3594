"""Recovery: damage one layer, fine-tune, and measure how long the loss stays above that of an undamaged twin.

Rows of measure `recovery`, by layer, damage (condition) and trained part (arm), Student's 95 % intervals over seeds:

    initial_damage   nats/token above the twin before the first step (the only row at or below the tolerance)
    steps, area      restricted mean of the steps to recover, and nat-steps above the twin, both up to the cap
    censored         share of seeds that did not recover (Wilson), or whose loss became non-finite
    steps_to_untouched, censored_untouched   the same relative to the original model, as published
    steps, area      against `twin`: the twin relative to the original model; `equal_damage` is tuned on the test text

Rank correlations of recovery with the effect of skipping, with the null of shuffled layers and intervals over layers:

    spearman               by area, over the damaged layers
    spearman_given_damage  the partial rank correlation, with the initial damage held fixed
    spearman_published     by area, over all layers, those without damage counted as recovered at once
    layers                 the number of damaged layers
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from layerwise.errors import MeasureError, UnsupportedModelError, near_matches
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.recovery.finetuning import (
    DAMAGES,
    PUBLISHED_SCALE,
    SCOPES,
    Damage,
    RecoveryRecipe,
    RecoveryTraining,
    Scope,
    add_noise,
    find_equal_scale,
    noise_direction,
)
from layerwise.measure.recovery.loss_curve import (
    LossCurve,
    LossCurveKey,
    curve_rows,
    flat_curve,
    mean_over_seeds,
    read_curves,
    recovery_rows,
    recovery_time,
)
from layerwise.measure.stats.ranks import MIN_LAYERS, rank_correlation
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ABLATION, ALL, RECOVERY, SHUFFLED_LAYERS, SKIPPING, TWIN
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights, random_twin

Treatment = tuple[Damage, Scope]
"""A damage, and what is trained after it: the condition and the arm of the rows."""

_TREATMENTS: dict[str, Treatment] = {f"{pair[0]}/{pair[1]}": pair for pair in product(DAMAGES, SCOPES)}
TREATMENTS = tuple(_TREATMENTS)
"""Every damage with every scope of the fine-tuning after it."""

DEFAULT_TREATMENTS = ("noise_50/layer", "equal_damage/layer")

DEFAULT_LAYERS = 12
"""Layers by default, evenly spaced; a rank correlation over 6 is known to +-0.88, over 12 to +-0.57, 30 to +-0.38."""


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
    cache: ResultCache[Score] | None = None,
) -> list[Score]:
    """Damage `layers` one at a time, fine-tune on half of the documents of `data`, evaluate on the other half.

    `treatments` are of `TREATMENTS`; `effects` are rows of `ablation` to correlate with (metric `skip`, task `all`).
    The model itself is not changed. `reinitialise` is skipped, with a call of `cache.log`, if the initialization is
    unknown; so is `equal_damage` in a layer whose target no noise reaches. The rows that `cache` keeps are those of
    measure `recovery_run`.

    Raises `MeasureError` for fewer than 4 layers, unknown names and weights that are not finite, `DataError` for fewer
    than 2 documents.
    """
    chosen = _check(stack, layers, treatments, seeds)
    recipe, cache = recipe or RecoveryRecipe(), cache or ResultCache()
    study = _Study(stack, data, recipe, seed, seeds, cache)
    recovered: dict[Treatment, dict[int, list[LossCurveKey]]] = defaultdict(dict)
    spared: dict[Treatment, dict[int, list[float]]] = defaultdict(dict)
    units = list(product(chosen, study.draw_initial(chosen, [_TREATMENTS[name] for name in treatments])))
    for done, (layer, treatment) in enumerate(units):
        cache.progress(done / len(units))
        outcome = study.treat(layer, *treatment)
        if isinstance(outcome, list):
            spared[treatment][layer] = outcome
        elif outcome:
            recovered[treatment][layer] = list(outcome)
    cache.progress(1.0)
    evaluated = study.tuning.evaluation.documents, study.tuning.evaluation.tokens
    rows: list[Score] = []
    for treatment in dict.fromkeys([*recovered, *spared]):
        about: dict[str, Any] = dict(zip(("condition", "arm"), treatment, strict=True))
        means: list[LayerRecovery] = []
        for layer, keys in recovered[treatment].items():
            pairs = [(study.known[key], study.known[twin_key(layer, treatment[1], key.seed)]) for key in keys]
            times = [recovery_time(curve, twin, recipe.tolerance) for curve, twin in pairs]
            twins = [recovery_time(twin, flat_curve(twin), recipe.tolerance) for _, twin in pairs]
            published = [recovery_time(curve, flat_curve(twin), 0.0) for curve, twin in pairs]
            rows += recovery_rows({"layer": layer, **about}, times, twins, published, recipe.steps, *evaluated)
            means.append(
                LayerRecovery(layer, _mean(each.initial_damage for each in times), _mean(each.area for each in times))
            )
        for layer, losses in spared[treatment].items():
            columns = {"documents": evaluated[0], "tokens": evaluated[1], "layer": layer, **about}
            mean = mean_over_seeds(losses)
            assert mean is not None, "every seed of a layer that was spared was damaged"
            rows.append(Score(RECOVERY, "initial_damage", *mean, **columns))
        if spared[treatment]:
            names = ", ".join(map(str, spared[treatment]))
            cache.log(
                f"{'/'.join(treatment)} costs no more than {recipe.tolerance:g} nats a token in layers {names}: they "
                "have nothing to recover from, and are left out of the correlations"
            )
        at_once = [LayerRecovery(layer, damaged=False) for layer in spared[treatment]]
        rows += associations(treatment, [*means, *at_once], effects, seed)
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
    cache: ResultCache[Score]
    known: dict[LossCurveKey, LossCurve] = field(init=False)
    tuning: RecoveryTraining = field(init=False)
    initial: dict[tuple[int, int], dict[str, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = read_curves(self.cache.known, self.recipe.evaluations)
        self.tuning = RecoveryTraining(self.stack, self.data, self.recipe, self.seed)

    def draw_initial(self, layers: Sequence[int], treatments: Sequence[Treatment]) -> Sequence[Treatment]:
        """Draw initial weights if a treatment takes them; return the treatments that are possible."""
        if not any(damage == "reinitialise" for damage, _ in treatments):
            return treatments
        try:
            for number in range(self.seeds):
                fresh = random_twin(self.stack, self.seed * self.seeds + number)
                for layer in layers:
                    self.initial[layer, number] = layer_weights(fresh, layer)
        except UnsupportedModelError as error:
            self.cache.log(f"recovery: reinitialise is left out: {error}")
            return [(damage, scope) for damage, scope in treatments if damage != "reinitialise"]
        return treatments

    def treat(self, layer: int, damage: Damage, scope: Scope) -> tuple[LossCurveKey, ...] | list[float]:
        """Damage a layer with every seed, and fine-tune; return the runs.

        If the damage is too small to recover from, return that of every seed.
        """
        for number in range(self.seeds):
            self._tune(twin_key(layer, scope, number), layer, scope, {})
        whole = self.known[twin_key(layer, scope, 0)].nll[0]
        keys = [LossCurveKey(layer, damage, scope, number) for number in range(self.seeds)]
        drawn = {key: self._damage(key, layer, whole) for key in keys if key not in self.known}
        weights = {key: own for key, own in drawn.items() if own is not None}
        if damage != "equal_damage" and len(weights) == len(keys):
            losses = [self.tuning.loss(layer, own) - whole for own in weights.values()]
            if all(map(math.isfinite, losses)) and float(np.mean(losses)) <= self.recipe.tolerance:
                return losses
        for key, own in weights.items():
            self._tune(key, layer, scope, own)
        return tuple(key for key in keys if key in self.known)

    def _tune(self, key: LossCurveKey, layer: int, scope: Scope, weights: dict[str, Tensor]) -> None:
        if key in self.known:
            return
        curve = self.tuning.trajectory(layer, scope, weights, (self.seed, key.seed))
        if not curve.nll and key.damage == TWIN:
            raise MeasureError(
                "the model itself gives a loss that is not finite on the evaluation text, before anything is done to "
                "it; check the checkpoint"
            )
        self.cache.sink(curve_rows(key, curve))
        self.known[key] = curve

    def _damage(self, key: LossCurveKey, layer: int, whole: float) -> dict[str, Tensor] | None:
        if key.damage == "reinitialise":
            return self.initial[layer, key.seed]
        weights = layer_weights(self.stack, layer)
        try:
            direction = noise_direction(weights, (self.seed, layer, key.seed))
        except MeasureError as error:
            raise MeasureError(f"layer {layer}: {error}") from error
        if key.damage == "noise_50":
            return add_noise(weights, direction, PUBLISHED_SCALE)
        scale = find_equal_scale(
            lambda scale: self.tuning.loss(layer, add_noise(weights, direction, scale)) - whole,
            self.recipe.equal_damage,
            self.recipe.equal_tolerance,
        )
        if scale is None:
            self.cache.log(
                f"recovery: no noise in layer {layer} costs {self.recipe.equal_damage:g} nats a token (seed "
                f"{key.seed}), so it has no run of equal damage there"
            )
            return None
        return add_noise(weights, direction, scale)


def twin_key(layer: int, scope: Scope, seed: int) -> LossCurveKey:
    return LossCurveKey(None if scope == "model" else layer, TWIN, scope, seed)


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def _check(stack: Stack, layers: Sequence[int] | None, treatments: Sequence[str], seeds: int) -> tuple[int, ...]:
    if stack.depth < MIN_LAYERS:
        raise MeasureError(f"recovery needs at least {MIN_LAYERS} layers; this model has {stack.depth}")
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


SHUFFLES = 2_000
METRICS = ("spearman", "spearman_given_damage", "spearman_published")


@dataclass(frozen=True, slots=True)
class LayerRecovery:
    """The recovery of one layer: initial damage and area above the twin; `damaged` is false below the tolerance."""

    layer: int
    damage: float | None = 0.0
    area: float | None = 0.0
    damaged: bool = True


def associations(
    treatment: tuple[str, str],
    layers: Sequence[LayerRecovery],
    effects: Iterable[Score],
    seed: int,
    *,
    shuffles: int = SHUFFLES,
) -> Iterator[Score]:
    skips = Rows(effects).where(measure=ABLATION, task=ALL, metric=SKIPPING, layer=PRESENT, part=None, against=None)
    skipped = {row.layer: row.value for row in skips}
    shared = [each for each in layers if each.layer in skipped]
    damaged = [each for each in shared if each.damaged]
    if not shared:
        return
    damage, scope = treatment
    of: dict[str, Any] = {"condition": damage, "arm": scope}
    yield Score(RECOVERY, "layers", float(len(damaged)), **of)
    for metric in METRICS:
        chosen = shared if metric == "spearman_published" else damaged
        known = [each for each in chosen if each.area is not None and each.damage is not None]
        correlation = rank_correlation(
            np.array([each.area for each in known], dtype=np.float64),
            [skipped[each.layer] for each in known],
            given=np.array([each.damage for each in known]) if metric == "spearman_given_damage" else None,
            seed=(seed, zlib.crc32(f"{damage}/{scope} {metric}".encode())),
            shuffles=shuffles,
        )
        if correlation is not None:
            yield Score(RECOVERY, metric, correlation.value, correlation.low, correlation.high, correlation.p, **of)
            band = correlation.null_low, correlation.null_high
            yield Score(RECOVERY, metric, 0.0, *band, **of, against=SHUFFLED_LAYERS)
