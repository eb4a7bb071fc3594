"""Survival: which variants of a robustness run cope with which conditions.

Scores are rescaled such that 0 is chance and 1 is the best variant with its layers in order; a loss is first converted
by `LeadQuantity.credit`. A variant *survives* a condition if the lower bound of its interval is at least 0.75. It is
*lost* if the upper bound is below 0.25, and survives *in part* if both bounds are between these limits. Otherwise it is
*inconclusive*. A variant that is at chance both in order and in random order has not learned anything, so it is
inconclusive under every condition. Scores without an interval are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from layerwise.page.data import ReportData
from layerwise.page.figures.palette import sort_variants
from layerwise.page.formatting import ACCURACY as SHARE_RIGHT
from layerwise.page.formatting import Format, format_count, join_words
from layerwise.plan.plan import Plan
from layerwise.plan.samplers import layer_subset
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

MEASURES = (
    vocab.ROBUSTNESS,
    vocab.ORDERS,
    vocab.IDENTITY,
    vocab.MERGING,
    vocab.MERGES,
    vocab.POSITION,
    vocab.BRANCHES,
    vocab.CONTRIBUTION,
    vocab.NODES,
    vocab.POSITION_IMPORTANCE,
    vocab.ATTENTION,
    vocab.OUTPUT_LAYOUT,
)

CONDITIONS: dict[str, str] = {vocab.SEQUENTIAL: "in order", vocab.RANDOM_ORDER: "in random order"}
RULES: dict[str, str] = {"even": "evenly spaced", "first": "first", "last": "last", "random": "randomly chosen"}
"""Rules that choose which layers are kept, and their names."""

EVERY_LAYER: Mapping[str, Any] = {"strategy": None, "kept": None, "layer": None, "nodes": None}

ORIGINAL_ORDER, SHUFFLED_ORDER = "in order", "random order"
SURVIVES, FADES = 0.75, 0.25
"""Limits of "survives" and "lost" on the scale from chance (0) to the best variant in order (1)."""

ALIKE = {True: 0.05, False: 0.02}
"""Costs that differ by less count as equal: losses in nats/token (True), or accuracies (False)."""

Fate = Literal["survives", "in part", "lost", "inconclusive"]
VERBS: dict[Fate, str] = {
    "survives": "It survives {}.",
    "in part": "It partly survives {}.",
    "lost": "It does not survive {}.",
    "inconclusive": "It is inconclusive whether it survives {}.",
}
BY_WHOM: dict[Fate, str] = {
    "survives": "survived by",
    "in part": "survived in part by",
    "lost": "not survived by",
    "inconclusive": "inconclusive for",
}


@dataclass(frozen=True, slots=True)
class LeadQuantity:
    """The main quantity of a run: accuracy, or loss in nats/token.

    `cost` is the metric for the damage by missing layers, and `added` is its format.
    """

    metric: str
    name: str
    show: Format
    cost: str
    added: Format
    is_loss: bool

    def credit(self, value: float) -> float:
        """Return an accuracy as it is, and a loss as exp(-loss).

        For a loss, this is the geometric mean of the probabilities of the right tokens.

        >>> ACCURACY.credit(0.9), round(LOSS.credit(math.log(4)), 2)
        (0.9, 0.25)
        """
        return math.exp(-value) if self.is_loss else value


POINTS = Format(axis="points of accuracy", scale=100.0, decimals=1, signed=True)
NATS_ABOVE = Format(axis="nats/token", decimals=2, signed=True)
ACCURACY = LeadQuantity(
    "accuracy",
    "accuracy",
    SHARE_RIGHT,
    "accuracy_lost",
    POINTS.replace(axis="points of accuracy lost", signed=False, reference=0.0),
    is_loss=False,
)
LOSS = LeadQuantity(
    "nll",
    "nats/token",
    Format(axis="nats/token, lower is better", decimals=2),
    "nll_added",
    NATS_ABOVE.replace(axis="nats/token added", signed=False, reference=0.0),
    is_loss=True,
)


def quantity(data: ReportData) -> LeadQuantity:
    """Return the main quantity of a run: the loss of a language model, otherwise the accuracy."""
    return LOSS if data.rows.value(measure=vocab.ROBUSTNESS, metric="leads") == 0.0 else ACCURACY


def above(data: ReportData) -> tuple[str, Format]:
    nats = quantity(data).is_loss and data.rows.where(
        measure=vocab.ROBUSTNESS, metric="nll_above", against=vocab.BASELINE
    )
    return ("nll_above", NATS_ABOVE) if nats else ("accuracy_above", POINTS)


def chance(data: ReportData) -> float | None:
    if not quantity(data).is_loss:
        return data.rows.value(measure=vocab.ROBUSTNESS, metric="accuracy", variant=None, against=vocab.CHANCE)
    classes = data.rows.value(measure=vocab.ROBUSTNESS, metric="classes")
    return None if classes is None or classes < 1.0 else math.log(classes)


def lead_show(data: ReportData) -> Format:
    show, null = quantity(data).show, chance(data)
    return show if null is None else show.replace(reference=show.scale * null)


def group_by_variant(rows: Iterable[Score]) -> Rows:
    grouped = Rows(rows).by("variant")
    return Rows(chain.from_iterable(grouped[variant] for variant in sort_variants(grouped)))


def select_variants(data: ReportData, **columns: Any) -> Rows:
    return group_by_variant(data.rows.where(seed=None, against=None, **columns))


def lead_rows(data: ReportData) -> Rows:
    return select_variants(data, measure=vocab.ROBUSTNESS, metric=quantity(data).metric, **EVERY_LAYER)


def kept(data: ReportData, condition: str) -> Iterator[Score]:
    rows = select_variants(
        data, measure=vocab.ROBUSTNESS, metric=quantity(data).metric, order=condition, layer=None, nodes=None
    )
    depth = data.depth
    for rule in RULES:
        for variant, group in rows.where(strategy=rule).by("variant").items():
            yield from (row for row in group if row.kept is not None and row.kept < depth)
            full_model = rows.one(variant=variant, strategy=None, kept=None)
            if full_model is not None:
                yield replace(full_model, strategy=rule, kept=depth)


# ---- survival


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalCondition:
    """A condition to survive: its heading (`name`), its `words` in a sentence, and the filter of its rows (`where`)."""

    name: str
    words: str
    where: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """The result of a variant under a condition. `share` is its score between chance (0) and the best variant (1)."""

    share: float
    fate: Fate
    at_chance: bool


@dataclass(frozen=True, slots=True)
class Survival:
    """The result of every variant and condition. `ends` has `credit` for chance and for the best variant."""

    conditions: tuple[SurvivalCondition, ...]
    cells: Mapping[str, Mapping[SurvivalCondition, Cell]]
    ends: tuple[float, float]


def conditions(data: ReportData) -> tuple[SurvivalCondition, ...]:
    depth, metric = data.depth, quantity(data).metric
    even = data.rows.where(measure=vocab.ROBUSTNESS, metric=metric, strategy="even", seed=None, against=None)
    counts = [count for count in even.axis("kept") if count < depth]
    half = min(counts, key=lambda count: (abs(2 * count - depth), count), default=0)
    fewer, lost = f"{half} of {depth} layers", f"skipping {format_count(depth - half, 'layer')}"
    every, few = (
        {"measure": vocab.ROBUSTNESS, **EVERY_LAYER},
        {"measure": vocab.ROBUSTNESS, "strategy": "even", "kept": half},
    )
    several = {"measure": vocab.MERGING, "order": vocab.RANDOM_ORDER}
    possible = (
        SurvivalCondition("all layers, in order", ORIGINAL_ORDER, {**every, "order": vocab.SEQUENTIAL}),
        SurvivalCondition("all layers, random order", SHUFFLED_ORDER, {**every, "order": vocab.RANDOM_ORDER}),
        SurvivalCondition(f"{fewer}, in order", lost, {**few, "order": vocab.SEQUENTIAL}),
        SurvivalCondition(f"{fewer}, random order", f"{lost} in random order", {**few, "order": vocab.RANDOM_ORDER}),
        SurvivalCondition("several models, merged", "merging", {**several, "strategy": vocab.MERGED}),
        SurvivalCondition(
            "several models, ensemble", "ensembling in random order", {**several, "strategy": vocab.ENSEMBLE}
        ),
    )
    return tuple(each for each in possible if select_variants(data, metric=metric, **each.where))


def survival(data: ReportData) -> Survival:
    lead, tested = quantity(data), conditions(data)
    rows: dict[str, dict[SurvivalCondition, Score]] = {}
    for condition in tested:
        for row in select_variants(data, metric=lead.metric, **condition.where):
            if row.low is not None and row.high is not None:
                rows.setdefault(str(row.variant), {})[condition] = row
    scores = [(condition, row) for by_condition in rows.values() for condition, row in by_condition.items()]
    in_order = [row for condition, row in scores if condition.words == ORIGINAL_ORDER] or [row for _, row in scores]
    best = max((lead.credit(row.value) for row in in_order), default=1.0)
    null = chance(data)
    ends = (0.0 if null is None else lead.credit(null), best)
    cells = {
        variant: _learned({each: _cell(rows[variant][each], lead, ends) for each in tested if each in rows[variant]})
        for variant in sort_variants(rows)
    }
    return Survival(tested, cells, ends)


def _learned(cells: dict[SurvivalCondition, Cell]) -> dict[SurvivalCondition, Cell]:
    at_chance = {each.words: cell.at_chance for each, cell in cells.items()}
    if at_chance.get(ORIGINAL_ORDER, False) and at_chance.get(SHUFFLED_ORDER, True):
        return {each: replace(cell, fate="inconclusive") for each, cell in cells.items()}
    return cells


def _cell(row: Score, lead: LeadQuantity, scale: tuple[float, float]) -> Cell:
    floor, best = scale

    def share(value: float) -> float:
        return (lead.credit(value) - floor) / (best - floor) if best > floor else 0.0

    ends = sorted(share(row.value if bound is None else bound) for bound in (row.low, row.high))
    partly: Fate = "in part" if ends[0] >= FADES and ends[1] < SURVIVES else "inconclusive"
    fate: Fate = "survives" if ends[0] >= SURVIVES else "lost" if ends[1] < FADES else partly
    return Cell(min(1.0, max(0.0, share(row.value))), fate, at_chance=ends[0] <= 0.0)


def summary(data: ReportData) -> str:
    """Describe which variants survive random order, or the scores of merged models if only merging was measured."""
    groups: dict[Fate, list[str]] = {fate: [] for fate in BY_WHOM}
    at_chance: dict[str, list[bool]] = {ORIGINAL_ORDER: [], SHUFFLED_ORDER: []}
    for variant, cells in survival(data).cells.items():
        for condition, cell in cells.items():
            if condition.words in at_chance:
                at_chance[condition.words].append(cell.at_chance)
            if condition.words == SHUFFLED_ORDER:
                groups[cell.fate].append(variant)
    ordered, shuffled = at_chance.values()
    if ordered and all(ordered + shuffled):
        return "No variant is distinguishable from chance even in order, so random order cannot be judged."
    if groups["inconclusive"] and not any(groups[fate] for fate in groups if fate != "inconclusive"):
        return (
            "Inconclusive: no variant is distinguishable from chance in random order."
            if all(shuffled)
            else "It is inconclusive which variants survive random order: the intervals allow both answers."
        )
    parts = [f"{words} {join_words(groups[fate])}" for fate, words in BY_WHOM.items() if groups[fate]]
    return f"Random order is {'; '.join(parts)}." if parts else " ".join(_merged(data))


def _merged(data: ReportData) -> Iterator[str]:
    lead = quantity(data)
    rows = select_variants(data, measure=vocab.MERGING, metric=lead.metric, order=vocab.RANDOM_ORDER)
    for variant in rows.axis("variant"):
        merged, members = (rows.one(variant=variant, strategy=way) for way in (vocab.MERGED, "members"))
        if merged is not None and members is not None:
            yield (
                f"{variant} merged from random layers scores {lead.show.text(merged)}, and its members in random order"
                " score "
                f"{lead.show.text(members)}."
            )


def fates(data: ReportData) -> Iterator[str]:
    yield from trained_for(data)
    matrix, lead, (metric, difference) = survival(data), quantity(data), above(data)
    levels = lead_rows(data)
    for variant, cells in matrix.cells.items():
        pieces: list[str] = []
        ordered, shuffled = (levels.value(variant=variant, order=order) for order in CONDITIONS)
        if ordered is not None and shuffled is not None:
            unit = f" {lead.name}" if lead.is_loss else ""
            pieces.append(f"{lead.show.number(ordered)}{unit} in order, {lead.show.number(shuffled)} in random order.")
        by_fate: dict[Fate, list[str]] = {fate: [] for fate in VERBS}
        for condition, cell in cells.items():
            if condition.words != ORIGINAL_ORDER:
                by_fate[cell.fate].append(condition.words)
        for fate, words in VERBS.items():
            if by_fate[fate]:
                word = "or" if fate in ("lost", "inconclusive") else "and"
                pieces.append(words.format(join_words(by_fate[fate], word)))
        gap = data.rows.one(
            measure=vocab.ROBUSTNESS,
            metric=metric,
            variant=variant,
            order=vocab.RANDOM_ORDER,
            against=vocab.BASELINE,
            **EVERY_LAYER,
        )
        if gap is not None:
            pieces.append(f"In random order, it differs from the baseline by {difference.text(gap)} {difference.axis}.")
        yield f"{variant}: {' '.join(pieces)}"


def trained_for(data: ReportData) -> Iterator[str]:
    rows = data.rows.where(measure=vocab.TRAINING, metric="epochs", share=None, kept=None)
    epochs = {
        variant: max(row.value for row in group) for variant, group in group_by_variant(rows).by("variant").items()
    }
    if len({round(each, 2) for each in epochs.values()}) > 1:
        variants = [f"{variant} {each:.3g}" for variant, each in epochs.items()]
        yield f"The variants were trained for different numbers of epochs: {join_words(variants)}."


def fewest_layers(data: ReportData) -> tuple[str, Plan] | None:
    lead, depth, ends = quantity(data), data.depth, survival(data).ends
    rows = Rows(kept(data, vocab.SEQUENTIAL))
    surviving = [
        row
        for row in rows
        if row.strategy != "random"
        and row.variant != "retrained"
        and row.low is not None
        and row.high is not None
        and (row.kept or depth) < depth
        and _cell(row, lead, ends).fate == "survives"
    ]
    if not surviving:
        return None
    fewest = min(surviving, key=lambda row: row.kept or 0)
    layers = layer_subset(depth, fewest.kept or 0, str(fewest.strategy))
    return str(fewest.variant), Plan.of(layers)


# ---- cost of failed nodes

IN_BLOCKS, AROUND, ANYWHERE, ALONE = "in blocks", "round robin", "random layers", "one by one"
NODE_COSTS: dict[str, Mapping[str, Any]] = {
    IN_BLOCKS: {"layout": vocab.BLOCKS, "against": None},
    AROUND: {"layout": vocab.ROUND_ROBIN, "against": None},
    ANYWHERE: {"layout": vocab.BLOCKS, "against": vocab.SCATTERED},
    ALONE: {"layout": vocab.BLOCKS, "against": vocab.SINGLE},
}


def node_costs(data: ReportData) -> Iterator[Score]:
    rows = group_by_variant(data.rows.where(measure=vocab.NODES, metric=quantity(data).cost, order=tuple(CONDITIONS)))
    for variant in rows.axis("variant"):
        for count in sorted(rows.axis("nodes"), reverse=True):
            group = rows.where(variant=variant, nodes=count)
            for kind, columns in NODE_COSTS.items():
                yield from (replace(row, layout=kind, against=None) for row in group.where(**columns))


def worst_nodes(data: ReportData) -> Iterator[Score]:
    yield from node_costs(data)
    worst = data.rows.where(measure=vocab.NODES, metric=f"{quantity(data).cost}_worst", layout=vocab.BLOCKS)
    yield from (replace(row, metric=quantity(data).cost, layout="worst block") for row in worst)


def node_sentences(data: ReportData) -> Iterator[str]:
    """Yield a sentence on what the failure of one node costs each variant in random order.

    Further sentences compare layouts, which assign layers to nodes. Two costs are equal if the interval of their
    difference is within ±0.05 nats/token (±0.02 for accuracy). Otherwise, they differ if it excludes zero.
    """
    lead = quantity(data)
    rows = group_by_variant(data.rows.where(measure=vocab.NODES, failed=1, order=vocab.RANDOM_ORDER))
    most = max(rows.axis("nodes"), default=0)
    unit = "nats" if lead.is_loss else "points"
    for variant, every in rows.by("variant").items():
        group = every.where(nodes=most)
        blocks, around = (
            group.one(metric=lead.cost, layout=layout, against=None) for layout in (vocab.BLOCKS, vocab.ROUND_ROBIN)
        )
        if blocks is None:
            continue
        more = "" if around is None else f" and {lead.added.text(around)} with round robin"
        cost = f"Losing one of {most} nodes in random order costs {lead.added.text(blocks)} {unit} with blocks{more}."
        yield " ".join([f"{variant}: {cost}", *_node_verdicts(group, lead)])


def _node_verdicts(rows: Rows, lead: LeadQuantity) -> Iterator[str]:
    questions = {
        (vocab.BLOCKS, vocab.SINGLE): "The layers of a block cost {} together {} when skipped one by one",
        (vocab.BLOCKS, vocab.SCATTERED): "A block costs {} {} the same number of random layers",
        (vocab.ROUND_ROBIN, vocab.BLOCKS): "Round robin costs {} {} blocks",
    }
    for (layout, null), words in questions.items():
        row, margin = rows.one(metric=f"{lead.cost}_above", layout=layout, against=null), ALIKE[lead.is_loss]
        if row is None or row.low is None or row.high is None:
            continue
        if -margin < row.low and row.high < margin:
            yield f"{words.format('as much', 'as')}."
        elif row.low > 0.0 or row.high < 0.0:
            yield f"{words.format('more' if row.low > 0.0 else 'less', 'than')}."
        else:
            yield f"It is inconclusive whether {words[0].lower()}{words[1:].format('more or less', 'than')}."


def present(data: ReportData) -> set[str]:
    return {measure for measure in MEASURES if data.rows.where(measure=measure)}
