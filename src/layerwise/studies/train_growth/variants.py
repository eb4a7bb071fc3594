"""The variants of a growth training: which schedules there are, and how long and at which rate each is trained.

`uniform` trains everything; `published` uses the founding paper's six phases; `importance` trains layers for as long as
they are important, with the controls `permuted`, `reversed` and `random`; others are presets or files. All begin from
equal weights and read the data in equal order.
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
"""Made from the schedule of `importance`."""

PHASED = (IMPORTANCE, PUBLISHED)
"""The schedules with learning rates of their own, the one whose rate the others take first."""

SHORTEST = 0.8
"""The least length of uniform, as a share of its budget, unless a variant spends less."""

DRAWS = 200
"""Orders of the layers among which the control with permuted roles is chosen."""

SUFFIXES = (".yaml", ".yml", ".json")

_GRAIN = 0.05


def read_variants(names: Sequence[str], *, has_importance_run: bool) -> dict[str, GrowthSchedule | None]:
    """Map the names of schedules to those of files; presets, `importance` and its controls depend on the model.

    Raises `PlanError` for an unknown name, an unreadable file, and a control without `importance`, and `RunError` for a
    diagnosis that nothing reads.
    """
    variants: dict[str, GrowthSchedule | None] = {}
    for text in names:
        if text in (*PRESETS, IMPORTANCE, *CONTROLS):
            variants[text] = None
        elif text.endswith(SUFFIXES) or kind_of(text) != "nothing":
            schedule = _read_file(text)
            variants[folder_name(schedule.name)] = schedule
        else:
            known = near_matches(text, (*PRESETS, IMPORTANCE, *CONTROLS))
            raise PlanError(f"there is no schedule called {named(text)!r}; {known}; or a YAML file")
    controls = [name for name in CONTROLS if name in variants]
    if controls and IMPORTANCE not in variants:
        raise PlanError(f"{controls[0]} is made from the schedule {IMPORTANCE}. Add it to --schedules.")
    if has_importance_run and IMPORTANCE not in variants:
        raise RunError(f"--importance is for the schedule {IMPORTANCE}. Add it to --schedules, or leave the run out.")
    return variants


def _read_file(text: str) -> GrowthSchedule:
    from layerwise.studies.train_growth.schedule_file import read_schedule

    schedule = read_schedule(Path(text))
    name = folder_name(schedule.name)
    if name in (IMPORTANCE, *CONTROLS) or (name in PRESETS and schedule != preset(name, schedule.depth)):
        raise PlanError(f"{text}: {name} is the name of another schedule. Give this one a name that is not taken.")
    return schedule


def folder_name(name: str) -> str:
    """Return the name of a schedule as that of a folder.

    >>> folder_name("my schedule / 2")
    'my-schedule-2'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "schedule"


def build_schedules(variants: Mapping[str, GrowthSchedule | None], depth: int) -> dict[str, GrowthSchedule]:
    """Return the presets and files for a model of `depth` layers; raises `PlanError` for a file of another depth."""
    schedules = {
        name: schedule or preset(name, depth)
        for name, schedule in variants.items()
        if name not in (IMPORTANCE, *CONTROLS)
    }
    for schedule in schedules.values():
        schedule.check(depth)
    return schedules


def build_controls(schedule: GrowthSchedule, seed: int) -> dict[str, GrowthSchedule]:
    """Return `importance` and its controls, drawn by `seed`; itself alone if every layer has the same role."""
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
    """Draw an order for `GrowthSchedule.permuted` by `seed`; None if every layer has the same role.

    Of `DRAWS` orders it is the first in which the most layers change roles, since a blind draw may change few.
    """
    chance = Random(f"{seed}/{PERMUTED}")
    orders = [tuple(chance.sample(range(schedule.depth), schedule.depth)) for _ in range(DRAWS)]
    best = max(orders, key=lambda order: count_exchanged(schedule, schedule.permuted(order)))
    return best if count_exchanged(schedule, schedule.permuted(best)) else None


def count_exchanged(schedule: GrowthSchedule, other: GrowthSchedule) -> int:
    pairs = list(zip(schedule.phases, other.phases, strict=True))
    return sum(
        any((layer in one.trains) != (layer in two.trains) for one, two in pairs) for layer in range(schedule.depth)
    )


def most_steps(cost: ModelCost, budget: int) -> int:
    """Return the most steps that a schedule by importance can take for the operations of `budget` uniform ones.

    Its embedding and head always learn, and if no layer did, two thirds of the cost of the layers would still be spent.
    """
    return ceil(budget * cost.total / (cost.embedding + cost.head + 2 / 3 * sum(cost.layers)))


def uniform_lengths(steps: Iterable[int], budget: int, least: float = SHORTEST) -> tuple[float, ...]:
    """Return the lengths that uniform is also trained to, as shares of its budget.

    One is below the budget, one is the longest variant's, with one between if that is far, and one is `least` if a
    variant spends as little.

    >>> uniform_lengths([100, 128], budget=100), uniform_lengths([143], budget=100)
    ((0.8, 1.3), (0.8, 1.2, 1.45))
    >>> uniform_lengths([120], budget=100, least=0.53)
    (0.5, 0.8, 1.2)
    """
    below = [floor(least / _GRAIN + 1e-9) * _GRAIN] if least < SHORTEST - 1e-9 else []
    longest = max(1 + _GRAIN, ceil(max(steps) / budget / _GRAIN - 1e-9) * _GRAIN)
    between = [sqrt(longest)] if longest > 1.3 + 1e-9 else []
    return tuple(round(length, 2) for length in (*below, SHORTEST, *between, longest))


def tuned_variants(names: Iterable[str]) -> tuple[str, ...]:
    """Return the variants with learning rates of their own: uniform, and those in `PHASED`, or else the first other.

    >>> tuned_variants(["uniform", "published", "ramp"]), tuned_variants(["uniform", "stacking", "ramp"])
    (('uniform', 'published'), ('uniform', 'stacking'))
    """
    names = list(names)
    others = [name for name in names if name != UNIFORM]
    phased = [name for name in others if name in PHASED] or others[:1]
    return tuple(name for name in names if name == UNIFORM or name in phased)


def choose_setting(name: str, chosen: Mapping[str, float], otherwise: float) -> float:
    """Return the setting `chosen` for a variant, such as its rate, or that of the tuned variants like it.

    >>> chosen = {"uniform": 1.0, "published": 2.0, "importance": 3.0}
    >>> [choose_setting(name, chosen, 9.0) for name in ("uniform@1.25", "published", "permuted")]
    [1.0, 2.0, 3.0]
    """
    own = name.partition("@")[0]
    alike = [UNIFORM] if own == UNIFORM else [*PHASED, *(each for each in chosen if each != UNIFORM)]
    return next((chosen[each] for each in (own, *alike) if each in chosen), otherwise)
