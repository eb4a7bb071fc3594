"""The questions about "Anatomical Heterogeneity" that a diagnosis answers from the rows of a run."""

from __future__ import annotations

from layerwise.page.data import ReportData, read_layer_verdicts, read_skip_effects
from layerwise.page.finding import Finding, Paper, Published, Question, Verdict, describe_undecided
from layerwise.page.formatting import format_count, format_null, format_number, join_words, label
from layerwise.results import vocabulary as vocab
from layerwise.results.estimate import Estimate
from layerwise.results.selection import PRESENT, Rows

PAPER = Paper("Anatomical Heterogeneity in Transformer Language Models", "arXiv 2603.19348, 2026")

MIN_R2, NEAR_R2, MIN_LAG, MIN_STRATEGY_NATS, MIN_RECOVERY_CORRELATION = 0.5, 0.1, 0.1, 0.01, 0.5
PUBLISHED_GAIN = 0.006
"""The published gain by skipping a layer, in nats/token: 0.6 % of the perplexity."""

LAG_METRICS = ("oscillating", "smooth", "no_lag_structure", "inconclusive")
HELD_OUT = ("heldout_rows_r2", "heldout_layers_r2")
SHARED_LAYERS = 3**0.5
"""Factor by which intervals are widened. Every layer is in three fits, so only a third of them may be independent."""

DECISIVE_LAYERS = 38
"""Number of damaged layers with which the interval of a rank correlation is narrow enough for a verdict."""

PUBLISHED_DAMAGE, EQUAL_DAMAGE = ("noise_50", "layer"), ("equal_damage", "layer")

PREDICTABLE = Question(
    "Can the weights of a layer be predicted from its neighbors?",
    "R² is measured on held-out rows of the weights and on held-out layers. Both must exceed 0.5 and the R² of every"
    " null. Intervals over layers are widened by √3, because each layer takes part in three fits. Tensor types with at"
    " least as many predictors as rows are excluded from the in-sample R², because any fit to them is exact.",
    Published(PAPER, "A layer's weights are predicted from its neighbors with R² 0.91.", "R² 0.91", "metric 1"),
    "(R² on held-out weights)",
    MIN_R2,
)
OSCILLATION = Question(
    "Do weights oscillate from layer to layer?",
    "The correlation of the weight differences of successive layers (lag 1) is compared with that of the same layers in"
    " random orders. The weights of each layer are divided by their norm first. Independent layers of equal norm have a"
    " correlation of −0.5.",
    Published(
        PAPER,
        "The weight differences of successive layers correlate at −0.50 everywhere.",
        "−0.50 at lag 1",
        "metric 1",
    ),
    "(correlation minus that of random orders)",
    MIN_LAG,
)
CORE = Question(
    "Is there a core of layers that matters far more than the rest?",
    "The median effect of skipping a layer in the range must exceed twice that of the other layers. The published"
    " range is scaled to the depth of the model. Ranges shifted by up to 1/15 of the depth are also tested, and the"
    " intervals are corrected for all of them. The paper also replaces layers by the average of their neighbors."
    " `layerwise diagnose` repeats this and, as a control, replaces layers with random weights of the same norm.",
    Published(PAPER, "A contiguous core of layers matters far more than the rest.", "layers 8–11 of 30", "metric 2"),
    "nats/token (median effect of the range minus twice that of the other layers)",
    0.0,
)
ANTI_LAYERS = Question(
    "Do some layers do harm?",
    "Skipping the layer must lower the loss. The layer is selected on one half of the text and confirmed on the other."
    " All intervals hold simultaneously, with 95 % confidence.",
    Published(
        PAPER,
        "Some layers do harm: skipping layer 14 or 17 lowers the perplexity by 0.6 %.",
        "−0.006 nats/token",
        "metric 2",
    ),
    "nats/token (loss change when the layer is skipped)",
    PUBLISHED_GAIN,
)
RECOVERY = Question(
    "Do layers that matter recover more slowly?",
    "Recovery is measured by the area between the loss curves of the damaged model and of an undamaged copy. The number"
    " is the rank correlation over layers of this area with the effect of skipping. Heavier damage takes longer to undo"
    " in any layer, so layers are compared after damage that increases the loss equally. Without such runs, a partial"
    " correlation is used, controlled for the initial damage.",
    Published(
        PAPER,
        "Damaged layers that matter take 200 steps to recover, other layers none.",
        "200 steps for layers 8 and 11, none for layer 14",
        "metric 3",
    ),
    "(rank correlation at equal damage)",
    MIN_RECOVERY_CORRELATION,
)
SCALING = Question(
    "Is scaling the only change that a layer survives?",
    "Scaling by 0.9 changes the weights by a tenth of their norm. Its median cost over layers is compared with that of"
    " other changes of the same size, with simultaneous intervals. The null is that the other changes cost more in the"
    " paper only because they are larger.",
    Published(
        PAPER,
        "A layer survives scaling by 0.9, but four other changes raise the perplexity by millions of percent.",
        "0.17 nats/token (perplexity +19 %)",
        "metric 4",
    ),
    "nats/token (cost of the mildest other change minus cost of scaling by 0.9)",
    MIN_STRATEGY_NATS,
)


