"""The variants of growth training: their schedules, lengths and learning rates.

`uniform` trains all layers in every step, `published` has the six phases of the paper, and `importance` trains layers
in proportion to their importance. `permuted`, `reversed` and `random` are controls of `importance`. Other variants are
presets or files. All variants start from the same weights and read the data in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, sqrt
from pathlib import Path
from random import Random

from layerwise.bounded import kind_of, named
from layerwise.errors import PlanError, RunError, near_matches
from layerwise.plan.schedule import PRESETS, GrowthSchedule, ModelCost, preset, random_freezing

UNIFORM, PUBLISHED, IMPORTANCE = "uniform", "published", "importance"
PERMUTED, REVERSED, RANDOM = "permuted", "reversed", "random"

CONTROLS = (PERMUTED, REVERSED, RANDOM)
"""Controls of the schedule `importance`."""

PHASED = (IMPORTANCE, PUBLISHED)
"""Schedules whose learning rate is tuned. Other schedules use the first of the tuned rates."""

SHORTEST = 0.8
"""Length of the shortest uniform training as a share of the budget, unless a variant is shorter."""

DRAWS = 200
"""Number of random layer orders, of which one is selected for the permuted control."""

SUFFIXES = (".yaml", ".yml", ".json")

_GRAIN = 0.05


def read_variants(names: Sequence[str], *, has_importance_run: bool) -> dict[str, GrowthSchedule | None]:
    """Return the variants by name: a schedule for each file, and None for presets, `importance` and its controls.

    Controls, and an importance run, require the schedule `importance`.
    """
    variants: dict[str, GrowthSchedule | None] = {}
    for text in names:
        if text in (*PRESETS, IMPORTANCE, *CONTROLS):
            variants[text] = None
        elif text.endswith(SUFFIXES) or kind_of(text) != "nothing":
            schedule = _read_file(text)
            variants[name_folder(schedule.name)] = schedule
        else:
            names_known = near_matches(text, (*PRESETS, IMPORTANCE, *CONTROLS))
            raise PlanError(f"unknown schedule {named(text)!r}; {names_known}, or a YAML file")
    controls = [name for name in CONTROLS if name in variants]
    if controls and IMPORTANCE not in variants:
        raise PlanError(f"{controls[0]} requires the schedule {IMPORTANCE}. Add it to --schedules.")
    if has_importance_run and IMPORTANCE not in variants:
        raise RunError(f"--importance requires the schedule {IMPORTANCE}. Add it to --schedules.")
    return variants


def _read_file(text: str) -> GrowthSchedule:
    from layerwise.studies.train_growth.schedule_file import read_schedule

    schedule = read_schedule(Path(text))
    name = name_folder(schedule.name)
    if name in (IMPORTANCE, *CONTROLS) or (name in PRESETS and schedule != preset(name, schedule.depth)):
        raise PlanError(f"the name {name!r} in {text} must not be that of a built-in schedule. Use another name.")
    return schedule


def name_folder(name: str) -> str:
    """Return the folder name of a schedule.

    >>> name_folder("my schedule / 2")
    'my-schedule-2'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "schedule"


def build_schedules(variants: Mapping[str, GrowthSchedule | None], depth: int) -> dict[str, GrowthSchedule]:
    """Return the schedules of presets and files, or raise `PlanError` if one does not have `depth` layers."""
    schedules = {
        name: schedule or preset(name, depth)
        for name, schedule in variants.items()
        if name not in (IMPORTANCE, *CONTROLS)
    }
    for schedule in schedules.values():
        schedule.check(depth)
    return schedules


def build_controls(schedule: GrowthSchedule, seed: int) -> dict[str, GrowthSchedule]:
    """Return `importance` and its controls. There are no controls if the schedule trains all layers alike."""
    own = replace(schedule, name=IMPORTANCE)
    order = draw_permutation(own, seed)
    if order is None:
        return {IMPORTANCE: own}
    results = {
        IMPORTANCE: own,
        PERMUTED: own.permuted(order),
        REVERSED: own.reversed(),
        RANDOM: next(each for each in _draw_random(own, seed) if each.phases != own.phases),
    }
    return {name: replace(each, name=name) for name, each in results.items()}


