"""What a training had cost by each of its steps, in tokens, floating-point operations and seconds, and its loss there.

Tokens go evenly over the steps. The other two do not where phases differ: a phase that freezes layers takes fewer
operations and less time for each step. Rows tell what the whole training took, and for each phase what its step takes
as a share of a uniform one, so

    FLOPs by step n   = FLOPs of the training * sum over steps < n of `predicted` / sum over all steps of `predicted`
    seconds by step n = median seconds of a uniform step * sum over steps < n of `measured`

The second is the time of the steps alone: validating, saving and reading back are the study's own doing. A phase that
was too short to be timed is taken at what was predicted. Where chance decides what a step costs, seeds differ by a few
steps in what the budget buys; the phases are then stretched to the steps of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from layerwise.report.growth.lookup import ACCOUNTING, TRAINING, GrowthScores, PhaseSteps
from layerwise.results.rows import Score

AXES: dict[str, str] = {"flops": "FLOPs", "tokens": "tokens", "seconds": "seconds of training steps"}
"""What a loss is drawn against, the terms that decide first."""

Losses = dict[float, Score]
"""Cost to the mean loss over seeds; the interval is the range of the seeds."""


@dataclass(frozen=True, slots=True)
class Outlay:
    """What a training had cost by a step, from pieces: (first step, step it ends before, cost of each of its steps)."""

    pieces: tuple[tuple[float, float, float], ...]

    @classmethod
    def even(cls, steps: int, total: float) -> Outlay:
        """Every step costs the same.

        >>> Outlay.even(10, 50.0).by(4)
        20.0
        """
        return cls(((0, steps, total / steps),))

    def by(self, step: int) -> float:
        """The cost of the first `step` steps.

        >>> Outlay(((0, 10, 1.0), (10, 30, 0.5))).by(14)
        12.0
        """
        return sum(cost * max(0.0, min(step, end) - first) for first, end, cost in self.pieces)

    def stretched(self, steps: int) -> Outlay:
        """The same phases in a training of so many steps.

        >>> Outlay(((0, 10, 1.0), (10, 20, 0.5))).stretched(40).by(30)
        25.0
        """
        factor = steps / max(end for _, end, _ in self.pieces)
        return Outlay(tuple((factor * first, factor * end, cost) for first, end, cost in self.pieces))

    def scaled(self, factor: float) -> Outlay:
        """The same, every step `factor` times as dear."""
        return Outlay(tuple((first, end, factor * cost) for first, end, cost in self.pieces))


def outlay(run: GrowthScores, subject: str, arm: str, terms: str) -> Outlay | None:
    """What a training had cost by each step, on these terms; `None` where its rows do not say."""
    steps = run.score(TRAINING, "steps", subject)
    if steps is None or steps.value < 1.0:
        return None
    whole = run.score(TRAINING, terms, subject)
    if terms == "tokens":
        return None if whole is None else Outlay.even(int(steps.value), whole.value)
    relative = _relative(run, arm, int(steps.value), measured=terms == "seconds")
    pace = _uniform_pace(run)
    if terms == "seconds" and pace is not None:
        return relative.scaled(pace)
    spent = relative.by(int(steps.value))
    return None if whole is None or spent <= 0.0 else relative.scaled(whole.value / spent)


def loss_curves(run: GrowthScores, terms: str) -> dict[str, Losses]:
    """Every arm's loss by what it had cost: the mean over the seeds that were measured there, and their range."""
    drawn = {arm: _loss_curve(run, arm, terms) for arm in run.arms}
    return {arm: losses for arm, losses in drawn.items() if losses}


def frontier(run: GrowthScores, terms: str) -> Losses:
    """The last losses of uniform's trainings by their whole cost, every one of them decayed to the end.

    Empty where uniform was trained for one length alone: one point is no frontier.
    """
    drawn = [curve for arm in run.uniform_lengths if (curve := _loss_curve(run, arm, terms))]
    ends = {max(curve): curve[max(curve)] for curve in drawn}
    return dict(sorted(ends.items())) if len(ends) > 1 else {}


def step_shares(run: GrowthScores, arm: str, metric: str) -> dict[PhaseSteps, Score]:
    """Phase to what its step takes as a share of a uniform one: `predicted` in operations, `measured` in seconds."""
    rows = run.tasks(ACCOUNTING, metric, arm)
    return {phase: rows[phase.task] for phase in run.phases(arm) if phase.task in rows}


def _relative(run: GrowthScores, arm: str, steps: int, *, measured: bool) -> Outlay:
    """What each step takes as a share of a uniform one; all alike unless every phase was accounted for."""
    shares = step_shares(run, arm, "predicted")
    shares |= step_shares(run, arm, "measured") if measured else {}
    if not shares or len(shares) < len(run.phases(arm)):
        return Outlay.even(steps, steps)
    pieces = tuple((phase.first, phase.end, score.value) for phase, score in shares.items())
    return Outlay(pieces).stretched(steps)


def _uniform_pace(run: GrowthScores) -> float | None:
    """The median seconds of a uniform step, over its trainings of every length."""
    timed = [
        score.value for arm in run.uniform_lengths for score in run.by_seed(TRAINING, "step_seconds", arm).values()
    ]
    return median(timed) if timed else None


def _loss_curve(run: GrowthScores, arm: str, terms: str) -> Losses:
    """Mean cost to mean loss, the n-th validation of every seed together; what not all seeds have is left out."""
    seeds = []
    for seed in run.seeds.get(arm, ()):
        subject = f"{arm}/{seed}"
        spent = outlay(run, subject, arm, terms)
        if spent is not None and (losses := run.losses(subject)):
            seeds.append([(step, spent.by(step), loss) for step, loss in losses.items()])
    return {fmean(cost for _, cost, _ in looks): _over_seeds(arm, looks) for looks in zip(*seeds, strict=False)}


def _over_seeds(arm: str, looks: Sequence[tuple[int, float, float]]) -> Score:
    losses = [loss for _, _, loss in looks]
    low, high = (min(losses), max(losses)) if len(losses) > 1 else (None, None)
    return Score(TRAINING, arm, f"step {looks[0][0]}", "loss", fmean(losses), low, high)
