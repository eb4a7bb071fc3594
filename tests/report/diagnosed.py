"""A diagnosis that never happened: rows of every measure, of plausible size, the same on every call.

The truth is planted, so tests can ask for it back: layer 0 matters most, the layer at half the depth is harmful, the
one after it does nothing, weights know nothing of each other from layer to layer, recovery follows the initial damage
alone, and any change of weights costs what its size costs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

from layerwise.plan import Plan
from layerwise.report import ReportData
from layerwise.results.rows import PlanRecord, Score

TASKS = ("all", "text", "arithmetic")
TYPES = (None, "self_attn.q_proj.weight", "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.down_proj.weight")
HALVES = {None: 1.0, "attn": 0.35, "mlp": 0.6}
INTERVENTIONS = {"skip": 1.0, "mean_ablate": 0.8, "neighbour_copy": 1.6, "neighbour_average": 1.9, "random": 4.0}
STRATEGIES = ("scale", "noise", "low_rank", "interpolate", "copy", "predict")
SIZES = (0.05, 0.1, 0.2, 0.5, 1.0)
ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25)
DAMAGES = (("noise_50", "layer"), ("equal_damage", "layer"), ("reinitialise", "model"))
RANKINGS = (
    "skip", "mean_ablate", "block_influence", "gate_sensitivity", "gate_gradient", "taylor", "recovery", "random_score",
)  # fmt: skip
TOKENS = 9000
PARTS = (
    "proxies", "structure", "deltas", "predictability", "ablation", "racing", "order", "manipulation", "recovery",
    "agreement", "pruning",
)  # fmt: skip


@cache
def scores(depth: int = 12, tasks: tuple[str, ...] = TASKS, seed: int = 0) -> tuple[Score, ...]:
    """The rows of every measure of a diagnosis of `depth` layers."""
    draw = random.Random(seed)
    return (
        *_ablation(depth, tasks, draw),
        *_verdicts(depth),
        *_deltas(depth),
        *_predictability(depth, draw),
        *_recovery(depth, draw),
        *_manipulation(depth, draw),
        *_structure(depth, draw),
        *_proxies(depth, draw),
        *_agreement(),
        *_pruning(depth),
        *_order(depth, tasks),
        *_contrasts(depth),
        *_of_layers_states_and_order(),
    )


@cache
def diagnosis(depth: int = 12, tasks: tuple[str, ...] = TASKS, seed: int = 0) -> ReportData:
    """A whole diagnosis with its manifest and the plans that judged its scores."""
    plans = (*_pruned(depth), *_moved(depth))
    return ReportData(_manifest(depth, tasks), plans, scores(depth, tasks, seed))


def resumable(data: ReportData, *finished: str) -> ReportData:
    """The same run as its folder would hold it when only these parts were complete."""
    done = tuple(row("part", "done", 1.0, condition=part) for part in finished)
    return replace(data, scores=(*data.scores, *done))


def without(data: ReportData, *measures: str) -> ReportData:
    """The same run with some measures never taken."""
    return replace(data, scores=tuple(score for score in data.scores if score.measure not in measures))


def harmful(depth: int) -> int:
    """The planted layer that does harm."""
    return depth // 2


def idle(depth: int) -> int:
    """The planted layer that does nothing."""
    return depth // 2 + 1


def worth(layer: int, depth: int) -> float:
    """The planted effect of skipping, in nats per token."""
    if layer == harmful(depth):
        return -0.06
    if layer == idle(depth):
        return 0.0
    return 2.2 * math.exp(-1.3 * layer) + 0.5 * (layer / (depth - 1)) ** 5 + 0.06


def row(measure: str, metric: str, value: float, half: float | None = None, **more: object) -> Score:
    """A score with an interval of `half` to either side; `more` are its other columns."""
    bounds = () if half is None else (value - half, value + half)
    return replace(Score(measure, metric, value, *bounds), **more)  # type: ignore[arg-type]


def contrast(claim: str, metric: str, value: float, half: float | None = None, **more: object) -> Score:
    """A row that decides a claim."""
    return row("contrast", metric, value, half, claim=claim, **more)


def _ablation(depth: int, tasks: tuple[str, ...], draw: random.Random) -> Iterator[Score]:
    for task in tasks:
        for layer in range(depth):
            for part, share in HALVES.items():
                for name, factor in INTERVENTIONS.items():
                    ends = name == "neighbour_average" and layer in {0, depth - 1}
                    if not ends and (not part or name in {"skip", "mean_ablate"}):
                        about = {"layer": layer, "part": part, "task": task}
                        yield from _effect(name, share * factor, depth, draw, about)


def _effect(metric: str, factor: float, depth: int, draw: random.Random, about: dict[str, Any]) -> Iterator[Score]:
    extra = 0.3 * max(0.0, factor - 1.0)
    value = worth(about["layer"], depth) * factor * (1.5 if about["task"] == "arithmetic" else 1.0) + extra
    half = 0.012 + 0.06 * abs(value)
    value += draw.gauss(0.0, half / 4)
    p = math.erfc(abs(value) / (half / 1.96) / math.sqrt(2.0))
    shared = {"documents": 40, "tokens": TOKENS, **about}
    yield row("ablation", metric, value, half, p=p, p_adjusted=min(1.0, depth * p), mde=1.4 * half, **shared)
    yield row("ablation", metric, 0.0, 0.02, against="no_effect", **shared)


def _verdicts(depth: int) -> Iterator[Score]:
    for layer in range(depth):
        value = worth(layer, depth)
        name = "harmful" if value < 0 else "no_effect" if value == 0.0 else "matters"
        spent = 900 if abs(value) > 0.5 else 2500 if value else TOKENS
        p = 0.6 if name == "no_effect" else 0.0004
        more = {"p_adjusted": p, "mde": 0.021, "documents": 20}
        yield row("verdict", name, value, 0.015, layer=layer, tokens=TOKENS // 2, **more)
        yield row("racing", name, value, 0.03, layer=layer, tokens=spent, **more)
    for metric, value in {"evaluations": 5200.0, "evaluations_full": 26800.0, "share": 0.194, "looks": 5.0}.items():
        yield row("racing", metric, value)


def _deltas(depth: int) -> Iterator[Score]:
    for number, part in enumerate(TYPES):
        for lag in range(1, 6):
            expected = -0.5 if lag == 1 else 0.0
            value = expected + 0.002 * math.cos(7.0 * lag + number)
            about = {"amount": lag, "part": part}
            yield row("deltas", "correlation", value, 0.006, **about)
            yield row("deltas", "correlation", expected, against="independent", **about)
            yield row("deltas", "correlation", expected, 0.02, against="shuffled", **about)
            yield row("deltas", "correlation", expected, 0.01, against="random_twin", **about)
            yield row("deltas", "autocovariance", 0.0004 * math.sin(lag + number), 0.0005, **about)
        yield row("deltas", "no_lag_structure", 0.001, 0.006, amount=1, part=part)


def _predictability(depth: int, draw: random.Random) -> Iterator[Score]:
    measure = "predictability"
    for number, part in enumerate(TYPES):
        yield row(measure, "in_sample_r2", 0.7 + 0.05 * number, 0.02, part=part)
        yield row(measure, "in_sample_r2", 0.68 + 0.05 * number, part=part, against="p_over_n")
        for metric, value in {"heldout_rows_r2": 0.03, "heldout_layers_r2": -0.04 - 0.3 * number}.items():
            yield row(measure, metric, value, 0.02, part=part)
            for null in ("random_twin", "permuted_units", "shuffled_layers"):
                yield row(measure, metric, -0.05, 0.03, part=part, against=null)
        yield row(measure, "norm_r2", 0.4 + 0.1 * number, 0.1, part=part)
        yield row(measure, "norm_r2", 0.0, 0.35, part=part, against="shuffled_layers")
        for layer in range(depth - 1):
            about = {"layer": layer, "other": layer + 1, "part": part}
            for metric, base in {"subspace": 0.2, "subspace_units": 0.1, "docs": 0.3}.items():
                value = base + 0.15 * math.sin(math.pi * layer / depth) + draw.gauss(0, 0.01)
                yield row(measure, metric, value, 0.02, **about)
                yield row(measure, metric, 0.12, 0.01, against="random_twin", **about)
    cost, random_error = "predicted_weight_loss", {"against": "same_norm_random", "tokens": TOKENS}
    for layer in range(depth):
        value = 0.4 * abs(worth(layer, depth)) + 0.05
        yield row(measure, cost, value, 0.03, layer=layer, tokens=TOKENS)
        yield row(measure, cost, 1.1 * value, 0.08, layer=layer, **random_error)
    for size in (2, 4, 8):
        yield row(measure, cost, 0.3 * size**1.5, 0.1, condition="set", amount=size, tokens=TOKENS)
        yield row(measure, cost, 0.32 * size**1.5, 0.3, condition="set", amount=size, **random_error)


def _recovery(depth: int, draw: random.Random) -> Iterator[Score]:
    for number, (kind, scope) in enumerate(DAMAGES):
        treatment = {"condition": kind, "arm": scope}
        for layer in range(0, depth, 2):
            damage = 0.3 if kind == "equal_damage" else 1.5 * abs(worth(layer, depth)) + 0.1
            area = 6.0 * damage + abs(draw.gauss(0.0, 0.4))
            steps = min(40.0, 12.0 * damage + 2.0)
            shared = {"layer": layer, "tokens": TOKENS, **treatment}
            yield row("recovery", "initial_damage", damage, 0.1, **shared)
            yield row("recovery", "area", area, 0.5 + number, **shared)
            yield row("recovery", "steps", steps, 3.0, **shared)
            yield row("recovery", "censored", 1.0 if steps == 40.0 else 0.0, **shared)
            yield row("recovery", "area", 0.0, 0.4, against="twin", **shared)
            yield row("recovery", "area", area, seed=0, **shared)
        yield row("recovery", "layers", float(len(range(0, depth, 2))), **treatment)
        yield row("recovery", "spearman_published", 0.91, 0.06, **treatment)
        equal = kind == "equal_damage"
        for metric, value in {"spearman": 0.05 if equal else 0.91, "spearman_given_damage": 0.08}.items():
            yield row("recovery", metric, value, 0.3 if equal else None, p=0.2, **treatment)
            yield row("recovery", metric, 0.0, 0.8, against="shuffled_layers", **treatment)


def _manipulation(depth: int, draw: random.Random) -> Iterator[Score]:
    for layer in range(depth):
        fragile = 0.2 + abs(worth(layer, depth))
        for number, strategy in enumerate(STRATEGIES):
            for size in SIZES:
                cost = fragile * (1.0 + 0.1 * number) * size**2 * 3.0
                yield from _changed(cost, draw, layer=layer, condition=strategy, amount=size)
        for part, share in HALVES.items():
            for alpha in ALPHAS:
                cost = worth(layer, depth) * share * (1 - alpha) ** 2
                yield from _changed(cost, draw, layer=layer, part=part, condition="gate", amount=alpha)


def _changed(cost: float, draw: random.Random, **about: object) -> Iterator[Score]:
    half = 0.02 + 0.05 * abs(cost)
    yield row("manipulation", "delta_nll", cost + draw.gauss(0.0, half / 4), half, tokens=TOKENS, **about)
    yield row("manipulation", "delta_nll", 0.0, 0.02, tokens=TOKENS, against="no_effect", **about)


def _structure(depth: int, draw: random.Random) -> Iterator[Score]:
    for number, part in enumerate(TYPES):
        for layer in range(depth):
            depth_share = layer / (depth - 1)
            values = {
                "norm": 20.0 + 8.0 * depth_share + number,
                "spectral_exponent": 2.4 + math.sin(3.0 * depth_share),
                "effective_rank": 60.0 - 20.0 * depth_share,
                "outlier_ratio": 0.002 + 0.001 * depth_share,
            }
            for metric, value in values.items():
                yield row("structure", metric, value * (1 + draw.gauss(0, 0.01)), layer=layer, part=part)
                twin = {"layer": layer, "part": part, "against": "random_twin"}
                yield row("structure", metric, value * 0.8, 0.02 * value, **twin)
    for layer in range(depth):
        for part, share in ((None, 1.0), ("attn", 0.4), ("mlp", 0.7)):
            added = share * (0.2 + 0.8 * math.exp(-layer))
            yield row("structure", "output_ratio", added, 0.02, layer=layer, part=part)
        yield row("structure", "sink_strength", 0.05, layer=layer, against="uniform")
        yield row("structure", "sink_strength", 0.8 * math.sin(math.pi * (layer + 0.5) / depth), 0.03, layer=layer)


def _proxies(depth: int, draw: random.Random) -> Iterator[Score]:
    for layer in range(depth):
        ends = abs(2.0 * (layer + 0.5) / depth - 1.0)
        about = {"layer": layer, "tokens": TOKENS}
        yield row("proxies", "block_influence", 0.08 + 0.3 * ends**2, 0.015, **about)
        yield row("proxies", "block_influence", 0.1 + 0.02 * ends, 0.01, against="random_twin", **about)
        for part, share in HALVES.items():
            value = 0.8 * share * worth(layer, depth) + draw.gauss(0, 0.01)
            yield row("proxies", "gate_gradient", value, 0.04, part=part, **about)
            yield row("proxies", "gate_sensitivity", abs(value) + 0.1, 0.04, part=part, **about)
        yield row("proxies", "taylor", 30.0 * abs(worth(layer, depth)) + 4.0, 1.0, **about)
        for length in range(1, depth - layer + 1):
            angle = min(0.5, 0.06 * length**0.8 + 0.05 * ends)
            yield row("proxies", "angular_distance", angle, 0.01, layer=layer, amount=length)
    for state in range(depth + 1):
        yield row("proxies", "logit_lens", 1.2 + 8.0 * (1 - state / depth) ** 1.5, 0.1, amount=state, tokens=TOKENS)
    yield row("run", "cost_ratio", 1.14, condition="proxies")


def _agreement() -> Iterator[Score]:
    for left, right in combinations(RANKINGS, 2):
        chance = "random_score" in (left, right)
        apart = RANKINGS.index(right) - RANKINGS.index(left)
        value = 0.0 if chance else 0.95 - 0.25 * apart
        for metric, factor in (("spearman", 1.0), ("kendall", 0.75)):
            yield row("agreement", metric, factor * value, 0.5 if chance else 0.2, arm=left, against=right)


def _moves(depth: int) -> dict[str, tuple[str, int | None]]:
    """A window in the middle reversed, in two orders, and left out: plan to strategy and draw."""
    first, last = depth // 4, depth - depth // 4 - 1
    head, tail = f"0-{first - 1}", f"{last + 1}-{depth - 1}"
    swapped = " ".join(map(str, (first + 1, first, *range(first + 2, last + 1))))
    rotated = " ".join(map(str, (*range(first + 1, last + 1), first)))
    plans = {f"{last}-{first}": ("reverse", None), swapped: ("random", 0), rotated: ("random", 1), "": ("skip", None)}
    return {str(Plan.parse(f"{head} {middle} {tail}")): kind for middle, kind in plans.items()}


def _moved(depth: int) -> tuple[PlanRecord, ...]:
    affected = depth - 2 * (depth // 4)
    return tuple(
        PlanRecord(plan, "order", strategy, affected, draw, *[depth - affected if strategy == "skip" else depth] * 4)
        for plan, (strategy, draw) in _moves(depth).items()
    )


def _order(depth: int, tasks: tuple[str, ...]) -> Iterator[Score]:
    costs = {"text": 0.5, "arithmetic": 1.9, "all": 1.0}
    for plan, (strategy, _) in _moves(depth).items():
        for task in tasks:
            value = costs[task] * (0.6 if strategy == "skip" and task == "arithmetic" else 1.0)
            yield row("effect", "delta_nll", value, 0.1, plan=plan, task=task, tokens=TOKENS)
            yield row("effect", "nll", 1.2 + value, plan=plan, task=task)
            if task == "arithmetic":
                yield row("effect", "exact_match", 0.3, 0.05, plan=plan, task=task)


def _of_layers_states_and_order() -> Iterator[Score]:
    """What the claims are decided by: no core, a middle that turns the state less, order that weighs on arithmetic."""
    yield contrast("core", "skip_excess", -0.9, 0.1, layer=1, other=4, mde=0.14, tokens=TOKENS)
    yield contrast("middle", "log_ratio", -1.1, 0.1, mde=0.14, tokens=TOKENS)
    yield contrast("middle", "beyond_twins", -1.0, 0.2, mde=0.3, tokens=TOKENS)
    tasks = {"task": "arithmetic", "against": "text"}
    yield contrast("order_by_task", "order_less", 1.4, 0.2, **tasks, mde=0.3, tokens=TOKENS)
    yield contrast("order_by_task", "log_ratio", 0.51, 0.1, **tasks, mde=0.15, tokens=TOKENS)


def _pruning(depth: int) -> Iterator[Score]:
    factors = {"skip": 0.6, "block_influence": 0.9, "gate_gradient": 0.7, "deepest_keep_last": 1.1, "random": 1.5}
    for count in range(1, depth // 2 + 1):
        for name, factor in factors.items():
            value = factor * 4.0 * (count / depth) ** 1.6
            half = 0.5 * value if name == "random" else 0.05
            yield row("pruning", "delta_nll", value, half, arm=name, amount=count, tokens=TOKENS)


def _contrasts(depth: int) -> Iterator[Score]:
    """The contrasts of the claims: no collapse beyond noise, a wide range of importance, a set that is needed."""
    shared = {"documents": 40, "tokens": TOKENS, "mde": 0.1}
    values = {
        "joint_collapse": {"joint": (6.8, 0.3), "beyond_singles": (0.5, 0.05), "beyond_noise": (-0.07, 0.05)},
        "importance_range": {"range": (1.3, 0.1), "published": (3.4, 0.8)},
        "redundant_sets": {"joint": (0.5, 0.05), "spared": (0.3, 0.1)},
        "agreement": {"together": (0.85, 0.1), "apart": (0.7, 0.2)},
    }
    for claim, metrics in values.items():
        for metric, (value, half) in metrics.items():
            yield contrast(claim, metric, value, half, **shared)
    for claim, count in (("joint_collapse", 4), ("redundant_sets", 3), ("agreement", depth)):
        yield contrast(claim, "layers", float(count))
    yield contrast("redundant_sets", "singles", 0.16)
    yield contrast("agreement", "apart", 0.0, 0.25, against="shuffled_layers", **shared)
    for at, name in enumerate(STRATEGIES[1:]):
        yield contrast("scaling", "equal", 0.001 * at, 0.004, condition=name, **shared)
        yield contrast("scaling", "unequal", 0.5 + at, 0.2, condition=name, **shared)
    yield from _changed_together(shared)


def _changed_together(shared: dict[str, object]) -> Iterator[Score]:
    """Predicted layers cost twice together what they cost one by one; a manipulated set is as mild in every way."""
    sets = {("set", 4.0): (6.8, 3.4, 0.5), ("adjacent", 4.0): (7.4, 4.1, 0.45), ("inner", 10.0): (9.1, 14.2, -0.56)}
    moved = {("scale", 0.1): (0.04, 0.03, 0.25), ("noise", 0.1): (0.05, 0.04, 0.2), ("noise", 1.0): (7.2, 3.0, 0.58)}
    for claim, changes in (("error_accumulation", sets), ("joint_manipulation", moved)):
        for (kind, size), (joint, singles, share) in changes.items():
            values = {"joint": joint, "singles": singles, "excess": joint - singles, "share": share}
            for metric, value in values.items():
                yield contrast(claim, metric, value, 0.03, condition=kind, amount=size, **shared)
    for kind, size in sets:
        about = {"condition": kind, "amount": size}
        yield contrast("error_accumulation", "share_of_noise", 0.4, 0.03, **about, **shared)
        yield contrast("error_accumulation", "layers", 4.0, **about)
    yield contrast("joint_manipulation", "equal", 0.01, 0.02, condition="noise", **shared)
    yield contrast("joint_manipulation", "unequal", 7.1, 0.4, condition="noise", **shared)
    yield contrast("joint_manipulation", "layers", 2.0)
    for layer in (3, 4):
        yield contrast("joint_manipulation", "member", 0.02, layer=layer)


def _pruned(depth: int) -> tuple[PlanRecord, ...]:
    """The plans that dropped layers jointly, as a diagnosis lists them."""
    kept = (depth - count for count in range(1, depth // 2 + 1))
    return tuple(
        PlanRecord(f"0-{left - 1}", "pruning", "skip", depth - left, None, left, left, left, left) for left in kept
    )


def _manifest(depth: int, tasks: Iterable[str]) -> dict[str, object]:
    return {
        "model": f"demo-{depth}-layers",
        "corpus": "standard library, held-out modules",
        "documents": 40,
        "tokens": TOKENS,
        "families": [*PARTS, "curve_tokens:1500"],
        "tasks": [task for task in tasks if task != "all"],
        "seed": 0,
        "command": ["layerwise", "diagnose", "demo", "--text", "held out.txt"],
    }
