"""The rows of a diagnosis, looked up: any measure by depth, with its nulls beside it.

A diagnosis asks many questions of one model, and each answer is a `Score`. Three conventions make them one table:
the subject is a layer `12`, one half of it `12.attn`, a pair `3,7`, or the whole model `all`; a null is a row of the
same measure, subject and task whose metric is `<metric>@<null>`, its interval the null's band; and a pair of numbers
that must be read together shares its interval. `DiagnosisScores` finds rows by these conventions, so that figures,
claims and tables all read one source. Values that are not finite are not measured: no lookup returns them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from layerwise.plan import Sublayer
from layerwise.results.rows import Score

WHOLE = "all"
NULL = "@"
MEASURES = (
    "ablation",
    "verdict",
    "racing",
    "deltas",
    "predictability",
    "recovery",
    "manipulation",
    "structure",
    "proxies",
    "agreement",
    "pruning",
)
"""The measures of a diagnosis, in the order of the report."""

ORDER = "order"
"""The family of the plans by which a diagnosis asks whether order matters; their rows are effects, as in a sweep."""

BY_LAYER = frozenset({"ablation", "verdict", "racing", "predictability", "recovery", "manipulation", "structure"})
"""Measures whose numeric subjects are layers; elsewhere a number may be a lag or a hidden state."""
VERDICTS = ("matters", "no_effect", "harmful", "unresolved")

_HALF = re.compile(r"(\d+)(?:\.(attn|mlp))?")
_PAIR = re.compile(r"(\d+),(\d+)")


@dataclass(frozen=True, slots=True)
class DiagnosisScores:
    """Every finite score of a run by measure, metric and task: build it with `DiagnosisScores.of`.

    Each group of `rows` maps a subject to its score. `level` is the significance level of every verdict.
    """

    depth: int
    level: float
    rows: Mapping[tuple[str, str, str], Mapping[str, Score]] = field(repr=False)

    @classmethod
    def of(cls, scores: Iterable[Score], depth: int, level: float = 0.05) -> DiagnosisScores:
        """Look the rows up once."""
        rows: dict[tuple[str, str, str], dict[str, Score]] = defaultdict(dict)
        for score in scores:
            if math.isfinite(score.value):
                rows[score.measure, score.metric, score.task][score.subject] = score
        return cls(depth, level, dict(rows))

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures of a diagnosis that have rows, in reading order."""
        present = {measure for measure, _, _ in self.rows}
        return tuple(measure for measure in MEASURES if measure in present)

    def subjects(self, measure: str, metric: str, task: str = WHOLE) -> Mapping[str, Score]:
        """Every score of one metric on one task, by subject; empty where it was not measured."""
        return self.rows.get((measure, metric, task), {})

    def score(self, measure: str, subject: str, metric: str, task: str = WHOLE) -> Score | None:
        """One score, or `None` where it was not measured."""
        return self.subjects(measure, metric, task).get(subject)

    def layers(self, measure: str, metric: str, task: str = WHOLE, part: Sublayer | None = None) -> dict[int, Score]:
        """Layer to score, by depth; with `part` the scores of that half of each layer."""
        scores = {}
        for subject, score in self.subjects(measure, metric, task).items():
            match = _HALF.fullmatch(subject)
            if match and match[2] == part:
                scores[int(match[1])] = score
        return dict(sorted(scores.items()))

    def pairs(self, measure: str, metric: str, task: str = WHOLE) -> dict[tuple[int, int], Score]:
        """Scores of pairs of numbers, `3,7`: two layers, or where a window begins and how long it is."""
        scores = {}
        for subject, score in self.subjects(measure, metric, task).items():
            if match := _PAIR.fullmatch(subject):
                scores[int(match[1]), int(match[2])] = score
        return dict(sorted(scores.items()))

    def nulls(self, measure: str, metric: str, task: str = WHOLE) -> tuple[str, ...]:
        """The nulls that a metric has on a task, by name."""
        head = f"{metric}{NULL}"
        owned = (name for owner, name, on in self.rows if owner == measure and on == task)
        return tuple(sorted(name.removeprefix(head) for name in owned if name.startswith(head)))

    def metrics(self, measure: str, prefix: str = "") -> tuple[str, ...]:
        """The metrics of a measure that begin with `prefix`, nulls left out, as first met."""
        names = (name for owner, name, _ in self.rows if owner == measure)
        return tuple(dict.fromkeys(name for name in names if name.startswith(prefix) and NULL not in name))

    def tasks(self, measure: str, metric: str | None = None) -> tuple[str, ...]:
        """The tasks (or tensor types) of a measure, or of one metric of it: "all" first, then by name."""
        tasks = {task for owner, name, task in self.rows if owner == measure and metric in (None, name)}
        return tuple(sorted(tasks, key=lambda task: (task != WHOLE, task)))

    def verdicts(self) -> dict[int, Score]:
        """What each layer is: the confirmed verdict where there is one, else the verdict of the race."""
        verdicts: dict[int, Score] = {}
        for measure in ("racing", "verdict"):
            for name in VERDICTS:
                verdicts |= self.layers(measure, name)
        return dict(sorted(verdicts.items()))


def depth_of(scores: Iterable[Score]) -> int:
    """The number of layers that the rows of a diagnosis speak of, 0 when they name none.

    >>> depth_of([Score("ablation", "11.mlp", "all", "skip", 0.1)])
    12
    """
    matches = (_HALF.fullmatch(score.subject) for score in scores if score.measure in BY_LAYER)
    return 1 + max((int(match[1]) for match in matches if match), default=-1)
