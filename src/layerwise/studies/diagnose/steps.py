"""The steps of a diagnosis: one model, one text, and every part into a run that can be resumed.

Complete parts are not computed again, and long parts store each loss as it is computed. A part that does not apply to
the model leaves a note, and the others continue. Remaining work is counted in full forward passes, a fine-tuning step
as three; parts that only compare weights are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from layerwise.data.text.corpus import Corpus
from layerwise.errors import LayerwiseError, MeasureError, RunError
from layerwise.measure.interventions.ablation import refuse_shallow
from layerwise.measure.interventions.perturbation_curves import ALPHAS, SIZES
from layerwise.measure.interventions.perturbations import STRATEGIES
from layerwise.measure.interventions.predicted_weight_loss import joint_sets, neighbour_sets
from layerwise.measure.interventions.redundancy import RANDOM_SETS
from layerwise.measure.interventions.sweep import CostEstimate
from layerwise.measure.language.evaluation_data import EvalData, refuse_too_little
from layerwise.measure.own_batches import own_batches
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.measure.recovery.recovery import DEFAULT_LAYERS, DEFAULT_TREATMENTS, TREATMENTS
from layerwise.plan.sublayer import SUBLAYERS as BRANCHES
from layerwise.results import Run, Score
from layerwise.results.vocabulary import ABLATION, AGREEMENT, MANIPULATION, PREDICTABILITY, PROXIES, RECOVERY
from layerwise.runner.experiment import Inputs
from layerwise.runner.opening import cutting, open_named, provenance, size_row
from layerwise.runner.options.common import BATCH_TOKENS
from layerwise.runner.price import remaining_passes
from layerwise.runner.reporter import Reporter, describe_data, describe_model, describe_readings, waiting
from layerwise.runner.steps import Completed, Outline, Remaining, Steps, Unit, UnitSession
from layerwise.runner.text_length import ChosenText, TimedText, chosen_text
from layerwise.stack import Stack
from layerwise.studies.diagnose import agreement
from layerwise.studies.diagnose.context import FINISHED, TIMES, PartContext
from layerwise.studies.diagnose.options import DEFAULT_PARTS, DESCRIPTIVE, WITHOUT_TEXT, Diagnosis
from layerwise.studies.diagnose.parts import PARTS

_BACKWARD = 3

_PROXY_PASSES = 2


def passes_left(
    config: Diagnosis, stack: Stack, text: EvalData, finished: Collection[str] = (), stored: int = 0
) -> CostEstimate:
    """Count the layers and heads left, given the `finished` parts and `stored` losses; each variant is a full pass."""
    due = _due(config, stack.depth, text, finished, stored)
    padded = sum(batch.size for batch in text.batches) / text.tokens
    heads = sum(number * scored for number, scored in due.values())
    tuned = 0.0
    if "recovery" in config.parts and "recovery" not in finished:
        recipe = RecoveryRecipe(steps=config.recovery_steps)
        tokens = _BACKWARD * recipe.steps * recipe.batch_tokens + len(recipe.evaluations) * recipe.evaluation_tokens
        tuned += fine_tunings(config, stack.depth) * tokens / 2
    if "proxies" in config.parts and "proxies" not in finished:
        tuned += _BACKWARD * _PROXY_PASSES * text.tokens
    return CostEstimate(0, 0, 1, round(padded * stack.depth * (heads + tuned)), round(padded * (heads + tuned)))


def _due(
    config: Diagnosis, depth: int, text: EvalData, finished: Collection[str], stored: int
) -> dict[str, tuple[float, int]]:
    counts = variants(config, depth, text.tokens)
    left = _share_left(counts, finished, stored, len(text.windows) / text.tokens)
    return {part: (left * number, scored) for part, (number, scored) in counts.items() if part not in finished}


def _share_left(
    counted: dict[str, tuple[int, int]], finished: Collection[str], stored: int, windows_a_token: float
) -> float:
    rows = {part: count * scored * windows_a_token for part, (count, scored) in counted.items()}
    unfinished = sum(count for part, count in rows.items() if part not in finished)
    begun = max(0.0, stored - (sum(rows.values()) - unfinished))
    return max(0.0, 1 - begun / unfinished) if unfinished else 0.0


INTERVENTIONS = 4
"""On a whole layer that may be any: skipped, its mean, a neighbour's copy, random weights."""

RECOVERY_SEEDS = 3


def describe_cost(config: Diagnosis, depth: int, tokens: int) -> str:
    counts = variants(config, depth, tokens)
    clauses = [f"{part} {count:,} on {scored:,} tokens" for part, (count, scored) in counts.items()]
    if "recovery" in config.parts:
        clauses.append(f"recovery {fine_tunings(config, depth):,} fine-tunings of {config.recovery_steps:,} steps")
    total = sum(count for count, _ in counts.values())
    return f"cost: about {total:,} variants of the model" + (f" ({'; '.join(clauses)})" if clauses else "")


def variants(config: Diagnosis, depth: int, tokens: int) -> dict[str, tuple[int, int]]:
    """By part, how many variants of the model it runs, and on how many scored tokens each.

    >>> variants(Diagnosis(model="demo", parts=("ablation", "manipulation")), 6, 5_000)
    {'ablation': (52, 5000), 'manipulation': (300, 1000)}
    """
    short = min(tokens, config.curve_tokens)
    counts = {
        "predictability": (2 * (depth - 2 + len(joint_sets(depth)) + len(neighbour_sets(depth))), short),
        "ablation": (depth * (INTERVENTIONS + 2 * len(BRANCHES)) + depth - 2, tokens),
        "racing": (depth if "ablation" not in config.parts else 0, tokens),
        "manipulation": (
            depth * (len(STRATEGIES) * len(SIZES) + (1 + len(BRANCHES)) * len(ALPHAS)) + 2 * len(STRATEGIES),
            short,
        ),
        "redundancy": (1 + RANDOM_SETS, short),
    }
    return {part: count for part, count in counts.items() if part in config.parts and count[0]}


