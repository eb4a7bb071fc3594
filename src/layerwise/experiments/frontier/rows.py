"""The rows of a frontier that are no verdicts: arms, losses, and the draft.

Measure `frontier`, of subject what was timed:

    arm         task `ARM: KIND`: how many layers the plan leaves out, joins or repeats
    delta_nll   task `report`: nats per token above the model as trained on fresh text, paired by document; interval, p,
                Holm's p over all. Drafts lose nothing, for they change no text
    delta_nll   task `choose`: the same on the text that chose the plans, without an interval

Measure `frontier_draft`: of subject the draft, task `choose`: how often it `agreement` has the model's own arg-max.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from layerwise.measure.cost.latency_verdict import FRONTIER, LatencyPoint
from layerwise.measure.stats.differences import ArmLosses, differences
from layerwise.results.rows import Loss, Score

DRAFT = "frontier_draft"
CHOOSE, REPORT = "choose", "report"
DELTA = "delta_nll"


@dataclass(frozen=True, slots=True)
class ArmPoint:
    """A point with its kind within the arm, and its size in layers."""

    point: LatencyPoint
    kind: str
    size: int


def point_rows(
    points: Sequence[ArmPoint], losses: Iterable[Loss], chosen_on: Mapping[str, float], whole: str, *, seed: int
) -> list[Score]:
    """The rows of every point; `losses` are those on fresh text, of the model as trained too."""
    rows = list(losses)
    keys = dict.fromkeys(each.point.losses for each in points if each.point.losses != whole)
    arms = [ArmLosses(key, DELTA, {"subject": key}) for key in keys]
    compared = differences(FRONTIER, rows, whole, arms, seed=seed, by_task=False)
    deltas = {score.subject: replace(score, task=REPORT) for score in compared if score.against is None}
    tokens = sum(row.tokens for row in rows if row.plan == whole)
    deltas[whole] = Score(FRONTIER, whole, REPORT, DELTA, 0.0, 0.0, 0.0, tokens=tokens)
    made = []
    for each in points:
        point = each.point
        above = chosen_on[point.losses] - chosen_on[whole]
        made += [
            Score(FRONTIER, point.name, f"{point.arm}: {each.kind}", "arm", float(each.size)),
            replace(deltas[point.losses], subject=point.name),
            Score(FRONTIER, point.name, CHOOSE, DELTA, above),
        ]
    return made
