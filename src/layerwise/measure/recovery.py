"""Recovery: damage one layer, fine-tune, and see how long the loss stays above that of an undamaged twin.

The founding experiment adds 50 % noise to a layer and counts steps back to the old perplexity. Three things make such
a count say little, and each has its control here: an important layer starts further away (`equal_damage`, and
correlations given the initial damage); any fine-tuning on text like that of the test lowers the loss (the *twin*, an
undamaged model trained on the same batches, and recovery and evaluation text that share no document); and a cap on the
steps hides who never came back (censoring is counted, and the area under the curve needs no first hit).

Rows of measure `recovery`, for each layer as subject and `<damage>/<scope>` as task, over seeds of noise and batches:

    initial_damage  nats a token above the twin before the first step
    steps           restricted mean of the steps to recover; never more than the cap
    area            nat-steps above the twin, up to the cap
    censored        share of seeds that had not recovered at the cap, with Wilson's interval
    steps@twin      the same of the twin against the model before any step: what fine-tuning alone does
    area@twin       (negative where the recovery text teaches the model something)

and, with effects of ablation, subject `ablation`: `spearman` (area against the effect of skipping the layer, over
layers), `spearman_given_damage` (the same with the initial damage held fixed: the partial rank correlation), both again
as `spearman_steps...`, each with the band `@shuffled_layers` that the effects of shuffled layers would give.

Intervals are Student's, at 95 %, over seeds. A seed whose loss became non-finite is censored and has no area.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from torch import Tensor

from layerwise.errors import MeasureError, UnsupportedModel, near_matches
from layerwise.measure.association import association
from layerwise.measure.damage import DAMAGES, PUBLISHED_SCALE, Damage, displaced, equal_scale, noise_direction
from layerwise.measure.depth import FEWEST_LAYERS
from layerwise.measure.finetuning import SCOPES, FineTuning, RecoveryRecipe, Scope
from layerwise.measure.reading import Reading
from layerwise.measure.survival import MEASURE, Course, course, course_rows, own_course
from layerwise.measure.trajectory import Run, Trajectory, as_rows, from_rows
from layerwise.results.rows import Score
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights, twin

ABLATION = "ablation"

TREATMENTS = tuple(f"{damage}/{scope}" for damage in DAMAGES for scope in SCOPES)
"""Every damage with every scope of the fine-tuning after it: the tasks of the rows."""

DEFAULT_TREATMENTS = tuple(f"{damage}/layer" for damage in DAMAGES)
"""Training the whole model costs several times a layer, and answers less: the other layers help out."""

DEFAULT_LAYERS = 6
"""Layers that are studied unless others are named: spread evenly, the first and the last among them. With fewer, no
correlation with the initial damage held fixed could be told from chance."""


@dataclass(frozen=True)
class RecoveryLedger:
    """What is known already and where news goes: it makes a measurement of minutes resumable and watched.

    `known` are rows of measure `recovery_run` from an earlier call with the same arguments; runs that are complete in
    them are not computed again. `sink` receives the rows of one run as soon as it ends, `progress` the share that is
    done, `say` a sentence about what had to be left out.
    """

    known: tuple[Score, ...] = ()
    sink: Callable[[Sequence[Score]], None] = lambda rows: None
    progress: Callable[[float], None] = lambda share: None
    say: Callable[[str], None] = lambda text: None


def recovery(
    stack: Stack,
    reading: Reading,
    *,
    layers: Sequence[int] | None = None,
    treatments: Sequence[str] = DEFAULT_TREATMENTS,
    seeds: int = 3,
    recipe: RecoveryRecipe | None = None,
    seed: int = 0,
    effects: Sequence[Score] = (),
    ledger: RecoveryLedger | None = None,
) -> list[Score]:
    """Damage `layers` one at a time, fine-tune on half of the documents of `reading`, evaluate on the other half.

    `treatments` are of `TREATMENTS`, a damage and what is trained after it. `effects` are rows of `ablation` to
    correlate with (metric `skip`, task `all`). The module says which rows come back; they depend on the model, the
    text, the recipe and `seed` alone. The model is not touched: all training happens in a float32 copy. `reinitialise`
    is left out, and `ledger.say` told, where nobody wrote down how the model is initialised; so is `equal_damage` in a
    layer that no noise brings near the target.

    Raises `MeasureError` for fewer than 4 layers, unknown names and weights that are not finite, `DataError` for fewer
    than 2 documents.
    """
    chosen = _checked(stack, layers, treatments, seeds)
    recipe = recipe or RecoveryRecipe()
    study = _Study(stack, reading, recipe, seed, seeds, ledger or RecoveryLedger())
    rows: list[Score] = []
    for task, courses in _courses(study.runs(chosen, treatments), recipe.tolerance).items():
        for layer, (damaged, twins) in courses.items():
            rows += course_rows(str(layer), task, damaged, twins, recipe.steps, *study.evaluated)
        rows += _associations(task, {layer: damaged for layer, (damaged, _) in courses.items()}, effects, seed)
    return rows


def spread(depth: int, count: int) -> tuple[int, ...]:
    """At most `count` of the layers 0 to depth - 1, evenly spaced, the first and the last among them.

    >>> spread(30, 4)
    (0, 10, 19, 29)
    """
    return tuple(int(layer) for layer in np.unique(np.linspace(0, depth - 1, min(count, depth)).round()))


@dataclass
class _Study:
    """The runs of one call: which there are, what each starts from, and those that are known."""

    stack: Stack
    reading: Reading
    recipe: RecoveryRecipe
    seed: int
    seeds: int
    ledger: RecoveryLedger
    known: dict[Run, Trajectory] = field(init=False)
    initial: dict[tuple[int, int], dict[str, Tensor]] = field(default_factory=dict)
    scales: dict[tuple[int, int], float | None] = field(default_factory=dict)
    tuning: FineTuning = field(init=False)

    def __post_init__(self) -> None:
        self.known = from_rows(self.ledger.known, self.recipe.evaluations)
        self.tuning = FineTuning(self.stack, self.reading, self.recipe, self.seed)

    @property
    def evaluated(self) -> tuple[int, int]:
        """The documents and the scored tokens that every loss is a mean over."""
        return self.tuning.evaluation.documents, self.tuning.evaluation.tokens

    def runs(self, layers: Sequence[int], treatments: Sequence[str]) -> dict[Run, Trajectory]:
        """Every run, known or new, by layer, treatment and seed; a twin comes before those it is compared with."""
        found: dict[Run, Trajectory] = {}
        units = list(product(layers, self._possible(treatments, layers), range(self.seeds)))
        for done, (layer, treatment, number) in enumerate(units):
            self.ledger.progress(done / len(units))
            damage, scope = _parts(treatment)
            undamaged = _twin_of(layer, scope, number)
            if undamaged not in found:
                found[undamaged] = self._run(undamaged, layer, scope, {})
            run = Run(str(layer), treatment, number)
            trajectory = self._damaged(run, layer, scope, damage)
            if trajectory is not None:
                found[run] = trajectory
        self.ledger.progress(1.0)
        return found

    def _damaged(self, run: Run, layer: int, scope: Scope, damage: Damage) -> Trajectory | None:
        if run in self.known:
            return self.known[run]
        weights = self._weights(layer, damage, run.seed)
        return None if weights is None else self._run(run, layer, scope, weights)

    def _run(self, run: Run, layer: int, scope: Scope, weights: Mapping[str, Tensor]) -> Trajectory:
        if run in self.known:
            return self.known[run]
        trajectory = self.tuning.trajectory(layer, scope, weights, (self.seed, run.seed))
        if not trajectory.nll and run.task.startswith("twin"):
            raise MeasureError(
                "the model itself gives a loss that is not finite on the evaluation text, before anything is done to "
                "it; check the checkpoint"
            )
        self.ledger.sink(as_rows(run, trajectory))
        return trajectory

    def _weights(self, layer: int, damage: Damage, number: int) -> dict[str, Tensor] | None:
        """What the layer starts from; `None` where the damage cannot be done."""
        if damage == "reinitialise":
            return self.initial[layer, number]
        weights = layer_weights(self.stack, layer)
        try:
            direction = noise_direction(weights, (self.seed, layer, number))
        except MeasureError as error:
            raise MeasureError(f"layer {layer}: {error}") from error
        if damage == "noise_50":
            return displaced(weights, direction, PUBLISHED_SCALE)
        if (layer, number) not in self.scales:
            self.scales[layer, number] = self._equal_scale(layer, number, weights, direction)
        scale = self.scales[layer, number]
        return None if scale is None else displaced(weights, direction, scale)

    def _equal_scale(
        self, layer: int, number: int, weights: Mapping[str, Tensor], direction: Mapping[str, Tensor]
    ) -> float | None:
        """How many standard deviations of noise cost the recipe's equal damage on recovery text."""
        untouched = self.tuning.tuning_loss(layer, {})
        scale = equal_scale(
            lambda scale: self.tuning.tuning_loss(layer, displaced(weights, direction, scale)) - untouched,
            self.recipe.equal_damage,
            self.recipe.equal_tolerance,
        )
        if scale is None:
            self.ledger.say(
                f"recovery: no noise in layer {layer} costs {self.recipe.equal_damage:g} nats a token (seed {number}), "
                "so it has no run of equal damage there"
            )
        return scale

    def _possible(self, treatments: Sequence[str], layers: Sequence[int]) -> Sequence[str]:
        """The treatments that this model allows, with the initial weights that `reinitialise` needs drawn."""
        if not any(_parts(treatment)[0] == "reinitialise" for treatment in treatments):
            return treatments
        try:
            for number in range(self.seeds):
                fresh = twin(self.stack, self.seed * self.seeds + number)
                for layer in layers:
                    self.initial[layer, number] = layer_weights(fresh, layer)
        except UnsupportedModel as error:
            self.ledger.say(f"recovery: reinitialise is left out: {error}")
            return [treatment for treatment in treatments if _parts(treatment)[0] != "reinitialise"]
        return treatments


