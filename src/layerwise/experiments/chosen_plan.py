"""The plan that a command is given: a plan's text, or the run of a search that chose one."""

from __future__ import annotations

from pathlib import Path

from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.run import is_run

SEARCH = "search"
"""The measure of the rows of a search."""

CHOSEN = "chosen"
"""The metric of the row, one of a run, whose subject is the plan that the search chose; the task is its budget."""


def chosen_plan(text: str) -> Plan:
    """The plan whose text is `text` or, where that is the folder of a run of `layerwise search`, the plan it chose.

    A folder is recognised by the manifest in it. Raises `PlanError` for a text that is no plan, and for a run that has
    chosen none: of another experiment, or stopped before its end.

    >>> chosen_plan("0-3 6-11")
    Plan('0-3 6-11')
    """
    folder = Path(text).expanduser()
    if not is_run(folder):
        return Plan.parse(text)
    with Run.open(folder) as run:
        chosen = run.store.scores(SEARCH, metric=CHOSEN)
    if not chosen:
        raise PlanError(
            f"the run {folder} has chosen no plan: it is none of `layerwise search`, or was stopped before its end; "
            "run that search again to resume it, or write the plan itself"
        )
    return Plan.parse(chosen[0].subject)
