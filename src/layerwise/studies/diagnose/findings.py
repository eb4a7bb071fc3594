"""The questions of "Anatomical Heterogeneity" that a diagnosis answers, each from the rows of a run."""

from __future__ import annotations

from dataclasses import replace

from layerwise.page.data import ReportData, concluded, skipped
from layerwise.page.evidence import EQUIVALENCE, NO_INTERVALS, describe_undecided, read_contrasts, read_estimates
from layerwise.page.finding import Finding, Paper, Published, Verdict, format_estimate
from layerwise.page.text.number_format import tidy
from layerwise.page.text.wording import counted, label, listed, null_name
from layerwise.results import vocabulary as vocab
from layerwise.results.estimate import Estimate
from layerwise.results.selection import PRESENT, Rows

PAPER = Paper("Anatomical Heterogeneity in Transformer Language Models", "arXiv 2603.19348, 2026")

MIN_R2, NEAR_R2, MIN_LAG = 0.5, 0.1, 0.1
MIN_SHARE, SURVIVED_NATS, MIN_SPARED = 0.2, 0.2, 0.05
PUBLISHED_GAIN, HUNDREDFOLD, MIN_STRATEGY_NATS = 0.006, 2.0, 0.01
MIN_RECOVERY_CORRELATION, MIN_AGREEMENT = 0.5, 0.3
"""The smallest effects that count; `PUBLISHED_GAIN` is 0.6 % of perplexity, `SURVIVED_NATS` 19 %."""

LAG_METRICS = ("oscillating", "smooth", "no_lag_structure", "unresolved")
PUBLISHED_TYPE = "gate_proj"
HELD_OUT = {"heldout_rows_r2": "held-out rows", "heldout_layers_r2": "held-out layers"}
SHARED_LAYERS = 3**0.5
"""Every layer is in three fits, so as little as a third of the positions may be independent."""

PUBLISHED_DAMAGE, EQUAL_DAMAGE = ("noise_50", "layer"), ("equal_damage", "layer")


def judge_weights_predictable(data: ReportData) -> Finding | None:
    """Compare held-out R2 with one half and with its nulls, and with R2 in sample."""
    rows = data.rows.where(measure=vocab.PREDICTABILITY, layer=None, condition=None)
    whole = rows.where(part=None)
    held = {metric: each for metric in HELD_OUT if (each := _read_over_layers(whole, metric)) is not None}
    inside = _read_over_layers(whole, "in_sample_r2")
    fitted = rows.where(metric="in_sample_r2", against=None, part=PRESENT).axis("part")
    exact = set(rows.where(metric=tuple(HELD_OUT), part=PRESENT).axis("part")) - set(fitted)
    if not held or (inside is None and (fitted or not exact)):
        return None
    nulls = [
        (null_name(name), each, Estimate.read_bounded(row) or Estimate(row.value, row.value, row.value))
        for metric, each in held.items()
        for name, row in sorted(whole.where(metric=metric).along("against").items())
    ]
    as_good = list(dict.fromkeys(name for name, each, null in nulls if each.high - null.low < NEAR_R2))
    is_strong = len(held) == len(HELD_OUT) and all(each.is_above(MIN_R2) for each in held.values())
    is_weak = any(each.is_below(MIN_R2) for each in held.values())
    if is_strong and as_good:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = f"No more than the null: {listed(as_good)} predict as much."
    elif is_strong and all(each.low > null.high for _, each, null in nulls):
        verdict, answer = Verdict.SUPPORTED, "Yes: most of the variance is predicted on held-out weights."
    elif is_weak and (inside is None or inside.is_above(MIN_R2)):
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "No: only the fit is high; held-out weights are not predicted."
    elif is_weak and inside is not None and inside.is_below(MIN_R2):
        verdict, answer = Verdict.CONTRADICTED, "No: not even the fit explains half of the variance."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, "A model with more layers would decide."
    numbers = [f"{format_estimate(each)} on {HELD_OUT[metric]}" for metric, each in held.items()]
    numbers.insert(
        0, f"{'1' if inside is None else format_estimate(inside)} in sample{_describe_fit(rows, len(exact))}"
    )
    return Finding(
        "Can the weights of a layer be predicted from its neighbors?",
        f"{answer} R² is {listed(numbers)}.",
        verdict,
        next(iter(held.values())),
        "of R² on held-out weights",
        MIN_R2,
        "Both held-out R² (rows and layers) must lie above one half and above every null. Intervals over layers are"
        " widened by √3, and tensor types whose fit is exact do not count in sample.",
        Published(PAPER, "A layer's weights are predicted from its neighbours with R² 0.91.", "R² 0.91", "metric 1"),
    )


