"""A simulated run with planted truths: order matters most to "arithmetic", layer 0 is the most important,
layer 7 of twelve does nothing, and the sink token makes the cosine zones."""

import math
import random
from functools import cache
from itertools import pairwise
from typing import Any

from layerwise.page import ReportData
from layerwise.plan import Plan
from layerwise.plan.families import FAMILIES
from layerwise.plan.painters import half_window
from layerwise.results.rows import PlanRecord, Score
from tools.golden.outputs import stored

TASKS = {"text": 0.6, "copying": 0.9, "sorting": 1.3, "brackets": 1.1, "arithmetic": 2.2}
HARM = {"skip": 1.0, "middle_repeat": 1.5, "reverse": 0.55, "random": 0.5, "parallel": 0.7, "looped_parallel": 0.35}
ORDERS = {"reverse", "random", "swap"}
DOCUMENTS = 48
HALF_WIDTH = 0.02


@cache
def run(
    depth: int = 12,
    families: tuple[str, ...] = ("painters", "leave_one_out", "swap_adjacent"),
    seed: int = 0,
    tasks: tuple[str, ...] = tuple(TASKS),
) -> ReportData:
    draw = random.Random(seed)
    records = plan_records(depth, families)
    scores = [
        *(score for record in _once(records) for score in _effects(record, depth, tasks, draw)),
        *_make_original_rows(depth, tasks),
        *_similarity(depth, draw),
        *compared_strategies(depth, records, tasks),
        *_benchmarks(depth, records),
        Score("run", "layer evaluations", 4497.0, section="sweep"),
        Score("run", "layer evaluations, lower bound", 4497.0, section="sweep"),
        Score("run", "wall time (seconds)", 83.4, section="sweep"),
    ]
    return ReportData(_manifest(depth, families, tasks), records, tuple(scores))


@cache
def plan_records(depth: int, families: tuple[str, ...]) -> tuple[PlanRecord, ...]:
    found: dict[tuple[str, str], PlanRecord] = {}
    for name in families:
        for member in FAMILIES[name](depth):
            cost = member.plan.cost()
            text = str(member.plan)
            record = PlanRecord(
                text,
                name,
                member.strategy,
                member.affected,
                member.draw,
                cost.evaluations,
                cost.stages,
                cost.weights,
                cost.slots,
            )
            found.setdefault((name, text), record)
    return tuple(found.values())


def _once(records: tuple[PlanRecord, ...]) -> tuple[PlanRecord, ...]:
    return tuple({record.plan: record for record in reversed(records)}.values())[::-1]


def true_effect(record: PlanRecord, depth: int, task: str) -> float:
    if record.plan == str(Plan.identity(depth)):
        return 0.0
    if record.family in {"leave_one_out", "swap_adjacent"}:
        order = Plan.parse(record.plan).order()
        layer = next((index for index, found in enumerate(order) if index != found), depth - 1)
        worth = 3.0 * math.exp(-1.1 * layer) + 0.4 * (layer / depth) ** 6
        worth = 0.0 if layer == 7 and record.strategy == "skip" else worth + 0.05
        return worth * (TASKS[task] if record.strategy in ORDERS else 1.0) * (0.5 if record.strategy == "swap" else 1.0)
    share = record.affected / depth
    factor = TASKS[task] if record.strategy in ORDERS else 0.6 + 0.4 * TASKS[task]
    return HARM.get(record.strategy, 0.8) * 3.5 * share**2.2 * factor


def _effects(record: PlanRecord, depth: int, tasks: tuple[str, ...], draw: random.Random) -> list[Score]:
    wobble = draw.gauss(1.0, 0.12) if record.draw is not None else 1.0
    values = {task: true_effect(record, depth, task) * wobble for task in tasks}
    values["all"] = sum(values.values()) / len(values) if tasks else 0.0
    scores = []
    for task, true in values.items():
        half = HALF_WIDTH * (1.0 + 2.0 * abs(true)) * (0.6 if task == "all" else 1.0)
        value = true + draw.gauss(0.0, half / 3)
        p = math.erfc(abs(value) / (half / 1.96) / math.sqrt(2.0))
        shared = {"documents": DOCUMENTS * (len(tasks) if task == "all" else 1), "tokens": 9000}
        scores.append(
            Score(
                "effect",
                "delta_nll",
                value,
                value - half,
                value + half,
                p,
                task=task,
                plan=record.plan,
                p_adjusted=min(1.0, 24 * p),
                mde=1.43 * half,
                **shared,
            )
        )
        scores.append(Score("effect", "nll", 1.2 + value, task=task, plan=record.plan, **shared))
        if task not in {"text", "all"}:
            exact = 0.96 * math.exp(-max(value, 0.0) * 2.0)
            scores.append(
                Score("effect", "exact_match", exact, exact - 0.03, exact + 0.03, task=task, plan=record.plan, **shared)
            )
    return scores


