"""The steps of a diagnosis of one model on one text. Each part is a task, so an interrupted diagnosis resumes.

If a part cannot be measured on the model, a note is stored, and the other parts continue. Remaining work is counted in
forward passes of the model. A fine-tuning step counts as three, and parts that only compare weights do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from layerwise.data.text.corpus import Corpus
from layerwise.errors import LayerwiseError, MeasureError, RunError
from layerwise.measure.interventions.perturbations import ALPHAS, SIZES, STRATEGIES
from layerwise.measure.interventions.predicted_weight_loss import joint_sets, neighbor_sets
from layerwise.measure.interventions.sweep import CostEstimate
from layerwise.measure.language.evaluation_data import BATCH_TOKENS, EvalData, refuse_too_little, tokenize, wrap_batches
from layerwise.measure.layer_scores import read_importance
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.measure.recovery.recovery import DEFAULT_LAYERS
from layerwise.plan.checks import SUBLAYERS as BRANCHES
from layerwise.results import Manifest, Run, Score
from layerwise.results.vocabulary import ABLATION, AGREEMENT, MANIPULATION, PREDICTABILITY, PROXIES, RECOVERY
from layerwise.runner.arguments import Batches, RowMetric
from layerwise.runner.opening import make_size_row, make_text_manifest
from layerwise.runner.price import remaining_passes
from layerwise.runner.reporter import describe_data, describe_model, describe_readings
from layerwise.runner.tasks import Remaining, Study, Task
from layerwise.runner.text_length import ChosenText, TextRequest, TimedText, choose_text
from layerwise.stack import Stack
from layerwise.studies.diagnose import contrasts
from layerwise.studies.diagnose.context import FINISHED, TIMES, PartContext, PartSettings, find_finished
from layerwise.studies.diagnose.part_names import (
    CURVE_PARTS,
    DEFAULT_PARTS,
    DESCRIPTIVE,
    RECOVERY_STEPS,
    WITHIN_MINUTES,
    WITHOUT_TEXT,
)
from layerwise.studies.diagnose.parts import MEASURES

QUESTION = (
    "question: which layers matter, and why? Every score has an interval and a null, the value expected if there were "
    "no effect. Losses are in nats/token: 0.69 more halves the probability of the right token"
)
INTERVENTIONS = 4
"""Number of interventions on a layer: skipping, mean output, copy of a neighbor, and random weights."""

RECOVERY_SEEDS = 3
BACKWARD_PASSES, PROXY_PASSES = 3, 2


def list_smaller_parts(parts: tuple[str, ...], *, has_recovery: bool, has_curves: bool) -> Iterator[tuple[str, ...]]:
    """Yield sets of parts that take less time than the default parts, and that use the options that were given."""
    for smaller in WITHIN_MINUTES if parts == DEFAULT_PARTS else ():
        if (not has_recovery or RECOVERY in smaller) and (not has_curves or CURVE_PARTS & set(smaller)):
            yield smaller


def take_batches(stack: Stack, parts: Sequence[str], batches: Batches, metric: RowMetric) -> ChosenText:
    if others := [name for name in parts if name not in WITHOUT_TEXT]:
        raise MeasureError(f"parts must be among {', '.join(WITHOUT_TEXT)} with batches, got {', '.join(others)}.")
    assert batches is not None, "checked by the caller"
    return ChosenText(wrap_batches(stack, batches, metric), {})


def choose_text_of_parts(
    settle: Callable[..., PartSettings],
    candidates: Sequence[tuple[str, ...]],
    text: object,
    corpus: Corpus,
    batch_tokens: int | None,
) -> ChosenText:
    """Choose the first candidate set of parts that fits the time budget, and as much text as the budget allows."""

    def count(parts: tuple[str, ...], data: EvalData) -> CostEstimate:
        return count_passes(settle(parts=parts, text=data))

    first = settle(parts=candidates[0], text=None)
    cut = partial(tokenize, first.stack, corpus, batch_tokens=batch_tokens or BATCH_TOKENS, seed=first.seed)
    changed = [{"parts": list(parts)} if number else {} for number, parts in enumerate(candidates)]
    texts = [TimedText(first.stack, cut, partial(count, parts), first.stack.depth) for parts in candidates]
    return choose_text(TextRequest.of_call(text), list(zip(changed, texts, strict=True)), corpus)


def describe_run(
    settings: PartSettings, batch_tokens: int | None, *, all_layers: bool, recovery_layers: Sequence[int]
) -> Manifest:
    """Return the manifest of a diagnosis.

    Its field `families` lists the parts, and the settings that change the results.
    """
    if not DESCRIPTIVE.issuperset(settings.parts):
        refuse_too_little(settings.text)
    families = [*settings.parts, f"curve_tokens:{settings.curve_tokens}", f"min_effect:{settings.min_effect:g}"]
    families += ["all_layers"] if all_layers else []
    if settings.recovery_steps != RECOVERY_STEPS:
        families.append(f"recovery_steps:{settings.recovery_steps:g}")
    if recovery_layers:
        families.append(f"recovery_layers:{','.join(map(str, recovery_layers))}")
    return make_text_manifest(
        settings.stack,
        settings.text,
        families=tuple(families),
        seed=settings.seed,
        settings={"batch_tokens": batch_tokens or BATCH_TOKENS},
    )


def describe_work(settings: PartSettings, chosen: Sequence[str]) -> list[str]:
    depth = settings.stack.depth
    counts = {part: _count_variants(part, settings, depth, settings.text.tokens) for part in settings.parts}
    clauses = [f"{part} {count:,} on {scored:,} tokens" for part, (count, scored) in counts.items() if count]
    if RECOVERY in settings.parts:
        tunings = _count_fine_tunings(settings, depth)
        clauses.append(f"recovery {tunings:,} fine-tunings of {settings.recovery_steps:,} steps")
    total = sum(count for count, _ in counts.values())
    cost = f"cost: about {total:,} variants of the model" + (f" ({'; '.join(clauses)})" if clauses else "")
    return [describe_model(settings.stack), describe_data(settings.text), *chosen, QUESTION, cost]


def count_passes(settings: PartSettings) -> CostEstimate:
    costs = [_count_part(part, settings) for part in settings.parts]
    return CostEstimate(0, 0, 1, sum(cost.layer_tokens for cost in costs), sum(cost.head_tokens for cost in costs))


def _count_part(part: str, settings: PartSettings) -> CostEstimate:
    depth, text = settings.stack.depth, settings.text
    padded = sum(batch.size for batch in text.batches) / text.tokens
    count, scored = _count_variants(part, settings, depth, text.tokens)
    tokens = float(count * scored)
    if part == RECOVERY:
        recipe = RecoveryRecipe(steps=settings.recovery_steps)
        tuned = BACKWARD_PASSES * recipe.steps * recipe.batch_tokens
        evaluated = len(recipe.evaluations) * recipe.evaluation_tokens
        tokens += _count_fine_tunings(settings, depth) * (tuned + evaluated) / 2
    if part == PROXIES:
        tokens += BACKWARD_PASSES * PROXY_PASSES * text.tokens
    return CostEstimate(0, 0, 1, round(padded * depth * tokens), round(padded * tokens))


def _count_variants(part: str, settings: PartSettings, depth: int, tokens: int) -> tuple[int, int]:
    short = min(tokens, settings.curve_tokens)
    counts = {
        "predictability": (2 * (depth - 2 + len(joint_sets(depth)) + len(neighbor_sets(depth))), short),
        "ablation": (depth * (INTERVENTIONS + 2 * len(BRANCHES)) + depth - 2, tokens),
        "racing": (0 if "ablation" in settings.parts else depth, tokens),
        "manipulation": (
            depth * (len(STRATEGIES) * len(SIZES) + (1 + len(BRANCHES)) * len(ALPHAS)) + 2 * len(STRATEGIES),
            short,
        ),
        "redundancy": (1 + contrasts.RANDOM_SETS, short),
    }
    return counts.get(part, (0, tokens))


def _count_fine_tunings(settings: PartSettings, depth: int) -> int:
    layers = min(depth, DEFAULT_LAYERS) if settings.recovery_layers is None else len(set(settings.recovery_layers))
    scopes = {treatment.partition("/")[2] for treatment in settings.treatments}
    return RECOVERY_SEEDS * layers * (len(settings.treatments) + len(scopes))


def has_no_measurement(run: Run) -> bool:
    return all(score.measure in (TIMES, FINISHED) for score in run.store.scores())


@dataclass(frozen=True)
class PartTask(Task[None]):
    """The task of one part of a diagnosis. Errors other than `RunError` become notes."""

    part: str
    settings: PartSettings
    pace: float | None = None

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        due = _count_part(self.part, self.settings)
        if not due.head_tokens or (run is not None and self.part in find_finished(run)):
            return None
        return remaining_passes(self.settings.stack, self.settings.text, due, pace=self.pace)

    def execute(self, study: Study) -> None:
        if self.part in find_finished(study.run):
            return
        context = PartContext(part=self.part, run=study.run, reporter=study.reporter, **vars(self.settings))
        stack, parts, notes = context.stack, context.parts, context.notes
        context.store_time(make_size_row(stack))
        context.reporter.log(f"{self.part} ({parts.index(self.part) + 1} of {len(parts)})")
        reading = None if stack.resident is None else stack.resident.count()
        start = time.perf_counter()
        try:
            MEASURES[self.part](context)
        except RunError:
            raise
        except LayerwiseError as refusal:
            notes.append(str(refusal))
        if reading is not None:
            context.reporter.log(describe_readings(reading))
        context.run.store.replace_notes(self.part, notes)
        for text in notes:
            context.reporter.log(f"{self.part}: {text}")
        _compare_metrics(context)
        context.store_time(Score(TIMES, "seconds", time.perf_counter() - start, section=self.part))
        context.finish()


def _compare_metrics(context: PartContext) -> None:
    importance = read_importance(context.scores(PREDICTABILITY, ABLATION, RECOVERY, MANIPULATION, PROXIES))
    context.store(AGREEMENT, contrasts.correlate_with_skipping(importance, seed=context.seed))
