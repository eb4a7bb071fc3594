"""Two claims about damaged layers: that important ones recover slowly, and that only scaling leaves a layer working."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from layerwise.report.claims.claim import Claim, Published, Span, middlemost, on_tokens, span
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import NULL, Diagnosis
from layerwise.report.notation import tidy
from layerwise.report.wording import counted, label, listed
from layerwise.results.rows import Score

PUBLISHED_RECOVERY = "noise_50/layer"
EQUAL_DAMAGE = "equal_damage/layer"
SCALE = "scale"
PUBLISHED_SIZE = 0.1  # scaling by 0.9 changes the weights by a tenth of their norm
Sizes = dict[str, dict[float, dict[int, Score]]]


RECOVERY = Published(
    "recovery",
    "Recovery follows importance",
    "Damaged layers that matter (8, 11) take 200 steps to recover, others (14) none.",
    "arXiv 2603.19348, recovery speed (metric 3)",
    "",
)


def recovery(evidence: Evidence) -> Claim:
    """Do layers that matter more recover more slowly from damage?

    Read from the rank correlation of recovery with the effect of skipping, for the published damage (half of the
    weights' deviation as noise, that layer alone trained) where it was run. Heavy damage takes longer to undo whatever
    layer it befell, so the initial damage is the null: the correlation is also given with it held fixed. A correlation
    is *there* when its interval leaves out zero, or, without an interval, when it lies outside the band that shuffled
    layers give.

    - supported: a positive correlation is there, is still there given the damage, and also where the damage was made
      equal beforehand, if that was run.
    - explained by the null: it is there, but given the damage it is not.
    - contradicted: a negative one is there.
    - not resolvable: none is there, there is nothing to judge it by, or the two controls of damage do not agree.
    """
    found = evidence.diagnosis
    tasks = found.tasks("recovery", "spearman")
    if not tasks:
        return RECOVERY.unmeasured("It needs recovery runs and the effect of skipping layers.")
    task = PUBLISHED_RECOVERY if PUBLISHED_RECOVERY in tasks else tasks[0]
    raw, given = (_correlation(found, metric, task) for metric in ("spearman", "spearman_given_damage"))
    held = f", {given.shown} with the initial damage held fixed" if given else ""
    shown = raw.shown if raw else "not known"
    figures = f"Rank correlation of recovery with the effect of skipping ({task}): {shown}{held}{_cut(found, task)}."
    if raw is None or raw.sign is None:
        return RECOVERY.claim("not resolvable", figures, "No interval and no null says what chance gives.")
    if raw.sign < 0:
        return RECOVERY.claim("contradicted", figures, "Layers that matter more recover sooner.")
    if raw.sign == 0:
        return RECOVERY.claim("not resolvable", figures, "It is no greater than chance gives among so few.")
    if given is None or given.sign is None:
        why = "The correlation given the initial damage was not measured, and it decides."
        return RECOVERY.claim("not resolvable", figures, why)
    if given.sign > 0:
        equal = _correlation(found, "spearman", EQUAL_DAMAGE)
        if equal is not None and not (equal.sign or 0) > 0:
            figures = f"{figures[:-1]}; {equal.shown} after damage made equal."
            why = "It holds with the damage held fixed, but is not there where the damage was made equal."
            return RECOVERY.claim("not resolvable", figures, why)
        return RECOVERY.claim("supported", figures, "It holds with the initial damage held fixed.")
    why = "Layers that matter more were damaged more to begin with; among equals no relation is left to be seen."
    return RECOVERY.claim("explained by the null", figures, why)


@dataclass(frozen=True, slots=True)
class _Correlation:
    """A correlation in words, and its sign: 1 or -1 when it is there, 0 when it is not, `None` when nobody can say."""

    shown: str
    sign: int | None


def _correlation(found: Diagnosis, metric: str, task: str) -> _Correlation | None:
    score = found.score("recovery", "ablation", metric, task)
    if score is None:
        return None
    own, band = span(score), span(found.score("recovery", "ablation", f"{metric}{NULL}shuffled_layers", task))
    if own is not None:
        return _Correlation(str(own), (own.low > 0.0) - (own.high < 0.0))
    if band is not None:
        shown = f"{tidy(score.value)} (shuffled layers reach {tidy(band.low)} to {tidy(band.high)})"
        return _Correlation(shown, (score.value > band.high) - (score.value < band.low))
    return _Correlation(tidy(score.value), None)


SCALING = Published(
    "scaling",
    "Only scaling survives",
    "A layer survives scaling by 0.9; replaced or perturbed in four other ways, the model is destroyed.",
    "arXiv 2603.19348, manipulation robustness (metric 4)",
    "",
)


def scaling(evidence: Evidence) -> Claim:
    """Of all ways to change a layer's weights, does only scaling leave the model working?

    The published comparison sets scaling by 0.9, a tenth of the weights' norm, against replacements that change them by
    70 to 140 %. Here strategies are compared at one size, the one nearest to a tenth that scaling shares with most,
    by the effect on the median of the layers that both were run on.

    - supported: at that size scaling costs less than every other strategy, told apart from each.
    - explained by the null: it does not, though scaling at its published size costs less than every other strategy at
      its largest size: the size makes the difference, not the kind.
    - contradicted: at that size some other strategy costs less than scaling, told apart from it, and not even the
      unequal comparison favours scaling.
    - not resolvable: anything else.
    """
    found = evidence.diagnosis
    sizes = _sizes(found)
    others = sorted(strategy for strategy in sizes if strategy != SCALE)
    common = _common_size(sizes, others)
    if common is None:
        why = "It needs scaling and another strategy at one relative size."
        return SCALING.unmeasured(why)
    rivals = {other: sizes[other][common] for other in others if common in sizes[other]}
    equal = {other: _medians(sizes[SCALE][common], rows) for other, rows in rivals.items()}
    told = {other: pair for other, pair in equal.items() if pair is not None}
    if not told:
        return SCALING.claim("not resolvable", "", "The effects carry no intervals.")
    scores = [score for rows in (sizes[SCALE][common], *rivals.values()) for score in rows.values()]
    own = next(iter(told.values()))[0]
    costs = listed([f"{label(other)} {pair[1].signed}" for other, pair in told.items()])
    figures = (
        f"At ‖ΔW‖/‖W‖ = {common:g} scaling costs {own.signed} nats per token, {costs}, at the median of"
        f" {counted(len(sizes[SCALE][common]), 'layer')}{on_tokens(scores)}."
    )
    if all(theirs.above(ours) for ours, theirs in told.values()):
        return SCALING.claim("supported", figures, "At equal size scaling costs less than each of the others.")
    if _wins_unequally(sizes, others, common):
        why = "At equal size scaling is not the mildest; it looked so because the others were tried at larger sizes."
        return SCALING.claim("explained by the null", figures, why)
    milder = [label(other) for other, (ours, theirs) in told.items() if ours.above(theirs)]
    if milder:
        return SCALING.claim("contradicted", figures, f"Milder than scaling at equal size: {listed(milder)}.")
    return SCALING.claim("not resolvable", figures, "At equal size the strategies are not told apart.")


def _cut(found: Diagnosis, task: str) -> str:
    """What share of the runs had not recovered at the last step, where that is any."""
    rows = found.layers("recovery", "censored", task)
    share = sum(score.value for score in rows.values()) / len(rows) if rows else 0.0
    return f"; {100 * share:.0f} % of the runs had not recovered at the last step" if share else ""


def _sizes(found: Diagnosis) -> Sizes:
    """Strategy to size to layer to effect, the branch gates left out: their size is not a share of the weights."""
    sizes: Sizes = {}
    for metric in found.metrics("manipulation"):
        strategy, _, size = metric.partition(":")
        if size and strategy != "gate":
            sizes.setdefault(strategy, {})[float(size)] = found.layers("manipulation", metric)
    return sizes


def _common_size(sizes: Sizes, others: list[str]) -> float | None:
    """The size nearest to the published one among those that scaling shares with most other strategies."""
    shared = {size: sum(size in sizes[other] for other in others) for size in sizes.get(SCALE, {})}
    most = max(shared.values(), default=0)
    if not most:
        return None
    return min((size for size, count in shared.items() if count == most), key=lambda size: abs(size - PUBLISHED_SIZE))


def _medians(ours: Mapping[int, Score], theirs: Mapping[int, Score]) -> tuple[Span, Span] | None:
    """Both effects on the median of the layers where both have intervals."""
    pairs = [
        (first, second)
        for layer in ours
        if (first := span(ours[layer])) is not None and (second := span(theirs.get(layer))) is not None
    ]
    return (middlemost([first for first, _ in pairs]), middlemost([second for _, second in pairs])) if pairs else None


def _wins_unequally(sizes: Sizes, others: list[str], common: float) -> bool:
    """Whether scaling at the common size costs less than every other strategy at its largest size."""
    pairs = [_medians(sizes[SCALE][common], sizes[other][max(sizes[other])]) for other in others]
    return all(pair is not None and pair[1].above(pair[0]) for pair in pairs)
