"""The claim that quality degrades gracefully, without an abrupt step, when the middle layers run in another order."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import ALIKE, BARE, Contrasts, contrasts
from layerwise.report.claims.power import seen, widest
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import label, listed

ORDERS = ("reverse", "random")
ABSENT = "skip"
ABRUPT = 0.25

GRACEFUL = Published(
    "graceful",
    "Other orders degrade gracefully",
    "With the middle layers in reverse or in a random order quality degrades gracefully as more layers are affected.",
    "arXiv 2407.09298, section 3.4, figures 6 and 7",
    "The costs of an order at the published windows rise in steps of two layers, or of a tenth of the depth where that"
    " is more. Every rise is held against that of the parabola, from the model as trained, which fits the curve best: a"
    " straight line and a smoothly curved one have no excess, or little. A step is abrupt where it takes a quarter of"
    " the whole loss more than the parabola does there. The null is to skip the same windows; 5 % of the greatest cost"
    " of skipping is no difference. Supported: under both orders every step is shown not to be abrupt, no window is"
    " costlier than without its layers, and one or more are shown to cost less. Explained by the null: one of them is"
    " shown to cost what skipping costs at every window: that it degrades gracefully is then said of absence."
    " Contradicted: in one of them a step is shown to be abrupt, or a window to cost more than without its layers."
    " What is said of one step or window among all is corrected over them and the orders (Bonferroni).",
    "It needs windows of five sizes, of a model of 11 layers and more: layerwise sweep MODEL --families painters.",
)


def graceful(evidence: Evidence) -> Claim:
    """Does the loss rise without an abrupt step under reverse and random order, and stay below that of absence?"""
    rows = contrasts(evidence, GRACEFUL.key)
    curves = {name: _metrics(rows, f"{name}_step_") for name in (*ORDERS, ABSENT)} if rows is not None else {}
    if rows is None or not all(curves.values()):
        return GRACEFUL.unmeasured()
    beside = {order: _metrics(rows, f"{ABSENT}-{order}_") for order in ORDERS}
    wider = _wider(sum(len(curves[order]) for order in ORDERS))
    abrupt = [order for order in ORDERS if any(_is_abrupt(rows, metric, wider) for metric in curves[order])]
    worse = [order for order in ORDERS if "below" in _sides(rows, beside[order], wider)]
    same = [order for order in ORDERS if _sides(rows, beside[order]) == {"within"}]
    steady = [order for order in ORDERS if all(_is_no_more(rows, metric) for metric in curves[order])]
    less = [order for order in ORDERS if _stays_below(rows, beside[order], wider)]
    unsure = [order for order in ORDERS if order not in steady or order not in less]
    return GRACEFUL.decided(
        "Of the whole loss a step takes, beyond the best parabola, at most"
        f" {listed([_greatest(rows, name, curves[name]) for name in curves])}. Of its greatest cost, skipping costs at"
        f" least {listed([_closest(rows, order, beside[order]) for order in ORDERS])}{rows.tokens}.",
        _power(rows, [metric for order in ORDERS for metric in curves[order]], wider),
        (bool(abrupt), CONTRADICTED, f"{_named(abrupt)} has an abrupt step."),
        (bool(worse), CONTRADICTED, f"{_named(worse)} costs more than absence at some window."),
        (bool(same), BY_NULL, f"{_named(same)} costs what absence costs at every window."),
        (not unsure, SUPPORTED, "No step is abrupt, and the layers cost less than absent ones."),
        otherwise=_open(rows, unsure),
    )


def _metrics(rows: Contrasts, prefix: str) -> list[str]:
    """The metrics of a curve, by the size of the window."""
    return sorted((name for name in rows.scores if name.startswith(prefix)), key=_size)


def _size(metric: str) -> int:
    return int(metric.rpartition("_")[2])


def _wider(tests: int) -> float:
    """By how much the intervals of so many tests grow that hold together at 95 %."""
    normal = NormalDist()
    return normal.inv_cdf(1 - 0.025 / tests) / normal.inv_cdf(0.975)


def _is_abrupt(rows: Contrasts, metric: str, wider: float) -> bool:
    bounds = rows.span(metric)
    return bounds is not None and bounds.widened(wider).against(ABRUPT) == "above"


def _is_no_more(rows: Contrasts, metric: str) -> bool:
    bounds = rows.span(metric)
    return bounds is not None and bounds.against(ABRUPT) == "below"


def _sides(rows: Contrasts, metrics: list[str], wider: float = 1.0) -> set[str]:
    """Where what absence costs more lies, at each window."""
    spans = [rows.span(metric) for metric in metrics]
    return {"open" if bounds is None else bounds.widened(wider).position(ALIKE) for bounds in spans}


def _stays_below(rows: Contrasts, metrics: list[str], wider: float) -> bool:
    spans = rows.spans(*metrics)
    nowhere_more = len(spans) == len(metrics) and all(bounds.low > -ALIKE for bounds in spans)
    return nowhere_more and "above" in _sides(rows, metrics, wider)


def _greatest(rows: Contrasts, name: str, metrics: list[str]) -> str:
    """The step that takes most beyond the parabola, in words."""
    most = max(metrics, key=rows.value)
    return f"{rows.shown(most)} under {label(name)} (up to {_size(most)} layers)"


def _closest(rows: Contrasts, order: str, metrics: list[str]) -> str:
    """The window at which an order is closest to absence, in words."""
    least = min(metrics, key=rows.value)
    return f"{rows.shown(least)} more than {label(order)} (at {_size(least)} layers)"


def _power(rows: Contrasts, metrics: list[str], wider: float) -> str:
    score = widest(rows[metric] for metric in metrics)
    if score.mde is None:
        return ""
    abrupt = replace(score, mde=ABRUPT + wider * score.mde)
    return seen(abrupt, ABRUPT, "of the whole loss beyond the parabola in one step")


def _open(rows: Contrasts, orders: list[str]) -> str:
    if len(rows.spans(*rows.scores)) < len(rows.scores):
        return BARE
    draws = ", and of random orders more draws" if "random" in orders else ""
    return f"Intervals of {listed([label(order) for order in orders])} hold both answers: it takes more text{draws}."


def _named(orders: list[str]) -> str:
    return listed([label(order) for order in orders]).capitalize()