def _read_over_layers(rows: Rows, metric: str) -> Estimate | None:
    estimate = Estimate.read_bounded(rows.one(metric=metric, against=None))
    return estimate and estimate.widen(SHARED_LAYERS)


def _describe_fit(rows: Rows, exact: int) -> str:
    """Describe R2 in sample: the number of types if others are fitted exactly, the published type, and the null."""
    fitted = rows.where(metric="in_sample_r2", against=None, part=PRESENT)
    notes = [f"over {counted(len(fitted), 'tensor type')}"] if exact and fitted else []
    published = (Estimate.read_bounded(row) for row in fitted if PUBLISHED_TYPE in str(row.part))
    notes += [f"{format_estimate(each)} for {PUBLISHED_TYPE}" for each in published if each is not None]
    noise = rows.value(metric="in_sample_r2", part=None, against=vocab.P_OVER_N)
    notes += [] if noise is None else [f"where noise gives {tidy(noise)}"]
    return f" ({', '.join(notes)})" if notes else ""


def judge_weights_oscillate(data: ReportData) -> Finding | None:
    """Compare the correlation of successive weight differences with that of the same layers in random orders."""
    rows = data.rows.where(measure=vocab.DELTAS, distance=1, part=None, against=None)
    row = next((row for name in LAG_METRICS if (row := rows.one(metric=name)) is not None), None)
    if row is None:
        return None
    excess = Estimate.read(row)
    position = excess.locate(MIN_LAG)
    answers = {
        "within": (Verdict.NO_BETTER_THAN_NULL, "No: these layers give the same correlation in any order."),
        "below": (Verdict.SUPPORTED, "Yes: the correlation lies below that of any order of these layers."),
        "above": (Verdict.CONTRADICTED, "No: neighboring layers are more alike than layers in a random order."),
        "open": (Verdict.INCONCLUSIVE, "More layers would decide: the interval allows both answers."),
    }
    verdict, answer = answers[position]
    correlation = rows.value(metric="correlation")
    number = "" if correlation is None else f" At lag 1 the correlation is {tidy(correlation)}."
    return Finding(
        "Do weights oscillate from layer to layer?",
        f"{answer}{number}",
        verdict,
        excess,
        "of correlation above random orders",
        MIN_LAG,
        "The correlation of successive weight differences at lag 1, layers divided by their norms, less that of the"
        " same layers in random orders. Independent layers of equal norm have a correlation of −0.5.",
        Published(PAPER, "Successive weight differences correlate at −0.50 everywhere.", "−0.50 at lag 1", "metric 1"),
    )


