"""`read(write(plan)) == plan` in mergekit's YAML."""

import random

import pytest

from layerwise.plan.dialects import mergekit, read, read_mergekit, sequential, write_mergekit
from plan.dialects.random_sequences import repeated, sequence
from tier import by_tier

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


def check_all(count: int) -> None:
    for seed in range(count):
        check_mergekit(seed)


def test_a_plan_is_read_as_it_was_written() -> None:
    check_all(by_tier(fast=100, nightly=100_000))


def test_a_reader_that_is_off_by_one_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read_range = mergekit._range
    monkeypatch.setattr(mergekit, "_range", lambda value: (read_range(value)[0], read_range(value)[1] + 1))
    with pytest.raises(AssertionError):
        check_all(200)
