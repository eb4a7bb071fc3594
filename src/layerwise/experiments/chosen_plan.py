"""The plan that a command is given: a plan's text, or the run of a search that chose one."""

from __future__ import annotations

from pathlib import Path

from layerwise.bounded import named
from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.run import is_run
from layerwise.results.vocabulary import CHOSEN, SEARCH


def given_plan(text: str) -> Plan:
    """The plan whose text is `text`. Raises `PlanError`, which tells the name of a run from a plan with a mistake."""
    try:
        return Plan.parse(text)
    except PlanError as error:
        if error.position != 0 or not text[:1].isalpha() or " " in text.strip():
            raise
        what = "a run, and no plan" if is_run(Path(text)) else "no plan, and there is no run of that name here"
        raise PlanError(
            f'{named(text)} is {what}; a plan is written as the numbers of layers, as in "0-13 18-31", and only '
            "`layerwise heal` and `layerwise save` take a run: of `layerwise search`, for the plan that it chose"
        ) from error


def chosen_plan(text: str) -> Plan:
    """The plan whose text is `text` or, where that is the folder of a run of `layerwise search`, the plan it chose.

    A folder is recognised by the manifest in it. Raises `PlanError` for a text that is no plan, and for a run that has
    chosen none: of another experiment, or stopped before its end.

    >>> chosen_plan("0-3 6-11")
    Plan('0-3 6-11')
    """
    folder = Path(text).expanduser()
    if not is_run(folder):
        return given_plan(text)
    with Run.open(folder) as run:
        chosen = run.store.scores(SEARCH, metric=CHOSEN)
    if not chosen:
        raise PlanError(
            f"the run {folder} has chosen no plan: it is none of `layerwise search`, or was stopped before its end; "
            "run that search again to resume it, or write the plan itself"
        )
    return Plan.parse(str(chosen[0].plan))