def compared_strategies(
    depth: int, records: tuple[PlanRecord, ...], tasks: tuple[str, ...], half: float = 0.02
) -> list[Score]:
    """The planted differences of strategies at the window of half the depth, as the sweep's contrasts have them."""
    window = half_window(records, depth)
    at_half = [each for each in records if window and (each.family, each.affected) == (window.family, window.affected)]
    cost: dict[tuple[str, str], float] = {}
    for each in at_half:
        own = {task: true_effect(each, depth, task) for task in tasks}
        for task, value in {**own, "all": sum(own.values()) / max(1, len(own))}.items():
            cost[each.strategy, task] = value
    plans: dict[frozenset[str], str] = {}
    for name in dict.fromkeys(each.strategy for each in at_half):
        plans.setdefault(frozenset(each.plan for each in at_half if each.strategy == name), name)
    strategies = sorted(plans.values(), key=lambda name: cost[name, "all"])

    def row(metric: str, strategy: str, value: float, **columns: Any) -> Score:
        about = {"claim": "strategies", "family": at_half[0].family, "affected": at_half[0].affected, **columns}
        return Score("contrast", metric, value, value - half, value + half, strategy=strategy, **about)

    rows = []
    for milder, harsher in pairwise(strategies):
        rows.append(row("step", harsher, cost[harsher, "all"] - cost[milder, "all"], against=milder))
    return rows


def _make_original_rows(depth: int, tasks: tuple[str, ...]) -> list[Score]:
    identity = str(Plan.identity(depth))
    shared = {"documents": DOCUMENTS, "tokens": 9000}
    scores = [Score("effect", "nll", 1.2, task=task, plan=identity, **shared) for task in ("all", *tasks)]
    scores += [
        Score("effect", "exact_match", 0.96, task=task, plan=identity, **shared) for task in tasks if task != "text"
    ]
    written = {(record.plan) for record in plan_records(depth, ("painters",))}
    return [] if identity in written else scores


def _similarity(depth: int, draw: random.Random) -> list[Score]:
    scores = []
    for i in range(depth + 1):
        for j in range(i, depth + 1):
            middle = i >= 3 and j <= depth - 2
            near = math.exp(-abs(i - j) / 6.0)
            noise = draw.gauss(0.0, 0.005) if i != j else 0.0
            plain = 1.0 if i == j else 0.3 * near + (0.6 if middle else 0.05) + noise
            without = 1.0 if i == j else 0.55 * near + 0.1 + (0.06 if middle else 0.0) + noise
            values = {"cosine": plain, "cosine_no_sink": without, "cka": min(1.0, 0.35 + 0.65 * near)}
            scores += [Score("similarity", metric, value, state=i, to_state=j) for metric, value in values.items()]
    return scores


def _benchmarks(depth: int, records: tuple[PlanRecord, ...]) -> list[Score]:
    scores = []
    for index, plan in enumerate([str(Plan.identity(depth)), *(record.plan for record in records[:3])]):
        for task, top in (("arc_challenge", 0.43), ("hellaswag", 0.58)):
            right = top - 0.06 * index
            scores += [
                Score("benchmark", "acc", right, right - 0.02, right + 0.02, task=task, plan=plan),
                Score("benchmark", "acc", 1.0 - 0.25 * index, task=task, plan=plan, condition="normalized"),
            ]
    return scores


def _manifest(depth: int, families: tuple[str, ...], tasks: tuple[str, ...]) -> dict[str, object]:
    own = {"depth": depth, "families": list(families), "tasks": list(tasks)}
    size = {"documents": DOCUMENTS * len(tasks), "tokens": 9000 * len(tasks)}
    return {**stored("sweep-planted").manifest, **own, **size}
