"""What a growth training trains: each variant for the steps that its budget buys, and uniform at other lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from layerwise.plan.schedule import GrowthSchedule, chart, explain, flops_per_token, preset, share_of_uniform
from layerwise.plan.schedule.cost import layer_epochs, phase_shares
from layerwise.results.training_record import MODEL
from layerwise.runner.trainings import TrainingsUnit
from layerwise.studies.train_growth.task import GrowthArm, GrowthTask, at_length, check_arms, check_epochs
from layerwise.studies.train_growth.variants import (
    IMPORTANCE,
    SHORTEST,
    UNIFORM,
    most_steps,
    tuned_variants,
    uniform_lengths,
)
from layerwise.train.recipe import Settings

_CHART_WIDTH = 60

SettingsOf = Callable[[str], Settings]
"""The settings of a variant, by its name."""


@dataclass(frozen=True)
class GrowthDesign:
    """The variants to train by `names`, with `seeds`, at the cost of `budget` uniform steps."""

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

    def has_sweep(self) -> bool:
        return len(self.rates) > 1 or bool(self.warmups)

    def tuned(self) -> tuple[str, ...]:
        """Return the variants with a sweep: for their settings, or so that the importance of layers is measured."""
        if self.has_sweep():
            return tuned_variants(self.names)
        return (UNIFORM,) if self.measures_importance else ()

    def arms(
        self, schedules: Mapping[str, GrowthSchedule], settings_of: SettingsOf, longest: int = 0
    ) -> tuple[GrowthArm, ...]:
        """Return everything to train of these schedules; `longest` is the steps of one that is not known yet.

        Raises `PlanError` for a phase without a step.
        """
        arms = [self.arm(name, schedule, settings_of(name)) for name, schedule in schedules.items()]
        phased = [name for name in schedules if name != UNIFORM][:1]
        if self.shorter is not None:
            arms += [self._at_share(name, schedules[name], self.shorter, settings_of(name)) for name in phased]
        if self.frontier:
            least = SHORTEST
            if self.shorter is not None and phased:
                least = self.shorter * share_of_uniform(schedules[phased[0]], self.task.cost)
            steps = [longest, *(steps for arm in arms for steps in arm.steps.values())]
            uniform = schedules[UNIFORM]
            arms += [
                self._at_share(UNIFORM, uniform, length, settings_of(UNIFORM))
                for length in uniform_lengths(steps, self.budget, least)
            ]
        return tuple(arms)

    def arm(self, name: str, schedule: GrowthSchedule, settings: Settings, seeds: Iterable[int] = ()) -> GrowthArm:
        seeds = tuple(seeds) or tuple(self.seeds)
        if self.match == "flops":
            arm = GrowthArm.at_equal_cost(name, schedule, settings, self.task, self.budget, seeds)
        else:
            arm = GrowthArm(name, schedule, settings, dict.fromkeys(seeds, self.budget))
        schedule.bounds(min(arm.steps.values()))
        return arm

    def _at_share(self, name: str, schedule: GrowthSchedule, share: float, settings: Settings) -> GrowthArm:
        steps = max(1, round(share * self.budget))
        schedule.bounds(steps)
        return GrowthArm(at_length(share, name), schedule, settings, dict.fromkeys(self.seeds, steps))

    def find_models(self, folder: Path) -> dict[str, Path]:
        """Return the models in a run folder by variant and seed."""
        return {f"{name}/{seed}": folder / name / f"seed-{seed}" / MODEL for name in self.names for seed in self.seeds}

    def recipe(self) -> dict[str, object]:
        """Return the plain values that name the run folder."""
        return self.task.shared_recipe(budget=self.budget, match=self.match, rates=self.rates, warmups=self.warmups)

    def certain_trainings(self, schedules: Mapping[str, GrowthSchedule]) -> TrainingsUnit:
        """Return what is certain to be trained; uniform's lengths depend on a schedule that is not measured yet."""
        arms = [arm for arm in self.known_arms(schedules) if arm.name in schedules or not self.measures_importance]
        return self.trainings(arms)

    def trainings(self, arms: Iterable[GrowthArm]) -> TrainingsUnit:
        return self.task.unit([arm.training(self.task, seed) for seed in self.seeds for arm in arms])

    def known_arms(self, schedules: Mapping[str, GrowthSchedule]) -> tuple[GrowthArm, ...]:
        """Return what is trained of the schedules that are known beforehand, with the usual settings."""
        return self.arms(schedules, lambda _: self.task.settings, self._longest_unknown())

    def check(self, schedules: Mapping[str, GrowthSchedule], max_epochs: float) -> None:
        """Raise the errors of the model and the text before anything is trained."""
        check_arms(self.task, self.known_arms(schedules), max_epochs)
        if self.measures_importance:
            batch, windows = self.task.settings.batch_size, self.task.windows
            check_epochs(self._longest_unknown(), batch, windows, max_epochs, f"{IMPORTANCE}, at its longest,")

    def _longest_unknown(self) -> int:
        if not self.measures_importance:
            return 0
        return most_steps(self.task.cost, self.budget) if self.match == "flops" else self.budget

    def describe(self, schedules: Mapping[str, GrowthSchedule]) -> Iterator[str]:
        yield from self.task.describe()
        arms = self.known_arms(schedules)
        phased = [arm for arm in arms if arm.name in schedules and arm.name != UNIFORM] or arms[:1]
        for arm in phased:
            yield from self._describe_schedule(arm)
        usual, batch = self.task.settings, self.task.settings.batch_size * self.task.length
        yield (
            f"text: {self.task.splits.name}, read {self.budget * usual.batch_size / self.task.windows:.2f} times by "
            f"{UNIFORM} in {self.budget:,} steps of {batch:,} tokens, {self._flops(self.budget):.3g} operations"
        )
        unknown = [name for name in self.names if name not in schedules]
        names = ", ".join([*(arm.name for arm in arms), *unknown])
        count = len(self.seeds) * (len(arms) + len(unknown))
        seeds = "1 seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        yield f"{count} training{'s' * (count != 1)}: {names}; {seeds} each"
        trials = len(self.tuned()) * (len(self.rates) + len(self.warmups))
        if trials:
            yield f"{trials} trainings to tune {', '.join(self.tuned())}, and more while the best rate is at an end"

    def _describe_schedule(self, arm: GrowthArm) -> Iterator[str]:
        task, schedule, steps = self.task, arm.schedule, arm.steps[0]
        for warning in schedule.warnings():
            yield f"note: {warning}"
        redrawn = sorted({layer for phase in schedule.phases for layer in phase.redraw})
        if task.pretrained and redrawn:
            layers = ", ".join(map(str, redrawn))
            yield f"note: {arm.name} gives layer {layers} new random weights, in place of those that are trained"
        yield explain(schedule)
        yield chart(schedule, _CHART_WIDTH)
        shares = phase_shares(schedule, task.cost)
        for phase, share, (first, end) in zip(schedule.phases, shares, schedule.bounds(steps), strict=True):
            yield f"{phase.name}: steps {first:,} to {end - 1:,}, each {share:.0%} of the operations of a uniform step"
        operations = share_of_uniform(schedule, task.cost) * self._flops(steps)
        epochs = steps * arm.settings.batch_size / task.windows
        yield f"cost: {steps:,} steps, {operations:.3g} operations (equal {self.match})"
        yield f"text: read {epochs:.2f} times; {layer_epochs(schedule, steps, epochs)}"

    def _flops(self, steps: int) -> float:
        per_token = flops_per_token(preset(UNIFORM, self.task.stack.depth).phases[0], self.task.cost)
        return steps * self.task.settings.batch_size * self.task.length * per_token