def _parts(treatment: str) -> tuple[Damage, Scope]:
    """The damage and the scope of one of `TREATMENTS`."""
    return next((damage, scope) for damage in DAMAGES for scope in SCOPES if f"{damage}/{scope}" == treatment)


def _twin_of(layer: int, scope: Scope, seed: int) -> Run:
    """The undamaged run that a damaged one is compared with; that of the whole model serves every layer."""
    return Run("all" if scope == "model" else str(layer), f"twin/{scope}", seed)


Courses = dict[str, dict[int, tuple[list[Course], list[Course]]]]


def _courses(runs: Mapping[Run, Trajectory], tolerance: float) -> Courses:
    """By task and layer, over seeds: the damaged runs beside their twins, and the twins beside the untouched model."""
    found: Courses = {}
    for run, trajectory in runs.items():
        damage, _, scope = run.task.partition("/")
        if damage == "twin":
            continue
        twin_task = f"twin/{scope}"
        beside = runs.get(Run(run.subject, twin_task, run.seed)) or runs[Run("all", twin_task, run.seed)]
        damaged, twins = found.setdefault(run.task, {}).setdefault(int(run.subject), ([], []))
        damaged.append(course(trajectory, beside, tolerance))
        twins.append(own_course(beside, tolerance))
    return found


