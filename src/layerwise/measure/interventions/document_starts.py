"""Beginnings: the first tokens of one window of every document, which is what a race reads.

Tokens of one document err together: a hundred documents of 16 tokens say more than three of 500, at the same price. The
loss of a token of a causal model does not depend on what follows, so the beginning of a window gives the very losses
that the whole window would give there.
"""

from __future__ import annotations

import random
from dataclasses import replace

from layerwise.data.batches import regrouped
from layerwise.data.text.tokens import Window
from layerwise.measure.language.evaluation_data import EvalData, shortened
from layerwise.measure.stats.grid import WHOLE, Piece

BEGINNING = 16
"""Scored tokens of a beginning: enough to have some context, few enough to read many documents."""


def beginnings(data: EvalData, tokens: int = BEGINNING, seed: int = 0) -> tuple[EvalData, dict[Piece, int]]:
    """Of every document one window, drawn from `seed`, and of that no more than the first `tokens` scored tokens.

    With it comes how many scored tokens the whole document has that each stands for. Answers stay whole.
    """
    cut = shortened(data, tokens)
    documents: dict[tuple[str, str], list[Window]] = {}
    for window in data.windows:
        documents.setdefault((window.task, window.document), []).append(window)
    chosen = []
    whole: dict[Piece, int] = {}
    for task, document in sorted(documents):
        windows = sorted(documents[task, document], key=lambda window: window.index)
        drawn = random.Random(f"{seed}/{task}/{document}").choice(windows)
        chosen.append(drawn)
        whole[task, cut.get(drawn, drawn).document, WHOLE] = sum(window.scored for window in windows)
    return replace(data, batches=regrouped(data.batches, chosen, cut)), whole
