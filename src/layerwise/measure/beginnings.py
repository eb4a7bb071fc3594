"""Beginnings: the first tokens of one window of every document, which is where a race starts.

Tokens of one document err together: a hundred documents of 30 tokens tell more than six of 500, at the same price. The
loss of a token of a causal model does not depend on what follows, so the beginning of a window gives the very losses
that the whole window would give there. A masked token does see what follows: windows of masked models stay whole.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from layerwise.data.batches import Batch, batches, regrouped
from layerwise.data.tokens import Window
from layerwise.measure.interventions import Ledger
from layerwise.measure.reading import Reading
from layerwise.results.rows import Loss

BEGINNING = 24
"""Scored tokens of a beginning: enough to have some context, few enough to read many documents."""


NAME = "beginning "
"""What the losses of beginnings are called by in a run, before the plan."""


def beginnings(reading: Reading, tokens: int = BEGINNING, seed: int = 0) -> Reading:
    """Of every document one window, drawn from `seed`, and of that no more than the first `tokens` scored tokens.

    Windows of masked models and labelled items are whole.
    """
    documents: dict[tuple[str, str], list[Window]] = {}
    for batch in reading.batches:
        for window in batch.windows:
            documents.setdefault((window.task, window.document), []).append(window)
    chosen = [_drawn(documents[name], seed) for name in sorted(documents)]
    if reading.objective != "next_token" or not all(isinstance(batch, Batch) for batch in reading.batches):
        return replace(reading, batches=regrouped(reading.batches, chosen))
    widest = max(batch.size for batch in reading.batches)
    return replace(reading, batches=batches([_beginning(window, tokens) for window in chosen], widest, 0))


def of_beginnings(ledger: Ledger) -> Ledger:
    """The same ledger for losses of beginnings, which must not be taken for those of the whole windows.

    Their rows are kept under the plan's name with `NAME` before it.
    """
    known = (replace(row, plan=row.plan.removeprefix(NAME)) for row in ledger.known if row.plan.startswith(NAME))

    def sink(rows: Sequence[Loss]) -> None:
        ledger.sink([replace(row, plan=f"{NAME}{row.plan}") for row in rows])

    return replace(ledger, known=tuple(known), sink=sink)


def _drawn(windows: list[Window], seed: int) -> Window:
    ordered = sorted(windows, key=lambda window: window.index)
    return random.Random(f"{seed}/{ordered[0].task}/{ordered[0].document}").choice(ordered)


def _beginning(window: Window, tokens: int) -> Window:
    until = min(window.scored_until, window.scored_from + tokens)
    return replace(window, ids=window.ids[:until], scored_until=until)
