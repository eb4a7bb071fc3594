"""The rows of a growth run, looked up: its arms, their phases, what each learned and what it had cost by each step.

An arm is a schedule of training (`uniform`, which trains everything all the time, or one that trains in phases);
`importance/0` is one seed of it. `uniform@1.25` is uniform again, trained a quarter longer and as fully decayed, and
`published@0.634` is that schedule with less of a budget: these lengths are no arms but points of their frontiers.
Values that are not finite are not measured: no lookup returns them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from layerwise.report.arms import as_subject, in_reading_order, split_seed
from layerwise.report.interval import bounded
from layerwise.results.rows import Score

ALL, TEST = "all", "test"
TRAINING, HELD_OUT, SCHEDULE = "training", "held_out", "schedule"
ACCOUNTING, RATES, GROWTH = "accounting", "rates", "growth"
IMPORTANCE, NULL, EPOCHS = "importance", "null", "epochs"
OWN = (SCHEDULE, GROWTH, ACCOUNTING, RATES, HELD_OUT)
"""Measures that no other kind of run has; the training of a growth run is told with them."""

UNIFORM = "uniform"
DIFFERENCE = "difference"
TERMS: dict[str, str] = {"flops": "at equal FLOPs", "tokens": "at equal tokens", "seconds": "at equal seconds"}
"""On which terms an arm is compared with uniform, the one that decides first."""

_LENGTH = re.compile(r"[^@]+@[\d.]+")
_PHASE = re.compile(r"(\d+)-(\d+) (.+)")
_STEP = re.compile(r"step (\d+)")

Rows = Mapping[str, Score]


@dataclass(frozen=True, slots=True, order=True)
class PhaseSteps:
    """A phase as rows name it: its first step, the step that it ends before, and its name."""

    first: int
    end: int
    name: str

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return self.end - self.first

    @property
    def task(self) -> str:
        """The task of its rows.

        >>> PhaseSteps(0, 120, "gastrulation").task
        '0-120 gastrulation'
        """
        return f"{self.first}-{self.end} {self.name}"


@dataclass(frozen=True, slots=True)
class GrowthScores:
    """Every finite score of a growth run: build it with `GrowthScores.of`.

    `arms` stand in reading order with their `seeds`, `lengths` are the longer and shorter trainings of uniform;
    `measures` are those that have rows, as first met. `level` is the significance level of every verdict.
    """

    arms: tuple[str, ...]
    lengths: tuple[str, ...]
    seeds: Mapping[str, tuple[int, ...]]
    measures: tuple[str, ...]
    level: float
    _subjects: Mapping[tuple[str, str, str], Rows] = field(repr=False)
    _tasks: Mapping[tuple[str, str, str], Rows] = field(repr=False)

    @classmethod
    def of(cls, scores: Iterable[Score], level: float = 0.05) -> GrowthScores:
        """Look the rows up once; a run of another kind has no measures."""
        known = (TRAINING, IMPORTANCE, NULL, EPOCHS, *OWN)
        finite = [
            as_subject(bounded(score)) for score in scores if score.measure in known and math.isfinite(score.value)
        ]
        measures = tuple(dict.fromkeys(score.measure for score in finite))
        if not set(measures) & set(OWN):  # the training of another kind of run
            return cls((), (), {}, (), level, {}, {})
        subjects: dict[tuple[str, str, str], dict[str, Score]] = defaultdict(dict)
        tasks: dict[tuple[str, str, str], dict[str, Score]] = defaultdict(dict)
        seeds: dict[str, set[int]] = {}
        for score in finite:
            subjects[score.measure, score.metric, score.task][score.subject] = score
            tasks[score.measure, score.metric, score.subject][score.task] = score
            if score.measure not in (GROWTH, RATES, IMPORTANCE, NULL):  # two arms, trials of a rate, layers, tables
                arm, seed = split_seed(score.subject)
                seeds.setdefault(arm, set()).update(() if seed is None else (seed,))
        return cls(
            in_reading_order(arm for arm in seeds if not _LENGTH.fullmatch(arm)),
            tuple(sorted((arm for arm in seeds if _LENGTH.fullmatch(arm)), key=_length)),
            {arm: tuple(sorted(owned)) for arm, owned in seeds.items()},
            measures,
            level,
            dict(subjects),
            dict(tasks),
        )

    @property
    def depth(self) -> int:
        """The number of layers, as far as the schedules say; 0 where they do not."""
        layers = [int(metric) for measure, metric, _ in self._subjects if measure == SCHEDULE and metric.isdecimal()]
        return 1 + max(layers, default=-1)

    def subjects(self, measure: str, metric: str, task: str = ALL) -> Rows:
        """Subject to score; empty where it was not measured."""
        return self._subjects.get((measure, metric, task), {})

    def tasks(self, measure: str, metric: str, subject: str) -> Rows:
        """Task to score, of one subject; empty where it was not measured."""
        return self._tasks.get((measure, metric, subject), {})

    def measured(self, measure: str, metric: str) -> tuple[str, ...]:
        """The subjects that one metric of a measure speaks of, on any task, as first met."""
        return tuple(subject for owner, name, subject in self._tasks if (owner, name) == (measure, metric))

    def score(self, measure: str, metric: str, subject: str, task: str = ALL) -> Score | None:
        """One score, or `None` where it was not measured."""
        return self.subjects(measure, metric, task).get(subject)

    def by_seed(self, measure: str, metric: str, arm: str, task: str = ALL) -> dict[int, Score]:
        """Seed to score, of one arm."""
        rows = self.subjects(measure, metric, task)
        return {seed: rows[f"{arm}/{seed}"] for seed in self.seeds.get(arm, ()) if f"{arm}/{seed}" in rows}

    def of_arm(self, measure: str, metric: str, arm: str, task: str = ALL) -> Score | None:
        """The row of the arm itself, else the mean of its seeds, without an interval."""
        whole = self.score(measure, metric, arm, task)
        own = list(self.by_seed(measure, metric, arm, task).values())
        if whole is not None or len(own) < 2:
            return whole or next(iter(own), None)
        return replace(own[0], subject=arm, value=fmean(score.value for score in own), low=None, high=None, p=None)

    def phases(self, arm: str) -> tuple[PhaseSteps, ...]:
        """The phases of an arm, in order of time."""
        tasks = {
            task
            for measure, _, subject in self._tasks
            if measure in (SCHEDULE, ACCOUNTING) and subject == arm
            for task in self._tasks[measure, _, subject]
        }
        return tuple(sorted(PhaseSteps(int(m[1]), int(m[2]), m[3]) for task in tasks if (m := _PHASE.fullmatch(task))))

    def shares(self, arm: str, phase: PhaseSteps) -> dict[str, float]:
        """Part (layer number, `embedding`, `head`) to the share of its full cost that the phase spends on it."""
        return {
            metric: rows[arm].value
            for (measure, metric, task), rows in self._subjects.items()
            if measure == SCHEDULE and task == phase.task and arm in rows
        }

    @property
    def uniform_lengths(self) -> tuple[str, ...]:
        """Uniform, and its trainings of other lengths."""
        return (UNIFORM, *(name for name in self.lengths if name.startswith(f"{UNIFORM}@")))

    def epochs(self, arm: str) -> dict[int, float]:
        """Layer to how often the text was read while it learned, by depth."""
        rows = {metric: own[arm] for (of, metric, _), own in self._subjects.items() if of == EPOCHS and arm in own}
        return {int(layer): rows[layer].value for layer in sorted(filter(str.isdecimal, rows), key=int)}

    @property
    def importance(self) -> dict[int, Score]:
        """Layer to what skipping it cost the model that the planned schedule was made from, by depth."""
        rows = self.subjects(IMPORTANCE, "skip")
        return {int(layer): rows[layer] for layer in sorted(filter(str.isdecimal, rows), key=int)}

    @property
    def null(self) -> Score | None:
        """What a table of token pairs loses on the held-out text."""
        return self.score(NULL, "nll", "token pairs", TEST)

    def losses(self, subject: str) -> dict[int, float]:
        """Step to validation loss of one training, or to its training loss where it was never validated."""
        for metric in ("validation_loss", "train_loss"):
            rows = self.tasks(TRAINING, metric, subject)
            losses = {int(match[1]): score.value for task, score in rows.items() if (match := _STEP.fullmatch(task))}
            if losses:
                return dict(sorted(losses.items()))
        return {}

    def against(self, arm: str, other: str = UNIFORM, terms: str = "flops") -> Score | None:
        """The loss of an arm minus that of another, on these terms."""
        return self.score(GROWTH, DIFFERENCE, f"{arm} - {other}", terms)


def _length(name: str) -> tuple[bool, str, float]:
    """Where a length stands: those of uniform first, each by its share of the budget."""
    arm, _, share = name.partition("@")
    return arm != UNIFORM, arm, float(share)