def _draw_random(schedule: GrowthSchedule, seed: int) -> Iterator[GrowthSchedule]:
    chance = Random(f"{seed}/{RANDOM}")
    yield random_freezing(schedule, seed)
    while True:
        yield random_freezing(schedule, chance.getrandbits(32))


def draw_permutation(schedule: GrowthSchedule, seed: int) -> tuple[int, ...] | None:
    """Return the random layer order that changes the phases of the most layers, or None if none changes any."""
    chance = Random(f"{seed}/{PERMUTED}")
    orders = [tuple(chance.sample(range(schedule.depth), schedule.depth)) for _ in range(DRAWS)]
    best = max(orders, key=lambda order: count_exchanged(schedule, schedule.permuted(order)))
    return best if count_exchanged(schedule, schedule.permuted(best)) else None


def count_exchanged(schedule: GrowthSchedule, other: GrowthSchedule) -> int:
    pairs = list(zip(schedule.phases, other.phases, strict=True))
    return sum(
        any((layer in one.trains) != (layer in two.trains) for one, two in pairs) for layer in range(schedule.depth)
    )


def compute_max_steps(cost: ModelCost, budget: int) -> int:
    """Return the maximum number of steps of an importance schedule at the FLOPs of `budget` uniform steps.

    Embedding and head are always trained, and a frozen layer costs two thirds of a trained one.
    """
    return ceil(budget * cost.total / (cost.embedding + cost.head + 2 / 3 * sum(cost.layers)))


def list_uniform_lengths(steps: Iterable[int], budget: int, least: float = SHORTEST) -> tuple[float, ...]:
    """Return the additional lengths of uniform training, as shares of its budget, given the `steps` of the variants.

    They cover the range from 0.8 (or `least`, if it is smaller) to the longest variant, with one length in between if
    the longest is far from 1.

    >>> list_uniform_lengths([100, 128], budget=100), list_uniform_lengths([143], budget=100)
    ((0.8, 1.3), (0.8, 1.2, 1.45))
    >>> list_uniform_lengths([120], budget=100, least=0.53)
    (0.5, 0.8, 1.2)
    """
    below = [floor(least / _GRAIN + 1e-9) * _GRAIN] if least < SHORTEST - 1e-9 else []
    longest = max(1 + _GRAIN, ceil(max(steps) / budget / _GRAIN - 1e-9) * _GRAIN)
    between = [sqrt(longest)] if longest > 1.3 + 1e-9 else []
    return tuple(round(length, 2) for length in (*below, SHORTEST, *between, longest))


def list_tuned_variants(names: Iterable[str]) -> tuple[str, ...]:
    """Return the variants to tune: `uniform`, and those in `PHASED` or, if there are none, the first other variant.

    >>> list_tuned_variants(["uniform", "published", "ramp"]), list_tuned_variants(["uniform", "stacking", "ramp"])
    (('uniform', 'published'), ('uniform', 'stacking'))
    """
    names = list(names)
    others = [name for name in names if name != UNIFORM]
    phased = [name for name in others if name in PHASED] or others[:1]
    return tuple(name for name in names if name == UNIFORM or name in phased)


def choose_setting(name: str, chosen: Mapping[str, float], otherwise: float) -> float:
    """Return the setting (such as the learning rate) chosen for a variant, or for the most similar tuned variant.

    >>> chosen = {"uniform": 1.0, "published": 2.0, "importance": 3.0}
    >>> [choose_setting(name, chosen, 9.0) for name in ("uniform@1.25", "published", "permuted")]
    [1.0, 2.0, 3.0]
    """
    own = name.partition("@")[0]
    alike = [UNIFORM] if own == UNIFORM else [*PHASED, *(each for each in chosen if each != UNIFORM)]
    return next((chosen[each] for each in (own, *alike) if each in chosen), otherwise)
