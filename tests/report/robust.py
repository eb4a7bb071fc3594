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


def row(measure: str, subject: str, task: str, metric: str, value: float, half: float | None = None) -> Score:
    """A score with an interval of `half` to either side."""
    low, high = (None, None) if half is None else (value - half, value + half)
    return Score(measure, subject, task, metric, value, low, high, documents=IMAGES)


def _half(share: float, images: int = IMAGES) -> float:
    return 1.96 * math.sqrt(max(share * (1.0 - share), 0.004) / images)


def _model(depth: int, language: bool) -> Iterator[Score]:
    yield row("robustness", "model", "all", "depth", float(depth))
    yield row("robustness", "model", "all", "classes", 0.0 if language else 10.0)
    yield row("robustness", "model", "all", "accuracy@chance", 0.0 if language else CHANCE)
    yield row("robustness", "model", "all", "leads", 0.0 if language else 1.0)


def _survival(depth: int, language: bool) -> Iterator[Score]:
    for condition in CONDITIONS:
        for arm in IN_ORDER:
            yield from _seeds(arm, condition, accuracy(arm, condition, depth, depth), language, depth, depth, "even")
        for kept in range(1, depth):
            for rule in RULES:
                arms = [*IN_ORDER, *(["retrained"] if rule == "even" else [])]
                for arm in arms:
                    share = accuracy(arm, condition, depth, kept, rule)
                    yield from _seeds(arm, f"kept {kept} {rule} {condition}", share, language, depth, kept, rule)


def _seeds(arm: str, task: str, share: float, language: bool, depth: int, kept: int, rule: str) -> Iterator[Score]:
    yield from _all_metrics(arm, task, share, 1.2 * _half(share), language)
    for seed in SEEDS:
        moved = share + 0.006 * (seed - 1)
        yield from _all_metrics(f"{arm}/{seed}", task, moved, _half(share), language)
    if arm != "baseline" and (arm != "retrained" or rule == "even"):
        condition = task.rpartition(" ")[2]
        gap = share - accuracy("baseline", condition, depth, kept, rule)
        yield row("robustness", arm, task, "accuracy_above@baseline", gap, 1.3 * _half(share))
        if language:
            gap = nll(share) - nll(accuracy("baseline", condition, depth, kept, rule))
            yield row("robustness", arm, task, "nll_above@baseline", gap, 0.06)


def _all_metrics(subject: str, task: str, share: float, half: float, language: bool) -> Iterator[Score]:
    yield row("robustness", subject, task, "accuracy", share, half)
    yield row("robustness", subject, task, "accuracy_top5", min(0.999, 0.45 + 0.55 * share), half / 2)
    yield row("robustness", subject, task, "nll", nll(share) if language else 2.3 * (1.02 - share), 0.05)


def _orders(depth: int, language: bool, draw: random.Random) -> Iterator[Score]:
    for number in range(ORDERS):
        layers = list(range(depth))
        draw.shuffle(layers)
        plan = " ".join(map(str, layers))
        for arm, share in RANDOM_ORDER.items():
            for seed in SEEDS[:1]:
                found = min(0.99, max(0.03, share + draw.gauss(0.0, 0.012 if share > 0.5 else 0.045)))
                yield row("orders", f"{arm}/{seed}", plan, "accuracy", found)
                yield row("orders", f"{arm}/{seed}", plan, "nll", nll(found) if language else 2.3 * (1.02 - found))
        if number == 0:
            yield row("identity", "baseline", "random", "draws", 300.0)
            yield row("identity", "baseline", "random", "identical", 0.0)
            yield row("identity", "layershuffle", "kept 2 even random", "draws", 300.0)
            yield row("identity", "layershuffle", "kept 2 even random", "identical", 148.0)
            yield row("identity", "layershuffle", "kept 2 even random", "accuracy", 0.31, 0.03)


def _position(depth: int) -> Iterator[Score]:
    for seed in SEEDS:
        subject = f"layershuffle-predict/{seed}"
        for position in range(depth):
            yield row("position", subject, str(position), "accuracy", 0.9995 - 0.004 * (position == 1), 0.002)
            yield row("position", subject, str(position), "accuracy@chance", 1.0 / depth)
        yield row("position", subject, "all", "accuracy", 0.9992 - 0.0003 * seed, 0.0004)
        yield row("position", subject, "all", "accuracy@chance", 1.0 / depth)


def _branches(depth: int) -> Iterator[Score]:
    for arm in IN_ORDER:
        for layer in range(depth):
            for position in range(depth):
                near = math.exp(-abs(layer - position) / 3.0)
                growth = 1.0 + position / depth * (3.0 if arm == "baseline" else 1.2)
                subject = f"{layer},{position}"
                yield row("branches", subject, arm, "attn", growth * (2.0 + 1.5 * near))
                yield row("branches", subject, arm, "mlp", growth * (3.0 + 4.0 * near * (1 + layer / depth)))
                yield row("branches", subject, arm, "share", 0.1 + 0.25 * near)


def _contribution(depth: int, language: bool) -> Iterator[Score]:
    for arm in IN_ORDER:
        for layer in range(depth):
            first = 0.12 * math.exp(-1.2 * layer) * FRAGILITY.get(arm, 0.2)
            for condition in CONDITIONS:
                value = (first if condition == "sequential" else 0.01 * FRAGILITY.get(arm, 0.8)) + 0.003
                metric = "nll_added" if language else "accuracy_lost"
                yield row("contribution", str(layer), arm, f"{metric}.{condition}", value, 0.006)


