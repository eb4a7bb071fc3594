"""Layers and learning rates of a growth training by step."""

from collections.abc import Callable
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import get_scheduler

from drawn_schedules import schedules
from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase
from layerwise.plan.schedule.cost import flops_per_token
from layerwise.train.phases.step_schedule import StepSchedule
from tier import first_fast

DEPTH = 6
EVERY = tuple(range(DEPTH))
COST = ModelCost(tuple(float(layer + 1) for layer in EVERY), embedding=2.0, head=3.0)


def table(*phases: Phase, steps: int = 30, seed: int = 0) -> StepSchedule:
    return StepSchedule(GrowthSchedule("any", DEPTH, phases), steps, seed)


def last(**fields: object) -> Phase:
    return Phase("last", 1.0, EVERY, **fields)  # type: ignore[arg-type]


@given(schedules(), st.integers(0, 3), st.data())
def test_layers_of_a_pass_depend_on_its_index(schedule: GrowthSchedule, seed: int, data: st.DataObject) -> None:
    found, again = (StepSchedule(schedule, steps=200, seed=seed) for _ in range(2))
    step, number = data.draw(st.integers(0, 199)), data.draw(st.integers(0, 3))
    again.resolve(data.draw(st.integers(0, 199)))
    settled, phase = found.resolve(step, number), found.phase(step)
    assert settled == again.resolve(step, number)
    running = settled.running(schedule.depth)
    assert running
    assert set(running) <= set(phase.running(schedule.depth))
    assert set(settled.trains) <= set(phase.trains) & set(running)
    assert settled.trains or settled.embedding or settled.head
    assert settled.sample is None
    assert settled.drop == (0.0, 0.0)
    if phase.sample is None and phase.drop == (0.0, 0.0):
        assert (running, settled.trains) == (phase.running(schedule.depth), phase.trains)


@given(schedules(), st.integers(40, 300))
def test_phase_boundaries(schedule: GrowthSchedule, steps: int) -> None:
    found = StepSchedule(schedule, steps, seed=0)
    assert [step for step in range(steps) if found.begins(step)] == [first for first, _ in schedule.bounds(steps)]
    assert [step + 1 for step in range(steps) if found.ends(step)] == [end for _, end in schedule.bounds(steps)]
    assert [found.number(step) for step in range(steps)] == [
        number for number, (first, end) in enumerate(schedule.bounds(steps)) for _ in range(first, end)
    ]


def test_layers_are_sampled_at_the_given_interval() -> None:
    found = table(Phase("first", 1 / 3, (0, 5)), Phase("drawn", 2 / 3, EVERY, sample=2, every=4))
    drawn = [found.learning(step) for step in range(30)]
    assert drawn[:10] == [(0, 5)] * 10
    blocks = [drawn[start : start + 4] for start in range(10, 30, 4)]
    assert all(set(block) == {block[0]} for block in blocks)
    assert len({block[0] for block in blocks}) > 2
    assert all(len(layers) == 2 for layers in drawn)
    other = table(Phase("first", 1 / 3, (0, 5)), Phase("drawn", 2 / 3, EVERY, sample=2, every=4), seed=1)
    assert drawn != [other.learning(step) for step in range(30)]


def test_each_pass_drops_its_own_layers_at_rates_linear_in_the_step() -> None:
    found = table(last(drop=(0.5, 0.5)))
    assert len({found.resolve(7, number) for number in range(20)}) > 5

    found = table(last(drop=(0.0, 0.9)), steps=4000)
    counts = [len(found.resolve(step).running(DEPTH)) for step in range(4000)]
    assert counts[0] == DEPTH
    mean_share = fmean((index + 1) / DEPTH for index in range(DEPTH))
    for first in range(0, 4000, 1000):
        expected = DEPTH * (1 - 0.9 * (first + 499.5) / 3999 * mean_share)
        assert fmean(counts[first : first + 1000]) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    "phase",
    first_fast(
        [last(sample=2), last(drop=(0.0, 0.8)), last(drop=(0.6, 0.2)), Phase("last", 1.0, (2, 4), drop=(0.5, 0.5))], 2
    ),
)
def test_the_mean_cost_matches_the_declared_cost(phase: Phase) -> None:
    found = table(phase, steps=6000)
    realised = fmean(flops_per_token(found.resolve(step), COST) for step in range(6000))
    assert realised == pytest.approx(flops_per_token(phase, COST), rel=0.01)


def test_passes_without_trainable_layers_are_redrawn() -> None:
    found = table(Phase("one", 0.5, (5,), embedding=False, head=False, drop=(0.99, 0.99)), Phase("all", 0.5, EVERY))
    assert all(5 in found.resolve(step).trains for step in range(15))


def curve_of(kind: str, steps: int, warmup: int) -> Callable[[int], float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    found = get_scheduler(kind, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    return found.lr_lambdas[0]  # type: ignore[no-any-return, attr-defined]


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant_with_warmup"])
def test_schedules_within_a_phase_match_transformers(kind: str) -> None:
    shape = kind.removesuffix("_with_warmup")
    found = table(
        Phase("first", 1 / 3, EVERY, shape=shape, warmup=0.3, rate=0.5),  # type: ignore[arg-type]
        Phase("second", 2 / 3, EVERY, shape=shape),  # type: ignore[arg-type]
    )
    factors = [found.factor(step, curve=lambda step: 7.0) for step in range(31)]
    first, second = curve_of(kind, 10, 3), curve_of(kind, 20, 0)
    assert factors[:10] == pytest.approx([0.5 * first(step) for step in range(10)])
    assert factors[10:] == pytest.approx([second(step) for step in range(21)])
    assert factors[0] == 0.0
    assert factors[30] == pytest.approx(1.0 if shape == "constant" else 0.0)


def test_warmup_ends_at_the_full_rate() -> None:
    found = table(last(shape="linear", warmup=0.99))
    assert found.factor(29, curve=lambda step: 0.0) == 1.0
    assert found.factor(30, curve=lambda step: 0.0) == 0.0
