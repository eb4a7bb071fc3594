"""The claims about unlike layers: what they read, what counts, and which verdict follows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from layerwise.page.claims.claim import EQUIVALENCE, Span, on_tokens, span
from layerwise.page.claims.contrasts import (
    Contrasts,
    Fact,
    Facts,
    Read,
    Several,
    clipped,
    contrast_rows,
    is_known,
)
from layerwise.page.data import ReportData, concluded, skipped
from layerwise.page.text.number_format import tidy
from layerwise.page.text.wording import counted, label, listed, null_name
from layerwise.results import vocabulary as vocab
from layerwise.results.multiplicity import normal_widening
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

SURVIVES, SHARE, HUNDREDFOLD = 0.2, 0.2, 2.0
LEAST_COST, SCALING_COST = 0.05, 0.01
AGREE, RECOVERS, FINE_ENOUGH = 0.3, 0.5, 0.1
MOST_OF_THE_VARIANCE, NULL_COMES_NEAR = 0.5, 0.1
ACCUMULATION, MANIPULATION, SCALE = "error_accumulation", "joint_manipulation", "scale"
PUBLISHED_HARM = 0.006
"""Nats per token that removing an anti-layer is said to gain: 0.6 % of perplexity."""
LAG = ("oscillating", "smooth", "no_lag_structure", "unresolved")
"""The verdicts on the correlation at lag 1, which name the row that holds it."""
HELD_OUT = {"heldout_rows_r2": "on held-out rows", "heldout_layers_r2": "on held-out layers"}
PUBLISHED_TYPE = "gate_proj"
SHARED = 3**0.5
"""Every layer stands in three fits, so as little as a third of the positions may be independent."""
SEEN = 1.65
"""(z[.975] + z[.9]) / z[.975]: distance from a bound, in half-widths of the interval, that 80 of 100 runs resolve."""
PUBLISHED_DAMAGE, EQUAL_DAMAGE = ("noise_50", "layer"), ("equal_damage", "layer")
OF_NOISE = "; of random errors of the same norm a share of "


def predictability(data: ReportData) -> Facts | None:
    """Return R2 in sample and held out over layers (row of all tensor types), and the nulls that come near it.

    In sample are the types whose fit is not exact. The interval over layers is widened because fits share layers.
    """
    known = data.rows.where(measure=vocab.PREDICTABILITY, layer=None, condition=None)
    rows = known.where(part=None)

    def over_layers(metric: str) -> Span | None:
        bounds = span(rows.one(metric=metric, against=None))
        return bounds.widened(SHARED) if bounds else None

    held = {metric: bounds for metric in HELD_OUT if (bounds := over_layers(metric)) is not None}
    inside = over_layers("in_sample_r2")
    fitted = known.where(metric="in_sample_r2", against=None, part=PRESENT).along("part")
    exact = set(known.where(metric=tuple(HELD_OUT), part=PRESENT).axis("part")) - fitted.keys()
    if not held or (inside is None and (fitted or not exact)):
        return None
    noise = rows.one(metric="in_sample_r2", against=vocab.P_OVER_N)
    rivals = [
        (null_name(null), bounds, span(chance) or Span(chance.value, chance.value, chance.value))
        for metric, bounds in held.items()
        for null, chance in sorted(rows.where(metric=metric).along("against").items())
    ]
    as_good = dict.fromkeys(name for name, bounds, chance in rivals if bounds.high - chance.low < NULL_COMES_NEAR)
    reach = max((bounds.high - bounds.low) / 2 for bounds in held.values())
    return {
        "inside": f"{inside or 1} inside the sample{_of_types(fitted, len(exact))}",
        "line": f" (a fit to noise gives {tidy(noise.value)})" if noise else "",
        "exact": f" {counted(len(exact), 'type')} with as many predictors as rows can be fitted exactly."
        if exact
        else "",
        "held": " and ".join(f"{bounds} {HELD_OUT[metric]}" for metric, bounds in held.items()),
        "told": tidy(SEEN * reach),
        "rivals": listed(list(as_good)).capitalize(),
        "as_good": bool(as_good),
        "beyond": all(bounds.above(chance) for _, bounds, chance in rivals),
        "strong": len(held) == len(HELD_OUT) and all(each.low > MOST_OF_THE_VARIANCE for each in held.values()),
        "weak": any(bounds.high < MOST_OF_THE_VARIANCE for bounds in held.values()),
        "fit_above": inside is None or inside.low > MOST_OF_THE_VARIANCE,
        "fit_below": inside is not None and inside.high < MOST_OF_THE_VARIANCE,
    }


def _of_types(fitted: Mapping[Any, Score], exact: int) -> str:
    """Say of how many types an R2 in sample is, and what it is for the published type."""
    published = [row for name, row in fitted.items() if PUBLISHED_TYPE in name and span(row)]
    own = "".join(f", {span(row)} for {PUBLISHED_TYPE}" for row in published)
    return f" over {counted(len(fitted), 'type')} of tensors{own}" if exact and fitted else own


def oscillation(data: ReportData) -> Facts | None:
    """Return the correlation of successive weight differences, minus that of the same layers in random orders.

    Independent layers of equal variance give exactly -0.5: cov(W2 - W1, W3 - W2) = -var(W2), and each difference has
    twice that variance. Layers of unequal variance give another number, hence the null.
    """
    rows = data.rows.where(measure=vocab.DELTAS, amount=1, part=None, against=None)
    score, raw = _verdict(rows), rows.one(metric="correlation")
    if score is None:
        return None
    at_one = "" if raw is None else f"The correlation at lag 1 is {tidy(raw.value)}; "
    return {"at_one": at_one, "excess": Fact(score, FINE_ENOUGH)}


def _verdict(rows: Rows) -> Score | None:
    return next((row for name in LAG if (row := rows.one(metric=name)) is not None), None)


def universal_oscillation(data: ReportData) -> Facts | None:
    rows = data.rows.where(measure=vocab.DELTAS, amount=1, against=None)
    types = sorted(data.rows.where(measure=vocab.DELTAS, metric="correlation").axis("part"))
    scores = {name: score for name in types if (score := _verdict(rows.where(part=name))) is not None}
    if len(scores) < 2:
        return None
    raw = [row.value for name in scores if (row := rows.one(metric="correlation", part=name)) is not None]
    ordered = sorted(scores.values(), key=lambda score: score.value)
    wider = normal_widening(len(scores))
    return {
        "count": counted(len(scores), "type"),
        "raw": f"{tidy(min(raw))} to {tidy(max(raw))}" if raw else "not measured",
        "ends": " to ".join(f"{Fact(end):+} ({end.part})" for end in (ordered[0], ordered[-1])),
        "every": Several({name: Fact(_wider(score, wider), FINE_ENOUGH) for name, score in scores.items()}, together=1),
    }


def _wider(score: Score, factor: float) -> Score:
    bounds = span(score)
    return score if bounds is None else replace(score, low=bounds.widened(factor).low, high=bounds.widened(factor).high)


def accumulation(data: ReportData) -> Facts | None:
    spread = [(row.condition, row.amount) for row in changed_together(data, ACCUMULATION) if row.condition == "set"]
    noise = Read({"": "share_of_noise"}, optional=True, item="{0:+} is left", lead=OF_NOISE)
    reads = {metric: Read(metric, SHARE) for metric in ("joint", "singles", "share", "layers")}
    columns = dict(zip(("condition", "amount"), spread[-1], strict=True)) if spread else {}
    facts = Contrasts(ACCUMULATION, {**reads, "noise": noise}, columns=columns)(data) if spread else None
    if facts is None:
        return None
    moved = {}
    for row in changed_together(data, MANIPULATION):
        rows = contrast_rows(data, MANIPULATION, condition=row.condition, amount=row.amount)
        if row.condition != SCALE and "joint" in rows and rows["joint"].value > SURVIVES:
            moved[label(str(row.condition))] = Fact(row)
    return {**facts, "moved": Several(moved, "{1} {0:+}", ", of manipulated layers ")}


def changed_together(data: ReportData, claim: str) -> list[Score]:
    rows = data.rows.where(measure=vocab.CONTRAST, claim=claim, metric="share")
    return sorted(rows, key=lambda row: (str(row.condition), row.amount or 0.0))


def _strategies(data: ReportData, claim: str, margin: float) -> dict[str, object] | None:
    rows = data.rows.where(measure=vocab.CONTRAST, claim=claim, amount=None)
    if not rows.where(metric="equal"):
        return None
    sizes = {}
    for size in ("equal", "unequal"):
        of = sorted(rows.where(metric=size).along("condition").items())
        sizes[size] = Several({label(name): Fact(row, margin) for name, row in of}, "{1} {0:+}", together=1)
    return {**sizes, "equal_tokens": on_tokens(fact.score for fact in sizes["equal"].facts.values())}


def scaling(data: ReportData) -> Facts | None:
    return _strategies(data, "scaling", SCALING_COST)


def joint_manipulation(data: ReportData) -> Facts | None:
    rows = contrast_rows(data, MANIPULATION)
    scaled = contrast_rows(data, MANIPULATION, condition=SCALE, amount=0.1)
    strategies = _strategies(data, MANIPULATION, LEAST_COST)
    if strategies is None or "layers" not in rows or not {"joint", "singles"} <= set(scaled):
        return None
    singles = tidy(scaled["singles"].value, signed=True)
    return {
        **strategies,
        "layers": Fact(rows["layers"]),
        "joint": Fact(scaled["joint"], 0.0, SURVIVES),
        "singles": singles,
    }


def core(data: ReportData) -> Facts | None:
    """Return the cost of skipping beyond twice the others' for each range near the published one; the best is shown.

    The published intervention shows only damage in a range if random weights of the same norm nearly reach its cost.
    """
    own = data.rows.where(measure=vocab.CONTRAST, claim="core", layer=PRESENT)
    ranges = {_range(row): row for row in sorted(own.where(metric="skip_excess"), key=_range) if span(row) is not None}
    if not ranges:
        return None
    best = max(ranges, key=lambda layers: ranges[layers].value)
    row, damaged = ranges[best], []
    for layers, each in ranges.items():
        rows = own.where(layer=each.layer, other=each.other)
        average, random = (span(rows.one(metric=metric)) for metric in ("average_excess", "average_over_random"))
        damaged += [layers] if average and random and average.low > 0.0 and random.high < 0.0 else []
    return {
        "best": best,
        "excess": Fact(row, 0.0),
        "effects": _least_and_most(data, row),
        "power": "" if row.mde is None else f"Of 100 such runs 80 would see {tidy(row.mde)} nats above that.",
        "ranges": Several({layers: Fact(each, 0.0) for layers, each in ranges.items()}),
        "damaged": damaged[0] if damaged else "",
    }


def _range(row: Score) -> str:
    return f"{row.layer}–{row.other}"


def _least_and_most(data: ReportData, core: Score) -> str:
    rows = skipped(data.rows) | concluded(data.rows)  # as in the table of layers: one interval for one number
    skip = {layer: bounds for layer, row in rows.items() if (bounds := span(row))}
    layers = range(core.layer or 0, 1 + (core.other or 0))
    inside = sorted(bounds.value for layer, bounds in skip.items() if layer in layers)
    outside = {layer: bounds for layer, bounds in skip.items() if layer not in layers}
    if not inside or not outside:
        return ""
    ends = " to ".join(tidy(value, signed=True) for value in inside[:: max(1, len(inside) - 1)])
    most = max(outside, key=lambda layer: outside[layer].value)
    return f" ({ends} there, most elsewhere at layer {most}: {outside[most].signed})"


def anti_layers(data: ReportData) -> Facts | None:
    verdicts = concluded(data.rows)
    bounds = {layer: known for layer, score in verdicts.items() if (known := span(score)) is not None}
    if not verdicts or len(bounds) < len(verdicts):
        return None
    harmful = [layer for layer, score in verdicts.items() if score.metric == "harmful"]
    least = min(bounds, key=lambda layer: bounds[layer].low)
    naive = [layer for layer, score in skipped(data.rows).items() if score.high is not None and score.high < 0.0]
    limits = [score.mde for score in verdicts.values() if score.mde is not None]
    if harmful:
        worst = min(harmful, key=lambda layer: bounds[layer].value)
        figures = f"Without layer {worst} the loss changes by {bounds[worst].signed} nats per token"
    else:
        low = bounds[least].low
        most = f"gains at most {tidy(-low)}" if low < 0.0 else f"costs at least {tidy(low)}"
        figures = f"No layer of {len(verdicts)} is shown to be harmful; removing layer {least} {most} nats per token"
    seen = f"{tidy(min(limits))} (layer known best) to {tidy(max(limits))} nats (known least)." if limits else ""
    return {
        "figures": f"{figures}{on_tokens(verdicts.values())}.",
        "power": f"Of 100 such runs 80 would find and confirm harm of {seen}" if seen else "",
        "harmful": f"{counted(len(harmful), 'layer')} ({_named(harmful)})" if harmful else "",
        "excluded": bounds[least].low > -PUBLISHED_HARM,
        "naive": _named(naive),
        "layers": len(verdicts),
    }


def _named(layers: Iterable[int]) -> str:
    return listed([str(layer) for layer in layers])


def importance_range(data: ReportData) -> Facts | None:
    reads = {"own": Read("range", 0.0, HUNDREDFOLD), "published": Read("published", 0.0, HUNDREDFOLD)}
    facts = Contrasts("importance_range", reads)(data)
    published = contrast_rows(data, "importance_range").get("published")
    return facts and {**facts, "beyond_to_least": published is not None and published.value >= HUNDREDFOLD}


def recovery(data: ReportData) -> Facts | None:
    """Return rank correlations of recovery with the effect of skipping: as published, and from equal damage.

    If damage of equal size was not run, the initial damage is held fixed.
    """
    rows = data.rows.where(measure=vocab.RECOVERY, layer=None, against=None)
    known = sorted({(str(row.condition), str(row.arm)) for row in rows.where(metric="layers")} - {EQUAL_DAMAGE})
    if not known:
        return None
    treatment = PUBLISHED_DAMAGE if PUBLISHED_DAMAGE in known else known[0]
    equal = bool(_treated(rows, EQUAL_DAMAGE).where(metric="spearman"))
    among, metric = (EQUAL_DAMAGE, "spearman") if equal else (treatment, "spearman_given_damage")
    scores = {
        "published": _treated(rows, treatment).one(metric="spearman_published"),
        "among": _treated(rows, among).one(metric=metric),
    }
    facts = {name: Fact(score, RECOVERS) for name, score in scores.items() if score is not None}
    layers = int(_treated(rows, among).value(metric="layers") or 0)
    return {
        **facts,
        "raw": facts["published"] if is_known(facts.get("published")) else "none can be had",
        "own": facts["among"] if is_known(facts.get("among")) else "none can be had",
        "task": "/".join(treatment),
        "layers": counted(layers, "damaged layer"),
        "how": "after damage of equal size" if equal else "with the initial damage held fixed",
        "cut": _cut(_treated(data.rows.where(measure=vocab.RECOVERY, layer=PRESENT), among)),
        "power": _correlation_seen(layers - (not equal)),
    }


def _treated(rows: Rows, treatment: tuple[str, str]) -> Rows:
    return rows.where(condition=treatment[0], arm=treatment[1])


def _cut(rows: Rows) -> str:
    censored = rows.where(metric="censored")
    share = sum(row.value for row in censored) / len(censored) if censored else 0.0
    return f"; {100 * share:.0f} % of those runs had not recovered at the last step" if share else ""


def _correlation_seen(layers: int) -> str:
    if layers < 5:
        return "So few layers show no correlation, however strong."
    seen = 0.0
    for _ in range(50):
        seen = math.tanh(2.8 * math.sqrt((1 + seen**2 / 2) / (layers - 3)))
    return f"Of 100 such models 80 would show a rank correlation of {tidy(seen)}."


def agreement(data: ReportData) -> Facts | None:
    rows = contrast_rows(data, "agreement")
    if not {"apart", "layers"} <= set(rows) or span(rows["apart"]) is None:
        return None
    apart, layers, together = clipped(rows["apart"]), int(rows["layers"].value), rows.get("together")
    chance = span(contrast_rows(data, "agreement", against=vocab.SHUFFLED_LAYERS).get("apart"))
    damage = {"": Fact(clipped(together), AGREE)} if together is not None and span(together) is not None else {}
    wanted = layers * (EQUIVALENCE * (apart.mde or 1.0) / AGREE) ** 2
    return {
        "apart": Fact(apart, AGREE),
        "together": Several(damage, "{0} of those that all damage a layer", ", and "),
        "layers": counted(layers, "layer"),
        "chance": f"; random rankings give {tidy(chance.low)} to {tidy(chance.high)}" if chance else "",
        "wanted": max(layers + 1, round(wanted)),
    }
