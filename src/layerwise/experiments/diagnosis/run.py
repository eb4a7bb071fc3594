"""The steps of a diagnosis: one model, one text, and every part into a run that outlives the process.

A part that is complete is not computed again, and inside the long parts nothing that is finished is: losses go to the
run as they are made. A part that this model cannot have (layers of unlike shapes, no random twin, too little text) says
why in a note that the report prints, and the other parts go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from layerwise.errors import LayerwiseError, MeasureError, RunError
from layerwise.experiments.diagnosis.config import DESCRIPTIVE, Diagnosis
from layerwise.experiments.diagnosis.context import FINISHED, TIMES, PartContext, Texts, carry_out
from layerwise.experiments.diagnosis.parts import PARTS
from layerwise.experiments.diagnosis.works import describe_cost, diagnosis_works
from layerwise.experiments.engines.steps import Completed, Outline, Steps, Unit, UnitSession
from layerwise.experiments.engines.work import Work
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.opening import open_named, tokenized
from layerwise.experiments.options.data import BATCH_TOKENS
from layerwise.experiments.provenance import provenance, size_row
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import describe_data, describe_model, describe_readings
from layerwise.measure.interventions.ablation import refuse_shallow
from layerwise.measure.language.evaluation_data import EvalData, refuse_too_little, sample
from layerwise.measure.workers import Emit, Plain
from layerwise.results import Run, Score
from layerwise.stack import Stack

QUESTION = (
    "question: which of its layers matter, and what explains it? Every score has an interval, and a null: what would "
    "be measured if there were nothing to find. Losses are in nats per token: 0.69 more is half as likely"
)
"""What a diagnosis is about."""


def diagnosis(config: Diagnosis, reporter: Reporter, inputs: Inputs) -> Steps:
    """Carry every part out that is not complete, on a model and a text that the options name."""
    corpus = inputs.corpus or config.corpus(config.model)
    stack = inputs.stack or open_named(config, reporter)
    return (yield from diagnosis_of(config, stack, tokenized(config, stack, corpus, reporter, config.seed), reporter))


def diagnosis_of(config: Diagnosis, stack: Stack, text: EvalData, reporter: Reporter) -> Steps:
    """The diagnosis of a model on a text that is tokenized.

    Raises `MeasureError` for a model of fewer than 4 layers, for too little text to conclude anything from, and where
    no part could be carried out.
    """
    refuse_shallow(stack)
    beyond = [layer for layer in config.recovery_layers if layer >= stack.depth]
    if beyond:
        raise MeasureError(
            f"--recovery-layers names layer {beyond[0]}, and this model has the layers 0 to {stack.depth - 1}"
        )
    if not set(config.parts) <= set(DESCRIPTIVE):
        refuse_too_little(text)
    manifest = provenance(
        stack, text, families=config.settings(), seed=config.seed,
        settings={"batch_tokens": config.batch_tokens or BATCH_TOKENS},
    )  # fmt: skip
    parts = PartsUnit(config, stack, text)

    def says() -> Iterator[str]:
        yield describe_model(stack)
        yield describe_data(text)
        yield QUESTION
        yield describe_cost(config, stack.depth, text.tokens)

    yield Outline(manifest, says, ahead=(parts,), pieces=parts.carry_out_piece, is_empty=_is_empty)
    yield from parts
    return Completed()


def _is_empty(run: Run) -> bool:
    """Whether no part of the run has a row."""
    return all(score.measure in (TIMES, FINISHED) for score in run.store.scores())


@dataclass(frozen=True)
class PartsUnit(Unit[None]):
    """The parts of a diagnosis: each is carried out once, and keeps inside of it what it has finished."""

    config: Diagnosis
    stack: Stack
    text: EvalData

    @cached_property
    def texts(self) -> Texts:
        """All of the text, that of the interventions, and that of curves and sets of layers."""
        config, text = self.config, self.text
        ablation = text if config.budget is None else sample(text, config.budget, config.seed)
        return Texts(text, ablation, sample(text, config.curve_tokens, config.seed))

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The variants of the model that the unfinished parts run."""
        finished = set() if run is None else {str(row.condition) for row in run.store.scores(FINISHED)}
        stored = 0 if run is None else run.store.count_losses()
        return diagnosis_works(self.config, self.stack, self.texts, finished, stored)

    def carry_out_piece(self, piece: Plain, emit: Emit) -> Plain:
        """In a worker: some of the interventions, or some plans of a sweep."""
        carry_out(self.stack, self.texts, self.config.seed, piece, emit)

    def carry_out(self, session: UnitSession) -> None:
        """Carry every part out that is not complete.

        A full disk, or any other `RunError`, ends the diagnosis; every other refusal ends its part alone.
        """
        run, reporter = session.run, session.reporter
        context = PartContext(self.stack, self.text, self.config, run, reporter, session.spread)
        context.store_time(size_row(self.stack))
        parts = self.config.ordered_parts()
        for number, part in enumerate(parts, start=1):
            if part not in context.finished:
                reporter.log(f"{part} ({number} of {len(parts)})")
                self._carry_out_part(part, context)
        if _is_empty(run):
            raise MeasureError("; ".join(note.text for note in run.store.notes()) or "nothing could be measured")

    def _carry_out_part(self, part: str, context: PartContext) -> None:
        notes: list[str] = []
        reading = None if self.stack.resident is None else self.stack.resident.count()
        start = time.perf_counter()
        try:
            PARTS[part](context, notes.append)
        except RunError:
            raise
        except LayerwiseError as refusal:
            notes.append(str(refusal))
        if reading is not None:
            context.reporter.log(describe_readings(reading))
        context.run.store.replace_notes(part, notes)
        for text in notes:
            context.reporter.log(f"{part}: {text}")
        context.store_time(Score(TIMES, "seconds", time.perf_counter() - start, condition=part))
        context.finish(part)
