"""A robustness run that never happened: rows of every measure, of plausible size, the same on every call.

The truth is planted, so tests can ask for it back: every arm is good in order; only the arms trained on shuffled layers
survive random order and merging; LayerDrop survives the loss of layers, but no new order; merging layer by layer at its
own depth is survived in part even by the baseline; the position is predicted almost without error.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from layerwise.report import ReportData
from layerwise.results.rows import Note, Score

IN_ORDER = {
    "baseline": 0.968,
    "layershuffle": 0.942,
    "layershuffle-position": 0.946,
    "layershuffle-predict": 0.939,
    "layerdrop": 0.961,
    "layerdrop-scratch": 0.938,
    "layershuffle-layerdrop": 0.931,
}
RANDOM_ORDER = {
    "baseline": 0.124,
    "layershuffle": 0.921,
    "layershuffle-position": 0.929,
    "layershuffle-predict": 0.915,
    "layerdrop": 0.205,
    "layerdrop-scratch": 0.171,
    "layershuffle-layerdrop": 0.917,
}
FRAGILITY = {"baseline": 3.2, "layerdrop": 0.75, "layerdrop-scratch": 0.7, "layershuffle-layerdrop": 0.55}
RULES = {"first": 1.5, "last": 1.9, "even": 1.0, "random": 1.25}
CONDITIONS = ("sequential", "random")
SEEDS = (0, 1, 2)
CHANCE = 0.103
IMAGES = 360
VOCABULARY = 1024
ORDERS = 40
DRAWS = 60


@cache
def scores(depth: int = 12, *, language: bool = False, seed: int = 0) -> tuple[Score, ...]:
    """The rows of every measure of a robustness run of `depth` layers."""
    draw = random.Random(seed)
    rows = [
        *_model(depth, language),
        *_survival(depth, language),
        *_orders(depth, language, draw),
        *_position(depth),
        *_branches(depth),
        *_contribution(depth, language),
        *_nodes(depth, language),
        *_worth(depth),
        *_attention(depth),
        *_embedding(depth, draw),
        *_merging(depth, language, draw),
        *(() if language else _decisive()),
        *_training(draw),
    ]
    return tuple(score for score in rows if not (language and score.metric.startswith("accuracy_top5")))


@cache
def run(depth: int = 12, *, language: bool = False) -> ReportData:
    """A whole robustness run with its manifest."""
    manifest: dict[str, object] = {
        "model": "demo-lm" if language else "demo-vit",
        "corpus": "standard library" if language else "digits (scikit-learn)",
        "depth": depth,
        "documents": IMAGES,
        "tokens": IMAGES,
        "families": ["robustness", "orders", "position", "branches", "contribution", "nodes", "embedding", "merging"],
        "seed": 0,
        "command": ["layerwise", "robustness", "runs/digits"],
    }
    notes = (Note("branches", "The norms were measured on the first 128 images."),)
    return ReportData(manifest, (), scores(depth, language=language), notes=notes)


def trained(depth: int = 12) -> ReportData:
    """The same run before its robustness was measured: training alone."""
    return only(run(depth), "training")


def without(data: ReportData, *measures: str) -> ReportData:
    """The same run with some measures never taken."""
    return replace(data, scores=tuple(score for score in data.scores if score.measure not in measures))


def only(data: ReportData, *measures: str) -> ReportData:
    """The same run with these measures alone."""
    return replace(data, scores=tuple(score for score in data.scores if score.measure in measures))


def accuracy(arm: str, condition: str, depth: int, kept: int, rule: str = "even") -> float:
    """The planted accuracy with `kept` of `depth` layers."""
    if arm == "retrained":
        top, fragile = IN_ORDER["baseline"] - 0.25 * (1 - kept / depth) ** 2, 0.0
        top = top if condition == "sequential" else 0.13
    else:
        top = (IN_ORDER if condition == "sequential" else RANDOM_ORDER)[arm]
        fragile = FRAGILITY.get(arm, 1.05) * RULES[rule]
    lost = 1.0 - kept / depth
    return CHANCE + (top - CHANCE) * math.exp(-3.0 * fragile * lost**2)


def nll(share: float) -> float:
    """Nats per token that stand for an accuracy: 1.3 for the best, above those of a uniform guess for the worst."""
    return 1.3 + (math.log(VOCABULARY) + 0.4 - 1.3) * (1.0 - share) ** 1.5


def row(measure: str, metric: str, value: float, half: float | None = None, **columns: Any) -> Score:
    """A score with an interval of `half` to either side."""
    bounds = () if half is None else (value - half, value + half)
    return Score(measure, metric, value, *bounds, documents=IMAGES, **columns)


def _half(share: float, images: int = IMAGES) -> float:
    return 1.96 * math.sqrt(max(share * (1.0 - share), 0.004) / images)


def _model(depth: int, language: bool) -> Iterator[Score]:
    yield row("robustness", "depth", float(depth))
    yield row("robustness", "classes", 0.0 if language else 10.0)
    yield row("robustness", "accuracy", 0.0 if language else CHANCE, against="chance")
    yield row("robustness", "leads", 0.0 if language else 1.0)


def _survival(depth: int, language: bool) -> Iterator[Score]:
    for condition in CONDITIONS:
        for arm in IN_ORDER:
            share = accuracy(arm, condition, depth, depth)
            yield from _seeds(share, language, depth, depth, arm=arm, condition=condition)
        for kept in range(1, depth):
            for rule in RULES:
                arms = [*IN_ORDER, *(["retrained"] if rule == "even" else [])]
                for arm in arms:
                    share = accuracy(arm, condition, depth, kept, rule)
                    of = {"arm": arm, "condition": condition, "part": rule, "amount": float(kept)}
                    yield from _seeds(share, language, depth, kept, **of)


def _seeds(share: float, language: bool, depth: int, kept: int, **of: Any) -> Iterator[Score]:
    yield from _all_metrics(share, 1.2 * _half(share), language, **of)
    for seed in SEEDS:
        yield from _all_metrics(share + 0.006 * (seed - 1), _half(share), language, **of, seed=seed)
    if of["arm"] != "baseline":
        base = accuracy("baseline", of["condition"], depth, kept, of.get("part", "even"))
        yield row("robustness", "accuracy_above", share - base, 1.3 * _half(share), **of, against="baseline")
        if language:
            yield row("robustness", "nll_above", nll(share) - nll(base), 0.06, **of, against="baseline")


def _all_metrics(share: float, half: float, language: bool, **of: Any) -> Iterator[Score]:
    yield row("robustness", "accuracy", share, half, **of)
    yield row("robustness", "accuracy_top5", min(0.999, 0.45 + 0.55 * share), half / 2, **of)
    yield row("robustness", "nll", nll(share) if language else 2.3 * (1.02 - share), 0.05, **of)


def _orders(depth: int, language: bool, draw: random.Random) -> Iterator[Score]:
    for _ in range(ORDERS):
        layers = list(range(depth))
        draw.shuffle(layers)
        plan = " ".join(map(str, layers))
        for arm, share in RANDOM_ORDER.items():
            found = min(0.99, max(0.03, share + draw.gauss(0.0, 0.012 if share > 0.5 else 0.045)))
            of = {"arm": arm, "seed": 0, "plan": plan}
            yield row("orders", "accuracy", found, **of)
            yield row("orders", "nll", nll(found) if language else 2.3 * (1.02 - found), **of)
    kept = {"arm": "layershuffle", "condition": "random", "part": "even", "amount": 2.0}
    for of, same in (({"arm": "baseline", "condition": "random"}, 0.0), (kept, 148.0)):
        yield row("identity", "draws", 300.0, **of)
        yield row("identity", "identical", same, **of)
    yield row("identity", "accuracy", 0.31, 0.03, **kept)


def _position(depth: int) -> Iterator[Score]:
    for seed in SEEDS:
        of = {"arm": "layershuffle-predict", "seed": seed}
        for position in range(depth):
            yield row("position", "accuracy", 0.9995 - 0.004 * (position == 1), 0.002, **of, other=position)
        yield row("position", "accuracy", 0.9992 - 0.0003 * seed, 0.0004, **of)
        for at in (*range(depth), None):
            yield row("position", "accuracy", 1.0 / depth, **of, other=at, against="chance")


def _branches(depth: int) -> Iterator[Score]:
    for arm in IN_ORDER:
        for layer in range(depth):
            for position in range(depth):
                near = math.exp(-abs(layer - position) / 3.0)
                growth = 1.0 + position / depth * (3.0 if arm == "baseline" else 1.2)
                of = {"arm": arm, "layer": layer, "other": position}
                yield row("branches", "norm", growth * (2.0 + 1.5 * near), **of, part="attn")
                yield row("branches", "norm", growth * (3.0 + 4.0 * near * (1 + layer / depth)), **of, part="mlp")
                yield row("branches", "share", 0.1 + 0.25 * near, **of)


def _contribution(depth: int, language: bool) -> Iterator[Score]:
    for arm in IN_ORDER:
        for layer in range(depth):
            first = 0.12 * math.exp(-1.2 * layer) * FRAGILITY.get(arm, 0.2)
            for condition in CONDITIONS:
                value = (first if condition == "sequential" else 0.01 * FRAGILITY.get(arm, 0.8)) + 0.003
                metric = "nll_added" if language else "accuracy_lost"
                yield row("contribution", metric, value, 0.006, arm=arm, layer=layer, condition=condition)


def _nodes(depth: int, language: bool) -> Iterator[Score]:
    metric, scale = ("nll_added", 2.0) if language else ("accuracy_lost", 1.0)
    for count in [count for count in (2, 4) if count < depth]:
        for arm in IN_ORDER:
            for layout, factor in (("blocks", 1.0), ("round-robin", 0.8)):
                for lost in range(1, count):
                    for condition in CONDITIONS:
                        cost = scale * factor * FRAGILITY.get(arm, 0.4) * 0.3 * (lost / count) ** 2
                        of = {"arm": arm, "part": layout, "other": count, "amount": float(lost), "condition": condition}
                        yield row("nodes", metric, cost, 0.02, **of)
                        for null, share in (("single", 0.5), ("scattered", 0.9)):
                            yield row("nodes", metric, share * cost, 0.02, **of, against=null)
                            yield row("nodes", f"{metric}_above", (1 - share) * cost, 0.015, **of, against=null)
                        if layout != "blocks":
                            yield row("nodes", f"{metric}_above", cost - cost / factor, 0.03, **of, against="blocks")
                        if lost == 1:
                            yield row("nodes", f"{metric}_worst", 1.5 * cost, **of)


def _worth(depth: int) -> Iterator[Score]:
    for arm in IN_ORDER:
        for layer in range(depth):
            for position in range(depth):
                near = math.exp(-abs(layer - position) / 3.0)
                yield row("worth", "nll_added", 0.3 * near - 0.02, arm=arm, layer=layer, other=position)
        related = 0.6 if "layershuffle" in arm else 0.05
        yield replace(row("worth", "relation", related, 0.12, arm=arm), p=0.001 if related > 0.5 else 0.5)
        yield Score("worth", "relation", 0.0, -0.17, 0.17, arm=arm, against="shuffled")


def _attention(depth: int) -> Iterator[Score]:
    levels = {
        ("entropy", None): 0.7, ("first", None): 0.2, ("first", "uniform"): 0.2, ("distance", None): 0.9,
        ("distance", "uniform"): 0.85,
    }  # fmt: skip
    for arm in IN_ORDER:
        for layer in range(depth):
            for position in range(depth):
                for (metric, against), level in levels.items():
                    moved = level if against else level * (1 + 0.3 * position / depth)
                    yield row("attention", metric, moved, arm=arm, layer=layer, other=position, against=against)


def _embedding(depth: int, draw: random.Random) -> Iterator[Score]:
    for arm in ("baseline", "layershuffle", "layershuffle-position"):
        apart = 0.6 if arm == "baseline" else 2.4
        for image in range(4):
            for layer in range(depth):
                for position in range(depth):
                    angle = 2.0 * math.pi * position / depth
                    for metric, centre in (("x", math.cos(angle)), ("y", math.sin(angle))):
                        where = apart * centre + draw.gauss(0.0, 0.3)
                        of = {"arm": arm, "layer": layer, "other": position, "amount": float(image)}
                        yield row("embedding", metric, where, **of)
        facts = {
            "images": 100,
            "layers": depth,
            "points": 100 * depth**2,
            "same_position": apart / 3,
            "same_layer": 0.3,
        }
        for metric, value in facts.items():
            yield row("embedding", metric, float(value), arm=arm)
        for metric in ("same_position", "same_layer"):
            yield row("embedding", metric, 1 / depth, arm=arm, against="chance")


def _merging(depth: int, language: bool, draw: random.Random) -> Iterator[Score]:
    for arm in ("baseline", "layershuffle", "layershuffle-position", "layerdrop"):
        ordered, shuffled = IN_ORDER[arm], RANDOM_ORDER[arm]
        own = 0.71 if arm == "baseline" else 0.74 if arm == "layerdrop" else ordered - 0.02
        anywhere = shuffled - 0.03 if shuffled > 0.5 else 0.11
        values = {
            ("members", "sequential"): ordered, ("members", "random"): shuffled,
            ("merged", "sequential"): own, ("merged", "random"): anywhere,
            ("ensemble", "sequential"): min(0.985, ordered + 0.012),
            ("ensemble", "random"): min(0.985, shuffled + 0.03),
            ("best member", "sequential"): ordered + 0.006, ("best member", "random"): shuffled + 0.008,
        }  # fmt: skip
        for (part, condition), share in values.items():
            of = {"arm": arm, "part": part, "condition": condition}
            yield row("merging", "accuracy", share, 0.012, **of)
            yield row("merging", "accuracy_spread", 0.02, **of)
            yield row("merging", "accuracy_top5", min(0.999, 0.45 + 0.55 * share), 0.006, **of)
            if language:
                yield row("merging", "nll", nll(share), 0.03, **of)
        for condition, centre in (("sequential", own), ("random", anywhere)):
            for number in range(DRAWS):
                plan = f"{number}: " + " ".join(f"{draw.choice('abc')}:{layer}" for layer in range(depth))
                found = min(0.99, max(0.02, centre + draw.gauss(0.0, 0.05 if centre < 0.8 else 0.012)))
                yield row("merges", "accuracy", found, arm=arm, plan=plan, condition=condition)


def _decisive() -> Iterator[Score]:
    """What decides the published claims: one of each verdict, as the rest of the run has it."""
    shuffled, informed = RANDOM_ORDER["layershuffle"], ("layershuffle-position", "layershuffle-predict")
    base = {"sequential": IN_ORDER["baseline"], "random": RANDOM_ORDER["baseline"]}
    for claim, task, metric, value, half in (
        ("trained_order", "all", "cost", base["sequential"] - shuffled, 0.02),
        ("trained_order", "all", "gain_above@baseline", shuffled - base["random"], 0.03),
        ("collapse", "all", "random_order", base["random"] - CHANCE, 0.04),
        ("collapse", "all", "in_order", base["sequential"] - CHANCE, 0.01),
        ("pruning", "all", "lost", 0.41, 0.05),
        ("pruning", "all", "lost@baseline", 0.83, 0.06),
        ("pruning", "all", "spared_above@baseline", 0.42, 0.08),
        ("positions", "all", "short", 0.0009, 0.004),
        ("positions", "all", "short@baseline", 0.004, 0.006),
        *(("position_informed", arm, "gain", RANDOM_ORDER[arm] - shuffled, 0.012) for arm in informed),
        ("position_informed", "all", "random_order", shuffled - CHANCE, 0.02),
        ("merging", "all", "loss", 0.03, 0.015),
        ("merging", "all", "loss@baseline", 0.26, 0.04),
        ("merging", "all", "skill", shuffled - CHANCE, 0.02),
        ("switching_off", "all", "relation", 0.6, 0.1),
        ("switching_off", "all", "relation@baseline", 0.05, 0.15),
        ("switching_off", "all", "above_other_layers", 0.4, 0.1),
    ):
        p = 0.001 if metric == "relation" else None
        yield Score("contrast", metric, value, value - half, value + half, p, claim=claim, task=task, mde=1.4 * half)


def _training(draw: random.Random) -> Iterator[Score]:
    refined = [{"arm": "retrained", "condition": f"{layers} layers"} for layers in (3, 10)]
    for slot, arm in enumerate([*({"arm": arm} for arm in IN_ORDER), *refined]):
        for seed in SEEDS if "condition" not in arm else SEEDS[:1]:
            of = {**arm, "seed": seed}
            for step in range(20, 420, 20):
                floor = 0.09 + 0.02 * slot
                loss = floor + 2.2 * math.exp(-step / (70.0 + 12.0 * slot)) + abs(draw.gauss(0.0, 0.02))
                yield row("training", "train_loss", loss, **of, amount=float(step))
                if step % 60 == 0:
                    yield row("training", "validation_loss", loss + 0.05, **of, amount=float(step))
            for metric, value in {"steps": 400.0, "epochs": 20.0, "seconds": 31.0 + slot, "best_step": 360.0}.items():
                yield row("training", metric, value, **of)
