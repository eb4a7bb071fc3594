"""Functions that measure the parts of a diagnosis and store their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from layerwise.data.suites.probing import generate_probed_text
from layerwise.errors import MeasureError
from layerwise.measure.activations.probing import probing
from layerwise.measure.contrasts.contrast import PlanEffects, pair_effects
from layerwise.measure.contrasts.layers import CORE, contrast_core
from layerwise.measure.gradients.proxies import proxies
from layerwise.measure.interventions import ablation, racing
from layerwise.measure.interventions.intervention import JointIntervention, ResultCache, intervention_losses
from layerwise.measure.interventions.perturbations import joint_losses, perturbation_curves
from layerwise.measure.interventions.predicted_weight_loss import joint_sets, neighbor_sets, predicted_weight_loss
from layerwise.measure.language.evaluation_data import CONTEXT, EvalData, sample, split, too_little
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.measure.recovery.recovery import recovery
from layerwise.measure.stats import verdicts
from layerwise.measure.weights.deltas import deltas, weight_norms
from layerwise.measure.weights.predictability import predictability
from layerwise.plan import Plan
from layerwise.plan.edits import skip
from layerwise.results import Score
from layerwise.results.vocabulary import MARGIN, PROBING, RACING, VERDICT
from layerwise.studies.diagnose import contrasts
from layerwise.studies.diagnose.context import PartContext

RECOVERY_RUNS = "recovery_run"

MAX_EVALUATIONS = 20
"""Maximum number of evaluations of a model while it recovers."""


def _describe_shortage(context: PartContext, text: EvalData, parts: int = 1) -> None:
    lacking = too_little(text, parts)
    if lacking is not None:
        context.notes.append(lacking)


def _compute_proxies(context: PartContext) -> None:
    _describe_shortage(context, context.text)
    context.store("proxies", proxies(context.stack, context.text, seed=context.seed))


def _compute_deltas(context: PartContext) -> None:
    norms = weight_norms(context.stack, seed=context.seed)
    context.store("deltas", norms)
    context.store("deltas", [*norms, *deltas(context.stack, seed=context.seed)])


def _compute_predictability(context: PartContext) -> None:
    stack, text, seed = context.stack, context.short_text, context.seed
    _describe_shortage(context, text)
    rows = predictability(stack, seed=seed) + predicted_weight_loss(stack, text, seed=seed, cache=context.cache())
    context.store("predictability", rows)
    sets = joint_sets(stack.depth) | neighbor_sets(stack.depth)
    context.store_contrast(contrasts.ACCUMULATION, contrasts.contrast_sets(_compute_effects(context), sets))


def _compute_effects(context: PartContext) -> PlanEffects:
    return PlanEffects.from_losses(list(context.run.store.losses()), context.baseline, seed=context.seed)


def _run_ablation(context: PartContext) -> None:
    stack, seed = context.stack, context.seed
    losses = ablation.ablation_losses(stack, context.text, seed=seed, cache=context.cache())
    context.store("ablation", ablation.ablation_rows(stack, losses, seed=seed))
    measured = {row.plan for row in losses}
    skipped, average, random = (
        {layer: key for layer, key in ablation.intervention_keys(stack.depth, name).items() if key in measured}
        for name in ("skip", "neighbor_average", "random")
    )
    rows = contrast_core(losses, context.baseline, skipped, average, random, margin=context.min_effect, seed=seed)
    context.store_contrast(CORE, rows)
    keys = ablation.skip_keys(stack.depth)
    _store_verdicts(
        context, verdicts.compute_verdicts(losses, context.baseline, keys, seed=seed, margin=context.min_effect)
    )


def _store_verdicts(context: PartContext, rows: Sequence[Score]) -> None:
    context.store(VERDICT, [*rows, Score(VERDICT, MARGIN, context.min_effect)])


def _run_screening(context: PartContext) -> None:
    rows = racing.racing(
        context.stack,
        context.text,
        beginning=CONTEXT,
        seed=context.seed,
        margin=context.min_effect,
        cache=context.cache(),
    )
    context.store(RACING, rows)
    if "ablation" not in context.parts:
        _store_verdicts(context, [replace(row, measure=VERDICT) for row in rows if row.layer is not None])


def _run_manipulation(context: PartContext) -> None:
    stack, text, seed = context.stack, context.short_text, context.seed
    _describe_shortage(context, text)
    context.store("manipulation", perturbation_curves(stack, text, seed=seed, cache=context.cache()))
    context.store_contrast(contrasts.SCALING, contrasts.contrast_scaling(_compute_effects(context)))
    # Curves are measured on the short text, so layers are selected on the rest of the text, if there is any.
    ranking = _read_skip_effects(context, context.text, without=text.cells)
    layers = contrasts.select_redundant_layers(ranking, max(2, stack.depth - 2))
    joint_losses(stack, text, layers, seed=seed, cache=context.cache())
    context.store_contrast(
        contrasts.JOINT, contrasts.contrast_joint_changes(_compute_effects(context), ranking, layers)
    )


def _run_recovery(context: PartContext) -> None:
    runs = context.scores(RECOVERY_RUNS)

    def sink(rows: Sequence[Score]) -> None:
        runs.extend(rows)
        context.store(RECOVERY_RUNS, runs)

    cache = ResultCache(known=tuple(runs), sink=sink, progress=context.progress, log=context.notes.append)
    steps = context.recovery_steps
    recipe = RecoveryRecipe(steps=steps, every=max(RecoveryRecipe().every, steps // MAX_EVALUATIONS))
    rows = recovery(
        context.stack,
        context.text,
        layers=context.recovery_layers,
        treatments=context.treatments,
        recipe=recipe,
        seed=context.seed,
        effects=context.scores("ablation"),
        cache=cache,
    )
    context.store("recovery", rows)


def _run_redundancy(context: PartContext) -> None:
    stack, seed = context.stack, context.seed
    first, second = split(context.text, seed)
    ranking = _read_skip_effects(context, first)
    layers = contrasts.select_redundant_layers(ranking, max(2, stack.depth // 2))
    skips, sets = (
        ablation.skip_interventions(stack.depth),
        [layers, *contrasts.draw_random_sets(stack.depth, len(layers), seed)],
    )
    chosen, *random = plans = [str(skip(Plan.identity(stack.depth), *each)) for each in sets]
    together = {
        plan: JointIntervention(plan, tuple(skips[layer] for layer in each))
        for plan, each in zip(plans, sets, strict=True)
    }
    fresh = sample(second, context.curve_tokens, seed)
    _describe_shortage(context, fresh, parts=2)
    intervention_losses(stack, list(together.values()), fresh, context.cache())
    rows = contrasts.contrast_redundant_sets(_compute_effects(context), chosen, random, ranking, len(layers))
    context.store_contrast(contrasts.REDUNDANT, rows)


def _read_skip_effects(context: PartContext, text: EvalData, without: Collection[object] = ()) -> dict[int, float]:
    keys = ablation.skip_keys(context.stack.depth)
    subjects = list(keys.values())
    losses = intervention_losses(context.stack, ablation.skip_interventions(context.stack.depth), text, context.cache())
    rest = [row for row in losses if (row.task, row.document, row.window) not in without]
    part = pair_effects(rest, context.baseline, subjects) or pair_effects(losses, context.baseline, subjects)
    if part is None:
        raise MeasureError("No set of layers can be selected, because some effects of skipping are not finite.")
    return dict(zip(keys, part.effects.tolist(), strict=True))


def _run_probing(context: PartContext) -> None:
    counts = Counter(token for batch in context.text.batches for window in batch.windows for token in window.ids)
    tokenizer = context.stack.tokenizer

    def frequency(word: str) -> float:
        assert tokenizer is not None, "the text was tokenized"
        return float(counts[tokenizer(f"a {word}", add_special_tokens=False)["input_ids"][-1]])

    text = generate_probed_text(context.seed, frequency)
    context.store(PROBING, probing(context.stack, text, seed=context.seed, progress=context.progress))


MEASURES: dict[str, Callable[[PartContext], None]] = {
    "proxies": _compute_proxies,
    "deltas": _compute_deltas,
    "predictability": _compute_predictability,
    "ablation": _run_ablation,
    "racing": _run_screening,
    "manipulation": _run_manipulation,
    "recovery": _run_recovery,
    "redundancy": _run_redundancy,
    "probing": _run_probing,
}
"""Maps each part to the function that measures it."""