def fine_tunings(config: Diagnosis, depth: int) -> int:
    layers = depth if config.all_layers else len(set(config.recovery_layers)) or min(depth, DEFAULT_LAYERS)
    treatments = TREATMENTS if config.all_layers else DEFAULT_TREATMENTS
    scopes = {treatment.partition("/")[2] for treatment in treatments}
    return RECOVERY_SEEDS * layers * (len(treatments) + len(scopes))


QUESTION = (
    "question: which of its layers matter, and what explains it? Every score has an interval, and a null: what would "
    "be measured if there were nothing to find. Losses are in nats per token: 0.69 more is half as likely"
)


def diagnosis(config: Diagnosis, reporter: Reporter, inputs: Inputs) -> Steps:
    began = time.monotonic()
    if inputs.batches is not None:
        stack = inputs.stack or open_named(config, reporter)
        data = own_batches(stack, inputs.batches, inputs.metric)
        return (yield from diagnosis_of(_without_text(config), stack, ChosenText(data, {}), reporter))
    corpus = inputs.corpus or config.corpus(config.model)
    stack = inputs.stack or open_named(config, reporter)
    refuse_shallow(stack)
    config, own = _chosen(config, stack, corpus, reporter, began)
    return (yield from diagnosis_of(config, stack, own, reporter))


def _without_text(config: Diagnosis) -> Diagnosis:
    parts = WITHOUT_TEXT if config.parts == DEFAULT_PARTS else config.parts
    others = [name for name in parts if name not in WITHOUT_TEXT]
    if others:
        raise MeasureError(f"parts must be some of {', '.join(WITHOUT_TEXT)} with batches, got {', '.join(others)}.")
    return replace(config, parts=parts)


def diagnosis_of(config: Diagnosis, stack: Stack, own: ChosenText, reporter: Reporter) -> Steps:
    """Diagnose a model on a chosen text.

    Raises `MeasureError` for fewer than 4 layers, for too little text, and if no part could be carried out.
    """
    refuse_shallow(stack)
    text = own.data
    beyond = [layer for layer in config.recovery_layers if layer >= stack.depth]
    if beyond:
        raise MeasureError(
            f"--recovery-layers names layer {beyond[0]}, and this model has the layers 0 to {stack.depth - 1}"
        )
    if not set(config.parts) <= set(DESCRIPTIVE):
        refuse_too_little(text)
    manifest = provenance(
        stack,
        text,
        families=config.settings(),
        seed=config.seed,
        settings={"batch_tokens": config.batch_tokens or BATCH_TOKENS},
    )
    parts = PartsUnit(config, stack, text, own.seconds)

    def says() -> Iterator[str]:
        yield describe_model(stack)
        yield describe_data(text)
        yield from own.says
        yield QUESTION
        yield describe_cost(config, stack.depth, text.tokens)

    yield Outline(manifest, says, ahead=(parts,), is_empty=_is_empty, chosen=own.options)
    yield from parts
    return Completed()


def _chosen(
    config: Diagnosis, stack: Stack, corpus: Corpus, reporter: Reporter, began: float
) -> tuple[Diagnosis, ChosenText]:
    cut = cutting(config, stack, corpus, config.seed)
    questions = [
        (each, TimedText(stack, cut, partial(passes_left, each, stack), stack.depth)) for each in config.alternatives()
    ]
    with waiting(reporter, f"tokenizing {corpus.name} and timing a batch"):
        return chosen_text(config, questions, corpus, began)


def _is_empty(run: Run) -> bool:
    return all(score.measure in (TIMES, FINISHED) for score in run.store.scores())


@dataclass(frozen=True)
class PartsUnit(Unit[None]):
    """The parts of a diagnosis: each is carried out once, and keeps inside of it what it has finished."""

    config: Diagnosis
    stack: Stack
    text: EvalData
    pace: float | None = None

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        finished = set() if run is None else {str(row.condition) for row in run.store.scores(FINISHED)}
        if finished.issuperset(self.config.parts):
            return None
        stored = 0 if run is None else run.store.count_losses()
        due = passes_left(self.config, self.stack, self.text, finished, stored)
        return remaining_passes(self.stack, self.text, due, pace=self.pace)

    def carry_out(self, session: UnitSession) -> None:
        """Carry out every part that is not complete; a `RunError` ends the diagnosis, any other error its part."""
        run, reporter = session.run, session.reporter
        context = PartContext(self.stack, self.text, self.config, run, reporter)
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
        _compare_metrics(context)
        context.store_time(Score(TIMES, "seconds", time.perf_counter() - start, condition=part))
        context.finish(part)


def _compare_metrics(context: PartContext) -> None:
    scores = context.scores(PREDICTABILITY, ABLATION, RECOVERY, MANIPULATION, PROXIES)
    metrics = agreement.layer_metrics(scores)
    context.store(AGREEMENT, agreement.skip_agreement(metrics, seed=context.seed))
    context.store_contrast(agreement.CLAIM, agreement.published_agreement(metrics, seed=context.seed))
