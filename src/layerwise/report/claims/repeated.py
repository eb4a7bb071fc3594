"""Ten claims that are often repeated about layers: what they read, what counts, and which verdict follows.

The rows are contrasts of a sweep (`layerwise.measure.contrasts.repeated`, `painters`, `benchmarks`, `layer_agreement`),
what a search confirmed, and the gains of a router.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt
from statistics import NormalDist

from layerwise.report.claims.claim import on_tokens, span
from layerwise.report.claims.contrasts import Fact, Facts, Several, contrast_rows, facts_of
from layerwise.report.claims.painters import MILD_PAIRS
from layerwise.report.data import ReportData
from layerwise.report.derived.layer_agreement import REMOVED
from layerwise.report.text.number_format import tidy
from layerwise.report.text.wording import label, listed
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT

GAINS, LITTLE, SURVIVES = 0.01, 0.05, 0.2
"""Nats per token: what counts as a gain or as a difference, what is little, and what a model survives."""

DEPTH, CORE = 30, (8, 11)
"""The depth of the model of the paper, and its core."""

SCORES = ("block_influence", "angular_distance", "sweep_effect")
"""The arms of a search that are one-shot scores."""

AT = "at "
"""How changes of a layer to a type of GGUF begin."""

REACH = (NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)) / NormalDist().inv_cdf(0.975)
"""The detectable size over the half of an interval."""


def vital(data: ReportData) -> Facts | None:
    """What leaving out a layer of the very range costs beyond twice the others, and the same of the published change.

    The interval is that of one range among those near it, which holds at the range by itself too.
    """
    start, end = (round(layer * (data.depth - 1) / (DEPTH - 1)) for layer in CORE)
    rows = contrast_rows(data, "core", layer=start, other=end)
    if "skip_excess" not in rows:
        return None
    changed = [rows[name] for name in ("average_excess", "average_over_random") if name in rows]
    by_itself = span(changed[0]) if len(changed) > 1 else None
    damage = span(changed[1]) if len(changed) > 1 else None
    return {
        "excess": Fact(rows["skip_excess"], 0.0),
        "layers": f"{start} to {end}",
        "damaged": by_itself is not None and damage is not None and by_itself.low > 0.0 > damage.high,
    }


def superfluous(data: ReportData) -> Facts | None:
    """What leaving out each of two layers costs, and the median of the others."""
    typical = contrast_rows(data, "superfluous").get("typical")
    own = data.rows.where(measure=vocab.CONTRAST, claim="superfluous", metric=vocab.DELTA, layer=PRESENT).along("layer")
    if typical is None or not own:
        return None
    costs = {f"layer {layer}": Fact(own[layer], 0.0, LITTLE) for layer in sorted(own)}
    return {
        "costs": Several(costs, "{0:+} without {1}"),
        "typical": Fact(typical, 0.0, LITTLE),
        "tokens": on_tokens([typical]),
    }


def second_half(data: ReportData) -> Facts | None:
    """The median costs of leaving out a layer of each half."""
    rows = contrast_rows(data, "second_half")
    facts: dict[str, object] = {name: Fact(rows[name], 0.0, LITTLE) for name in ("first", "second") if name in rows}
    return {**facts, "tokens": on_tokens(rows.values())} if len(facts) > 1 else None


def repeats(data: ReportData, claim: str) -> dict[str, object] | None:
    """Of a scan of repeats what was chosen on one half and judged on the other, and whether all exclude a gain."""
    rows = data.rows.where(measure=vocab.CONTRAST, claim=claim, task=vocab.ALL)
    by_metric = {row.metric: row for row in rows}
    if not {"best", "least", "confirmed", "plans"} <= set(by_metric):
        return None
    best, least = by_metric["best"], by_metric["least"]
    confirmed, plans = (int(by_metric[name].value) for name in ("confirmed", "plans"))
    return {
        "best": Fact(best, GAINS),
        "plan": best.plan,
        "least": Fact(least, 0.0, -GAINS),
        "costs": Fact(least, 0.0, 0.0),
        "reaching": least.plan,
        "confirmed": confirmed,
        "plans": f"{plans:,}",
        "seen": "an unknown number of" if best.mde is None else tidy(best.mde),
    }


def some_repeat(data: ReportData) -> Facts | None:
    """The scan of plain repeats."""
    return repeats(data, "some_repeat")


def damping(data: ReportData) -> Facts | None:
    """The scan of damped repeats, and what damping spares."""
    facts, less = repeats(data, "damping"), contrast_rows(data, "damping").get("less")
    return None if facts is None or less is None else {**facts, "less": Fact(less)}


def permuted(data: ReportData) -> Facts | None:
    """What random orders of the middle half of the layers cost, and what their absence costs."""
    rows = contrast_rows(data, "permuted")
    if not {"random", "reverse", "skip", "layers"} <= set(rows):
        return None
    costs = {name: Fact(rows[name], 0.0, SURVIVES) for name in ("random", "reverse", "skip")}
    return {**costs, "layers": Fact(rows["layers"])}


def one_shot(data: ReportData) -> Facts | None:
    """What the plan of each score loses above the chosen one on text that chose neither, and what random sets lose.

    A score that chose the same plan loses nothing. The best of several scores is picked, so their intervals hold
    together (Bonferroni).
    """
    rows = data.rows.where(measure=vocab.SEARCH, metric=vocab.ABOVE_CHOSEN, task=vocab.REPORT).along("arm")
    chosen = data.rows.one(measure=vocab.SEARCH, metric=vocab.CHOSEN)
    plans = data.rows.where(measure=vocab.SEARCH, metric=vocab.ARM, arm=SCORES).along("arm")
    if chosen is None or "random" not in rows or not plans:
        return None
    same = Score(vocab.SEARCH, vocab.ABOVE_CHOSEN, 0.0, 0.0, 0.0)
    above = {name: same if plans[name].plan == chosen.plan else rows.get(name) for name in SCORES if name in plans}
    scores = {label(name): Fact(_widened(row, len(above)), 0.0, GAINS) for name, row in above.items() if row}
    return {
        "scores": Several(scores, "{1} {0:+}"),
        "equal": listed([label(name) for name, row in above.items() if row is same]),
        "random": Fact(rows["random"], 0.0, GAINS),
        "budget": chosen.against,
        "tokens": on_tokens([rows["random"]]),
    }


def _widened(row: Score, count: int) -> Score:
    """The row with an interval that holds together with those of `count` rows."""
    bounds = span(row)
    normal = NormalDist()
    wide = bounds and bounds.widened(normal.inv_cdf(1 - 0.025 / count) / normal.inv_cdf(0.975))
    return replace(row, low=wide.low, high=wide.high) if wide else row


def few_bits(data: ReportData) -> Facts | None:
    """The rank correlations of what removing and what quantising each layer costs, beside those of random orders."""
    rows = data.rows.where(measure=vocab.CONTRAST, claim=vocab.LAYER_AGREEMENT, metric=vocab.CORRECTED)
    by_type: dict[str, Score] = {}
    for row in rows:
        pair = {str(row.arm), str(row.against)}
        other = next(iter(pair - {REMOVED}), "")
        if REMOVED in pair and other.startswith(AT):
            by_type[other.removeprefix(AT)] = _with_mde(row)
    if not by_type or data.depth < 5:
        return None
    band = NormalDist().inv_cdf(0.975) / sqrt(data.depth - 1)
    together = {name: Fact(_widened(row, len(by_type)), 0.0, -band) for name, row in by_type.items()}
    return {
        "agree": Several({name: Fact(row, band) for name, row in by_type.items()}, "{0:+} at {1}", together=1),
        "beyond": Several({name: Fact(row, 0.0, band) for name, row in by_type.items()}),
        "reversed": Several(together),
        "band": f"{band:.2f}",
        "tokens": on_tokens(by_type.values()),
    }


def _with_mde(row: Score) -> Score:
    bounds = span(row)
    return row if bounds is None else replace(row, mde=REACH * (bounds.high - bounds.low) / 2)


def loss_and_reasoning(data: ReportData) -> Facts | None:
    """The eight pairs of strategies that the Painters rank, by the loss and by benchmarks, and which stand alike."""
    pairs: dict[str, Mapping[str, Score]] = {}
    for claim in ("shallowest", "shallowest_on_benchmarks"):
        own = data.rows.where(measure=vocab.CONTRAST, claim=claim, metric=vocab.RELATIVE, task=vocab.ALL)
        pairs[claim] = {
            name: row
            for name, (harsher, milder) in MILD_PAIRS.items()
            if (row := own.one(condition=harsher, against=milder)) is not None
        }
        if len(pairs[claim]) < len(MILD_PAIRS):
            return None
    loss, benchmarks = (facts_of(rows, MILD_PAIRS) for rows in pairs.values())
    sides = {name: (loss.facts[name].position, benchmarks.facts[name].position) for name in MILD_PAIRS}
    decided = {name: pair for name, pair in sides.items() if set(pair) <= {"above", "below"}}
    turned = [MILD_PAIRS[name] for name, (by_loss, by_score) in decided.items() if by_loss != by_score]
    tasks = data.rows.where(measure=vocab.CONTRAST, claim="benchmark_fall", metric=vocab.SLOPE).axis("task")
    return {
        "benchmarks": benchmarks,
        "least": f"{benchmarks.least_known:+}",
        "names": listed(sorted(str(task) for task in tasks if task != vocab.ALL)) or "the benchmarks",
        "by_loss": f"{len(loss.at('above', 'below'))} of {len(MILD_PAIRS)}",
        "by_score": f"{len(benchmarks.at('above', 'below'))}",
        "alike": len(decided) == len(MILD_PAIRS) and not turned,
        "same": f"{len(decided) - len(turned)}",
        "turned": listed([f"{label(harsher)} and {label(milder)}" for harsher, milder in turned]),
    }


def each_prompt(data: ReportData) -> Facts | None:
    """The gains of a router over the best fixed plans and over its own plans, dealt out at random, by task set."""
    margin = data.rows.one(measure=vocab.ROUTE_VERDICT, metric="margin")
    decided = data.rows.where(measure=vocab.ROUTE_VERDICT, arm=vocab.ROUTER, condition=None)
    if margin is None or not decided:
        return None
    gains = data.rows.where(measure=vocab.ROUTE, metric=f"{margin.condition}_gain", condition=None)
    fixed = {str(row.task): Fact(row, margin.value) for row in decided}
    dealt = {str(row.task): Fact(row, margin.value) for row in gains.where(arm="permuted") if str(row.task) in fixed}
    over = [name for name, fact in fixed.items() if fact.position == "above"]
    return {
        "fixed": Several(fixed, "{0:+} on {1}", together=1),
        "dealt": Several(dealt, "{0:+} on {1}"),
        "score": margin.condition,
        "margin": f"{margin.value:g}",
        "confirmed": listed([str(row.task) for row in decided if row.metric == "above"]),
        "mixed": bool(over) and all(dealt[name].position in ("within", "below") for name in over if name in dealt),
    }
