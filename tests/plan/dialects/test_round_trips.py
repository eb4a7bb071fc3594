"""`read(write(plan)) == plan` in both foreign forms, for every plan of whole layers one after another."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from layerwise.plan import Plan
from layerwise.plan.dialects import (
    mergekit,
    read,
    read_mergekit,
    read_rys,
    rys,
    sequential,
    write_mergekit,
    write_rys,
)
from plan.dialects.random_sequences import DEPTH, repeated, sequence
from tier import by_tier

Check = Callable[[int], None]

ALL_NIGHT = 100_000
ONE = {None: "org/name"}
SEVERAL = {"a": "org/one", "run-2": "/models/two words", "m_3": "three@main"}


def check_mergekit(seed: int) -> None:
    chance = random.Random(seed)
    models: dict[str | None, str] = dict(ONE if chance.random() < 0.5 else SEVERAL)
    plan = sequence(chance, list(models))
    head = chance.choice(list(models))
    recipe = read_mergekit(write_mergekit(plan, models, dtype=chance.choice([None, "bfloat16"]), head=head))
    assert recipe.plan == plan, plan
    used = {step.source for step in plan.steps()} | {next(iter(models)), head}
    assert dict(recipe.models) == {name: models[name] for name in recipe.models}
    assert set(recipe.models) == used
    assert (recipe.host, recipe.head) == (next(iter(models)), head)
    if chance.random() < 0.1:
        nested = repeated(chance, plan)
        assert read(write_mergekit(nested, models)).plan == sequential(nested)
        assert sequential(nested).order() == nested.order()


def check_rys(seed: int) -> None:
    chance = random.Random(seed)
    plan = sequence(chance) if chance.random() < 0.5 else blocks(chance)
    assert read_rys(write_rys(plan)) == plan
    assert read(write_rys(plan, DEPTH), DEPTH).plan == plan
    if chance.random() < 0.1:
        nested = repeated(chance, plan)
        assert read_rys(write_rys(nested, DEPTH), DEPTH) == sequential(nested)


def blocks(chance: random.Random) -> Plan:
    """The plan of a string of random blocks."""
    pairs = (sorted(chance.sample(range(DEPTH + 1), 2)) for _ in range(chance.randint(1, 3)))
    return read_rys("blocks:" + ";".join(f"{start},{stop}" for start, stop in pairs), DEPTH)


CHECKS = pytest.mark.parametrize("check", [check_mergekit, check_rys])


def check_all(check: Check, count: int) -> None:
    for seed in range(count):
        check(seed)


@CHECKS
def test_a_plan_is_read_as_it_was_written(check: Check) -> None:
    check_all(check, by_tier(fast=100, nightly=1_000))


@pytest.mark.nightly
@CHECKS
def test_a_hundred_thousand_plans_are_read_as_they_were_written(check: Check) -> None:
    check_all(check, ALL_NIGHT)


@CHECKS
def test_a_reader_that_is_off_by_one_would_be_seen(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deliberate wrong answer: ranges that are read as if they included their end, blocks as if they did not."""
    read_range, read_blocks = mergekit._range, rys._blocks
    monkeypatch.setattr(mergekit, "_range", lambda value: (read_range(value)[0], read_range(value)[1] + 1))
    monkeypatch.setattr(rys, "_blocks", lambda *given: [(i, max(j - 1, i + 1)) for i, j in read_blocks(*given)])
    with pytest.raises(AssertionError):
        check_all(check, 200)