def judge_errors_accumulate(data: ReportData) -> Finding | None:
    """Compare the joint cost of the largest evenly spread set of predicted layers with the sum of single costs."""
    sets = data.rows.where(measure=vocab.CONTRAST, claim="error_accumulation", metric="share", condition="set")
    if not sets:
        return None
    largest = max(sets, key=lambda row: row.affected or 0)
    rows = read_contrasts(data, "error_accumulation", condition="set", affected=largest.affected)
    if not {"joint", "singles", "layers"} <= set(rows):
        return None
    share = Estimate.read(largest)
    answers = {
        "above": (Verdict.SUPPORTED, "Yes: together they cost more than the single costs add up to."),
        "within": (Verdict.NO_BETTER_THAN_NULL, "No: the single costs add up to the joint one."),
        "below": (Verdict.CONTRADICTED, "No: together they cost less than one by one."),
        "open": (Verdict.INCONCLUSIVE, describe_undecided(share, MIN_SHARE)),
    }
    verdict, answer = answers[share.locate(MIN_SHARE)]
    joint, singles = (format_estimate(Estimate.read(rows[name]), signed=True) for name in ("joint", "singles"))
    noise = rows.get("share_of_noise")
    null = (
        "" if noise is None else f", and random errors of the same norm leave {format_estimate(Estimate.read(noise))}"
    )
    layers = counted(int(rows["layers"].value), "predicted layer")
    return Finding(
        "Do the errors of predicted layers accumulate nonlinearly?",
        f"{answer} {layers} cost {joint} nats/token together and {singles} one by one{null}.",
        verdict,
        share,
        "of the joint cost beyond the single costs",
        MIN_SHARE,
        "It is decided on the largest evenly spread set of predicted layers.",
        Published(
            PAPER,
            "Using the predictions fails catastrophically, because errors accumulate nonlinearly.",
            "perplexity 26.2 with one predicted layer and above 100,000 with nine or more, of 22.6",
            "metric 1",
        ),
    )


def judge_core_layers(data: ReportData) -> Finding | None:
    """Compare the effect of skipping layers near the published core with twice that of the others."""
    own = data.rows.where(measure=vocab.CONTRAST, claim="core", layer=PRESENT)
    ranges = {
        f"{row.layer}–{row.to_layer}": (row, estimate)
        for row in own.where(metric="skip_excess")
        if (estimate := Estimate.read_bounded(row)) is not None
    }
    if not ranges:
        return None
    damaged = []
    for layers, (row, _) in sorted(ranges.items()):
        rows = own.where(layer=row.layer, to_layer=row.to_layer)
        average, random = (
            Estimate.read_bounded(rows.one(metric=metric)) for metric in ("average_excess", "average_over_random")
        )
        damaged += [layers] if average and random and average.is_above() and random.is_below() else []
    is_absent = all(estimate.is_below() for _, estimate in ranges.values())
    if any(estimate.is_above() for _, estimate in ranges.values()):
        verdict, answer = Verdict.SUPPORTED, "Yes: a typical layer there matters more than twice a typical other."
    elif is_absent and damaged:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = f"No: replacing layers {damaged[0]} costs as much with random weights, and skipping shows no core."
    elif is_absent:
        verdict, answer = Verdict.CONTRADICTED, "No: in no range near the published one do layers matter so much."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, "The interval allows both a core and none."
    best = max(sorted(ranges), key=lambda layers: ranges[layers][1].value)
    return Finding(
        "Is there a core of layers that matters far more than the rest?",
        f"{answer} The range with the largest excess is {best}.",
        verdict,
        ranges[best][1],
        "nats/token above twice the median effect elsewhere",
        0.0,
        "The published core is scaled to the depth and may be off by 1/15 of it; all ranges are tested together. The"
        " null replaces a layer by the average of its neighbors and by random weights of the same norm.",
        Published(PAPER, "A contiguous core matters far more than the rest.", "layers 8–11 of 30", "metric 2"),
    )


