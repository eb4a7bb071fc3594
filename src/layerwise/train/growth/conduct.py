"""Carry out a study of growth: the sweep, the importance, the arms with every seed, and the rows that answer.

RUN/pilot/ARM@RATE/seed-1000     the sweep of learning rates, on seeds of its own, 1000 and upwards
RUN/importance.yaml              the schedule by the importance that the best uniform model of the sweep has
RUN/ARM/seed-N                   the arms
RUN/uniform@1.25/seed-N          uniform at other lengths, which the arms are judged by
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import layerwise.train.growth.study as study
from layerwise.errors import LayerwiseError, RunError, TrainError
from layerwise.measure.frontier import MEASURE, Points, difference_rows, frontier_rows
from layerwise.measure.importance import measured_importance
from layerwise.measure.reading import read
from layerwise.measure.rule import Rule
from layerwise.measure.seeds import seed_difference
from layerwise.plan.growth import GrowthSchedule, steps_for
from layerwise.plan.growth.allocation import MARGIN, Importance, allocation
from layerwise.results import Run
from layerwise.results.pedigree import MODEL, Pedigree
from layerwise.results.rows import Score
from layerwise.stack import load
from layerwise.train.growth.arm import Arm, Watcher, arm_of, refuse_unfit, train_arm
from layerwise.train.growth.assessment import assess
from layerwise.train.growth.pupil import Pupil
from layerwise.train.growth.rows import RATES, best_rate, last_validation, means, rate_rows
from layerwise.train.growth.schedule_file import read_schedule, write_schedule
from layerwise.train.processes import is_alone
from layerwise.train.recipe import Settings

PILOT = "pilot"
SCHEDULE = "importance.yaml"
IMPORTANCE = "importance"
"""The measure of the rows that say what skipping each layer costs."""

AT = "learning_rate"
"""The metric of the row that says which model of the sweep it was measured on."""

IMPORTANCE_TOKENS = 50_000
"""Tokens of the documents to select on that importance is measured on, at most, spread over them."""

FEW = 3
"""Seeds below which an interval is so wide that it says little."""


@dataclass(frozen=True, slots=True)
class Study:
    """What is asked: `arms` with so many `seeds`, for the cost of `budget` uniform steps, at the best of `rates`.

    `seed` draws the roles of the controls, `passes` is how often the text may be read at most, and `pilots` are the
    seeds that every rate is tried with, apart from those of the arms.
    """

    arms: tuple[str, ...]
    settings: Settings
    rates: tuple[float, ...]
    budget: int
    seeds: int
    passes: float
    seed: int
    pilots: int = 1

    def __post_init__(self) -> None:
        if self.seeds > study.PILOT:
            raise TrainError(f"{self.seeds:,} seeds were asked for; a study has at most {study.PILOT:,}")


def conduct(
    pupil: Pupil, asked: Study, run: Run, watcher: Watcher | None = None, arguments: Mapping[str, Any] | None = None
) -> None:
    """Carry the study on into `run`: everything is trained in the order in which one thing depends on another, and what
    is finished is not done again. `arguments` are further `TrainingArguments`, which win over the settings.

    What could be refused on the way `check_study` refuses beforehand: ask it before there is a run.
    """
    asked, left_out = _without_stacking(pupil, asked)
    _Conduct(pupil, asked, arguments or {}, run, watcher or Watcher(), left_out).carry_out()


def _without_stacking(pupil: Pupil, asked: Study) -> tuple[Study, list[str]]:
    """The study without the arm that a trained model cannot have, and the sentence that says so."""
    if not pupil.trained or study.STACKING not in asked.arms:
        return asked, []
    rest = tuple(arm for arm in asked.arms if arm != study.STACKING)
    said = f"{study.STACKING} is left out: its layers would grow in over weights that are trained already"
    return replace(asked, arms=study.check_arms(rest)), [said]


def check_study(pupil: Pupil, asked: Study) -> None:
    """Raise, before there is a run, what the model or the text does not allow: a `PlanError` or a `TrainError`.

    The schedule by importance is not known yet; it is reckoned with as if it took the most steps that it can.
    """
    if not is_alone():
        raise TrainError(
            "a study is many small trainings, one after the other, on one process; start it without torchrun"
        )
    asked, _ = _without_stacking(pupil, asked)
    schedules = {arm: each for arm, each in study.known(pupil.stack.depth).items() if arm in asked.arms}
    arms = [
        arm_of(arm, schedule, asked.settings, pupil, asked.budget, range(asked.seeds))
        for arm, schedule in schedules.items()
    ]
    refuse_unfit(pupil, arms, asked.passes, None)
    longest = _longest(pupil, asked, (steps for arm in arms for steps in arm.steps.values()))
    what = f"{study.at_length(study.lengths([longest], asked.budget)[-1])}, the longest training,"
    steps = round(study.lengths([longest], asked.budget)[-1] * asked.budget)
    study.check_passes(steps, asked.settings.batch, pupil.windows, asked.passes, what)


def _longest(pupil: Pupil, asked: Study, steps: Iterable[int]) -> int:
    known = max(steps)
    return max(known, study.most_steps(pupil.cost, asked.budget)) if study.IMPORTANCE in asked.arms else known


class _Conduct:
    """A study under way: what is trained next depends on what was found."""

    def __init__(
        self,
        pupil: Pupil,
        asked: Study,
        arguments: Mapping[str, Any],
        run: Run,
        watcher: Watcher,
        notes: Sequence[str],
    ) -> None:
        self.pupil = pupil
        self.asked = asked
        self.arguments = arguments
        self.run = run
        self.watcher = watcher
        self.notes = list(notes)
        self.swept: dict[str, dict[float, tuple[float, ...]]] = {}
        self.whole = 0.0

    def carry_out(self) -> None:
        """Everything, in the order in which one thing depends on another; what is finished is not done again."""
        self._say_size()
        for said in self.notes:
            self.watcher.say(f"note: {said}")
        if self.asked.seeds < FEW:
            self._note(f"{self.asked.seeds} seed(s): intervals are over seeds, and those of fewer than {FEW} are wide")
        schedules = {arm: each for arm, each in study.known(self.pupil.stack.depth).items() if arm in self.asked.arms}
        self._note_redrawn(schedules)
        self._sweep(study.UNIFORM, schedules[study.UNIFORM])
        if study.IMPORTANCE in self.asked.arms:
            schedules |= self._by_importance()
        for arm in study.swept(schedules)[1:]:
            self._sweep(arm, schedules[arm])
        arms = self._arms(schedules)
        for trained in arms:
            self._note_budget(trained)
        lengths = self._lengths(schedules[study.UNIFORM], arms)
        for seed in range(self.asked.seeds):
            for each in (*arms, *lengths):
                train_arm(self.pupil, each, seed, self.run.folder, self.arguments, self.watcher)
            self._keep_rows()

    # -- before the arms ----------------------------------------------------------------------------------------

    def _say_size(self) -> None:
        asked = self.asked
        swept = study.swept(asked.arms)
        known = study.known(self.pupil.stack.depth)
        expected = [steps_for(known[arm], self.pupil.cost, asked.budget) for arm in asked.arms if arm in known]
        longest = _longest(self.pupil, asked, expected)
        lengths = study.lengths([longest], asked.budget)
        pilots = len(swept) * len(asked.rates) * asked.pilots
        trainings = pilots + asked.seeds * (len(asked.arms) + len(lengths))
        whole = pilots + asked.seeds * (len(asked.arms) + sum(lengths))
        self.watcher.say(
            f"{len(asked.arms)} arms ({', '.join(asked.arms)}), {asked.seeds} seed{'s' * (asked.seeds != 1)} each, "
            f"for the cost of {asked.budget:,} uniform steps"
        )
        self.watcher.say(f"about {trainings} trainings, together as long as {whole:.0f} uniform ones")
        self.whole = whole

    def _note_redrawn(self, schedules: Mapping[str, GrowthSchedule]) -> None:
        """Say which schedules throw trained weights away."""
        for arm, schedule in schedules.items():
            redrawn = sorted({layer for phase in schedule.phases for layer in phase.redraw})
            if self.pupil.trained and redrawn:
                layers = ", ".join(map(str, redrawn))
                self._note(f"{arm} gives layer {layers} new random weights, in place of those that are trained")

    def _sweep(self, arm: str, schedule: GrowthSchedule) -> None:
        """The validation losses of an arm at every rate, one a pilot; and beyond those, while the best is at their end:
        a side that was not tuned would be no comparison."""
        losses = self.swept[arm] = {}
        for rate in self.asked.rates:
            losses[rate] = self._tried(arm, schedule, rate)
        for _ in range(study.BEYOND):
            further = study.beyond(means(losses))
            if further is None:
                return
            losses[further] = self._tried(arm, schedule, further)

    def _tried(self, arm: str, schedule: GrowthSchedule, rate: float) -> tuple[float, ...]:
        return tuple(
            last_validation(self._pilot(arm, schedule, rate, study.PILOT + number))
            for number in range(self.asked.pilots)
        )

    def _pilot(self, arm: str, schedule: GrowthSchedule, rate: float, seed: int) -> Pedigree:
        folder, name = self.run.folder / PILOT, _pilot_name(arm, rate)
        settings = replace(self.asked.settings, learning_rate=rate)
        trained = arm_of(name, schedule, settings, self.pupil, self.asked.budget, [seed])
        first = not any(folder.glob(f"*/seed-*/{MODEL}"))
        begun = time.perf_counter()
        done = train_arm(self.pupil, trained, seed, folder, self.arguments, self.watcher, note=f"{PILOT} ")
        if first:
            self.watcher.expected(self.whole * max(done.seconds, time.perf_counter() - begun))
        return done

    def _by_importance(self) -> dict[str, GrowthSchedule]:
        """The arm `importance` and those of its controls that were asked for; none where no layer has an effect."""
        try:
            schedule = self._importance()
        except RunError:
            raise
        except LayerwiseError as refusal:
            self._note(f"{study.IMPORTANCE} and its controls are left out: {refusal}")
            return {}
        found = study.of_importance(schedule, self.asked.seed)
        if study.PERMUTED not in found:
            self._note(
                f"{study.IMPORTANCE} gives every layer the same role, so that it has no control that differs from it"
            )
        elif study.PERMUTED in self.asked.arms:
            moved = study.exchanged(found[study.IMPORTANCE], found[study.PERMUTED])
            self._note(f"in {study.PERMUTED}, {moved} of {schedule.depth} layers play another role")
        return {arm: each for arm, each in found.items() if arm in self.asked.arms}

    def _importance(self) -> GrowthSchedule:
        """The schedule that was made of the pilot's best uniform model, or is made of it now."""
        path = self.run.folder / SCHEDULE
        rate = best_rate(means(self.swept[study.UNIFORM]))
        place = self.run.folder / PILOT / _pilot_name(study.UNIFORM, rate) / f"seed-{study.PILOT}" / MODEL
        pedigree = Pedigree.read(place)
        assert pedigree is not None, "the sweep has trained it"
        known = {row.value for row in self.run.store.scores(IMPORTANCE, metric=AT)}
        if not path.is_file() or known != {rate}:  # resumed with other rates, another model may be the best
            stack = load(place, device=str(self.pupil.stack.device))
            reading = read(
                stack, self.pupil.selecting, length=self.pupil.length, tokens=IMPORTANCE_TOKENS, seed=self.asked.seed
            )
            self.watcher.say(f"measuring the importance of {stack.depth} layers on {reading.tokens:,} tokens")
            found = measured_importance(stack, reading, seed=self.asked.seed, rule=Rule(margin=MARGIN))
            schedule = allocation(found, margin=MARGIN).schedule(study.IMPORTANCE)
            path.unlink(missing_ok=True)
            self.run.store.replace_scores(IMPORTANCE, importance_rows(found, rate))
            write_schedule(schedule, path)
        self.notes.append(
            f"the importance was measured on the uniform model of a seed of its own, trained for {pedigree.steps:,} "
            f"steps ({pedigree.figures['flops']:.3g} operations), by skipping every layer on text to select on; this "
            f"is not counted as a cost of the schedule {study.IMPORTANCE}, which favours it"
        )
        return read_schedule(path)

    # -- the arms -----------------------------------------------------------------------------------------------

    def _arms(self, schedules: Mapping[str, GrowthSchedule]) -> tuple[Arm, ...]:
        seeds = range(self.asked.seeds)
        return tuple(
            arm_of(arm, schedules[arm], self._settings(arm), self.pupil, self.asked.budget, seeds)
            for arm in study.ARMS
            if arm in schedules
        )

    def _note_budget(self, arm: Arm) -> None:
        """Say where so few steps cannot be made to cost what the budget is."""
        cost, budget, passes = self.pupil.cost, self.asked.budget, arm.settings.accumulation
        off = max(
            abs(study.spent(arm.schedule, cost, steps, seed, passes) / budget - 1) for seed, steps in arm.steps.items()
        )
        if off > study.TOLERANCE:
            self._note(
                f"{arm.name} ends {off:.1%} off its budget, which no number of whole steps meets; give more --steps"
            )

    def _lengths(self, uniform: GrowthSchedule, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        longest = [steps for arm in arms for steps in arm.steps.values()]
        found = []
        for length in study.lengths(longest, self.asked.budget):
            steps = dict.fromkeys(range(self.asked.seeds), max(1, round(length * self.asked.budget)))
            name = study.at_length(length)
            found.append(Arm(name, uniform, self._settings(name), steps))
        return tuple(found)

    def _settings(self, arm: str) -> Settings:
        chosen = {swept: best_rate(means(losses)) for swept, losses in self.swept.items()}
        return replace(self.asked.settings, learning_rate=study.rate_of(arm, chosen))

    # -- the rows -----------------------------------------------------------------------------------------------

    def _keep_rows(self) -> None:
        """Write the rows of what is finished: after every seed, so that a study that takes days can be looked at."""
        points = assess(self.run, self.pupil, self.watcher.progress)
        plain = {arm: of for arm, of in points.items() if arm.partition("@")[0] == study.UNIFORM}
        arms: dict[str, Points] = {arm: of for arm, of in points.items() if arm not in plain}
        reference = {seed: [of[seed] for of in plain.values() if seed in of] for seed in plain[study.UNIFORM]}
        rows, unread = frontier_rows(arms, reference, study.UNIFORM)
        rows += control_rows(arms)
        self.run.store.replace_scores(MEASURE, rows)
        self.run.store.replace_scores(
            RATES, [row for arm, tried in self.swept.items() for row in rate_rows(arm, tried)]
        )
        self.run.store.replace_notes(MEASURE, [*self.notes, *unread])

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.watcher.say(f"note: {text}")


def importance_rows(found: Sequence[Importance], rate: float) -> list[Score]:
    """What skipping each layer costs, in nats per token, with the interval that holds for all of them together; and the
    learning `rate` of the model that it was measured on."""
    return [
        Score(IMPORTANCE, PILOT, "all", AT, rate),
        *(
            Score(IMPORTANCE, str(layer), "all", "skip", each.value, each.low, each.high)
            for layer, each in enumerate(found)
        ),
    ]


def control_rows(arms: Mapping[str, Points]) -> list[Score]:
    """`importance` against each of its controls, which spend the same operations: is it the roles of the layers?"""
    own = arms.get(study.IMPORTANCE, {})
    rows: list[Score] = []
    for control in study.CONTROLS:
        other = arms.get(control, {})
        if set(own) & set(other):
            losses = [{seed: each.loss for seed, each in of.items()} for of in (own, other)]
            rows += difference_rows({study.IMPORTANCE: seed_difference(*losses)}, control, "flops")
    return rows


def _pilot_name(arm: str, rate: float) -> str:
    return f"{arm}@{rate:g}"
