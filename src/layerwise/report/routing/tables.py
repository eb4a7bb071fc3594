"""A routing as tables and as sentences: the verdict, every arm beside the router, and which prompts get which plan."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import between, percent, probability, tidy
from layerwise.report.page.plain_markdown import bullets
from layerwise.report.page.table import Table
from layerwise.report.routing.lookup import ARMS, BETWEEN, DECISIONS, ROUTER, SCORES, RoutingScores
from layerwise.results.rows import Score

SHOWN = 0.005
"""A smaller share of prompts leaves a plan out of the table."""


def routing_lines(run: RoutingScores) -> list[str]:
    """The results in sentences, one a line, and the table of the arms."""
    if not run.verdicts:
        return []
    return [*sentences(run), *(line for task in run.sets for line in arm_table(run, task).lines())]


def routing_markdown(evidence: Evidence) -> Iterator[str]:
    """The results in sentences, the verdicts, and for every task set the arms and which prompts get which plan."""
    run = RoutingScores.of(evidence.data.scores)
    if not run.verdicts:
        return
    yield bullets(sentences(run))
    yield verdict_table(run).section("Verdicts")
    for task in dict.fromkeys([*run.sets, *run.verdicts]):
        yield arm_table(run, task).section(f"Arms, {task}")
    for task in run.sets:
        yield share_table(run, task).section(f"Which prompts get which plan, {task}")


def sentences(run: RoutingScores) -> Iterator[str]:
    """What the router takes, and the verdict on each task set and each pair of sets."""
    metric = run.objective
    time, layer = (run.rows.get(("route_time", name, "all", "ms")) for name in (ROUTER, "layer"))
    own = run.value("route_time", ROUTER, "all", "layers")
    if time is not None and layer is not None and own is not None:
        yield (
            f"Choosing takes {_value(time)} ms, which is {own:.2f} layers of {layer.value:.3f} ms; it counts as layers"
        )
    for task, row in run.verdicts.items():
        first, between_sets, second = task.partition(BETWEEN)
        where = f"Fitted to {first}, asked {second}" if between_sets else first
        layers = run.arm(ROUTER, task, f"{metric}_layers")
        permuted = run.arm("permuted", task, f"{metric}_gain")
        text = f"{where}: {DECISIONS[row.metric]}. {_value(row, signed=True)} {SCORES[metric]}"
        text += "" if layers is None else f" at {layers.value:.2f} mean layers"
        text += f" (p {probability(row.p_adjusted)}; it would have seen {tidy(row.mde or 0.0)})"
        if permuted is not None:
            text += f"; over its own plans dealt out at random {_value(permuted, signed=True)}"
        yield text


def arm_table(run: RoutingScores, task: str) -> Table:
    """Every arm on a task set, or on a pair of sets, at the mean layers of the router."""
    metric = run.objective
    body = []
    for name, words in ARMS.items():
        score, gain = run.arm(name, task, metric), run.arm(name, task, f"{metric}_gain")
        if score is None:
            continue
        layers = run.arm(ROUTER, task, f"{metric}_layers")
        mean = "–" if layers is None or name == "random" else f"{layers.value:.2f}"
        cells = ("–", "–") if gain is None else (_value(gain, signed=True), probability(gain.p))
        body.append((words, mean, _value(score), *cells))
    return Table((task, "mean layers", SCORES[metric], "router above it", "p"), tuple(body))


def verdict_table(run: RoutingScores) -> Table:
    """The decision on each task set, and of a router that was fitted to another one."""
    head = ("fitted to", "asked", "gain over fixed plans", "adjusted p", "would have seen", "verdict")
    body = []
    for task, row in run.verdicts.items():
        first, _, second = task.partition(BETWEEN)
        outcome = (_value(row, signed=True), probability(row.p_adjusted), tidy(row.mde or 0.0))
        body.append((first, second or first, *outcome, DECISIONS[row.metric]))
    return Table(head, tuple(body), numeric_from=2)


def share_table(run: RoutingScores, task: str) -> Table:
    """Which share of the prompts of each task gets each plan; plans that none gets are left out."""
    kinds = run.kinds(task)
    body = []
    for plan in run.plans:
        shares = [run.value("route_share", plan, task, kind) or 0.0 for kind in kinds]
        if max(shares, default=0.0) >= SHOWN:
            score = run.rows.get(("route_plan", plan, task, run.objective))
            layers = run.value("route_plan", plan, task, "layers") or 0.0
            body.append((plan, f"{layers:g}", "–" if score is None else _value(score), *map(percent, shares)))
    return Table(("plan", "layers", SCORES[run.objective], *kinds), tuple(body))


def _value(score: Score, *, signed: bool = False) -> str:
    return between(score.value, score.low, score.high, signed=signed)