def judge_anti_layers(data: ReportData) -> Finding | None:
    """Check whether the model is better without some layer, on text that did not choose it."""
    verdicts = concluded(data.rows)
    bounds = {layer: each for layer, row in verdicts.items() if (each := Estimate.read_bounded(row)) is not None}
    if not verdicts or len(bounds) < len(verdicts):
        return None
    harmful = [layer for layer, row in verdicts.items() if row.metric == "harmful"]
    least = min(harmful or bounds, key=lambda layer: bounds[layer].value if harmful else bounds[layer].low)
    uncorrected = [str(layer) for layer, row in skipped(data.rows).items() if row.high is not None and row.high < 0.0]
    is_excluded = bounds[least].is_above(-PUBLISHED_GAIN)
    if harmful:
        verdict = Verdict.SUPPORTED
        answer = f"Yes: held-out text confirms that the loss falls without layer {listed(list(map(str, harmful)))}."
    elif is_excluded and uncorrected:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = f"Only by chance: without the correction over layers, layer {listed(uncorrected)} looks harmful."
    elif is_excluded:
        verdict, answer = Verdict.CONTRADICTED, "No: the published gain is excluded for every layer."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, "The published gain is neither seen nor excluded."
    return Finding(
        "Do some layers do harm?",
        f"{answer} The lowest interval is that of layer {least}.",
        verdict,
        bounds[least],
        f"nats/token without layer {least}",
        PUBLISHED_GAIN,
        "A layer is chosen on one half of the text and confirmed on the other. Intervals hold for all layers together.",
        Published(
            PAPER,
            "Some layers do harm: without layer 14 or 17 the perplexity falls by 0.6 %.",
            "−0.006 nats/token",
            "metric 2",
        ),
    )


def judge_importance_range(data: ReportData) -> Finding | None:
    """Compare the largest effect of skipping with the median and with the one nearest to zero."""
    estimates = read_estimates(data, "importance_range", "range", "published")
    if estimates is None:
        return None
    to_median, to_least = estimates
    if not (to_median.has_interval and to_least.has_interval):
        verdict, answer = Verdict.INCONCLUSIVE, NO_INTERVALS
    elif to_median.is_above(HUNDREDFOLD):
        verdict, answer = Verdict.SUPPORTED, "Yes: the largest effect is more than a hundred times the median."
    elif to_median.is_below(HUNDREDFOLD) and to_least.value >= HUNDREDFOLD:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "No: the published ratio grows without bound as any effect nears zero."
    elif to_median.is_below(HUNDREDFOLD) and to_least.is_below(HUNDREDFOLD):
        verdict = Verdict.CONTRADICTED
        answer = "No: the largest effect is less than a hundred times the median and the smallest."
    else:
        undecided = to_least if to_median.is_below(HUNDREDFOLD) else to_median
        verdict = Verdict.INCONCLUSIVE
        answer = describe_undecided(undecided, abs(undecided.value - HUNDREDFOLD))
    return Finding(
        "Do the effects of layers span orders of magnitude?",
        f"{answer} To the effect nearest to zero the ratio is 10^{tidy(to_least.value)}.",
        verdict,
        to_median,
        "orders of magnitude from the median layer to the largest",
        HUNDREDFOLD,
        "The logarithm of the largest effect of skipping relative to the median layer's must lie above 2. How near to"
        " zero an effect comes is chance.",
        Published(PAPER, "The effects of changing single layers span a range of about 10⁷.", "10⁷", "metric 2"),
    )


def judge_redundant_layers(data: ReportData) -> Finding | None:
    """Compare the joint cost of layers that cost little one by one with what the published model survives."""
    estimates = read_estimates(data, "redundant_sets", "joint", "spared")
    rows = read_contrasts(data, "redundant_sets")
    if estimates is None or not {"layers", "singles"} <= set(rows):
        return None
    joint, spared = estimates
    at, is_small = spared.locate(MIN_SPARED), joint.is_below(SURVIVED_NATS)
    if not (joint.has_interval and spared.has_interval):
        verdict, answer = Verdict.INCONCLUSIVE, NO_INTERVALS
    elif joint.is_above(SURVIVED_NATS):
        verdict, answer = Verdict.CONTRADICTED, "No: together they cost more than was survived."
    elif is_small and at == "above":
        verdict, answer = Verdict.SUPPORTED, "Yes: the model survives without them, and not without as many others."
    elif is_small and at in ("within", "below"):
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "No more than others: random sets of layers cost no more."
    elif is_small:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(spared, MIN_SPARED)
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(joint, abs(joint.value - SURVIVED_NATS))
    layers, singles = counted(int(rows["layers"].value), "layer"), tidy(rows["singles"].value, signed=True)
    random = format_estimate(spared, signed=True)
    return Finding(
        "Are layers that cost little one by one redundant together?",
        f"{answer} One by one the {layers} cost {singles} nats/token, and random sets of as many cost {random} more.",
        verdict,
        joint,
        "nats/token when skipped together",
        SURVIVED_NATS,
        "One half of the text chooses the largest set whose single effects add up to less than the margin, and the"
        f" other half measures it. Random sets must cost more, and not at most {MIN_SPARED:g} nats/token more.",
        Published(
            PAPER,
            "Layers that cost little one by one are redundant tissue.",
            "0.17 nats/token at most",
            "metric 4",
        ),
    )