def judge_weights_predictable(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=vocab.PREDICTABILITY, layer=None, condition=None)
    whole = rows.where(part=None)
    held = {metric: each for metric in HELD_OUT if (each := _read_over_layers(whole, metric)) is not None}
    inside = _read_over_layers(whole, "in_sample_r2")
    fitted = rows.where(metric="in_sample_r2", against=None, part=PRESENT).axis("part")
    exact = set(rows.where(metric=HELD_OUT, part=PRESENT).axis("part")) - set(fitted)
    if not held or (inside is None and (fitted or not exact)):
        return None
    nulls = [
        (format_null(name), each, Estimate.read_bounded(row) or Estimate(row.value, row.value, row.value))
        for metric, each in held.items()
        for name, row in sorted(whole.where(metric=metric).along("against").items())
    ]
    as_good = list(dict.fromkeys(name for name, each, null in nulls if each.high - null.low < NEAR_R2))
    is_strong = len(held) == len(HELD_OUT) and all(each.is_above(MIN_R2) for each in held.values())
    is_weak = any(each.is_below(MIN_R2) for each in held.values())
    if is_strong and as_good:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = f"No more than the null: R² is as high for {join_words(as_good)}."
    elif is_strong and all(each.low > null.high for _, each, null in nulls):
        verdict, answer = Verdict.SUPPORTED, "Yes: most of the variance is predicted on held-out weights."
    elif is_weak and (inside is None or inside.is_above(MIN_R2)):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "No: R² is high only for the weights used in the fit; held-out weights are not predicted."
    elif is_weak and inside is not None and inside.is_below(MIN_R2):
        verdict, answer = (
            Verdict.CONTRADICTED,
            "No: even for the weights used in it, the fit explains less than half of the variance.",
        )
    else:
        verdict, answer = (
            Verdict.INCONCLUSIVE,
            "The interval is compatible with both yes and no. A deeper model should settle it.",
        )
    return PREDICTABLE.answer(verdict, answer, next(iter(held.values())))


def _read_over_layers(rows: Rows, metric: str) -> Estimate | None:
    estimate = Estimate.read_bounded(rows.one(metric=metric, against=None))
    return estimate and estimate.widen(SHARED_LAYERS)


def judge_weights_oscillate(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=vocab.DELTAS, distance=1, part=None, against=None)
    row = next((row for name in LAG_METRICS if (row := rows.one(metric=name)) is not None), None)
    if row is None:
        return None
    excess = Estimate.read(row)
    answers = {
        "within": (Verdict.NO_BETTER_THAN_NULL, "No: these layers give the same correlation in random orders."),
        "below": (Verdict.SUPPORTED, "Yes: the correlation is lower than with these layers in random orders."),
        "above": (Verdict.CONTRADICTED, "No: neighboring layers are more alike than layers in a random order."),
        "open": (
            Verdict.INCONCLUSIVE,
            "The interval is compatible with both yes and no. A deeper model should settle it.",
        ),
    }
    return OSCILLATION.answer(*answers[excess.locate(MIN_LAG)], excess)


def judge_core_layers(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=vocab.CONTRAST, claim="core", layer=PRESENT)
    ranges = {
        f"{row.layer}–{row.to_layer}": (row, estimate)
        for row in rows.where(metric="skip_excess")
        if (estimate := Estimate.read_bounded(row)) is not None
    }
    if not ranges:
        return None
    damaged = []
    for layers, (row, _) in sorted(ranges.items()):
        own_rows = rows.where(layer=row.layer, to_layer=row.to_layer)
        average, random = (
            Estimate.read_bounded(own_rows.one(metric=metric)) for metric in ("average_excess", "average_over_random")
        )
        damaged += [layers] if average and random and average.is_above() and random.is_below() else []
    is_absent = all(estimate.is_below() for _, estimate in ranges.values())
    if any(estimate.is_above() for _, estimate in ranges.values()):
        verdict = Verdict.SUPPORTED
        answer = "Yes: in some range near the published one, the median effect is more than twice that of other layers."
    elif is_absent and damaged:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = (
            f"No: skipping shows no core, and replacing layers {damaged[0]} by random weights costs about as much as"
            " replacing them by the average of their neighbors."
        )
    elif is_absent:
        verdict = Verdict.CONTRADICTED
        answer = "No: in every range near the published one, the median effect is less than twice that of other layers."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, "The interval is compatible with both yes and no."
    best = max(sorted(ranges), key=lambda layers: ranges[layers][1].value)
    excess = ranges[best][1]
    size = f"{format_number(abs(excess.value))} nats/token"
    if excess.value >= 0.0:
        strongest = f"In layers {best}, the median effect exceeds twice that of the other layers by {size}."
    else:
        strongest = f"Layers {best} come closest; the median effect there would have to be {size} higher."
    return CORE.answer(verdict, f"{answer} {strongest}", excess)


