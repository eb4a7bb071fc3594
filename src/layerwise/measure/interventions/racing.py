"""Racing the layers of a model: skipping each is measured on ever more text, until its verdict is settled.

What a look may conclude, and which text is read next, is decided by `layerwise.measure.stats.racing`. Here is what a
look reads: the beginning of one window of every document. Tokens of one document err together, so a hundred documents
of 16 tokens say more than three of 500, at the same price; and the loss of a token of a causal model does not depend on
what follows, so a beginning gives the very losses that the whole window would give there.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from layerwise.data.batches import regrouped
from layerwise.data.text.tokens import Window
from layerwise.measure.interventions.ablation import refuse_shallow, skip_keys, skips
from layerwise.measure.interventions.intervention import ResultCache, intervention_losses
from layerwise.measure.language.evaluation_data import EvalData, pieces, portion, shortened
from layerwise.measure.stats.grid import WHOLE, Piece
from layerwise.measure.stats.racing import race, rows
from layerwise.measure.stats.strata import FEWEST_DOCUMENTS
from layerwise.measure.stats.verdicts import VerdictCriterion
from layerwise.results.rows import Loss, Score
from layerwise.stack import Stack

BEGINNING = 16
"""Scored tokens of a beginning: enough to have some context, few enough to read many documents."""


def racing(
    stack: Stack,
    data: EvalData,
    *,
    budget: int | None = None,
    seed: int = 0,
    rule: VerdictCriterion | None = None,
    cache: ResultCache | None = None,
) -> list[Score]:
    """Race the layers of `stack` on `data`; at most `budget` scored tokens are spent on any of them, or one look.

    Rows: for every layer its decision (`matters`, `no_effect`, `harmful`, `unresolved`) with the effect, its
    simultaneous interval, what stands behind the decision as `mde`, and the documents and tokens spent; for the race as
    a whole, of no layer, the metrics `evaluations` and `evaluations_full` (layer evaluations times tokens, of the race
    and of skipping every layer on all of the text), `share` and `looks`.

    Raises `MeasureError` for fewer than 4 layers, and for too little text.
    """
    refuse_shallow(stack)
    known = cache or ResultCache()
    candidates = skips(stack.depth)
    short, whole = raced_text(data, seed)

    def measure(layers: Collection[int], text: Sequence[Piece]) -> list[Loss]:
        return intervention_losses(stack, [candidates[layer] for layer in layers], portion(short, text), known)

    return rows(race(measure, skip_keys(stack.depth), pieces(short), whole=whole, budget=budget, seed=seed, rule=rule))


def raced_text(data: EvalData, seed: int) -> tuple[EvalData, Mapping[Piece, int]]:
    """What a race reads of the text, and the lengths of all of its pieces: the beginnings of documents, or, where there
    are few of them, all windows, which are then the units."""
    return (data, pieces(data)) if data.documents < FEWEST_DOCUMENTS else beginnings(data, seed=seed)


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
