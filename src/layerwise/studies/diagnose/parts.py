"""The parts of a diagnosis: functions of the model, the text and earlier rows; `note` gets what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from layerwise.data.suites.probing import probed_text
from layerwise.errors import MeasureError
from layerwise.measure.activations.block_influence import MIDDLE, middle
from layerwise.measure.activations.probing import probing
from layerwise.measure.contrasts.contrast import ArmEffects, arms
from layerwise.measure.contrasts.layers import CORE, RANGE, core, importance_range
from layerwise.measure.gradients.proxies import proxies
from layerwise.measure.interventions import ablation, racing
from layerwise.measure.interventions.intervention import ResultCache, intervention_losses
from layerwise.measure.interventions.perturbation_curves import joint_manipulation, perturbation_curves
from layerwise.measure.interventions.predicted_weight_loss import joint_sets, neighbour_sets, predicted_weight_loss
from layerwise.measure.interventions.redundancy import measure_plans, random_sets, skipping
from layerwise.measure.language.evaluation_data import CONTEXT, EvalData, sample, split, too_little
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.measure.recovery.recovery import RecoveryCache, recovery
from layerwise.measure.stats import verdicts
from layerwise.measure.weights.deltas import deltas
from layerwise.measure.weights.norms import weight_norms
from layerwise.measure.weights.predictability import predictability
from layerwise.results import Loss, Score
from layerwise.results.vocabulary import MARGIN, PROBING, RACING, VERDICT
from layerwise.studies.diagnose import joint
from layerwise.studies.diagnose.context import Note, PartContext

RECOVERY_RUNS = "recovery_run"

MOST_EVALUATIONS = 20
"""Evaluations of a damaged model while it recovers, at most."""


def _note_too_little(reading: EvalData, note: Note, parts: int = 1) -> None:
    lacking = too_little(reading, parts)
    if lacking is not None:
        note(lacking)


def _proxies(context: PartContext, note: Note) -> None:
    _note_too_little(context.text, note)
    context.store("proxies", proxies(context.stack, context.text, seed=context.seed))
    context.store_contrast(MIDDLE, middle(context.stack, context.text, context.short_text, seed=context.seed))


def _deltas(context: PartContext, note: Note) -> None:
    norms = weight_norms(context.stack, seed=context.seed)
    context.store("deltas", norms)
    context.store("deltas", [*norms, *deltas(context.stack, seed=context.seed)])


def _predictability(context: PartContext, note: Note) -> None:
    _note_too_little(context.short_text, note)
    cache = context.cache("predictability", note)
    rows = predictability(context.stack, seed=context.seed)
    rows += predicted_weight_loss(context.stack, context.short_text, seed=context.seed, cache=cache)
    context.store("predictability", rows)
    sets = joint_sets(context.stack.depth) | neighbour_sets(context.stack.depth)
    context.store_contrast(joint.ACCUMULATION, joint.accumulation(_effects(context), sets))


def _effects(context: PartContext) -> ArmEffects:
    return ArmEffects.of(context.losses(), context.baseline, seed=context.seed)


def _ablation(context: PartContext, note: Note) -> None:
    losses = ablation.ablation_losses(
        context.stack, context.text, seed=context.seed, cache=context.cache("ablation", note)
    )
    context.store("ablation", ablation.ablation_of(context.stack, losses, seed=context.seed))
    context.store_contrast(CORE, _core(context, losses))
    skips = list(ablation.skip_keys(context.stack.depth).values())
    effects_of = ArmEffects.of(losses, context.baseline, seed=context.seed)
    context.store_contrast(RANGE, importance_range(effects_of, skips))
    keys = ablation.skip_keys(context.stack.depth)
    rows = verdicts.verdicts(losses, context.baseline, keys, seed=context.seed, rule=context.rule)
    context.store(VERDICT, [*rows, _margin(context)])


def _core(context: PartContext, losses: Sequence[Loss]) -> list[Score]:
    measured = {row.plan for row in losses}
    skip, average, random = (
        {layer: key for layer, key in ablation.intervention_keys(context.stack.depth, name).items() if key in measured}
        for name in ("skip", "neighbour_average", "random")
    )
    return core(losses, context.baseline, skip, average, random, margin=context.settings.min_effect, seed=context.seed)


def _margin(context: PartContext) -> Score:
    return Score(VERDICT, MARGIN, context.settings.min_effect)


def _racing(context: PartContext, note: Note) -> None:
    rows = racing.racing(
        context.stack,
        context.text,
        beginning=CONTEXT,
        seed=context.seed,
        rule=context.rule,
        cache=context.cache("racing", note),
    )
    context.store(RACING, rows)
    if "ablation" not in context.settings.parts:
        rows = [replace(row, measure=VERDICT) for row in rows if row.layer is not None]
        context.store(VERDICT, [*rows, _margin(context)])


def _manipulation(context: PartContext, note: Note) -> None:
    _note_too_little(context.short_text, note)
    cache = context.cache("manipulation", note)
    context.store(
        "manipulation", perturbation_curves(context.stack, context.short_text, seed=context.seed, cache=cache)
    )
    # A cache knows what was stored when it was made, and each of these stores.
    context.store_contrast(joint.SCALING, joint.scaling(_effects(context)))
    # Curves are measured on the short text: what chooses the layers is measured on the rest, where there is any.
    cache = context.cache("manipulation", note)
    ranking = _skip_effects(context, context.text, cache, without=context.short_text.cells)
    layers = joint.redundant_layers(ranking)
    cache = context.cache("manipulation", note)
    joint_manipulation(context.stack, context.short_text, layers, seed=context.seed, cache=cache)
    rows = joint.joint_manipulation(_effects(context), ranking, layers)
    context.store_contrast(joint.JOINT, rows)


def _recovery(context: PartContext, note: Note) -> None:
    runs = context.scores(RECOVERY_RUNS)

    def sink(rows: Sequence[Score]) -> None:
        runs.extend(rows)
        context.store(RECOVERY_RUNS, runs)

    cache = RecoveryCache(known=tuple(runs), sink=sink, progress=context.progress("recovery"), log=note)
    steps = context.settings.recovery_steps
    recipe = RecoveryRecipe(steps=steps, every=max(RecoveryRecipe().every, steps // MOST_EVALUATIONS))
    rows = recovery(
        context.stack,
        context.text,
        layers=context.settings.recovery_layers,
        treatments=context.settings.treatments,
        recipe=recipe,
        seed=context.seed,
        effects=context.scores("ablation"),
        cache=cache,
    )
    context.store("recovery", rows)


def _redundancy(context: PartContext, note: Note) -> None:
    stack, seed = context.stack, context.seed
    first, second = split(context.text, seed)
    ranking = _skip_effects(context, first, context.cache("redundancy", note))
    layers = joint.least_effective(ranking, max(2, stack.depth // 2))
    plans = [skipping(stack.depth, each) for each in (layers, *random_sets(stack.depth, len(layers), seed=seed))]
    fresh = sample(second, context.settings.curve_tokens, seed)
    _note_too_little(fresh, note, parts=2)
    measure_plans(stack, fresh, plans, context.cache("redundancy", note))
    chosen, *random = map(str, plans)
    rows = joint.redundant_sets(_effects(context), chosen, random, ranking, len(layers))
    context.store_contrast(joint.REDUNDANT, rows)


def _skip_effects(
    context: PartContext, text: EvalData, cache: ResultCache, without: Collection[object] = ()
) -> dict[int, float]:
    keys = ablation.skip_keys(context.stack.depth)
    subjects = list(keys.values())
    losses = intervention_losses(context.stack, ablation.skips(context.stack.depth), text, cache)
    rest = [row for row in losses if (row.task, row.document, row.window) not in without]
    part = arms(rest, context.baseline, subjects) or arms(losses, context.baseline, subjects)
    if part is None:
        raise MeasureError("a set of layers is chosen by the effects of skipping, and some are not finite")
    return dict(zip(keys, part.effects.tolist(), strict=True))


def _probing(context: PartContext, note: Note) -> None:
    counts = Counter(token for batch in context.text.batches for window in batch.windows for token in window.ids)
    tokenizer = context.stack.tokenizer

    def frequency(word: str) -> float:
        assert tokenizer is not None, "the text was read with it"
        return float(counts[tokenizer(f"a {word}", add_special_tokens=False)["input_ids"][-1]])

    text = probed_text(context.seed, frequency)
    context.store(PROBING, probing(context.stack, text, seed=context.seed, progress=context.progress(PROBING)))


MEASURES: dict[str, Callable[[PartContext, Note], None]] = {
    "proxies": _proxies,
    "deltas": _deltas,
    "predictability": _predictability,
    "ablation": _ablation,
    "racing": _racing,
    "manipulation": _manipulation,
    "recovery": _recovery,
    "redundancy": _redundancy,
    "probing": _probing,
}
"""What measures each part of a diagnosis."""