def judge_anti_layers(data: ReportData) -> Finding | None:
    verdicts = read_layer_verdicts(data.rows)
    bounds = {layer: each for layer, row in verdicts.items() if (each := Estimate.read_bounded(row)) is not None}
    if not verdicts or len(bounds) < len(verdicts):
        return None
    harmful = [layer for layer, row in verdicts.items() if row.metric == "harmful"]
    least = min(harmful or bounds, key=lambda layer: bounds[layer].value if harmful else bounds[layer].low)
    uncorrected = [
        str(layer) for layer, row in read_skip_effects(data.rows).items() if row.high is not None and row.high < 0.0
    ]
    is_excluded = bounds[least].is_above(-PUBLISHED_GAIN)
    if harmful:
        verdict = Verdict.SUPPORTED
        answer = f"Yes: held-out text confirms that the loss falls without layer {join_words(list(map(str, harmful)))}."
    elif is_excluded and uncorrected:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = (
            f"Only by chance: layer {join_words(uncorrected)} looks harmful only without the correction over layers."
        )
    elif is_excluded:
        verdict, answer = (
            Verdict.CONTRADICTED,
            "No: for every layer, the interval excludes a gain as large as the published one.",
        )
    else:
        verdict, answer = Verdict.INCONCLUSIVE, "A gain as large as the published one is neither found nor excluded."
    return ANTI_LAYERS.answer(verdict, f"{answer} The estimate shown is that of layer {least}.", bounds[least])


def judge_recovery_follows_importance(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=vocab.RECOVERY, layer=None, against=None)
    treatments = sorted(
        {(str(row.condition), str(row.variant)) for row in rows.where(metric="layers")} - {EQUAL_DAMAGE}
    )
    if not treatments:
        return None
    treatment = PUBLISHED_DAMAGE if PUBLISHED_DAMAGE in treatments else treatments[0]
    is_equal = bool(_select_treatment(rows, EQUAL_DAMAGE).where(metric="spearman"))
    own = _select_treatment(rows, EQUAL_DAMAGE if is_equal else treatment)
    among = Estimate.read_bounded(own.one(metric="spearman" if is_equal else "spearman_given_damage"))
    published = Estimate.read_bounded(_select_treatment(rows, treatment).one(metric="spearman_published"))
    position, raw = (None if each is None else each.locate(MIN_RECOVERY_CORRELATION) for each in (among, published))
    if position == "above" and raw != "below":
        verdict, answer = Verdict.SUPPORTED, "Yes: layers that matter more recover more slowly, also from equal damage."
    elif raw == "above" and position in ("within", "below"):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "No: layers that matter more were damaged more. After equal damage they do not recover more slowly."
    elif raw in ("within", "below") and position != "above":
        verdict = Verdict.CONTRADICTED
        answer = "No: layers that matter more do not recover more slowly, not even after unequal damage."
    else:
        layers = format_count(int(own.value(metric="layers") or 0), "damaged layer")
        beyond = ", more than this model has" if 0 < data.depth < DECISIVE_LAYERS else ""
        verdict = Verdict.INCONCLUSIVE
        answer = f"Only {layers} can be compared; about {DECISIVE_LAYERS} would be needed{beyond}."
    return RECOVERY.answer(verdict, answer, among)


def _select_treatment(rows: Rows, treatment: tuple[str, str]) -> Rows:
    return rows.where(condition=treatment[0], variant=treatment[1])


def judge_only_scaling_survives(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=vocab.CONTRAST, claim="scaling")
    equal, unequal = (
        {label(name): Estimate.read(row) for name, row in sorted(rows.where(metric=size).along("condition").items())}
        for size in ("equal", "unequal")
    )
    if not equal:
        return None
    at, at_largest = (
        {each.locate(MIN_STRATEGY_NATS) for each in strategies.values()} for strategies in (equal, unequal)
    )
    mild = join_words([name for name, each in equal.items() if each.locate(MIN_STRATEGY_NATS) in ("within", "below")])
    if at == {"above"}:
        verdict, answer = Verdict.SUPPORTED, "Yes: at equal size, scaling costs less than each of the other changes."
    elif mild and at_largest == {"above"}:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = f"No: at equal size, {mild} cost no more than scaling. In the paper, the other changes were larger."
    elif mild and not at_largest.isdisjoint({"within", "below"}):
        verdict, answer = (
            Verdict.CONTRADICTED,
            f"No: {mild} cost no more than scaling by 0.9, even if they change the weights more.",
        )
    else:
        widest = max(equal.values(), key=lambda each: each.mde or 0.0)
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(widest, MIN_STRATEGY_NATS)
    return SCALING.answer(verdict, answer, min(equal.values(), key=lambda each: each.value))


DIAGNOSIS_FINDINGS = (
    judge_weights_predictable,
    judge_weights_oscillate,
    judge_core_layers,
    judge_anti_layers,
    judge_recovery_follows_importance,
    judge_only_scaling_survives,
)
