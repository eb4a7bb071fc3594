"""Hidden states under plans, read from rows: their cosines, their variance, and the zones of the depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from layerwise.plan import Plan
from layerwise.report.evidence import Evidence
from layerwise.report.finding import Finding, Number
from layerwise.report.page.number_format import between, probability
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted, label, listed
from layerwise.report.sweep.similarity import Matrix
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import STATES, ZONES

LEVEL, MARGIN = 0.01, 0.02
"""What one zone more takes: the share of walks that separate as much, and the cosine that its borders are worth."""


@dataclass(frozen=True, slots=True)
class PlanZones:
    """The states 1.. under one plan: `cosine` of every pair, `variance` by state, and the zones.

    `borders` are the first states of the zones after the first, `None` where there are too few states to be cut into
    zones; `contrasts` those of the borders, and `p` that of more zones.
    """

    plan: str
    cosine: Matrix
    variance: Mapping[int, Score]
    borders: tuple[int, ...] | None
    contrasts: tuple[Score, ...]
    p: float | None

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The first and the last state of every zone; none where there are no zones."""
        if self.borders is None:
            return ()
        edges = (1, *self.borders, len(self.cosine) + 1)
        return tuple((first, stop - 1) for first, stop in pairwise(edges))

    @property
    def by_margin(self) -> str:
        """That only what their borders are worth refused more zones, which are clearer than walks give; else empty."""
        if self.p is None or self.p > LEVEL:
            return ""
        return (
            f"More zones are clearer than walks give (p {probability(self.p)}), but a border of theirs is worth less"
            f" than {MARGIN:g} of cosine: the margin decides, and not the walks."
        )

    @property
    def shown_p(self) -> str:
        """The p-value of more zones; where it is not what refused them, that the margin is."""
        by_margin = f" (borders worth less than {MARGIN:g} of cosine)" if self.by_margin else ""
        return f"{probability(self.p)}{by_margin}"

    @property
    def longest(self) -> tuple[int, int]:
        """The first and the last state of the longest zone, which is the middle of the depth; the first of equal
        ones. State j is what stage j of the plan passes on.
        """
        return max(self.ranges, key=lambda zone: (zone[1] - zone[0], -zone[0]))

    def part(self, zone: tuple[int, int]) -> str:
        """Whether one of the zones is of the beginning, the middle or the ending."""
        return "beginning" if zone < self.longest else "middle" if zone == self.longest else "ending"

    @property
    def beginning(self) -> int:
        """The layers before the middle."""
        return self.longest[0] - 1

    @property
    def middle(self) -> int:
        """The layers of the middle."""
        return 1 + self.longest[1] - self.longest[0]

    @property
    def ending(self) -> int:
        """The layers after the middle."""
        return self.ranges[-1][1] - self.longest[1]


def plan_zones(evidence: Evidence) -> tuple[PlanZones, ...]:
    """Every plan whose states were compared, in the order of the rows."""
    rows = evidence.run.rows.where(measure=(STATES, ZONES))
    return tuple(_of_plan(plan, own) for plan, own in rows.by("plan").items())


def trained_zones(evidence: Evidence) -> PlanZones | None:
    """The zones of the model as trained; `None` where its states were not compared, or are too few to be cut."""
    trained = str(Plan.identity(evidence.depth)) if evidence.depth else ""
    return next((each for each in plan_zones(evidence) if each.plan == trained and each.ranges), None)


def zones_finding(evidence: Evidence) -> Finding | None:
    """Into how many zones does the depth of the model as trained fall?"""
    own = trained_zones(evidence)
    if own is None:
        return None
    question = "Into how many zones does the depth fall?"
    by_margin = f" {own.by_margin}" if own.by_margin else ""
    if len(own.ranges) == 1:
        why = by_margin or " No border is clearer than a walk gives."
        answer = (f"One: hidden states 1–{len(own.cosine)} are less alike the farther apart they are.{why}",)
        return Finding(question, answer, "unresolved")
    clear = all(score.low is not None and score.low > 0.0 for score in own.contrasts)
    pieces = (
        f"{counted(len(own.ranges), 'zone')}: states {in_words(own)}. At equal distance the states across ",
        "the border are" if len(own.contrasts) == 1 else "the borders are",
        " less alike than those inside by ",
        Number(listed([_shown(score) for score in own.contrasts])),
        f" of cosine.{by_margin}",
    )
    return Finding(question, pieces, "resolved" if clear else "unresolved")


def zone_table(evidence: Evidence) -> Table:
    """A row for each plan: its strategy, its zones, what their borders are worth, and the p-value of more."""
    body = []
    for each in plan_zones(evidence):
        record = evidence.records.get(each.plan)
        strategy = "–" if record is None else "as trained" if record.family == "identity" else label(record.strategy)
        body.append((each.plan, strategy, in_words(each), borders_in_words(each), each.shown_p))
    return Table(("plan", "strategy", "zones", "contrast of the borders", "p of more"), tuple(body), numeric_from=3)


def in_words(each: PlanZones) -> str:
    """The zones as ranges of states; of too few states none."""
    return " | ".join(f"{first}–{last}" if last > first else str(first) for first, last in each.ranges) or "–"


def _of_plan(plan: str, rows: Rows) -> PlanZones:
    cosine: dict[tuple[int | None, int | None], float] = {}
    for row in rows.where(metric="cosine"):
        cosine[row.layer, row.other] = cosine[row.other, row.layer] = row.value
    variance, borders, contrasts = (
        dict(sorted(rows.where(metric=metric).along("layer").items())) for metric in ("variance", "border", "contrast")
    )
    numbers = range(1, 1 + max(variance, default=0))
    matrix = tuple(tuple(1.0 if row == column else cosine.get((row, column)) for column in numbers) for row in numbers)
    cut = rows.one(metric="zones") is not None
    return PlanZones(
        plan, matrix, variance, tuple(borders) if cut else None, tuple(contrasts.values()), rows.value(metric="p")
    )


def borders_in_words(each: PlanZones) -> str:
    """What the borders are worth, in units of cosine."""
    return listed([_shown(score) for score in each.contrasts]) or "–"


def _shown(score: Score) -> str:
    return between(score.value, score.low, score.high, signed=True)