def _nodes(depth: int, language: bool) -> Iterator[Score]:
    metric, scale = ("nll_added", 2.0) if language else ("accuracy_lost", 1.0)
    for count in [count for count in (2, 4) if count < depth]:
        for arm in IN_ORDER:
            for layout, factor in (("blocks", 1.0), ("round-robin", 0.8)):
                for lost in range(1, count):
                    for condition in CONDITIONS:
                        cost = scale * factor * FRAGILITY.get(arm, 0.4) * 0.3 * (lost / count) ** 2
                        task = f"{count} {layout} {lost} {condition}"
                        yield row("nodes", arm, task, metric, cost, 0.02)
                        for null, share in (("single", 0.5), ("scattered", 0.9)):
                            yield row("nodes", arm, task, f"{metric}@{null}", share * cost, 0.02)
                            yield row("nodes", arm, task, f"{metric}_above@{null}", (1 - share) * cost, 0.015)
                        if layout != "blocks":
                            yield row("nodes", arm, task, f"{metric}_above@blocks", cost - cost / factor, 0.03)
                        if lost == 1:
                            yield row("nodes", arm, task, f"{metric}.worst", 1.5 * cost)


def _worth(depth: int) -> Iterator[Score]:
    for arm in IN_ORDER:
        for layer in range(depth):
            for position in range(depth):
                near = math.exp(-abs(layer - position) / 3.0)
                yield row("worth", f"{layer},{position}", arm, "nll_added", 0.3 * near - 0.02)
        related = 0.6 if "layershuffle" in arm else 0.05
        yield replace(row("worth", "all", arm, "relation", related, 0.12), p=0.001 if related > 0.5 else 0.5)
        yield Score("worth", "all", arm, "relation@shuffled", 0.0, -0.17, 0.17)


def _attention(depth: int) -> Iterator[Score]:
    levels = {"entropy": 0.7, "first": 0.2, "first@uniform": 0.2, "distance": 0.9, "distance@uniform": 0.85}
    for arm in IN_ORDER:
        for layer in range(depth):
            for position in range(depth):
                for metric, level in levels.items():
                    moved = level if "@" in metric else level * (1 + 0.3 * position / depth)
                    yield row("attention", f"{layer},{position}", arm, metric, moved)


def _embedding(depth: int, draw: random.Random) -> Iterator[Score]:
    for arm in ("baseline", "layershuffle", "layershuffle-position"):
        apart = 0.6 if arm == "baseline" else 2.4
        for image in range(4):
            for layer in range(depth):
                for position in range(depth):
                    angle = 2.0 * math.pi * position / depth
                    for metric, centre in (("x", math.cos(angle)), ("y", math.sin(angle))):
                        where = apart * centre + draw.gauss(0.0, 0.3)
                        yield row("embedding", f"{image},{layer},{position}", arm, metric, where)
        facts = {
            "images": 100,
            "layers": depth,
            "points": 100 * depth**2,
            "same_position": apart / 3,
            "same_layer": 0.3,
        }
        for metric, value in facts.items():
            yield row("embedding", "all", arm, metric, float(value))
        for metric in ("same_position@chance", "same_layer@chance"):
            yield row("embedding", "all", arm, metric, 1 / depth)


def _merging(depth: int, language: bool, draw: random.Random) -> Iterator[Score]:
    for arm in ("baseline", "layershuffle", "layershuffle-position", "layerdrop"):
        ordered, shuffled = IN_ORDER[arm], RANDOM_ORDER[arm]
        own = 0.71 if arm == "baseline" else 0.74 if arm == "layerdrop" else ordered - 0.02
        anywhere = shuffled - 0.03 if shuffled > 0.5 else 0.11
        values = {
            "members sequential": ordered,
            "members random": shuffled,
            "merged own-depth": own,
            "merged random": anywhere,
            "ensemble sequential": min(0.985, ordered + 0.012),
            "ensemble random": min(0.985, shuffled + 0.03),
            "best member sequential": ordered + 0.006,
            "best member random": shuffled + 0.008,
        }
        for task, share in values.items():
            yield row("merging", arm, task, "accuracy", share, 0.012)
            yield row("merging", arm, task, "accuracy@spread", 0.02)
            yield row("merging", arm, task, "accuracy_top5", min(0.999, 0.45 + 0.55 * share), 0.006)
            if language:
                yield row("merging", arm, task, "nll", nll(share), 0.03)
        for kind, centre in (("own-depth", own), ("random", anywhere)):
            for number in range(DRAWS):
                plan = f"{kind} {number}: " + " ".join(f"{draw.choice('abc')}:{layer}" for layer in range(depth))
                found = min(0.99, max(0.02, centre + draw.gauss(0.0, 0.05 if centre < 0.8 else 0.012)))
                yield row("merges", arm, plan, f"accuracy.{kind}", found)


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
        yield replace(row("contrast", claim, task, metric, value, half), mde=1.4 * half, p=p)


def _training(draw: random.Random) -> Iterator[Score]:
    for slot, arm in enumerate([*IN_ORDER, "retrained-3", "retrained-10"]):
        for seed in SEEDS if arm in IN_ORDER else SEEDS[:1]:
            for step in range(20, 420, 20):
                floor = 0.09 + 0.02 * slot
                loss = floor + 2.2 * math.exp(-step / (70.0 + 12.0 * slot)) + abs(draw.gauss(0.0, 0.02))
                yield row("training", f"{arm}/{seed}", f"step {step}", "train_loss", loss)
                if step % 60 == 0:
                    yield row("training", f"{arm}/{seed}", f"step {step}", "validation_loss", loss + 0.05)
            for metric, value in {"steps": 400.0, "epochs": 20.0, "seconds": 31.0 + slot, "best_step": 360.0}.items():
                yield row("training", f"{arm}/{seed}", "all", metric, value)
