"""The rows of a robustness run, looked up: arms, seeds, and how each did under every condition.

A robustness run trains one model in several ways, its arms, and asks what each survives: another order, fewer layers,
layers of other models. An arm is a mean over seeds, `arm/0` one seed alone. Rows are found in two directions: one
condition over all subjects, or one subject over all conditions (the steps of its training, the orders it ran in).
Values that are not finite are not measured: no lookup returns them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from layerwise.report.arms import as_subject, in_reading_order, split_seed
from layerwise.report.interval import bounded
from layerwise.report.quantity import ACCURACY, LOSS, NATS_ABOVE, POINTS, Quantity
from layerwise.results.rows import Score

WHOLE = "all"
MODEL = "model"
TRAINING = "training"
MEASURES = (
    "robustness",
    "orders",
    "identity",
    "merging",
    "merges",
    "position",
    "branches",
    "contribution",
    "nodes",
    "worth",
    "attention",
    "embedding",
    TRAINING,
)
"""The measures of a robustness run, in the order of the report."""

IN_ORDER, RANDOM_ORDER = "sequential", "random"
CONDITIONS: dict[str, str] = {IN_ORDER: "in order", RANDOM_ORDER: "in random order"}
RULES: dict[str, str] = {"even": "evenly spaced", "first": "the first", "last": "the last", "random": "at random"}
"""Which layers are kept when some are left out, and how it is said."""

BY_SUBJECT = frozenset({"robustness", "orders", "identity", "position", "merging", "merges", "nodes", TRAINING})
"""Measures whose subject is an arm; the others are about a layer, and their task is the arm."""

Rows = Mapping[str, Score]


@dataclass(frozen=True, slots=True)
class RobustnessScores:
    """Every finite score of a robustness run: build it with `RobustnessScores.of`.

    `arms` stand in reading order, `seeds` maps an arm to the seeds it was trained with. `quantity` is what the run
    leads with, `level` the significance level of every verdict.
    """

    depth: int
    arms: tuple[str, ...]
    seeds: Mapping[str, tuple[int, ...]]
    quantity: Quantity
    level: float
    measures: tuple[str, ...]
    _subjects: Mapping[str, tuple[str, ...]] = field(repr=False)
    _by_subject: Mapping[tuple[str, str, str], Rows] = field(repr=False)
    _by_task: Mapping[tuple[str, str, str], Rows] = field(repr=False)

    @classmethod
    def of(cls, scores: Iterable[Score], depth: int | None = None, level: float = 0.05) -> RobustnessScores:
        """Look the rows up once; the depth is the one that they state unless it is given."""
        by_subject: dict[tuple[str, str, str], dict[str, Score]] = defaultdict(dict)
        by_task: dict[tuple[str, str, str], dict[str, Score]] = defaultdict(dict)
        finite = [
            as_subject(bounded(score)) for score in scores if score.measure in MEASURES and math.isfinite(score.value)
        ]
        for score in finite:
            by_subject[score.measure, score.metric, score.task][score.subject] = score
            by_task[score.measure, score.metric, score.subject][score.task] = score
        named = {name: split_seed(name) for score in finite if score.subject != MODEL for name in [_arm(score)]}
        seeds: dict[str, set[int]] = defaultdict(set)
        subjects: dict[str, dict[str, None]] = defaultdict(dict)
        for name, (arm, seed) in named.items():
            seeds[arm] |= set() if seed is None else {seed}
            subjects[arm][name] = None
        leads = by_subject.get(("robustness", "leads", WHOLE), {}).get(MODEL)
        present = {score.measure for score in finite}
        return cls(
            depth or depth_of(finite),
            in_reading_order(subjects),
            {arm: tuple(sorted(owned)) for arm, owned in seeds.items()},
            LOSS if leads is not None and leads.value == 0.0 else ACCURACY,
            level,
            tuple(measure for measure in MEASURES if measure in present),
            {arm: tuple(sorted(names, key=_by_seed)) for arm, names in subjects.items()},
            dict(by_subject),
            dict(by_task),
        )

    @property
    def is_language(self) -> bool:
        """Whether the model writes text: it then leads with nats per token and has no top-5 accuracy."""
        return self.quantity is LOSS

    @property
    def only_trained(self) -> bool:
        """Whether nothing but the training itself was measured."""
        return self.measures == (TRAINING,)

    @property
    def examples(self) -> int | None:
        """How many images (or documents) the survival was measured on."""
        counts = [
            score.documents
            for (measure, _, _), rows in self._by_subject.items()
            if measure == "robustness"
            for score in rows.values()
            if score.documents is not None
        ]
        return max(counts, default=None)

    def subjects(self, measure: str, metric: str, task: str = WHOLE) -> Rows:
        """One metric under one condition: subject to score; empty where it was not measured."""
        return self._by_subject.get((measure, metric, task), {})

    def conditions(self, measure: str, metric: str, subject: str) -> Rows:
        """One metric of one subject: condition (task) to score; empty where it was not measured."""
        return self._by_task.get((measure, metric, subject), {})

    def score(self, measure: str, metric: str, subject: str, task: str = WHOLE) -> Score | None:
        """One score, or `None` where it was not measured."""
        return self.subjects(measure, metric, task).get(subject)

    def lead(self, arm: str, task: str) -> Score | None:
        """How an arm did under a condition, in the quantity that the run leads with."""
        return self.score("robustness", self.quantity.metric, arm, task)

    def metrics(self, measure: str) -> tuple[str, ...]:
        """The metrics of a measure, as first met."""
        return tuple(dict.fromkeys(metric for owner, metric, _ in self._by_subject if owner == measure))

    def arms_with(self, measure: str, metric: str | None = None) -> tuple[str, ...]:
        """The arms that a measure (or one metric of it) speaks of, in reading order, seeds counted to their arm."""
        keys = (
            key
            for key, rows in (self._by_task if measure in BY_SUBJECT else self._by_subject).items()
            if key[0] == measure and metric in (None, key[1]) and rows
        )
        named = {split_seed(name)[0] for _, _, name in keys}
        return tuple(arm for arm in self.arms if arm in named)

    def seeded(self, measure: str, metric: str, arm: str) -> dict[str, Rows]:
        """The subjects of an arm, its seeds and then the arm itself, each with its scores by condition."""
        names = self._subjects.get(arm, ())
        return {name: rows for name in names if (rows := self.conditions(measure, metric, name))}

    @property
    def unfinished(self) -> list[str]:
        """The trainings that were begun and have no end."""
        begun = {name for arm in self.arms for name in self.seeded(TRAINING, "train_loss", arm)}
        return sorted(begun - set(self.subjects(TRAINING, "steps")))

    def pairs(self, measure: str, metric: str, task: str) -> dict[tuple[int, int], Score]:
        """Scores whose subject is a pair of numbers, `layer,position` or `image,position`."""
        scores = {}
        for subject, score in self.subjects(measure, metric, task).items():
            left, comma, right = subject.partition(",")
            if comma and left.isdecimal() and right.isdecimal():
                scores[int(left), int(right)] = score
        return dict(sorted(scores.items()))

    def points(self, metric: str, arm: str) -> dict[tuple[int, int, int], Score]:
        """The scores of measure `embedding` whose subject is `image,layer,position`."""
        scores = {}
        for subject, score in self.subjects("embedding", metric, arm).items():
            parts = subject.split(",")
            if len(parts) == 3 and all(part.isdecimal() for part in parts):
                scores[int(parts[0]), int(parts[1]), int(parts[2])] = score
        return dict(sorted(scores.items()))

    def kept(self, arm: str, rule: str, condition: str) -> dict[int, Score]:
        """Number of layers kept under a rule to how the arm did; with all of its layers no rule is needed."""
        tasks = {count: f"kept {count} {rule} {condition}" for count in range(1, self.depth)}
        rows = {count: score for count, task in tasks.items() if (score := self.lead(arm, task)) is not None}
        whole = self.lead(arm, condition)
        return rows | ({self.depth: whole} if rows and whole is not None else {})

    @property
    def chance(self) -> float | None:
        """What knowing nothing gives, in the unit of the rows: the largest class, or a uniform guess of the token."""
        if not self.is_language:
            share = self.score("robustness", "accuracy@chance", MODEL)
            return None if share is None else share.value
        classes = self.score("robustness", "classes", MODEL)
        return None if classes is None or classes.value < 1.0 else math.log(classes.value)

    @property
    def above(self) -> Quantity:
        """The paired difference to the baseline: in nats where a language model has it, else in points of accuracy."""
        return NATS_ABOVE if self.is_language and self.arms_with("robustness", NATS_ABOVE.metric) else POINTS

    @property
    def reference(self) -> float | None:
        """Chance in the unit of the axes."""
        return None if self.chance is None else self.quantity.scale * self.chance


def depth_of(scores: Iterable[Score]) -> int:
    """The number of layers that a robustness run states, 0 where it states none."""
    stated = (
        score.value
        for score in scores
        if (score.measure, score.subject, score.metric) == ("robustness", MODEL, "depth") and math.isfinite(score.value)
    )
    return int(next(stated, 0.0))


def _arm(score: Score) -> str:
    return score.subject if score.measure in BY_SUBJECT else score.task


def _by_seed(name: str) -> tuple[bool, list[str | int]]:
    """The order of the subjects of one arm: by seed, the arm itself last, numbers as numbers."""
    parts = [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
    return split_seed(name)[1] is None, parts
