"""What an experiment with layer weights prints: the edges with the largest effect, and what a cut costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerwise.measure.interventions.edge_phenomena import LEVEL, confirmed_edges
from layerwise.measure.interventions.edge_pruning import Ranked
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import PRUNED, RANDOM, SIZE, edge_name

SHOWN = 8
"""Edges that are printed, of those with the largest effect."""


def edges_table(ranked: Ranked, depth: int) -> str:
    """The edges with the largest effect: weight, effect of cutting it in nats, interval and p-value."""
    rows = [("edge", "weight", "effect (nats)", "95 %", "p")]
    for index in ranked.effect.value.argsort()[::-1][:SHOWN]:
        low, high = ranked.effect.low[index], ranked.effect.high[index]
        rows.append(
            (
                ranked.edges[index].name(depth), f"{ranked.weights[index]:.3f}", f"{ranked.effect.value[index]:+.4f}",
                f"{low:+.4f} to {high:+.4f}", f"{ranked.p_adjusted[index]:.2g}",
            )
        )  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def agreement_sentence(rows: Sequence[Score]) -> str:
    """How far the size of an edge says what its effect is."""
    row = next((row for row in rows if row.metric == "rank_correlation"), None)
    if row is None:
        return "there are too few edges to say whether size and effect agree"
    return f"size and effect: rank correlation {row.value:.2f} ({row.low:.2f} to {row.high:.2f}, p {row.p:.2g})"


def cut_sentences(rows: Sequence[Score]) -> str:
    """What is left after a cut, and what it costs beside as many edges cut by size and at random."""
    left = Rows(rows).where(condition=PRUNED)
    pruned = left.where(against=None).along("metric")
    random, sized = (left.where(metric="difference", against=way)[0] for way in (RANDOM, SIZE))
    lost = pruned["difference"]
    return "\n".join(
        (
            f"kept {pruned['edges'].value:.0f} edges ({pruned['kept'].value:.0%}), live states "
            f"{pruned['live_before'].value:.0f} -> {pruned['live_after'].value:.0f}, "
            f"{pruned['unheard'].value:.0f} layers need not run",
            f"loss {lost.value:+.4f} nats ({lost.low:+.4f} to {lost.high:+.4f}) on examples that did not choose",
            f"as many cut by size {sized.value:+.4f}, at random {random.value:+.4f} ({random.low:+.4f} to "
            f"{random.high:+.4f}, p {random.p:.2g})",
        )
    )


def phenomena_table(suite: str, own: Rows) -> str:
    """The edges that are confirmed to carry a phenomenon of a suite, of whose rows these are, and what was asked."""
    tested = own.where(metric="effect")
    confirmed = confirmed_edges(own)
    phenomena = len({(row.task, row.arm, row.seed) for row in tested})
    edges = len({edge_name(row) for row in tested})
    detectable = np.median([row.mde for row in tested if row.mde is not None]) if tested else 0.0
    lines = [
        f"{suite}: {len(confirmed)} of {edges} edges x {phenomena} phenomena have an effect that fresh units confirm "
        f"(Holm {LEVEL:g}; effects of {detectable:.2f} nats would be chosen with 80 % power)"
    ]
    for row in confirmed[:SHOWN]:
        lines.append(
            f"  {edge_name(row):8} {_named(row):32} {row.value:+.3f} nats ({row.low:+.3f} to "
            f"{row.high:+.3f}), p {row.p_adjusted:.2g}"
        )
    contrast = [row for row in own.where(metric="contrast") if (row.p_adjusted or 1) < LEVEL]
    for row in sorted(contrast, key=lambda row: -abs(row.value))[:SHOWN]:
        side = "linguistic" if row.value > 0 else "surface"
        lines.append(
            f"  {edge_name(row):8} serves {side} features more: {row.value:+.3f} ({row.low:+.3f} to {row.high:+.3f})"
        )
    for row in own.where(metric="rank_correlation"):
        lines.append(
            f"  depth of the reader and linguistic - surface: rank correlation {row.value:+.2f} ({row.low:+.2f} to "
            f"{row.high:+.2f}, p {row.p:.2g})"
        )
    return "\n".join(lines)


def _named(row: Score) -> str:
    """The phenomenon, and the model where there are several."""
    return row.task if row.arm is None else f"{row.task} of {row.arm}/{row.seed}"