def judge_recovery_follows_importance(data: ReportData) -> Finding | None:
    """Correlate recovery with the effect of skipping: as published, and after damage of equal size."""
    rows = data.rows.where(measure=vocab.RECOVERY, layer=None, against=None)
    treatments = sorted({(str(row.condition), str(row.arm)) for row in rows.where(metric="layers")} - {EQUAL_DAMAGE})
    if not treatments:
        return None
    treatment = PUBLISHED_DAMAGE if PUBLISHED_DAMAGE in treatments else treatments[0]
    is_equal = bool(_of_treatment(rows, EQUAL_DAMAGE).where(metric="spearman"))
    own = _of_treatment(rows, EQUAL_DAMAGE if is_equal else treatment)
    among = Estimate.read_bounded(own.one(metric="spearman" if is_equal else "spearman_given_damage"))
    published = Estimate.read_bounded(_of_treatment(rows, treatment).one(metric="spearman_published"))
    position, raw = (None if each is None else each.locate(MIN_RECOVERY_CORRELATION) for each in (among, published))
    if position == "above" and raw != "below":
        verdict, answer = Verdict.SUPPORTED, "Yes: layers that matter more recover more slowly, from equal damage too."
    elif raw == "above" and position in ("within", "below"):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "No: layers that matter more were damaged more, and recover alike from equal damage."
    elif raw in ("within", "below") and position != "above":
        verdict, answer = Verdict.CONTRADICTED, "No: not even layers damaged unequally recover in that order."
    else:
        layers = counted(int(own.value(metric="layers") or 0), "damaged layer")
        verdict, answer = Verdict.INCONCLUSIVE, f"Only {layers} can be compared; about 38 layers would decide."
    over_all = "not available" if published is None else format_estimate(published)
    return Finding(
        "Do layers that matter recover more slowly?",
        f"{answer} Over all layers, as published, the rank correlation is {over_all}.",
        verdict,
        among,
        f"rank correlation {'after damage of equal size' if is_equal else 'with the initial damage held fixed'}",
        MIN_RECOVERY_CORRELATION,
        "Rank correlation over layers of the area above an undamaged twin with the effect of skipping. Heavy damage"
        " takes longer to undo wherever it is, so layers are compared after damage of equal size.",
        Published(
            PAPER,
            "Damaged layers that matter take 200 steps to recover, others none.",
            "200 steps for layers 8 and 11, none for layer 14",
            "metric 3",
        ),
    )


def _of_treatment(rows: Rows, treatment: tuple[str, str]) -> Rows:
    return rows.where(condition=treatment[0], arm=treatment[1])