def _associations(
    task: str, courses: Mapping[int, Sequence[Course]], effects: Iterable[Score], seed: int
) -> Iterator[Score]:
    """Recovery against what skipping costs, over the layers that have both."""
    skipped = {
        int(row.subject): row.value
        for row in effects
        if (row.measure, row.task, row.metric) == (ABLATION, "all", "skip") and row.subject.isdigit()
    }
    layers = [layer for layer in courses if layer in skipped]
    damage = {layer: _mean(each.initial_damage for each in courses[layer]) for layer in layers}
    speeds = {
        "spearman": {layer: _mean(each.area for each in courses[layer]) for layer in layers},
        "spearman_steps": {layer: _mean(each.steps for each in courses[layer]) for layer in layers},
    }
    for name, speed in speeds.items():
        rows = [
            (own, skipped[layer], held)
            for layer in layers
            if (own := speed[layer]) is not None and (held := damage[layer]) is not None
        ]
        left, right, held_fixed = (np.array([row[place] for row in rows]) for place in range(3))
        for metric, given in ((name, None), (f"{name}_given_damage", held_fixed)):
            found = association(left, right, given=given, seed=(seed, zlib.crc32(f"{task} {metric}".encode())))
            if found is not None:
                yield Score(MEASURE, ABLATION, task, metric, found.value, found.low, found.high, p=found.p)
                band = (0.0, found.null_low, found.null_high)
                yield Score(MEASURE, ABLATION, task, f"{metric}@shuffled_layers", *band)


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that there are, if any."""
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def _checked(stack: Stack, layers: Sequence[int] | None, treatments: Sequence[str], seeds: int) -> tuple[int, ...]:
    """The layers to study; raises `MeasureError` for anything that cannot be."""
    if stack.depth < FEWEST_LAYERS:
        raise MeasureError(f"recovery needs at least {FEWEST_LAYERS} layers; this model has {stack.depth}")
    if seeds < 1:
        raise MeasureError(f"recovery with {seeds} seeds has no runs: use 3 or more, so that intervals mean something")
    for treatment in treatments:
        if treatment not in TREATMENTS:
            raise MeasureError(f"unknown treatment {treatment!r}; {near_matches(treatment, TREATMENTS)}")
    chosen = spread(stack.depth, DEFAULT_LAYERS) if layers is None else tuple(sorted(set(layers)))
    for layer in chosen:
        if not 0 <= layer < stack.depth:
            raise MeasureError(f"there is no layer {layer} to damage: this model has layers 0 to {stack.depth - 1}")
    return chosen
