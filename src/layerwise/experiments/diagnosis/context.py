"""What every part of a diagnosis works with: the model, the text, the rows of earlier parts, and where its rows go.

Workers compute the interventions of the ablation, of the race and of the curves.

    ablation        what skipping, averaging, copying and randomising each layer costs, layers in parts of equal cost
    racing          the same of skips, look by look: the next look waits for all workers, since it depends on this one
    curves          the points of the perturbation curves
    order           a sweep

The other parts are computed where the diagnosis was started: they are trainings of the whole model one after the other
(recovery), they choose what they measure next by what they have measured (redundancy), or they take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from layerwise.experiments.diagnosis.config import Diagnosis
from layerwise.experiments.reporter import Reporter
from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.measure.interventions import ablation, perturbation_curves, racing
from layerwise.measure.interventions.intervention import Intervention, ResultCache
from layerwise.measure.interventions.sweep import TEXT
from layerwise.measure.interventions.sweep_pieces import emit_losses, lacking, piece_function, runs_of_layers
from layerwise.measure.language.evaluation_data import EvalData, portion, sample
from layerwise.measure.stats.grid import Piece
from layerwise.measure.stats.verdicts import VerdictCriterion
from layerwise.measure.workers import Emit, Plain, Spread
from layerwise.plan import Plan
from layerwise.results import Loss, Run, Score
from layerwise.stack import Stack

FINISHED = "part"
"""The measure of rows that say that a part is complete; the condition is the part, the metric `DONE`."""

DONE = "done"

TIMES = "run"
"""The measure of rows about the run itself: times, which alone differ from run to run, and the size of the model."""

Note = Callable[[str], None]
"""Takes a note on a part: a sentence about what had to be left out."""


@dataclass
class PartContext:
    """A diagnosis that is being carried out on one model and text, into one run."""

    stack: Stack
    text: EvalData
    config: Diagnosis
    run: Run
    reporter: Reporter
    spread: Spread = field(default_factory=Spread)
    finished: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.finished = {str(row.condition) for row in self.run.store.scores(FINISHED, metric=DONE)}

    @property
    def seed(self) -> int:
        """The seed of every draw."""
        return self.config.seed

    @property
    def rule(self) -> VerdictCriterion:
        """What counts as an effect."""
        return VerdictCriterion(margin=self.config.min_effect)

    @property
    def baseline(self) -> str:
        """The plan of the model as trained."""
        return str(Plan.identity(self.stack.depth))

    @cached_property
    def short_text(self) -> EvalData:
        """The text of curves and sets of layers."""
        return sample(self.text, self.config.curve_tokens, self.seed)

    def scores(self, *measures: str) -> list[Score]:
        """The rows of some measures."""
        return [score for measure in measures for score in self.run.store.scores(measure)]

    def losses(self) -> list[Loss]:
        """Every loss that the run holds."""
        return list(self.run.store.losses())

    def cache(self, part: str, note: Note) -> ResultCache:
        """The losses that the run has stored; new ones are added."""
        return ResultCache(
            known=tuple(self.run.store.losses()), sink=self.run.store.add_losses, progress=self.progress(part), log=note
        )

    def progress(self, part: str) -> Callable[[float], None]:
        """Reports the share of a part that is done."""
        return lambda share: self.reporter.progress(part, share)

    def store(self, measure: str, rows: Iterable[Score]) -> None:
        """Store the rows of a measure in place of those that are there."""
        self.run.store.replace_scores(measure, rows)

    def store_contrast(self, claim: str, rows: Iterable[Score]) -> None:
        """Store the contrasts of one claim beside those of others."""
        self.store(CONTRAST, renewed(self.scores(CONTRAST), list(rows), (claim,)))

    def store_time(self, row: Score) -> None:
        """Store a time, or another row about the run, in place of the one that is there."""
        others = [each for each in self.scores(TIMES) if each.key != row.key]
        self.store(TIMES, [*others, row])

    def finish(self, part: str) -> None:
        """Store that a part is complete."""
        self.finished.add(part)
        self.store(FINISHED, [Score(FINISHED, DONE, 1.0, condition=name) for name in sorted(self.finished)])


Question = tuple[Sequence[Intervention], EvalData]
"""Interventions, and the text that they are measured on."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a diagnosis: all of it, and that of curves and sets of layers."""

    whole: EvalData
    curves: EvalData


QUESTIONS: dict[str, Callable[[Stack, Texts, int], Question]] = {
    "ablation": lambda stack, texts, seed: (ablation.interventions(stack, seed), texts.whole),
    "racing": lambda stack, texts, seed: (ablation.skips(stack.depth), racing.raced_text(texts.whole, seed)[0]),
    "curves": lambda stack, texts, seed: (
        perturbation_curves.interventions(stack, seed=seed),
        perturbation_curves.tight(texts.curves),
    ),
}
"""From the name of what is measured to its interventions and its text: the same here as in a worker."""


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
    texts = Texts(context.text, context.short_text)
    interventions, data = QUESTIONS[question](context.stack, texts, context.seed)
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
