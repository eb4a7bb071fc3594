"""The main table of a diagnosis (with a row per layer and a column per metric), its summary, and the next steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from layerwise.measure.layer_scores import LAYER_SCORES, SKIP_EFFECT, LayerScore
from layerwise.page.data import ReportData, read_layer_verdicts, read_skip_effects
from layerwise.page.finding import describe_text_needed
from layerwise.page.formatting import (
    COUNT,
    DIFFERENCE,
    NUMBER,
    SIGNED,
    format_adjusted_p,
    format_count,
    format_number,
    format_perplexity,
    join_words,
    name_layers,
    to_sentence,
)
from layerwise.page.kind import Column, Pivot, Section, Text
from layerwise.page.marks import Bars
from layerwise.plan import Plan
from layerwise.plan.edits import skip
from layerwise.results import vocabulary as vocab
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score

VERDICT_NAMES = {
    "matters": "matters",
    "no_effect": "no effect",
    "harmful": "harmful",
    "inconclusive": "inconclusive",
}
VERDICT_SLOTS = {"matters": 2, "harmful": 1, "inconclusive": 4, "no_effect": 8, vocab.SKIPPING: 0}
"""Color indices of verdicts. They give the colors of the badges."""

NULL_LINE = "null"
SKIP = SKIP_EFFECT.title
TITLES = {score.name: score.importance_title for score in LAYER_SCORES}
"""Titles of the scores in the table of rank correlations."""


def list_layer_effects(data: ReportData) -> dict[int, Score]:
    return dict(sorted((read_skip_effects(data.rows) | read_layer_verdicts(data.rows)).items()))


def describe_verdict(row: Score, margin: float | None = None) -> str:
    """Describe the verdict on a layer, with the minimum detectable effect.

    >>> describe_verdict(Score("verdict", "no_effect", 0.001, layer=3, mde=0.008))
    'no effect above 0.00800 nats/token'
    >>> describe_verdict(Score("verdict", "inconclusive", 0.01, layer=3, mde=0.05, tokens=1000), margin=0.01)
    'inconclusive: effects below 0.0500 nats/token are not detectable; about 34,000 tokens should settle it'
    """
    if row.mde is None or row.metric not in ("no_effect", "inconclusive"):
        return VERDICT_NAMES.get(row.metric, "")
    limit = format_number(row.mde)
    if row.metric == "no_effect":
        return f"no effect above {limit} nats/token"
    needed = "" if margin is None else describe_text_needed(Estimate.read(row), margin)
    return f"inconclusive: effects below {limit} nats/token are not detectable{needed}"


def make_layer_table(data: ReportData) -> Iterator[Score]:
    """Yield the cells of the main table, with the row as `condition`, and the column as `metric`.

    The cells of the first column have the verdict in words as `variant`.
    """
    margin = _read_margin(data)
    for layer, row in list_layer_effects(data).items():
        yield replace(row, metric=SKIP, condition=str(layer), variant=describe_verdict(row, margin))
    yield from _make_null(SKIP_EFFECT, data)
    for score in LAYER_SCORES:
        for row in score.select(data.rows):
            yield replace(row, metric=score.title, condition=str(row.layer))
        yield from _make_null(score, data)


def _make_null(score: LayerScore, data: ReportData) -> Iterator[Score]:
    rows = score.select(data.rows, against=score.null)
    if rows and score.select(data.rows):
        low = min(row.value if row.low is None else row.low for row in rows)
        high = max(row.value if row.high is None else row.high for row in rows)
        middle = median(row.value for row in rows)
        yield Score(vocab.VERDICT, score.title, middle, low, high, condition=NULL_LINE)


def _sort_lines(line: tuple[str]) -> float:
    return math.inf if line[0] == NULL_LINE else int(line[0])


def _describe_layers(write: Any) -> Any:
    return lambda row: "" if row.condition == NULL_LINE else write(row)


def _read_margin(data: ReportData) -> float | None:
    return data.rows.value(measure=vocab.VERDICT, metric=vocab.MARGIN)


def summarize(data: ReportData) -> Iterator[str]:
    verdicts, rows = read_layer_verdicts(data.rows), list_layer_effects(data)
    layers = {name: [str(layer) for layer, row in verdicts.items() if row.metric == name] for name in vocab.DECISIONS}
    clauses = [
        f"{_name_layers(own, len(verdicts))} {_describe(name, len(own))}"
        for name, own in layers.items()
        if own and name != "inconclusive"
    ]
    if short := len(layers["inconclusive"]):
        others = (
            f"the other {format_count(short, 'layer')}"
            if short < len(verdicts)
            else f"all {format_count(short, 'layer')}"
        )
        clauses.append(f"for {others} the text is too short to tell")
    if clauses:
        yield to_sentence("; ".join(clauses))
    if rows:
        most, row = max(rows.items(), key=lambda item: item[1].value)
        if row.low is not None and row.low > 0.0:
            yield f"Layer {most} is the most important: skipping it costs {NUMBER.text(row)} nats/token."
        else:
            yield f"No layer is shown to matter. The largest effect is {SIGNED.text(row)} nats/token (layer {most})."


def _name_layers(layers: Sequence[str], depth: int) -> str:
    if len(layers) == depth:
        return f"all {format_count(depth, 'layer')}"
    return name_layers(layers)


def _describe(decision: str, layers: int) -> str:
    if decision == "matters":
        return "matters" if layers == 1 else "matter"
    if decision == "no_effect":
        return "has no effect" if layers == 1 else "have no effect"
    return f"{'is' if layers == 1 else 'are'} {VERDICT_NAMES[decision]}"


def describe_margin(data: ReportData) -> Iterator[str]:
    margin = _read_margin(data)
    counts = (
        "the margin (the smallest effect that counts)" if margin is None else f"the margin of ±{margin:g} nats/token"
    )
    if read_layer_verdicts(data.rows):
        yield f"“No effect” means that the interval is inside {counts}."


def list_next_steps(data: ReportData) -> Iterator[str]:
    """Suggest a plan that skips the layers without effect, or suggest using more text."""
    verdicts = read_layer_verdicts(data.rows)
    useless = [layer for layer, row in verdicts.items() if row.metric in ("no_effect", "harmful")]
    model = data.manifest.get("model") or "MODEL"
    if useless and len(useless) < data.depth:
        plan = skip(Plan.identity(data.depth), *useless)
        yield (
            "Next: the effects of single layers are not additive, so measure the model without"
            f" {_name_layers(list(map(str, useless)), 0)}:"
            f' layerwise sweep {model} --text PATH --plan "{plan}"'
        )
    elif verdicts and all(row.metric == "inconclusive" for row in verdicts.values()):
        yield f"Next: no verdict is decided. Use more text: layerwise diagnose {model} --text PATH --parts ablation"


def recommend_proxy(data: ReportData) -> Iterator[str]:
    """Yield sentences about the proxies that rank layers as skipping does, starting with the best one.

    The interval of the rank correlation of such a proxy must exclude zero. It must also be better than random rankings;
    these p-values are corrected over the proxies (Holm).
    """
    rows = data.rows.where(measure=vocab.AGREEMENT, against=None)
    names = [score.name for score in LAYER_SCORES if score.is_proxy]
    compared = {name: row for name in names if (row := rows.one(condition=name)) is not None}
    if not compared:
        return
    ordered = sorted(compared, key=lambda name: -compared[name].value)
    beyond = _exceeds_chance(compared, data.level)
    agreeing = [name for name in ordered if name in beyond and (compared[name].low or 0.0) > 0.0]
    shown = {name: f"{TITLES.get(name, name)} {NUMBER.text(row)}" for name, row in compared.items()}
    others = join_words([shown[name] for name in ordered if name not in agreeing])
    if not agreeing:
        yield "No proxy is recommended: none ranks layers as skipping does better than by chance."
        yield f"Rank correlations with the effect of skipping: {others}."
        return
    first, *more = [shown[name] for name in agreeing]
    yield f"Recommended proxy for this model: {first}. Numbers are rank correlations with the effect of skipping."
    if more:
        yield f"Other proxies that rank layers as skipping does: {join_words(more)}."
    if others:
        yield f"Proxies not shown to be better than chance: {others}."


def _exceeds_chance(compared: Mapping[str, Score], level: float) -> frozenset[str]:
    chances = {name: row.p for name, row in compared.items() if row.p is not None}
    ordered = sorted(chances, key=lambda name: chances[name])
    kept = itertools.takewhile(lambda rank: (len(ordered) - rank) * chances[ordered[rank]] < level, range(len(ordered)))
    return frozenset(ordered[rank] for rank in kept)


LAYERS_SECTION = Section(
    anchor="verdicts",
    needs=lambda data: next(make_layer_table(data), None) is not None,
    parts=(
        Bars(
            name="layers",
            show=DIFFERENCE,
            derive=lambda data: list_layer_effects(data).values(),
            series="metric",
            stacked=True,
            slots=VERDICT_SLOTS,
            words=lambda name: VERDICT_NAMES.get(name, "skipped"),
            sqrt_scale="default",
        ),
        Pivot(
            derive=make_layer_table,
            rows={"layer": "condition"},
            terminal=5,
            note="importance",
            order=_sort_lines,
            columns=(
                Column(SKIP, SKIP, SIGNED),
                Column("verdict", SKIP, lambda row: row.variant or ""),
                *(Column(score.title, score.title, SIGNED if score.is_signed else NUMBER) for score in LAYER_SCORES),
                Column("perplexity", SKIP, _describe_layers(lambda row: format_perplexity(row.value))),
                Column("adjusted p", SKIP, _describe_layers(format_adjusted_p)),
            ),
        ),
        Text(describe_margin, terminal=False),
        Pivot(
            name="agreement",
            where={"measure": vocab.AGREEMENT},
            rows={"metric": "condition"},
            words=lambda name: TITLES.get(name, name),
            folded=True,
            columns=(
                Column("rank correlation with skipping", "spearman", NUMBER, {"against": None}),
                Column("range by chance", "spearman", NUMBER, {"against": vocab.SHUFFLED_LAYERS}),
            ),
        ),
        Text(recommend_proxy, terminal=False),
        Pivot(
            title="Layers that cost little, skipped together",
            where={"measure": vocab.CONTRAST, "claim": "redundant_sets"},
            rows={"layers": "claim"},
            words=lambda _: "selected on one half of the text, evaluated on the other",
            folded=True,
            columns=(
                Column("number of layers", "layers", COUNT),
                Column("sum of single costs (nats/token)", "singles", SIGNED),
                Column("cost together (nats/token)", "joint", SIGNED),
                Column("mean cost of random sets minus cost together (nats/token)", "spared", SIGNED),
            ),
        ),
    ),
)
