"""Plan the training runs of `layerwise train growth`: variants, seeds and numbers of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path

from layerwise.errors import PlanError, TrainError
from layerwise.plan.schedule import (
    GrowthSchedule,
    ModelCost,
    chart,
    explain,
    flops_per_token,
    preset,
    share_of_uniform,
    steps_for,
)
from layerwise.plan.schedule.cost import layer_epochs, phase_shares
from layerwise.results.training_record import MODEL
from layerwise.runner.trainings import RecipeTraining, TrainingsTask
from layerwise.studies.train_growth.task import GrowthTask
from layerwise.studies.train_growth.variants import (
    IMPORTANCE,
    SHORTEST,
    UNIFORM,
    compute_max_steps,
    list_tuned_variants,
    list_uniform_lengths,
)
from layerwise.train.phases.runner import growth_runner
from layerwise.train.phases.step_schedule import StepSchedule
from layerwise.train.recipe import GrowthExtension, Recipe, Settings, grown

_CHART_WIDTH = 60
_ROUNDS = 4

SettingsOf = Callable[[str], Settings]
"""Returns the settings of a variant, given its name."""


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """A variant of growth training: its schedule, its settings, and its number of steps by seed."""

    name: str
    schedule: GrowthSchedule
    settings: Settings
    steps: Mapping[int, int]

    def recipe(self, task: GrowthTask, seed: int) -> Recipe:
        steps = self.steps[seed]
        settings = replace(self.settings, epochs=steps * self.settings.batch_size / task.windows)
        recipe = grown(settings, GrowthExtension(self.schedule, steps, task.cost), self.name)
        return replace(recipe, from_scratch=task.reinitialized)


@dataclass(frozen=True)
class GrowthDesign:
    """The training runs: the variants `names` with `seeds`, each at the cost of `budget` steps of uniform training."""

    task: GrowthTask
    names: tuple[str, ...]
    budget: int
    seeds: range
    rates: tuple[float, ...]
    warmups: tuple[float, ...]
    match: str
    frontier: bool
    shorter: float | None
    measures_importance: bool

    def tuned(self) -> tuple[str, ...]:
        """Return the variants to tune, and uniform training if the importance is measured on it."""
        if len(self.rates) > 1 or self.warmups:
            return list_tuned_variants(self.names)
        return (UNIFORM,) if self.measures_importance else ()

    def list_variants(
        self, schedules: Mapping[str, GrowthSchedule], settings_of: SettingsOf, longest: int = 0
    ) -> tuple[PlannedVariant, ...]:
        """Return the variants of the schedules, including those that are trained for other lengths.

        `longest` is the maximum number of steps of a schedule that is not known yet.
        """
        variants = [self.plan_variant(name, schedule, settings_of(name)) for name, schedule in schedules.items()]
        phased = [name for name in schedules if name != UNIFORM][:1]
        if self.shorter is not None:
            variants += [self._at_share(name, schedules[name], self.shorter, settings_of(name)) for name in phased]
        if self.frontier:
            least = SHORTEST
            if self.shorter is not None and phased:
                least = self.shorter * share_of_uniform(schedules[phased[0]], self.task.cost)
            steps = [longest, *(steps for variant in variants for steps in variant.steps.values())]
            uniform = schedules[UNIFORM]
            variants += [
                self._at_share(UNIFORM, uniform, length, settings_of(UNIFORM))
                for length in list_uniform_lengths(steps, self.budget, least)
            ]
        return tuple(variants)

    def plan_variant(
        self, name: str, schedule: GrowthSchedule, settings: Settings, seeds: Iterable[int] = ()
    ) -> PlannedVariant:
        steps = dict.fromkeys(tuple(seeds) or self.seeds, self.budget)
        if self.match == "flops":
            passes = settings.gradient_accumulation_steps
            steps = {seed: count_steps_within(schedule, self.task.cost, self.budget, seed, passes) for seed in steps}
        schedule.bounds(min(steps.values()))
        return PlannedVariant(name, schedule, settings, steps)

    def _at_share(self, name: str, schedule: GrowthSchedule, share: float, settings: Settings) -> PlannedVariant:
        steps = max(1, round(share * self.budget))
        schedule.bounds(steps)
        return PlannedVariant(name_at_length(share, name), schedule, settings, dict.fromkeys(self.seeds, steps))

    def find_models(self, folder: Path) -> dict[str, Path]:
        return {f"{name}/{seed}": folder / name / f"seed-{seed}" / MODEL for name in self.names for seed in self.seeds}

    def recipe(self) -> dict[str, object]:
        return self.task.shared_recipe(budget=self.budget, match=self.match, rates=self.rates, warmups=self.warmups)

    def certain_trainings(self, schedules: Mapping[str, GrowthSchedule]) -> TrainingsTask:
        """Return the training runs that do not depend on the importance of layers, which may not be measured yet."""
        variants = [
            variant
            for variant in self.list_known_variants(schedules)
            if variant.name in schedules or not self.measures_importance
        ]
        return self.trainings(variants)

    def trainings(self, variants: Iterable[PlannedVariant]) -> TrainingsTask:
        variants = tuple(variants)
        trainings = [
            RecipeTraining.of(variant.recipe(self.task, seed), seed) for seed in self.seeds for variant in variants
        ]
        return self.task.unit(trainings)

    def list_known_variants(self, schedules: Mapping[str, GrowthSchedule]) -> tuple[PlannedVariant, ...]:
        """Return the variants of the schedules that are known before training, with the default settings."""
        return self.list_variants(schedules, lambda _: self.task.settings, self._longest_unknown())

    def check(self, schedules: Mapping[str, GrowthSchedule], max_epochs: float) -> None:
        task = self.task
        for variant in self.list_known_variants(schedules):
            name = (
                variant.name
                if variant.name.startswith(UNIFORM)
                else f"{variant.name}, at the cost of {UNIFORM} training,"
            )
            check_epochs(max(variant.steps.values()), variant.settings.batch_size, task.windows, max_epochs, name)
            check_initial_weights(variant.schedule, task.pretrained)
            seed = min(variant.steps)
            growth_runner(
                task.stack, GrowthExtension(variant.schedule, variant.steps[seed], task.cost), task.splits, seed
            )
        if self.measures_importance:
            longest, batch = self._longest_unknown(), task.settings.batch_size
            check_epochs(longest, batch, task.windows, max_epochs, f"{IMPORTANCE}, at its longest,")

    def _longest_unknown(self) -> int:
        if not self.measures_importance:
            return 0
        return compute_max_steps(self.task.cost, self.budget) if self.match == "flops" else self.budget

    def describe(self, schedules: Mapping[str, GrowthSchedule]) -> Iterator[str]:
        yield from self.task.describe()
        variants = self.list_known_variants(schedules)
        phased = [variant for variant in variants if variant.name in schedules and variant.name != UNIFORM] or variants[
            :1
        ]
        for variant in phased:
            yield from self._describe_schedule(variant)
        usual, batch = self.task.settings, self.task.settings.batch_size * self.task.length
        yield (
            f"text: {self.task.splits.name}, {self.budget * usual.batch_size / self.task.windows:.2f} epochs of "
            f"{UNIFORM} in {self.budget:,} steps of {batch:,} tokens, {self._flops(self.budget):.3g} operations"
        )
        unknown = [name for name in self.names if name not in schedules]
        names = ", ".join([*(variant.name for variant in variants), *unknown])
        count = len(self.seeds) * (len(variants) + len(unknown))
        seeds = "1 seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        yield f"{count} training run{'s' * (count != 1)}: {names}; {seeds} each"
        trials = len(self.tuned()) * (len(self.rates) + len(self.warmups))
        if trials:
            names = ", ".join(self.tuned())
            yield f"{trials} training runs to tune {names}, and more while the best rate is at the edge of the grid"

    def _describe_schedule(self, variant: PlannedVariant) -> Iterator[str]:
        task, schedule, steps = self.task, variant.schedule, variant.steps[0]
        redrawn = sorted({layer for phase in schedule.phases for layer in phase.redraw})
        if task.pretrained and redrawn:
            layers = ", ".join(map(str, redrawn))
            noun = "layer" if len(redrawn) == 1 else "layers"
            yield f"note: {variant.name} replaces the trained weights of {noun} {layers} with random ones"
        yield explain(schedule)
        yield chart(schedule, _CHART_WIDTH)
        shares = phase_shares(schedule, task.cost)
        for phase, share, (first, end) in zip(schedule.phases, shares, schedule.bounds(steps), strict=True):
            yield f"{phase.name}: steps {first:,} to {end - 1:,}, each {share:.0%} of the operations of a uniform step"
        operations = share_of_uniform(schedule, task.cost) * self._flops(steps)
        epochs = steps * variant.settings.batch_size / task.windows
        yield f"cost: {steps:,} steps, {operations:.3g} operations (equal {self.match})"
        learned = ", ".join(f"{each:.2f}" for each in layer_epochs(schedule, epochs))
        yield f"text: {epochs:.2f} epochs; epochs in which each layer is trained: {learned}"

    def _flops(self, steps: int) -> float:
        per_token = flops_per_token(preset(UNIFORM, self.task.stack.depth).phases[0], self.task.cost)
        return steps * self.task.settings.batch_size * self.task.length * per_token


def name_at_length(length: float, variant: str = UNIFORM) -> str:
    """Return the name of a variant that is trained for a share of the budget.

    >>> name_at_length(1.25), name_at_length(416 / 656, "published")
    ('uniform@1.25', 'published@0.634')
    """
    return f"{variant}@{length:.3g}"


def parse_length(name: str) -> tuple[str, float | None]:
    """Split the name of a folder into the variant and its share of the budget, if there is one.

    >>> parse_length("published@0.634"), parse_length("published")
    (('published', 0.634), ('published', None))
    """
    variant, _, share = name.partition("@")
    return variant, float(share) if share else None


def count_steps_within(schedule: GrowthSchedule, cost: ModelCost, budget: int, seed: int, passes: int = 1) -> int:
    """Return the number of steps of `schedule` that cost as much as `budget` steps of uniform training.

    If the schedule draws layers at random, the cost is that of the draws of `seed`, with `passes` forward passes per
    step.
    """
    steps = steps_for(schedule, cost, budget)
    if all(phase.drop == (0.0, 0.0) and phase.sample is None for phase in schedule.phases):
        return steps
    costs: dict[int, float] = {}
    for _ in range(_ROUNDS):
        if steps not in costs:
            costs[steps] = convert_cost_to_uniform_steps(schedule, cost, steps, seed, passes)
        steps = max(1, round(steps * budget / costs[steps]))
    return min(costs, key=lambda count: abs(costs[count] - budget))


def convert_cost_to_uniform_steps(
    schedule: GrowthSchedule, cost: ModelCost, steps: int, seed: int, passes: int = 1
) -> float:
    table = StepSchedule(schedule, steps, seed)
    flops = sum(flops_per_token(table.resolve(step, number), cost) for step in range(steps) for number in range(passes))
    return flops / (3 * cost.total * passes)


def check_epochs(steps: int, batch: int, windows: int, max_epochs: float, name: str) -> None:
    if not 0 < max_epochs < inf:
        raise TrainError(f"max_epochs must be a finite number above 0, got {max_epochs:g}.")
    epochs = steps * batch / windows
    if epochs > max_epochs + 1e-9:
        fits = int(max_epochs * windows / batch)
        raise TrainError(
            f"{name} must train for at most {max_epochs:g} epochs, got {epochs:.3g} ({steps:,} steps of {batch} "
            f"windows; the text has {windows:,} windows). Pass more text, at most {fits:,} steps, or --max-epochs "
            f"{ceil(10 * epochs) / 10:g}."
        )


def check_initial_weights(schedule: GrowthSchedule, pretrained: bool) -> None:
    grows = [phase for phase in schedule.phases if phase.present is not None or phase.copies]
    if pretrained and grows:
        raise PlanError(
            f"the schedule {schedule.name} adds layers in phase {grows[0].name}, so it must start from random weights, "
            "got a trained checkpoint. Pass --from-scratch, or another schedule."
        )
