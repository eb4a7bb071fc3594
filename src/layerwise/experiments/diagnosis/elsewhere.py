"""What workers compute of a diagnosis: the interventions of the ablation, of the race and of the curves.

    ablation        what skipping, averaging, copying and randomising each layer costs, layers in parts of equal cost
    racing          the same of skips, look by look: the next look waits for all workers, since it depends on this one
    curves          the points of the perturbation curves
    order           a sweep

The other parts are computed where the diagnosis was started: they are trainings of the whole model one after the other
(recovery), they choose what they measure next by what they have measured (pruning), or they take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from layerwise.experiments.diagnosis.context import PartContext
from layerwise.measure.interventions import ablation, perturbation_curves, racing
from layerwise.measure.interventions.intervention import Intervention
from layerwise.measure.interventions.intervention_pieces import emit_losses, lacking, runs_of_layers
from layerwise.measure.interventions.sweep import TEXT
from layerwise.measure.interventions.sweep_pieces import piece_function
from layerwise.measure.language.evaluation_data import EvalData, portion
from layerwise.measure.stats.grid import Piece
from layerwise.measure.workers import Emit, Plain
from layerwise.results.rows import Loss
from layerwise.stack import Stack

Question = tuple[Sequence[Intervention], EvalData]
"""Interventions, and the text that they are measured on."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a diagnosis: all of it, that of the interventions, and that of curves and sets of layers."""

    whole: EvalData
    ablation: EvalData
    curves: EvalData


def _of_ablation(stack: Stack, texts: Texts, seed: int) -> Question:
    return ablation.interventions(stack, seed), texts.ablation


def _of_curves(stack: Stack, texts: Texts, seed: int) -> Question:
    return perturbation_curves.interventions(stack, seed=seed), perturbation_curves.tight(texts.curves)


def _of_racing(stack: Stack, texts: Texts, seed: int) -> Question:
    return ablation.skips(stack.depth), racing.raced_text(texts.whole, seed)[0]


QUESTIONS: dict[str, Callable[[Stack, Texts, int], Question]] = {
    "ablation": _of_ablation,
    "racing": _of_racing,
    "curves": _of_curves,
}
"""From the name of what is measured to its interventions and its text: the same here as in a worker."""


def texts_of(context: PartContext) -> Texts:
    """The texts of a diagnosis that is being carried out."""
    return Texts(context.text, context.ablation_text, context.short_text)


def measured_elsewhere(
    context: PartContext,
    question: str,
    *,
    layers: Collection[int] | None = None,
    chosen: Sequence[Piece] | None = None,
) -> list[Loss]:
    """Let workers compute the losses of a question that the run lacks, and store them; returns the new ones.

    `layers` and `chosen` leave some layers and some pieces of the text out. Nothing is done without workers.
    """
    if context.spread.is_here:
        return []
    interventions, data = QUESTIONS[question](context.stack, texts_of(context), context.seed)
    if layers is not None:
        interventions = [each for each in interventions if each.layer in layers]
    data = data if chosen is None else portion(data, chosen)
    due = lacking(interventions, data, context.losses())
    parts = runs_of_layers(due, context.stack.depth, context.spread.workers.count) if due else []
    pieces = [{"question": question, "keys": [each.key for each in part], "chosen": chosen} for part in parts]
    store, cells, fresh = context.run.store, data.cells, list[Loss]()
    heard: dict[str, int] = {}

    def on_partial(number: int, news: Plain) -> None:
        rows = [Loss(*row) for row in news]
        rows = [row for row in rows if row.plan not in store.finished(row.task, row.document, row.window)]
        store.add_losses(rows)
        fresh.extend(rows)
        for row in rows:
            heard[row.plan] = heard.get(row.plan, 0) + 1
        whole = sum(count >= len(cells) for count in heard.values())
        context.reporter.progress(question, min(1.0, whole / max(1, len(due))))

    def rest(piece: Plain) -> Plain:
        return {**piece, "keys": [key for key in piece["keys"] if heard.get(key, 0) < len(cells)]}

    def here(piece: Plain, emit: Emit) -> None:
        raise AssertionError("without workers the part computes its own losses")

    for _ in context.spread.map(pieces, here, on_partial=on_partial, rest=rest):
        pass
    return fresh


def carry_out(stack: Stack, texts: Texts, seed: int, piece: Plain, emit: Emit) -> None:
    """In a worker: some interventions of a question, or some plans of the sweep of the part `order`."""
    if "question" not in piece:
        piece_function(stack, {TEXT: texts.whole})(piece, emit)
        return
    interventions, data = QUESTIONS[piece["question"]](stack, texts, seed)
    if piece["chosen"] is not None:
        data = portion(data, [tuple(each) for each in piece["chosen"]])
    emit_losses(stack, interventions, data, frozenset(piece["keys"]), emit)
