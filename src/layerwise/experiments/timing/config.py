"""`layerwise time`: how long a pass takes under each of several plans."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from layerwise.errors import OptionError
from layerwise.experiments.experiment import Action
from layerwise.experiments.option import option
from layerwise.experiments.options.model import ModelOptions
from layerwise.experiments.reporter import Reporter
from layerwise.plan import Plan

if TYPE_CHECKING:
    from layerwise.results.rows import Score


@dataclass(frozen=True, kw_only=True)
class Timing(ModelOptions, Action):
    """Time a model under several plans: milliseconds for a prompt, and for a token behind it.

    The plans take turns, and each is compared with the first of them, or with the model as trained where one plan is
    given, within each round.
    """

    VERB: ClassVar = "time"
    EXAMPLES: ClassVar = (
        'demo --plan "0-11" --plan "0-3 6-11"',
        'demo --plan "0-3 (4|5|6|7) 8-11" --fused',
    )

    plans: tuple[str, ...] = option((), "A plan to time.", metavar="PLAN", flag="--plan", repeated=True)
    fused: bool = option(False, "Time every plan with groups with their members as one, too.")
    batch: int = option(1, "Texts at once.", metavar="N", least=1)
    context: int = option(128, "Tokens of the prompt.", metavar="N", least=1)
    rounds: int = option(20, "Rounds, in each of which every plan is timed once.", metavar="N", least=6)

    def check(self) -> None:
        """Raise `PlanError` for a plan that cannot be read, and `OptionError` without one."""
        if not self.plans:
            raise OptionError('a plan is needed: layerwise time MODEL --plan "0-11" --plan "0-3 6-11"')
        for plan in self.plans:
            Plan.parse(plan)

    def act(self, reporter: Reporter) -> int:
        """Report the milliseconds of every plan in both phases, with their ratios to the first."""
        stack = self.open_model(reporter)
        from layerwise.measure.cost.pass_time import PHASES, Setting, TimedPlan, time_rows

        plans = list(dict.fromkeys(map(Plan.parse, self.plans)))
        if len(plans) == 1 and not self.fused:
            plans = list(dict.fromkeys([Plan.identity(stack.depth), *plans]))
        timed = [TimedPlan(plan) for plan in plans]
        timed += [TimedPlan(plan, fused=True) for plan in plans if self.fused and any(s.opens for s in plan.steps())]
        for phase in PHASES:
            setting = Setting(phase, self.batch, self.context)
            rows = time_rows(
                stack, timed, setting, rounds=self.rounds,
                progress=partial(_report_progress, reporter, phase),
            )  # fmt: skip
            reporter.result(f"{setting}:\n{_table(rows)}")
        return 0


def _report_progress(reporter: Reporter, phase: str, done: int, total: int) -> None:
    reporter.progress(phase, done / total)


def _table(rows: list[Score]) -> str:
    """The rows of one setting, a line for each plan."""
    width = max(len(row.subject) for row in rows)
    lines = []
    for milliseconds, ratio in zip(rows[::2], rows[1::2], strict=True):
        lines.append(
            f"  {milliseconds.subject:{width}}  {milliseconds.value:8.3f} ms ({milliseconds.low:.3f} to "
            f"{milliseconds.high:.3f})  x {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        )
    return "\n".join(lines)
