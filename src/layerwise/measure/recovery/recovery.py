"""Recovery: damage one layer, fine-tune, and measure how long the loss stays above that of an undamaged control."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from layerwise.measure.stats.correlation import MIN_LAYERS, rank_correlation
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ABLATION, ALL, RECOVERY, SHUFFLED_LAYERS, SKIPPING, UNDAMAGED
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights, make_random_init

Treatment = tuple[Damage, Scope]
"""The kind of damage, and the scope of the fine-tuning that follows."""

_TREATMENTS: dict[str, Treatment] = {f"{pair[0]}/{pair[1]}": pair for pair in product(DAMAGES, SCOPES)}
TREATMENTS = tuple(_TREATMENTS)
_DAMAGE_WORDS = {
    "noise_50": "noise of 50 %",
    "equal_damage": "noise of equal damage",
    "reinitialize": "new random weights",
}
DEFAULT_TREATMENTS = ("noise_50/layer", "equal_damage/layer")

DEFAULT_LAYERS = 12
"""Default number of layers. Intervals of rank correlations are +-0.88 over 6 layers, 0.57 over 12, and 0.38 over 30."""


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
    """Damage `layers` one at a time, fine-tune on half of the documents of `data`, and evaluate on the other half.

    The damage `noise_50` adds N(0, (0.5 std(W))^2) to each tensor W (arXiv 2603.19348). `equal_damage` scales it to
    a given loss increase on the evaluation text. `reinitialize` draws new initial weights (Zhang, Bengio and Singer,
    JMLR 2022, arXiv 1902.01996, section 3). The control is the undamaged model, trained on the same batches.

    Each layer and treatment has these rows, with Student t intervals over seeds. If the mean loss increase is at most
    `recipe.tolerance`, there is only the first row.

        initial_damage   nats/token above the control before fine-tuning
        steps            mean number of steps to recover, where runs that do not recover count with all steps
        area             sum over steps of the nats/token above the control
        censored         fraction of seeds that did not recover, or whose loss became non-finite (Wilson's interval)
        steps_to_original, censored_original   the same relative to the original model, as published

    Rows of `steps` and `area` with `against` = `undamaged` compare the control with the original model.

    Rank correlations with the effect of skipping have intervals over layers, and shuffled layers as a baseline:

        spearman               of the area, over the damaged layers
        spearman_given_damage  partial rank correlation of the area, given the initial damage
        spearman_published     of the area, over all layers; undamaged ones count as recovered immediately
        layers                 number of damaged layers

    Args:
        stack: The model, which is not changed.
        data: The text.
        layers: Layers to damage (default: 12, evenly spaced).
        treatments: Names in `TREATMENTS`.
        seeds: Number of random seeds.
        recipe: Hyperparameters of fine-tuning.
        seed: Seed of all random draws.
        effects: Rows of measure `ablation` to correlate with.
        cache: Known rows of measure `recovery_run`, and callbacks. `log` receives a sentence if `reinitialize` is
            omitted because the initialization is unknown, or `equal_damage` because no noise reaches it.

    Raises:
        MeasureError: If there are fewer than 4 layers, a treatment or layer is unknown, or weights are not finite.
        DataError: If there is only one window.
    """
    layers = _check(stack, layers, treatments, seeds)
    recipe, cache = recipe or RecoveryRecipe(), cache or ResultCache()
    study = _Study(stack, data, recipe, seed, seeds, cache)
    recovered: dict[Treatment, dict[int, list[LossCurveKey]]] = defaultdict(dict)
    undamaged: dict[Treatment, dict[int, list[float]]] = defaultdict(dict)
    runs = list(product(layers, study.draw_initial(layers, [_TREATMENTS[name] for name in treatments])))
    for done, (layer, treatment) in enumerate(runs):
        cache.progress(done / len(runs))
        outcome = study.treat(layer, *treatment)
        if isinstance(outcome, list):
            undamaged[treatment][layer] = outcome
        elif outcome:
            recovered[treatment][layer] = list(outcome)
    cache.progress(1.0)
    rows: list[Score] = []
    for treatment in dict.fromkeys([*recovered, *undamaged]):
        losses = undamaged[treatment]
        layer_rows, means = study.layer_rows(treatment, recovered[treatment], losses)
        if losses:
            cache.log(
                f"Damage by {_describe_treatment(treatment)} costs at most {recipe.tolerance:g} nats/token in "
                f"{_list_layers(losses)}, so there is nothing to recover from. The correlations omit "
                f"{'this layer' if len(losses) == 1 else 'these layers'}."
            )
        immediate = [LayerRecovery(layer, damaged=False) for layer in losses]
        rows += [*layer_rows, *associations(treatment, [*means, *immediate], effects, seed)]
    return rows


def _describe_treatment(treatment: Treatment) -> str:
    damage, scope = treatment
    return f"{_DAMAGE_WORDS.get(damage, damage)} ({scope} trained)"


def _list_layers(layers: Iterable[int]) -> str:
    *others, last = map(str, layers)
    return f"layers {', '.join(others)} and {last}" if others else f"layer {last}"


def evenly_spaced_layers(depth: int, count: int) -> tuple[int, ...]:
    """Select at most `count` evenly spaced layers out of `depth`, including the first and the last.

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

    def layer_rows(
        self,
        treatment: Treatment,
        recovered: Mapping[int, Sequence[LossCurveKey]],
        undamaged: Mapping[int, Sequence[float]],
    ) -> tuple[list[Score], list[LayerRecovery]]:
        evaluated = self.tuning.evaluation.documents, self.tuning.evaluation.tokens
        about: dict[str, Any] = dict(zip(("condition", "variant"), treatment, strict=True))
        rows: list[Score] = []
        means: list[LayerRecovery] = []
        for layer, keys in recovered.items():
            pairs = [(self.known[key], self.known[control_key(layer, treatment[1], key.seed)]) for key in keys]
            times = [recovery_time(curve, control, self.recipe.tolerance) for curve, control in pairs]
            controls = [recovery_time(control, flat_curve(control), self.recipe.tolerance) for _, control in pairs]
            published = [recovery_time(curve, flat_curve(control), 0.0) for curve, control in pairs]
            rows += recovery_rows({"layer": layer, **about}, times, controls, published, self.recipe.steps, *evaluated)
            means.append(
                LayerRecovery(layer, _mean(each.initial_damage for each in times), _mean(each.area for each in times))
            )
        for layer, losses in undamaged.items():
            columns = {"documents": evaluated[0], "tokens": evaluated[1], "layer": layer, **about}
            mean = mean_over_seeds(losses)
            assert mean is not None, "there is one loss per seed"
            rows.append(Score(RECOVERY, "initial_damage", *mean, **columns))
        return rows, means

    def draw_initial(self, layers: Sequence[int], treatments: Sequence[Treatment]) -> Sequence[Treatment]:
        """Draw new initial weights if a treatment needs them, and return the treatments that are possible."""
        if not any(damage == "reinitialize" for damage, _ in treatments):
            return treatments
        try:
            for number in range(self.seeds):
                untrained = make_random_init(self.stack, self.seed * self.seeds + number)
                for layer in layers:
                    self.initial[layer, number] = layer_weights(untrained, layer)
        except UnsupportedModelError as error:
            self.cache.log(f"recovery omits the damage reinitialize: {error}")
            return [(damage, scope) for damage, scope in treatments if damage != "reinitialize"]
        return treatments

    def treat(self, layer: int, damage: Damage, scope: Scope) -> tuple[LossCurveKey, ...] | list[float]:
        """Damage a layer, fine-tune it with every seed, and return the keys of these runs.

        If the damage is within the tolerance, return the loss increase of every seed instead.
        """
        for number in range(self.seeds):
            self._tune(control_key(layer, scope, number), layer, scope, {})
        original = self.known[control_key(layer, scope, 0)].nll[0]
        keys = [LossCurveKey(layer, damage, scope, number) for number in range(self.seeds)]
        drawn = {key: self._damage(key, layer, original) for key in keys if key not in self.known}
        weights = {key: damaged for key, damaged in drawn.items() if damaged is not None}
        if damage != "equal_damage" and len(weights) == len(keys):
            losses = [self.tuning.loss(layer, damaged) - original for damaged in weights.values()]
            if all(map(math.isfinite, losses)) and float(np.mean(losses)) <= self.recipe.tolerance:
                return losses
        for key, damaged in weights.items():
            self._tune(key, layer, scope, damaged)
        return tuple(key for key in keys if key in self.known)

    def _tune(self, key: LossCurveKey, layer: int, scope: Scope, weights: dict[str, Tensor]) -> None:
        if key in self.known:
            return
        curve = self.tuning.trajectory(layer, scope, weights, (self.seed, key.seed))
        if not curve.nll and key.damage == UNDAMAGED:
            raise MeasureError(
                "The loss of the original model on the evaluation text must be finite, got NaN or infinity. Check the "
                "checkpoint."
            )
        self.cache.sink(curve_rows(key, curve))
        self.known[key] = curve

    def _damage(self, key: LossCurveKey, layer: int, original: float) -> dict[str, Tensor] | None:
        if key.damage == "reinitialize":
            return self.initial[layer, key.seed]
        weights = layer_weights(self.stack, layer)
        try:
            direction = noise_direction(weights, (self.seed, layer, key.seed))
        except MeasureError as error:
            raise MeasureError(f"layer {layer}: {error}") from error
        if key.damage == "noise_50":
            return add_noise(weights, direction, PUBLISHED_SCALE)
        scale = find_equal_scale(
            lambda scale: self.tuning.loss(layer, add_noise(weights, direction, scale)) - original,
            self.recipe.equal_damage,
            self.recipe.equal_tolerance,
        )
        if scale is None:
            self.cache.log(
                f"recovery omits equal_damage of layer {layer}, because no noise costs "
                f"{self.recipe.equal_damage:g} nats/token (seed {key.seed})"
            )
            return None
        return add_noise(weights, direction, scale)


def control_key(layer: int, scope: Scope, seed: int) -> LossCurveKey:
    return LossCurveKey(None if scope == "model" else layer, UNDAMAGED, scope, seed)


def _mean(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def _check(stack: Stack, layers: Sequence[int] | None, treatments: Sequence[str], seeds: int) -> tuple[int, ...]:
    if stack.depth < MIN_LAYERS:
        raise MeasureError(f"recovery needs a model with at least {MIN_LAYERS} layers, got {stack.depth}.")
    if seeds < 1:
        raise MeasureError(f"seeds must be at least 1, got {seeds}. Use 3 or more for intervals.")
    for treatment in treatments:
        if treatment not in TREATMENTS:
            raise MeasureError(f"Unknown treatment {treatment!r}: {near_matches(treatment, TREATMENTS)}.")
    selected = evenly_spaced_layers(stack.depth, DEFAULT_LAYERS) if layers is None else tuple(sorted(set(layers)))
    for layer in selected:
        if not 0 <= layer < stack.depth:
            raise MeasureError(f"layers must be between 0 and {stack.depth - 1}, got {layer}.")
    return selected


SHUFFLES = 2_000
METRICS = ("spearman", "spearman_given_damage", "spearman_published")


@dataclass(frozen=True, slots=True)
class LayerRecovery:
    """The recovery of one layer.

    `damage` is the loss increase before fine-tuning, and `area` the sum over steps of the loss above the control.
    `damaged` is true if the damage exceeds the tolerance.
    """

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
    """Yield the rank correlations of recovery with the effect of skipping, as described in `recovery`."""
    skips = Rows(effects).where(measure=ABLATION, task=ALL, metric=SKIPPING, layer=PRESENT, part=None, against=None)
    skipped = {row.layer: row.value for row in skips}
    shared = [each for each in layers if each.layer in skipped]
    damaged = [each for each in shared if each.damaged]
    if not shared:
        return
    damage, scope = treatment
    columns: dict[str, Any] = {"condition": damage, "variant": scope}
    yield Score(RECOVERY, "layers", float(len(damaged)), **columns)
    for metric in METRICS:
        candidates = shared if metric == "spearman_published" else damaged
        finite = [each for each in candidates if each.area is not None and each.damage is not None]
        correlation = rank_correlation(
            np.array([each.area for each in finite], dtype=np.float64),
            [skipped[each.layer] for each in finite],
            given=np.array([each.damage for each in finite]) if metric == "spearman_given_damage" else None,
            seed=(seed, zlib.crc32(f"{damage}/{scope} {metric}".encode())),
            shuffles=shuffles,
        )
        if correlation is not None:
            bounds = correlation.low, correlation.high
            yield Score(RECOVERY, metric, correlation.value, *bounds, correlation.p, **columns)
            band = correlation.null_low, correlation.null_high
            yield Score(RECOVERY, metric, 0.0, *band, **columns, against=SHUFFLED_LAYERS)