def judge_only_scaling_survives(data: ReportData) -> Finding | None:
    """Compare each way to change weights with scaling, at equal relative size and at its largest size."""
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
    mild = [name for name, each in equal.items() if each.locate(MIN_STRATEGY_NATS) in ("within", "below")]
    narrowest = min(equal, key=lambda name: equal[name].value)
    if at == {"above"}:
        verdict, answer = Verdict.SUPPORTED, "Yes: at equal size scaling costs less than each of the others."
    elif mild and at_largest == {"above"}:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = (
            f"No: at equal size {listed(mild)} cost no more; the published changes were larger than scaling by 0.9."
        )
    elif mild and not at_largest.isdisjoint({"within", "below"}):
        verdict, answer = Verdict.CONTRADICTED, f"No: {listed(mild)} are as mild as scaling, even when larger."
    else:
        verdict = Verdict.INCONCLUSIVE
        widest = max(equal.values(), key=lambda each: each.mde or 0.0)
        answer = describe_undecided(widest, MIN_STRATEGY_NATS)
    return Finding(
        "Does a layer survive only being scaled?",
        f"{answer}{_describe_joint_scaling(data)}",
        verdict,
        equal[narrowest],
        f"nats/token above scaling by 0.9 ({narrowest})",
        MIN_STRATEGY_NATS,
        "Each way to change the weights by a tenth of their norm is compared with scaling by 0.9, at the median layer,"
        " with simultaneous intervals; the published comparison is that of the largest sizes.",
        Published(
            PAPER,
            "A layer survives scaling by 0.9; changed in four other ways it costs millions of percent.",
            "0.17 nats/token (perplexity +19 %)",
            "metric 4",
        ),
    )


def _describe_joint_scaling(data: ReportData) -> str:
    scaled = read_contrasts(data, "joint_manipulation", condition="scale", strength=0.1)
    layers = read_contrasts(data, "joint_manipulation").get("layers")
    if "joint" not in scaled or layers is None:
        return ""
    cost = format_estimate(Estimate.read(scaled["joint"]), signed=True)
    return f" Scaling {counted(int(layers.value), 'redundant layer')} by 0.9 together costs {cost} nats/token."


def judge_metrics_agree(data: ReportData) -> Finding | None:
    """Compare the rank correlation of metrics that share no measurement with that of metrics that damage a layer."""
    rows = read_contrasts(data, "agreement")
    apart = Estimate.read_bounded(rows.get("apart"))
    if apart is None or "layers" not in rows:
        return None
    together = Estimate.read_bounded(rows.get("together"))
    apart = replace(apart, low=max(-1.0, apart.low), high=min(1.0, apart.high))
    own, damage = apart.locate(MIN_AGREEMENT), together and together.locate(MIN_AGREEMENT)
    layers = int(rows["layers"].value)
    if own == "above":
        verdict, answer = Verdict.SUPPORTED, "Yes: metrics that share no measurement agree."
    elif own in ("within", "below") and damage == "above":
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "No: only those agree that measure the loss after damage to a layer."
    elif own in ("within", "below") and damage != "open":
        verdict, answer = Verdict.CONTRADICTED, "No: the metrics are shown not to agree."
    else:
        needed = max(layers + 1, round(layers * (EQUIVALENCE * (apart.mde or 1.0) / MIN_AGREEMENT) ** 2))
        verdict = Verdict.INCONCLUSIVE
        answer = f"Only {layers} layers can be compared; about {needed} layers would decide."
    chance = Estimate.read_bounded(read_contrasts(data, "agreement", against=vocab.SHUFFLED_LAYERS).get("apart"))
    numbers = [] if chance is None else [f"Random rankings give {tidy(chance.low)} to {tidy(chance.high)}"]
    numbers += [] if together is None else [f"metrics that damage a layer have {format_estimate(together)}"]
    return Finding(
        "Do five metrics agree on which layers matter?",
        f"{answer} {', and '.join(numbers)}." if numbers else answer,
        verdict,
        apart,
        "mean rank correlation",
        MIN_AGREEMENT,
        "Ablation, recovery and manipulation all damage a layer and watch the loss: that they agree is the null. It is"
        " decided by the pairs of metrics that are not both of these.",
        Published(
            PAPER,
            "Five independent metrics (predictability, ablation, recovery, manipulation, structure) agree on which"
            " layers matter.",
            "no correlation is given",
            "abstract",
        ),
    )


DIAGNOSIS_FINDINGS = (
    judge_weights_predictable,
    judge_weights_oscillate,
    judge_errors_accumulate,
    judge_core_layers,
    judge_anti_layers,
    judge_importance_range,
    judge_redundant_layers,
    judge_recovery_follows_importance,
    judge_only_scaling_survives,
    judge_metrics_agree,
)
