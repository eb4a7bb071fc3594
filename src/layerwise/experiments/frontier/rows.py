"""The rows of a frontier that are no verdicts: arms, losses, and the draft.

Measure `frontier`, of what was timed (`plan`):

    size        of its `arm`, and of its kind there (`part`): how many layers the plan leaves out, joins or repeats
    delta_nll   task `report`: nats per token above the model as trained on fresh text, paired by document; interval, p,
                Holm's p over all. Drafts lose nothing, for they change no text
    delta_nll   task `choose`: the same on the text that chose the plans, without an interval

Measure `frontier_draft`: of the draft (`plan`), task `choose`: how often it `agreement` has the model's own arg-max.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from layerwise.measure.cost.latency_verdict import LatencyPoint
from layerwise.measure.stats.differences import ArmLosses, differences
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import CHOOSE, DELTA, FRONTIER, FUSED, PARALLEL, REPORT


@dataclass(frozen=True, slots=True)
class ArmPoint:
    """A point with its kind within the arm, its size in layers, and whether groups of layers run as one."""

    point: LatencyPoint
    kind: str
    size: int
    fused: bool = False

    @property
    def arm(self) -> str:
        """The arm that it is shown as: parallel layers are two, by how they run."""
        return FUSED if self.fused and self.point.arm == PARALLEL else self.point.arm


def point_rows(
    points: Sequence[ArmPoint], losses: Iterable[Loss], chosen_on: Mapping[str, float], whole: str, *, seed: int
) -> list[Score]:
    """The rows of every point; `losses` are those on fresh text, of the model as trained too."""
    rows = list(losses)
    keys = dict.fromkeys(each.point.losses for each in points if each.point.losses != whole)
    arms = [ArmLosses(key, DELTA, {"plan": key}) for key in keys]
    compared = differences(FRONTIER, rows, whole, arms, seed=seed, by_task=False)
    measured = (row for row in compared if row.against is None)
    deltas: dict[str | None, Score] = {row.plan: replace(row, plan=None, task=REPORT) for row in measured}
    tokens = sum(row.tokens for row in rows if row.plan == whole)
    deltas[whole] = Score(FRONTIER, DELTA, 0.0, 0.0, 0.0, task=REPORT, tokens=tokens)
    made = []
    for each in points:
        name, losses_of = each.point.name, each.point.losses
        above = chosen_on[losses_of] - chosen_on[whole]
        made += [
            Score(FRONTIER, "size", float(each.size), plan=name, arm=each.arm, part=each.kind),
            replace(deltas[losses_of], plan=name),
            Score(FRONTIER, DELTA, above, task=CHOOSE, plan=name),
        ]
    return made
