"""The rows of pre-trained models, looked up: their arms, what each knows, what it learned to read, what it cost.

An arm is a wiring of one architecture (`ltg`, the backbone, or one that weighs what its layers read); `ltg/0` is one
seed of it, `ltg/0.2` one fine-tuning of that seed. Three kinds of run have such rows, and one run may be of all three:
a pre-training, an evaluation on benchmarks, and a study of whether the layer weights are worth it. Values that are not
finite are not measured: no lookup returns them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from layerwise.plan.subject import plan_and_label
from layerwise.report.arms import as_subject, in_reading_order
from layerwise.report.interval import bounded
from layerwise.report.pretraining.layer_weights import Alpha
from layerwise.results.rows import Score

ALL = "all"
HELD_OUT, ALPHA, SEED_AGREEMENT, EDGES, STUDY, TRAINING = (
    "masked_lm",
    "alpha",
    "seed_agreement",
    "edges",
    "study",
    "training",
)
UNIFORMITY, STABILITY, BABYLM, ATTRIBUTION = "uniformity", "stability", "babylm", "attribution"
INITIAL_BIAS, DATA_SHARE, CONVERGENCE, EDGE_PHENOMENA = "initial_bias", "data_share", "convergence", "edge_phenomena"
TUNING_CONVERGENCE = "tuning_convergence"
_NOT_OF_ARMS = (
    STUDY, SEED_AGREEMENT, EDGES, INITIAL_BIAS, DATA_SHARE, CONVERGENCE, TUNING_CONVERGENCE, EDGE_PHENOMENA,
)  # fmt: skip
"""Measures whose subjects are differences, grids, edges, or arms of other rows."""

SUITES: dict[str, str] = {
    "pairs": "Minimal pairs of our own",
    "blimp": "BLiMP",
    "supplement": "BLiMP supplement",
    "ewok": "EWoK",
}
"""Suites of minimal pairs: the better of two sentences must be the likelier. A user's file is `pairs NAME`."""

TASKS: dict[str, str] = {"glue": "GLUE", "msgs": "MSGS", "msgs-ours": "Mixed signals of our own"}
"""Suites a model is fine-tuned on."""

BACKBONE = "ltg"
COSTS: dict[str, str] = {
    "parameters": "parameters",
    "tokens": "tokens",
    "seconds": "training (s)",
    "step_seconds": "step (s)",
    "peak_bytes": "peak (MiB)",
    "latency_seconds": "pass (ms)",
    "weight_bytes": "weights (MiB)",
    "state_bytes": "states (MiB)",
    "activation_bytes": "activations (MiB)",
    "allocated_bytes": "pass peak (MiB)",
}
_SUBJECT = re.compile(r"(?P<arm>.+)/(?P<seed>\d+)(?P<tuning>\.\d+)?")

Rows = Mapping[str, Score]


def is_suite(measure: str) -> bool:
    """Whether a measure is a suite of minimal pairs.

    >>> is_suite("blimp"), is_suite("pairs my.jsonl"), is_suite("glue")
    (True, True, False)
    """
    return measure in SUITES or measure.startswith("pairs ")


def suite_name(measure: str) -> str:
    """A suite as it is read; a user's file goes by its own name.

    >>> suite_name("blimp"), suite_name("pairs my.jsonl")
    ('BLiMP', 'my.jsonl')
    """
    return SUITES.get(measure) or TASKS.get(measure) or measure.removeprefix("pairs ")


