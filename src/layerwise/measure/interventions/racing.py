"""Race the layers of a model: skip each on more and more text until its verdict is settled.

`layerwise.measure.stats.racing` decides. A look reads the beginning of one window per document: tokens of a document
err together, so many beginnings are more informative at the same cost; a causal token's loss ignores what follows.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace

from layerwise.data.batches import regrouped
from layerwise.data.text.tokens import Window
from layerwise.measure.interventions.ablation import skip_keys, skips
from layerwise.measure.interventions.intervention import ResultCache, intervention_losses
from layerwise.measure.language.evaluation_data import EvalData, pieces, portion, shortened
from layerwise.measure.stats.grid import WHOLE, Piece
from layerwise.measure.stats.racing import race, rows
from layerwise.measure.stats.strata import FEWEST_DOCUMENTS
from layerwise.plan.schedule.allocation import MIN_EFFECT
from layerwise.results.rows import Loss, Score
from layerwise.stack import Stack


def racing(
    stack: Stack,
    data: EvalData,
    *,
    beginning: int,
    seed: int = 0,
    margin: float = MIN_EFFECT,
    cache: ResultCache[Loss] | None = None,
) -> list[Score]:
    """Race the layers of `stack` on `data`.

    Of a window the first `beginning` tokens are scored: with little context other layers matter.

    Rows by layer: the decision (`matters`, `no_effect`, `harmful`, `unresolved`) with effect, simultaneous interval,
    evidence (`mde`), documents and tokens. Rows of the race: `evaluations` and `evaluations_full` (layer evaluations
    times tokens, of the race and of skipping every layer on all text), `share`, `looks`. Raises `MeasureError` for
    too little text.
    """
    known = cache or ResultCache()
    candidates = skips(stack.depth)
    few = data.documents < FEWEST_DOCUMENTS
    short, whole = (data, pieces(data)) if few else beginnings(data, beginning, seed)

    def measure(layers: Collection[int], text: Sequence[Piece]) -> list[Loss]:
        return intervention_losses(stack, [candidates[layer] for layer in layers], portion(short, text), known)

    return rows(race(measure, skip_keys(stack.depth), pieces(short), whole=whole, seed=seed, margin=margin))


def beginnings(data: EvalData, tokens: int, seed: int = 0) -> tuple[EvalData, dict[Piece, int]]:
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
