"""Lending: the models of every arm of a run judged by themselves, merged, and together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from layerwise.cli.screen import PartBar
from layerwise.data.splits import Splits
from layerwise.measure.contrasts.contrast import MEASURE as CONTRAST
from layerwise.measure.contrasts.contrast import renewed
from layerwise.measure.contrasts.merged import CLAIMS
from layerwise.merge.lenders import Lender
from layerwise.merge.study import DRAWN, MEASURE, merging
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.stack import Stack

Arms = Mapping[str, Mapping[str, Lender]]
"""From the name of an arm to its models, by their names in plans."""


def lend(
    run: Run, arms: Arms, splits: Splits, open_stack: Callable[[Lender], Stack], bar: PartBar, *, draws: int, seed: int
) -> tuple[list[Score], list[str]]:
    """Judge the members of every arm with two models or more, models merged from them and their ensemble, into `run`.

    Returns the rows, and what was left out in words. Arms are opened one after the other.
    """
    rows: list[Score] = []
    notes = [f"{arm} has one model, so nothing was merged" for arm, found in arms.items() if len(found) < 2]
    for arm, found in arms.items():
        if len(found) < 2:
            continue
        added = next((lender.added for lender in found.values() if lender.added), None)
        if added:
            notes.append(
                f"{arm}: each layer was trained with {added} of its own model, so its models were asked "
                "together but not merged"
            )

        def show(done: int, parts: int, arm: str = arm) -> None:
            bar.update(f"merging {arm}", done / parts)

        stacks = {name: open_stack(lender) for name, lender in found.items()}
        rows += merging(arm, stacks, splits, draws=0 if added else draws, seed=seed, tell=show)
    for measure in (MEASURE, DRAWN):
        run.store.replace_scores(measure, [row for row in rows if row.measure == measure])
    decisive = [row for row in rows if row.measure == CONTRAST]
    run.store.replace_scores(CONTRAST, renewed(run.store.scores(CONTRAST), decisive, CLAIMS))
    run.store.replace_notes(MEASURE, notes)
    return rows, notes
