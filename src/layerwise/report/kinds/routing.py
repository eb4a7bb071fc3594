"""A routing: a plan for each prompt beside fixed plans at the same mean layers, and which prompts get which plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from layerwise.report.data import ReportData
from layerwise.report.kind import Column, Kind, Pivot, Says, Section
from layerwise.report.marks import Scatter, Style
from layerwise.report.show import ABSENT, COUNT, NUMBER, PERCENT, Show, adjusted_p, detectable, named, p_value
from layerwise.report.text.wording import STOPPED
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

ARMS: Mapping[str, str] = {
    vocab.ROUTER: "router",
    "fixed": "best fixed plans",
    "permuted": "its plans, dealt out at random",
    "permuted_in_task": "the same within each task",
    "hindsight": "best fixed plans in hindsight",
    "random": "every candidate alike",
    "oracle": "oracle",
    "oracle_of_noise": "oracle of noise",
}
"""The arms in reading order, as they are called."""

SCORES: Mapping[str, str] = {"accuracy": "accuracy", "nats": "nats a question"}
DECISIONS: Mapping[str, str] = {
    "above": "above the best fixed plan",
    "equivalent": "alike within the margin",
    "below": "below the best fixed plan",
    "unresolved": "not resolvable",
}
DECIDED = {"measure": vocab.ROUTE_VERDICT, "arm": vocab.ROUTER}
"""The decision of each task set, and of each pair of sets."""

GAINS = tuple(f"{kind}_gain" for kind in SCORES)
CANDIDATE, JUDGED = "one plan for all", "judged here"
SLOTS = {vocab.ROUTER: 1, "fixed": 0, "permuted": 3, "oracle": 2, "oracle_of_noise": 5, CANDIDATE: 5, JUDGED: 1}
DOTTED = Style(line=True, dash="dot", bounds=False, size=7)
STYLES = {
    CANDIDATE: Style(faint=True, symbol="circle"),
    vocab.ROUTER: Style(line=True, size=7),
    "fixed": Style(line=True, bounds=False, size=7),
    "permuted": DOTTED,
    "oracle": DOTTED,
    "oracle_of_noise": DOTTED,
    JUDGED: Style(symbol="star", size=15, bounds=False),
}
"""How the arms of the picture are drawn, the first ones below the others."""

GAIN = Show(signed=True)
LAYERS = Show(axis="mean layers", decimals=2, bounds=False)
SHOWN = 0.005
"""A smaller share of prompts leaves a plan out of the table."""


def objective(data: ReportData) -> str:
    """The score that is judged."""
    return str(next(iter(data.rows.where(measure=vocab.ROUTE_VERDICT, metric="margin").axis("condition")), "accuracy"))


def drawn(data: ReportData) -> Iterator[Score]:
    """Score and mean layers of the candidates, of every arm at every budget, and of the router where it is judged."""
    names = (vocab.ROUTE_PLAN, vocab.ROUTE_CURVE, vocab.ROUTE)
    for kind in dict.fromkeys((objective(data), *SCORES)):
        for task in data.rows.where(measure=vocab.ROUTE_PLAN).axis("task"):
            plans, curve, judged = (data.rows.where(measure=name, task=task, condition=None) for name in names)
            layers, own = curve.where(metric=f"{kind}_layers"), judged.where(arm=vocab.ROUTER)
            points = {
                CANDIDATE: (plans.where(metric=kind), plans.where(metric="layers")),
                **{arm: (curve.where(arm=arm, metric=kind), layers) for arm in ARMS},
                JUDGED: (own.where(metric=kind), own.where(metric=f"{kind}_layers")),
            }
            for arm in STYLES if layers else ():
                for rows, metric in zip(points[arm], ("score", "layers"), strict=True):
                    for row in rows:
                        plan = row.plan or f"budget {row.amount or 0:g}"
                        yield replace(row, metric=metric, arm=arm, condition=SCORES[kind], plan=plan)


def findings(data: ReportData) -> Iterator[str]:
    """The verdict on each task set and each pair of sets, and what the router takes."""
    metric = objective(data)
    for row in data.rows.where(**DECIDED):
        own = data.rows.where(measure=vocab.ROUTE, task=row.task, condition=row.condition)
        layers = own.one(arm=vocab.ROUTER, metric=f"{metric}_layers")
        permuted = own.one(arm="permuted", metric=f"{metric}_gain")
        at = "" if layers is None else f" at {LAYERS.text(layers)} mean layers"
        dealt = "" if permuted is None else f"; over its own plans dealt out at random {GAIN.text(permuted)}"
        seen = f"(p {adjusted_p(row)}; it would have seen {detectable(row)})"
        yield f"{_verdict(row)}. {GAIN.text(row)} {SCORES[metric]}{at} {seen}{dealt}."
    time = data.rows.where(measure=vocab.ROUTE_TIME)
    router, layer, layers = (time.one(metric=name) for name in (vocab.MILLISECONDS, "layer_ms", "layers"))
    if router is not None and layer is not None and layers is not None:
        worth = f"{LAYERS.text(layers)} layers of {layer.value:.3f} ms"
        yield f"Choosing takes {NUMBER.text(router)} ms, which is {worth}; it counts as layers."
    margin = data.rows.value(measure=vocab.ROUTE_VERDICT, metric="margin")
    if margin is not None:
        yield f"Alike means that the interval lies within {margin:g} on both sides."


def _verdict(row: Score) -> str:
    """Which set is asked, and the decision in words; a gain over fixed plans alone is no more than that."""
    decision = DECISIONS[row.metric]
    if row.metric == "unresolved" and row.low is not None and row.low > 0:
        decision = "above the best fixed plan, but not distinguished from its own plans dealt out at random"
    return f"{row.task if row.condition is None else f'Fitted to {row.condition}, asked {row.task}'}: {decision}"


def decided(data: ReportData) -> Iterator[Score]:
    """The verdicts, each with the set that the router was fitted to."""
    return (replace(row, condition=row.condition or row.task) for row in data.rows.where(**DECIDED))


def beside(data: ReportData) -> Iterator[Score]:
    """Of each task set and pair of sets every arm: its score, the mean layers, and the router's gain over it."""
    metric = objective(data)
    for verdict in data.rows.where(**DECIDED):
        own = data.rows.where(measure=vocab.ROUTE, task=verdict.task, condition=verdict.condition)
        name = verdict.task if verdict.condition is None else f"{verdict.condition} to {verdict.task}"
        layers = own.where(arm=vocab.ROUTER, metric=f"{metric}_layers")
        for arm in ARMS:
            rows = own.where(arm=arm, metric=(metric, f"{metric}_gain"))
            shared = layers if arm != "random" and rows else ()
            yield from (replace(row, arm=arm, task=name) for row in (*rows, *shared))


