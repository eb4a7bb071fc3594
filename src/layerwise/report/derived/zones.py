"""The zones of the depth under a plan: runs of states that are more alike, at equal distance, than with those around.

State j is what stage j of the plan passes on. Where they were compared the states are cut by a test against walks
(`layerwise.measure.activations`), of which the rows hold the borders, their contrasts, and the p-value of more zones.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from layerwise.plan import Plan
from layerwise.report.data import ReportData
from layerwise.report.show import SIGNED
from layerwise.report.text.number_format import probability
from layerwise.report.text.wording import listed
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import STATES, ZONES

LEVEL, MARGIN = 0.01, 0.02
"""What one zone more takes: the share of walks that separate as much, and the cosine that its borders are worth."""


@dataclass(frozen=True, slots=True)
class PlanZones:
    """The zones of the states 1 to `states` under one plan.

    `borders` are the first states of the zones after the first, `None` where there are too few states to be cut into
    zones; `contrasts` those of the borders, and `p` that of more zones.
    """

    plan: str
    states: int
    borders: tuple[int, ...] | None
    contrasts: tuple[Score, ...]
    p: float | None

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The first and the last state of every zone; none where there are no zones."""
        if self.borders is None:
            return ()
        edges = (1, *self.borders, self.states + 1)
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
        ones."""
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

    @property
    def in_words(self) -> str:
        """The zones as ranges of states; of too few states a dash."""
        return " | ".join(f"{first}–{last}" if last > first else str(first) for first, last in self.ranges) or "–"

    @property
    def borders_in_words(self) -> str:
        """What the borders are worth, in units of cosine; without any a dash."""
        return listed([SIGNED.text(score) for score in self.contrasts]) or "–"


def plan_zones(data: ReportData) -> tuple[PlanZones, ...]:
    """Every plan whose states were compared, in the order of the rows."""
    rows = data.rows.where(measure=(STATES, ZONES))
    return tuple(_of_plan(plan, own) for plan, own in rows.by("plan").items())


def trained_zones(data: ReportData) -> PlanZones | None:
    """The zones of the model as trained; `None` where its states were not compared, or are too few to be cut."""
    trained = str(Plan.identity(data.depth)) if data.depth else ""
    return next((each for each in plan_zones(data) if each.plan == trained and each.ranges), None)


def _of_plan(plan: str, rows: Rows) -> PlanZones:
    states = max(rows.where(metric="variance").axis("layer"), default=0)
    borders, contrasts = (
        dict(sorted(rows.where(metric=metric).along("layer").items())) for metric in ("border", "contrast")
    )
    cut = rows.one(metric="zones") is not None
    return PlanZones(
        plan, states, tuple(borders) if cut else None, tuple(contrasts.values()), rows.value(metric="p")
    )  # fmt: skip
