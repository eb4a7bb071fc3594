"""The race: the verdicts of the full sweep for a fraction of its layer evaluations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pytest

from layerwise.data.demo import demo_corpus
from layerwise.errors import MeasureError
from layerwise.measure.ablation import skip_keys, skips
from layerwise.measure.interventions import intervention_losses
from layerwise.measure.racing import race, racing, rows
from layerwise.measure.reading import WHOLE, Piece, read
from layerwise.measure.rule import Rule
from layerwise.measure.verdicts import verdicts
from layerwise.plan import Plan
from layerwise.results import Loss
from layerwise.stack import load
from measure.simulated import SimulatedModel


def thirty_layers(seed: int, documents: int = 1600) -> SimulatedModel:
    """30 layers as real ones are: a few worth much, most worth a little, two worth nothing, one better left out."""
    effects = np.random.default_rng([seed, 7]).lognormal(mean=-2.5, sigma=1.0, size=30) + 0.02
    effects[[11, 17]] = 0.0
    effects[14] = -0.06
    return SimulatedModel(effects.tolist(), documents=documents, noise=0.1, seed=seed)


def decisions(model: SimulatedModel) -> dict[str, str]:
    return {row.subject: row.metric for row in verdicts(model.whole(), model.baseline, skip_keys(model.depth))}


@pytest.mark.parametrize("seed", range(3))
def test_the_verdicts_of_the_full_sweep_for_a_quarter_of_the_evaluations(seed: int) -> None:
    model = thirty_layers(seed)
    found = rows(race(model.measure, model.depth, model.lengths))
    assert {row.subject: row.metric for row in found if row.subject != "race"} == decisions(model)
    share = next(row.value for row in found if row.metric == "share")
    print(f"seed {seed}: {share:.3f} of the layer evaluations of the full sweep")
    assert share <= 0.25


def test_what_it_says_it_spent_is_what_was_asked_for() -> None:
    model = thirty_layers(0, documents=200)
    result = race(model.measure, model.depth, model.lengths)
    assert result.spent == model.evaluated
    model.evaluated = 0
    model.whole()
    assert result.full == model.evaluated


@pytest.mark.slow
def test_the_error_rate_is_kept() -> None:
    """Layers worth exactly the margin can be wrongly settled either way; layers worth nothing must not `matter`."""
    wrong = 0
    for seed in range(100):
        model = SimulatedModel([0.0] * 12, documents=200, noise=0.05, seed=seed)
        found = race(model.measure, model.depth, model.lengths)
        wrong += any(finish.decision != "no_effect" for finish in found.finishes.values())
    assert wrong <= 5


def test_a_budget_bounds_the_text() -> None:
    model = SimulatedModel([0.001] * 6, documents=400, noise=0.3)
    result = race(model.measure, model.depth, model.lengths, budget=5_000)
    assert result.looks > 1
    assert all(finish.tokens <= 5_000 for finish in result.finishes.values())
    assert len(result.finishes) == 6


def test_the_first_look_is_made_whatever_the_budget() -> None:
    model = SimulatedModel([0.5] * 4, documents=100)
    assert race(model.measure, model.depth, model.lengths, budget=1).looks == 1


def test_settled_layers_are_not_measured_again() -> None:
    model = SimulatedModel([2.0, 0.0, 0.0, 2.0], documents=400, noise=0.2)
    asked: list[tuple[int, ...]] = []

    def measure(layers: Collection[int], pieces: Sequence[Piece]) -> list[Loss]:
        asked.append(tuple(layers))
        return model.measure(layers, pieces)

    race(measure, model.depth, model.lengths)
    assert asked[0] == (0, 1, 2, 3)
    assert asked[1] == (1, 2)


def test_no_piece_of_text_is_read_twice_but_to_confirm() -> None:
    model = SimulatedModel([0.01, 0.0, -0.3, 0.3], documents=128, noise=0.05)
    seen: list[set[str]] = []

    def measure(layers: Collection[int], pieces: Sequence[Piece]) -> list[Loss]:
        seen.append({document for _, document, _ in pieces})
        return model.measure(layers, pieces)

    race(measure, model.depth, model.lengths)
    assert all(one.isdisjoint(other) for place, one in enumerate(seen) for other in seen[:place])


def test_every_look_has_every_task() -> None:
    """Short answers outnumber prose ten to one; an interval without prose would settle its layers wrongly."""
    model = SimulatedModel([0.1] * 4, documents=220, noise=0.01)
    lengths = {
        ("prose" if int(document) < 20 else "answers", document, WHOLE): tokens
        for (_, document, _), tokens in model.lengths.items()
    }
    tasks: list[set[str]] = []

    def measure(layers: Collection[int], pieces: Sequence[Piece]) -> list[Loss]:
        tasks.append({task for task, _, _ in pieces})
        renamed = {document: task for task, document, _ in pieces}
        made = model.measure(layers, [("text", document, WHOLE) for _, document, _ in pieces])
        return [replace(row, task=renamed[row.document]) for row in made]

    race(measure, model.depth, lengths)
    assert tasks[0] == {"prose", "answers"}


def test_too_little_text_is_refused() -> None:
    model = SimulatedModel([0.1] * 4, documents=6)
    with pytest.raises(MeasureError, match="give a longer text"):
        race(model.measure, model.depth, model.lengths)


@pytest.mark.slow
def test_the_demo_model_gets_the_verdicts_of_its_full_sweep_for_a_tenth() -> None:
    stack = load("demo")
    reading = read(stack, demo_corpus(texts=150, questions=128))
    found = racing(stack, reading)
    losses = intervention_losses(stack, skips(stack.depth), reading)
    full = verdicts(losses, str(Plan.identity(stack.depth)), skip_keys(stack.depth))
    assert {row.subject: row.metric for row in found if row.subject != "race"} == {
        row.subject: row.metric for row in full
    }
    share = next(row.value for row in found if row.metric == "share")
    print(f"{share:.3f} of the layer evaluations of the full sweep ({reading.documents} documents)")
    assert share <= 0.25


def test_what_is_not_seen_is_told_with_its_limit() -> None:
    """Little text and much noise: "no effect" must say above how much, and that is far above the margin."""
    model = SimulatedModel([0.05] * 4, documents=40, noise=0.5)
    found = [row for row in rows(race(model.measure, model.depth, model.lengths)) if row.metric == "no_effect"]
    assert found
    assert all((row.resolution or 0.0) > 0.2 for row in found)
    settled = rows(race((exact := SimulatedModel([0.0] * 4, noise=0.001)).measure, 4, exact.lengths))
    assert {row.resolution for row in settled if row.metric == "no_effect"} == {Rule().margin}