def shares(data: ReportData) -> Rows:
    """The candidates that some prompts get: layers, score, and the share of the prompts of each task."""
    given, plans = data.rows.where(measure=vocab.ROUTE_SHARE), data.rows.where(measure=vocab.ROUTE_PLAN)
    kept = {(row.task, row.plan) for row in given if row.value >= SHOWN}
    rows = Rows(row for row in (*plans, *given) if (row.task, row.plan) in kept)
    return rows.where(metric=("layers", objective(data), "share"))


def _answer(data: ReportData) -> str:
    score = SCORES[objective(data)]
    return " ".join(f"{_verdict(row)}, {GAIN.text(row)} {score}." for row in data.rows.where(**DECIDED))


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    limit = data.rows.value(measure=vocab.ROUTE_VERDICT, metric="limit")
    yield ABSENT if limit is None else f"{limit:g}", "mean layers at most"
    yield f"{len(data.rows.where(measure=vocab.ROUTE_PLAN).axis('plan')):,}", "candidates"


OF_SCORES = tuple(Column(name, kind) for kind, name in SCORES.items())
ROUTING_KIND = Kind(
    name="routing",
    measures=(
        vocab.ROUTE,
        vocab.ROUTE_SEED,
        vocab.ROUTE_CURVE,
        vocab.ROUTE_PLAN,
        vocab.ROUTE_SHARE,
        vocab.ROUTE_TIME,
        vocab.ROUTE_VERDICT,
    ),
    answer=_answer,
    tiles=_tiles,
    unfinished=lambda data: None if data.rows.where(**DECIDED) else f"no verdict was given yet: {STOPPED}",
    sections=(
        Section(
            anchor=vocab.ROUTE,
            needs=DECIDED,
            parts=(
                Scatter(
                    name="route-curve",
                    derive=drawn,
                    point="plan",
                    series="arm",
                    across={"metric": "layers"},
                    upwards={"metric": "score"},
                    words=named(ARMS),
                    at="{}",
                    named=True,
                    styles=STYLES,
                    slots=SLOTS,
                    choices={"Task set": "task", "Score": "condition"},
                    show=NUMBER,
                    show_across=LAYERS,
                    height=460,
                    by_choice={name: {"show": NUMBER.but(axis=name)} for name in SCORES.values()},
                ),
                Says(findings),
                Pivot(
                    name="verdicts",
                    derive=decided,
                    rows={"fitted to": "condition", "asked": "task"},
                    terminal=False,
                    columns=(
                        Column("gain over fixed plans", tuple(DECISIONS), GAIN),
                        Column("adjusted p", show=adjusted_p),
                        Column("would have seen", show=detectable),
                        Column("verdict", show=lambda row: DECISIONS[row.metric]),
                    ),
                ),
                Pivot(
                    derive=beside,
                    split="task",
                    rows={"arm": "arm"},
                    words=named(ARMS),
                    columns=(
                        Column("mean layers", tuple(f"{kind}_layers" for kind in SCORES), LAYERS),
                        *OF_SCORES,
                        Column("router above it", GAINS, GAIN),
                        Column("p", GAINS, p_value),
                    ),
                ),
            ),
        ),
        Section(
            anchor=vocab.ROUTE_SHARE,
            needs=DECIDED,
            parts=(
                Pivot(
                    derive=shares,
                    split="task",
                    rows={"plan": "plan"},
                    across="condition",
                    terminal=False,
                    show=PERCENT.but(decimals=1),
                    columns=(Column("layers", "layers", COUNT), *OF_SCORES),
                ),
            ),
        ),
    ),
)