@dataclass(frozen=True, slots=True)
class PretrainingScores:
    """Every finite score of pre-trained models: build it with `PretrainingScores.of`.

    `arms` stand in reading order with their `seeds`; `weights` maps an arm to its layer weights over seeds; `measures`
    are those that have rows, as first met. `level` is the significance level of every verdict.
    """

    arms: tuple[str, ...]
    seeds: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, Alpha]
    measures: tuple[str, ...]
    level: float
    _rows: Mapping[tuple[str, str, str], Rows] = field(repr=False)

    @classmethod
    def of(cls, scores: Iterable[Score], level: float = 0.05) -> PretrainingScores:
        """Look the rows up once; a run without pre-trained models has no measures."""
        known = (score for score in scores if _is_known(score.measure) and not _is_under_a_plan(score))
        finite = [as_subject(bounded(score)) for score in known if math.isfinite(score.value)]
        measures = tuple(dict.fromkeys(score.measure for score in finite))
        if set(measures) <= {TRAINING}:  # the training of another kind of run
            return cls((), {}, {}, (), level, {})
        rows: dict[tuple[str, str, str], dict[str, Score]] = defaultdict(dict)
        seeds: dict[str, set[int]] = defaultdict(set)
        alphas: dict[str, list[Score]] = defaultdict(list)
        for score in finite:
            rows[score.measure, score.metric, score.task][score.subject] = score
            arm, seed = split_subject(score.subject)
            if score.measure not in _NOT_OF_ARMS:
                seeds[arm] |= set() if seed is None else {seed}
            if score.measure == ALPHA:
                alphas[arm].append(score)
        arms = in_reading_order(seeds)
        weights = {arm: Alpha.of(alphas[arm]) for arm in arms if arm in alphas}
        return cls(arms, {arm: tuple(sorted(seeds[arm])) for arm in arms}, weights, measures, level, dict(rows))

    @property
    def is_pretrained(self) -> bool:
        """Whether models were pre-trained in this run, and not refined with layer weights of their own."""
        return HELD_OUT in self.measures or SEED_AGREEMENT in self.measures

    @property
    def is_wired(self) -> bool:
        """Whether a wiring was measured, or learned by models that were refined; a pre-training tells of its own."""
        return bool({EDGES, EDGE_PHENOMENA} & set(self.measures)) or (ALPHA in self.measures and not self.is_pretrained)

    @property
    def is_evaluated(self) -> bool:
        """Whether models were evaluated on a benchmark."""
        return bool(self.suites or self.tasks)

    @property
    def is_studied(self) -> bool:
        """Whether arms were compared."""
        return STUDY in self.measures

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites of minimal pairs that were evaluated, the known ones first."""
        others = (measure for measure in self.measures if is_suite(measure) and measure not in SUITES)
        return (*(name for name in SUITES if name in self.measures), *others)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The suites that models were fine-tuned on."""
        return tuple(name for name in TASKS if name in self.measures)

    @property
    def depth(self) -> int:
        """The number of layers, as far as layer weights say; 0 where there are none."""
        return max((alpha.depth for alpha in self.weights.values()), default=0)

    @property
    def reference(self) -> str | None:
        """The arm that the others are compared with: the backbone where it was trained."""
        return BACKBONE if BACKBONE in self.arms else None

    def subjects(self, measure: str, metric: str, task: str = ALL) -> Rows:
        """Subject to score; empty where it was not measured."""
        return self._rows.get((measure, metric, task), {})

    def score(self, measure: str, metric: str, subject: str, task: str = ALL) -> Score | None:
        """One score, or `None` where it was not measured."""
        return self.subjects(measure, metric, task).get(subject)

    def tasks_of(self, measure: str, metric: str | None = None) -> tuple[str, ...]:
        """The tasks of a measure (or of one metric of it), as first met."""
        tasks = (task for owner, name, task in self._rows if owner == measure and metric in (None, name))
        return tuple(dict.fromkeys(tasks))

    def metrics_of(self, measure: str, task: str) -> tuple[str, ...]:
        """The metrics of a task, as first met."""
        return tuple(name for owner, name, of in self._rows if owner == measure and of == task)

    def by_arm(self, measure: str, metric: str, task: str = ALL) -> dict[str, Score]:
        """Arm to score: the row of the arm itself, else the mean of its seeds, without an interval."""
        rows = self.subjects(measure, metric, task)
        return {arm: score for arm in self.arms if (score := _of_arm(rows, arm)) is not None}

    def by_seed(self, measure: str, metric: str, arm: str, task: str = ALL) -> dict[int, Score]:
        """Seed to score, of one arm."""
        rows = self.subjects(measure, metric, task)
        return {seed: rows[f"{arm}/{seed}"] for seed in self.seeds.get(arm, ()) if f"{arm}/{seed}" in rows}


def split_subject(subject: str) -> tuple[str, int | None]:
    """The arm and the seed of a subject, whichever fine-tuning of it; one without a seed is the arm itself.

    >>> split_subject("elc/2"), split_subject("elc/2.0"), split_subject("org/model")
    (('elc', 2), ('elc', 2), ('org/model', None))
    """
    match = _SUBJECT.fullmatch(subject)
    return (match["arm"], int(match["seed"])) if match else (subject, None)


def _is_known(measure: str) -> bool:
    known = (HELD_OUT, ALPHA, TRAINING, UNIFORMITY, STABILITY, BABYLM, ATTRIBUTION, *_NOT_OF_ARMS, *TASKS)
    return measure in known or is_suite(measure)


def _is_under_a_plan(score: Score) -> bool:
    """Whether a row is of a model that was fine-tuned under a plan, which has a chapter of its own."""
    return score.measure in TASKS and plan_and_label(score.subject)[0] is not None


def _of_arm(rows: Rows, arm: str) -> Score | None:
    if arm in rows:
        return rows[arm]
    own = [
        score for subject, score in rows.items() if split_subject(subject)[0] == arm and "." not in subject[len(arm) :]
    ]
    if len(own) < 2:
        return own[0] if own else None
    return replace(own[0], subject=arm, value=fmean(score.value for score in own), low=None, high=None, p=None)
