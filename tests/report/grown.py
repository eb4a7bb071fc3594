"""A growth run that never happened: rows of every measure of it, the same on every call.

The truth is planted: `importance` is better than uniform at equal FLOPs and at equal tokens, and no better at equal
seconds; its permuted control does as well and its reversed one worse, so that nothing is shown of layer roles. Every
arm keeps the budget, one phase takes longer than was predicted, and the phased side chose a rate at the end of its
sweep.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from layerwise.report import ReportData
from layerwise.results.rows import Note, Score

SEEDS = (0, 1, 2)
UNIFORM_STEPS = 600
TOKENS_PER_STEP = 4096.0
STEP_SECONDS = 0.075
UNIFORM_FLOPS = 3.1e13
UNIFORM_LOSS = 4.31
LENGTHS = (0.75, 1.25, 1.5)


@dataclass(frozen=True)
class Made:
    """A phase that was made up: its share of the steps, the layers that learn and those that run."""

    name: str
    share: float
    learns: tuple[int, ...]
    runs: tuple[int, ...]
    drawn: float = 1.0


def schedules(depth: int) -> dict[str, tuple[Made, ...]]:
    """The phases of the arms of a study."""
    every = tuple(range(depth))
    third = every[: max(1, depth // 3)]
    middle = every[depth // 3 : depth // 2 + 1]
    six = (
        Made("gastrulation", 0.25, middle, every),
        Made("neurulation", 0.17, every[1 : max(2, depth // 4)], every),
        Made("organogenesis", 0.17, every[2 * depth // 3 : 2 * depth // 3 + 2], every),
        Made("growth", 0.2, every[depth // 2 :], every),
        Made("connective", 0.08, every[-1:], every),
        Made("maturation", 0.13, every, every),
    )
    importance = (
        Made("most important", 0.3, middle, every),
        Made("important", 0.3, every[: depth // 2], every),
        Made("all", 0.4, every, every),
    )
    mirrored = tuple(
        Made(phase.name, phase.share, tuple(sorted(depth - 1 - layer for layer in phase.learns)), every)
        for phase in importance
    )
    shifted = tuple(
        Made(phase.name, phase.share, tuple(sorted((5 * layer + 3) % depth for layer in phase.learns)), every)
        for phase in importance
    )
    return {
        "uniform": (Made("uniform", 1.0, every, every),),
        "published": six,
        "importance": importance,
        "permuted": shifted,
        "reversed": mirrored,
        "random": tuple(
            Made(phase.name, phase.share, tuple(every[at :: max(1, depth // len(phase.learns))]), every)
            for at, phase in enumerate(importance)
        ),
        "stacking": (Made("shallow", 1 / 3, third, third), Made("stacked", 2 / 3, every, every)),
        "ramp": (Made("ramp", 1.0, every, every, 0.3),),
    }


EFFECTS = {
    "published": (0.062, 0.018),
    "importance": (-0.034, 0.013),
    "permuted": (-0.032, 0.015),
    "reversed": (-0.002, 0.014),
    "random": (-0.026, 0.02),
    "stacking": (-0.051, 0.012),
    "ramp": (0.012, 0.016),
}
"""What each arm differs by from uniform at equal FLOPs, and half its interval."""

PAIRS_LOSS = 4.9
"""What a table of token pairs loses."""


@cache
def scores(depth: int = 12) -> tuple[Score, ...]:
    """The rows of a study of eight arms, three seeds each."""
    draw = random.Random(0)
    made = schedules(depth)
    rows: list[Score] = []
    for arm, phases in made.items():
        steps = round(UNIFORM_STEPS / sum(phase.share * cost(phase, depth) for phase in phases))
        rows += _schedule(arm, phases, steps, depth)
        rows += _trainings(arm, phases, steps, depth, draw)
    for length in LENGTHS:
        name, steps = f"uniform@{length:g}", round(length * UNIFORM_STEPS)
        rows += _trainings(name, made["uniform"], steps, depth, draw, shift=-0.32 * math.log(length))
    null = [row("null", "token pairs", "test", "nll", PAIRS_LOSS, 0.04)]
    return (*rows, *null, *_rates(), *_differences(), *_importance(depth))


@cache
def run(depth: int = 12) -> ReportData:
    """The whole run with its manifest."""
    manifest: dict[str, object] = {
        "model": "llama, 12 layers of 96",
        "corpus": "stdlib, 2.5 M tokens",
        "depth": depth,
        "seed": 0,
        "command": ["layerwise", "study", "growth", "--text", "stdlib"],
    }
    notes = (
        Note("growth", "The importance was measured on a pilot: 3.1×10^12 FLOPs that no arm is charged for."),
        Note("growth", "stacking is not compared with uniform at equal tokens: what it read lies beyond its lengths."),
    )
    return ReportData(manifest, (), scores(depth), notes=notes)


def only(data: ReportData, *measures: str) -> ReportData:
    """The same run with these measures alone."""
    return ReportData(data.manifest, (), tuple(score for score in data.scores if score.measure in measures))


def without(data: ReportData, *measures: str) -> ReportData:
    """The same run with some measures never taken."""
    return only(data, *{score.measure for score in data.scores} - set(measures))


def row(measure: str, subject: str, task: str, metric: str, value: float, half: float | None = None) -> Score:
    """A score with an interval of `half` to either side, where it is given."""
    low, high = (None, None) if half is None else (value - half, value + half)
    return Score(measure, subject, task, metric, value, low, high)


def difference(subject: str, value: float, half: float, terms: str = "flops", *, mde: float | None = None) -> Score:
    """A difference of two arms, distinguished from zero exactly when its interval leaves zero out."""
    p = 0.01 if abs(value) > half else 0.4
    limit = 1.25 * half if mde is None else mde
    return Score("growth", subject, terms, "difference", value, value - half, value + half, p, p, limit)


def share_of(layer: int, phase: Made) -> float:
    """The share of its full cost of a layer, embedding and head learning all the time."""
    if layer not in phase.runs:
        return 0.0
    return (1.0 if layer in phase.learns else 2 / 3) * (1.0 - (1.0 - phase.drawn) * (layer + 1) / 24)


def cost(phase: Made, depth: int) -> float:
    """What a step of the phase costs of a uniform step, a tenth of which is the head."""
    return 0.1 + 0.9 * sum(share_of(layer, phase) for layer in range(depth)) / depth


def bounds(phases: Sequence[Made], steps: int) -> Iterator[tuple[Made, str]]:
    """Every phase with the task of its rows."""
    first = 0
    for at, phase in enumerate(phases):
        end = steps if at == len(phases) - 1 else first + round(phase.share * steps)
        yield phase, f"{first}-{end} {phase.name}"
        first = end


def _schedule(arm: str, phases: Sequence[Made], steps: int, depth: int) -> Iterator[Score]:
    for phase, task in bounds(phases, steps):
        yield row("schedule", arm, task, "embedding", 1.0)
        for layer in range(depth):
            yield row("schedule", arm, task, str(layer), share_of(layer, phase))
        yield row("schedule", arm, task, "head", 1.0)
        predicted = cost(phase, depth)
        late = 0.21 if phase.name == "connective" else 0.03
        yield row("accounting", arm, task, "predicted", predicted)
        yield row("accounting", arm, task, "measured", predicted + late * (1.0 - predicted), 0.012)


def _trainings(
    arm: str, phases: Sequence[Made], steps: int, depth: int, draw: random.Random, shift: float = 0.0
) -> Iterator[Score]:
    effect = EFFECTS.get(arm, (0.0, 0.0))[0] + shift
    spent = sum(phase.share * cost(phase, depth) for phase in phases) * steps
    for seed in SEEDS:
        name, luck = f"{arm}/{seed}", draw.gauss(0.0, 0.012)
        for part in range(1, 25):
            step = round(part * steps / 24)
            late = part / 24
            loss = UNIFORM_LOSS + effect + luck + 3.3 * math.exp(-6.5 * late) + 0.35 * (1.0 - late)
            yield row("training", name, f"step {step}", "train_loss", loss - 0.06 + draw.gauss(0.0, 0.01))
            yield row("training", name, f"step {step}", "validation_loss", loss + draw.gauss(0.0, 0.004))
        figures = {
            "steps": float(steps), "seconds": 1.15 * spent * STEP_SECONDS, "tokens": steps * TOKENS_PER_STEP,
            "flops": UNIFORM_FLOPS * spent / UNIFORM_STEPS, "peak_bytes": 4.1e8, "parameters": 1.6e6,
            "step_seconds": STEP_SECONDS * spent / steps,
        }  # fmt: skip
        for metric, value in figures.items():
            yield row("training", name, "all", metric, value)
        yield row("held_out", name, "test", "nll", UNIFORM_LOSS + effect + luck + 0.02, 0.03)
    yield row("held_out", arm, "test", "nll", UNIFORM_LOSS + effect + 0.02, 0.02)


def _rates() -> Iterator[Score]:
    tried = {
        "uniform": ({1e-3: 4.52, 3e-3: 4.38, 1e-2: 4.61}, 3e-3),
        "published": ({1e-3: 4.71, 3e-3: 4.49, 1e-2: 4.55}, 3e-3),
        "importance": ({1e-3: 4.58, 3e-3: 4.42, 1e-2: 4.36}, 1e-2),
    }
    for arm, (losses, chosen) in tried.items():
        for rate, loss in losses.items():
            yield row("rates", arm, f"{rate:g}", "nll", loss)
            yield row("rates", arm, f"{rate:g}", "chosen", float(rate == chosen))


def _differences() -> Iterator[Score]:
    for arm, (value, half) in EFFECTS.items():
        subject = f"{arm} - uniform"
        for terms, shift, at in (("tokens", 0.02, 2.9e6), ("flops", 0.0, UNIFORM_FLOPS), ("seconds", 0.026, 46.0)):
            if (arm, terms) != ("stacking", "tokens"):
                yield difference(subject, value + (shift if arm != "published" else -shift), half, terms)
            yield row("growth", subject, terms, "at", at)
    yield difference("importance - permuted", -0.002, 0.016)
    yield difference("importance - reversed", -0.032, 0.017)


def _importance(depth: int) -> Iterator[Score]:
    """What skipping each layer of the pilot cost: the first one most, those in the middle more than the last ones."""
    for layer in range(depth):
        value = 2.4 if layer == 0 else 0.16 * math.exp(-((layer - depth / 2.5) ** 2) / depth)
        yield row("importance", str(layer), "all", "skip", value, 0.03)
