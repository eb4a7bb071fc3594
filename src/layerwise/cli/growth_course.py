"""A model grown: a schedule and, beside it, uniform training, each with every seed; then what they cost and reached."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.cli.course import discard_models, tell
from layerwise.cli.growth_choice import Choice
from layerwise.cli.screen import PartBar, duration, errors, output, write
from layerwise.cli.sitting import Say, begin, speaker
from layerwise.errors import TrainError
from layerwise.measure.frontier import MEASURE, Points, equal_rows
from layerwise.measure.provenance import folder_of
from layerwise.plan.growth import GrowthSchedule, chart, explain, preset
from layerwise.plan.growth.cost import flops_per_token, phase_shares, share_of_uniform
from layerwise.results import Run
from layerwise.results.model_name import model_name
from layerwise.results.pedigree import Pedigree
from layerwise.train.growth.arm import Arm, Watcher, arm_of, begun_steps, folder_name, refuse_unfit, train_arm
from layerwise.train.growth.assessment import assess
from layerwise.train.growth.phase_pace import phase_slowness, steps_that_take
from layerwise.train.growth.pupil import Pupil, manifest_of
from layerwise.train.growth.study import UNIFORM, check_passes, check_stacks
from layerwise.train.processes import is_alone, is_first_process, shared_recipe
from layerwise.train.recipe import Settings, check_positive

_WIDTH = 60
"""Columns of the chart on the terminal."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is trained: a schedule, as `name`, with the settings of every training and the steps of uniform's.

    `equal` says what the schedule takes as much of as uniform; `passes` how often the text may be read at most.
    """

    name: str
    schedule: GrowthSchedule
    settings: Settings
    budget: int
    seeds: int
    equal: str
    passes: float

    @classmethod
    def of(
        cls,
        pupil: Pupil,
        choice: Choice,
        changes: Mapping[str, Any],
        *,
        steps: int | None,
        epochs: float | None,
        seeds: int,
        equal: str,
        passes: float,
    ) -> Asked:
        """What the options say for this pupil: a schedule of its depth, and a length that its text allows.

        Without steps and epochs uniform reads the text once. Raises `PlanError` for a schedule of another depth and for
        layers that would grow in over trained ones, `TrainError` for more passes over the text than are allowed.
        """
        settings = replace(pupil.settings, **changes)
        schedule = choice.schedule(pupil.stack.depth)
        check_stacks(schedule, pupil.trained)
        budget = steps or steps_of_epochs(pupil, settings, 1.0 if epochs is None else epochs)
        check_passes(budget, settings.batch, pupil.windows, passes, UNIFORM)
        return cls(folder_name(choice.name), schedule, settings, budget, seeds, equal, passes)

    @property
    def is_uniform(self) -> bool:
        """Whether there is nothing to compare with uniform."""
        return self.name == UNIFORM

    def uniform(self) -> Arm:
        """Everything learns all the time, for the budget."""
        schedule = preset(UNIFORM, self.schedule.depth)
        return Arm(UNIFORM, schedule, self.settings, dict.fromkeys(range(self.seeds), self.budget))

    def arm(self, pupil: Pupil) -> Arm:
        """The schedule, for as many operations, or as many steps, as uniform takes."""
        if self.equal == "flops":
            return arm_of(self.name, self.schedule, self.settings, pupil, self.budget, range(self.seeds))
        return self.for_steps(self.budget)

    def for_steps(self, steps: int) -> Arm:
        """The schedule, for so many steps."""
        self.schedule.bounds(steps)
        return Arm(self.name, self.schedule, self.settings, dict.fromkeys(range(self.seeds), steps))


def steps_of_epochs(pupil: Pupil, settings: Settings, epochs: float) -> int:
    """The steps in which the text is read so often. Raises `TrainError` for a text that does not fill a batch."""
    check_positive("epochs", epochs)
    if pupil.windows < settings.batch:
        raise TrainError(
            f"the text gives {pupil.windows:,} whole window(s) of {pupil.length} tokens to train on, fewer than a "
            f"batch of {settings.batch:,}; give more text, shorter windows (--length), or a --batch of "
            f"{pupil.windows:,} or less"
        )
    return max(1, round(epochs * pupil.windows / settings.batch))


def explained(pupil: Pupil, asked: Asked) -> None:
    """Print the schedule in words, its chart of depth by time, and what it will cost."""
    arm = asked.arm(pupil)
    steps, uniform = arm.steps[0], asked.budget
    tokens = asked.settings.batch * pupil.length
    write(output, explain(asked.schedule))
    output.print()
    write(output, chart(asked.schedule, _WIDTH))
    output.print()
    shares = phase_shares(asked.schedule, pupil.cost)
    for phase, share, (first, end) in zip(asked.schedule.phases, shares, asked.schedule.bounds(steps), strict=True):
        write(
            output,
            f"{phase.name}: steps {first:,} to {end - 1:,}, each {share:.0%} of the operations of a uniform step",
        )
    whole = flops_per_token(preset(UNIFORM, asked.schedule.depth).phases[0], pupil.cost) * tokens
    share = share_of_uniform(asked.schedule, pupil.cost)
    write(
        output,
        f"cost: {steps:,} steps of {tokens:,} tokens, {share * steps * whole:.3g} operations; uniform takes "
        f"{uniform:,} steps and {uniform * whole:.3g} operations (equal {asked.equal})",
    )
    write(output, f"text: {pupil.splits.name}, read {steps * asked.settings.batch / pupil.windows:.2f} times")


def hold(
    pupil: Pupil,
    asked: Asked,
    arguments: Mapping[str, Any],
    *,
    alone: bool,
    folder: Path | None,
    seed: int,
    fresh: bool,
    quiet: bool,
) -> None:
    """Train what is not trained yet into `folder`, or into one named by what is learned, and tell what became of it."""
    manifest = manifest_of(pupil, seed, tuple(sys.argv), arguments)
    options = {"settings": asdict(asked.settings), "budget": asked.budget, "equal": asked.equal}
    folder = folder or folder_of(manifest, shared_recipe(options, arguments))
    arms = _arms(pupil, asked, alone, None if fresh else begun_steps(folder / asked.name))
    refuse_unfit(pupil, arms, asked.passes, None if fresh else folder)
    if not is_first_process():
        _train(pupil, arms, folder, arguments, Watcher())
        return
    say = speaker(quiet)
    with begin(folder, manifest, fresh) as run:
        if fresh:
            discard_models(folder)
        announce(pupil, run, say)
        for warning in asked.schedule.warnings():
            say(f"note: {warning}")
        try:
            with PartBar(quiet) as bar:
                _train(pupil, arms, folder, arguments, watcher_of(say, bar))
                keep_rows(run, pupil, bar.update)
        except KeyboardInterrupt:
            write(errors, "stopped: finished models and checkpoints are kept; the same command goes on from here")
            raise
        tell(run)


def keep_rows(run: Run, pupil: Pupil, progress: Callable[[str, float], None]) -> None:
    """The rows of every finished training, and of every arm against uniform on the terms that came out equal."""
    points = assess(run, pupil, progress)
    reference = points.get(UNIFORM)
    arms: dict[str, Points] = {arm: of for arm, of in points.items() if arm.partition("@")[0] != UNIFORM}
    run.store.replace_scores(MEASURE, equal_rows(arms, reference, UNIFORM) if reference and arms else [])


def _arms(pupil: Pupil, asked: Asked, alone: bool, begun: int | None) -> tuple[Arm, ...]:
    """The trainings: uniform first, unless it is not wanted.

    How many steps take equal seconds is timed, unless trainings with so many have `begun`: they must go on.
    """
    if asked.is_uniform:
        return (asked.uniform(),)
    if asked.equal != "seconds":
        arm = asked.arm(pupil)
    elif begun is not None:
        arm = asked.for_steps(begun)
    else:
        arm = asked.for_steps(_timed_steps(pupil, asked))
    return (arm,) if alone else (asked.uniform(), arm)


def _timed_steps(pupil: Pupil, asked: Asked) -> int:
    if not is_alone():
        raise TrainError(
            "processes that time their own steps would not agree on their number; say --equal flops or --equal tokens"
        )
    slowness = phase_slowness(pupil.base, pupil.splits, asked.schedule, asked.budget, pupil.cost, asked.settings)
    return steps_that_take(asked.schedule, slowness, asked.budget)


def _train(pupil: Pupil, arms: tuple[Arm, ...], folder: Path, arguments: Mapping[str, Any], watcher: Watcher) -> None:
    for number in range(len(arms[0].steps)):
        for arm in arms:
            train_arm(pupil, arm, number, folder, arguments, watcher)


def announce(pupil: Pupil, run: Run, say: Say) -> None:
    """Say what grows, what it reads, and where it will lie."""
    splits, stack = pupil.splits, pupil.stack
    begins = "its own weights" if pupil.trained else "random weights"
    say(f"{model_name(stack.source.name)}: {stack.depth} layers, {stack.device}, from {begins}")
    say(
        f"{splits.name}: {pupil.windows:,} windows of {pupil.length} tokens to train, {len(splits.validation):,} to "
        f"select, {len(splits.test):,} to report, of different documents"
    )
    if pupil.left_out > 0.005:
        say(f"note: {pupil.left_out:.1%} of the tokens to train on stand behind a document's last whole window")
    say(f"run folder: {run.folder}")
    for change in run.changes:
        say(f"note: {change}")


def watcher_of(say: Say, bar: PartBar) -> Watcher:
    """Tells the terminal of trainings: a bar for the one under way, a sentence for each that has ended."""

    def trained(label: str, pedigree: Pedigree) -> None:
        looked = [moment.loss for moment in pedigree.history if moment.kind == "validation"]
        after = f", validation loss {looked[-1]:.3f}" if looked else ""
        say(f"{label}: {pedigree.steps:,} steps in {duration(pedigree.seconds)}{after}")

    def expected(seconds: float) -> None:
        say(f"at this pace its trainings take about {duration(seconds)}")

    return Watcher(say, bar.update, trained, expected)
