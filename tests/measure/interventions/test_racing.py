from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from layerwise.data.demo.corpus import demo_corpus
from layerwise.errors import MeasureError
from layerwise.measure.interventions.ablation import skip_keys
from layerwise.measure.interventions.racing import cut_beginnings, race, race_rows, rare_documents
from layerwise.measure.language.evaluation_data import EvalData, piece_lengths, tokenize
from layerwise.measure.stats.grid import WHOLE, Piece, shuffle_pieces
from layerwise.measure.stats.verdicts import compute_verdicts
from layerwise.plan.schedule.allocation import MIN_EFFECT
from layerwise.results import Loss
from layerwise.stack import Stack, load
from measure.simulated import SimulatedModel
from tier import by_tier, first_fast


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load("demo")


@pytest.fixture(scope="module")
def reading(stack: Stack) -> EvalData:
    return tokenize(stack, demo_corpus(texts=20, questions=8), length=64)


def test_every_document_has_one_window(reading: EvalData) -> None:
    short, whole = cut_beginnings(reading, 24)
    assert short.documents == reading.documents == len(short.windows)
    texts = [window for window in short.windows if window.task == "stdlib"]
    assert max(window.scored for window in texts) == 24
    assert any(window.document.endswith(", windows of 24") for window in texts)
    assert piece_lengths(short).keys() == whole.keys()
    assert sum(whole.values()) == reading.tokens


def test_answers_are_not_cut(reading: EvalData) -> None:
    short, _ = cut_beginnings(reading, 2)
    before = {window for window in reading.windows if window.task != "stdlib"}
    assert before == {window for window in short.windows if window.task != "stdlib"}


def test_window_depends_on_the_seed(reading: EvalData) -> None:
    drawn = [[window.index for window in cut_beginnings(reading, 24, seed)[0].windows] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert max(drawn[0]) > 0


def thirty_layers(seed: int, documents: int = 1600) -> SimulatedModel:
    effects = np.random.default_rng([seed, 7]).lognormal(mean=-2.5, sigma=1.0, size=30) + 0.02
    effects[[11, 17]] = 0.0
    effects[14] = -0.06
    return SimulatedModel(effects.tolist(), documents=documents, noise=0.1, seed=seed)


def looks(model: SimulatedModel, **settings: Any) -> list[tuple[tuple[int, ...], Sequence[Piece]]]:
    asked: list[tuple[tuple[int, ...], Sequence[Piece]]] = []

    def measure(layers: Collection[int], pieces: Sequence[Piece]) -> list[Loss]:
        asked.append((tuple(layers), pieces))
        return model.measure(layers, pieces)

    race(measure, skip_keys(model.depth), model.lengths, **settings)
    return asked


def decisions(model: SimulatedModel) -> dict[int | None, str]:
    return {row.layer: row.metric for row in compute_verdicts(model.whole(), model.baseline, skip_keys(model.depth))}


@pytest.mark.parametrize("seed", first_fast(range(3)))
def test_race_matches_the_full_sweep_at_a_tenth_of_the_cost(seed: int) -> None:
    model = thirty_layers(seed)
    found = race_rows(race(model.measure, skip_keys(model.depth), model.lengths))
    full = decisions(model)
    told = {row.layer: row.metric for row in found if row.layer is not None}
    assert {layer for layer, word in told.items() if word not in {full[layer], "inconclusive"}} == set()
    assert list(told.values()).count("inconclusive") <= 2
    share = next(row.value for row in found if row.metric == "share")
    print(f"seed {seed}: {share:.3f} of the layer evaluations of the full sweep")
    assert share <= 0.1


def test_reported_cost_matches_the_evaluations() -> None:
    model = thirty_layers(0, documents=200)
    result = race(model.measure, skip_keys(model.depth), model.lengths)
    assert result.spent == model.evaluated
    model.evaluated = 0
    model.whole()
    assert result.full == model.evaluated


def drawn(kind: str, documents: int, seed: int) -> SimulatedModel:
    generator = np.random.default_rng([seed, 5])
    effects = generator.lognormal(-2.5, 1.0, size=12) + 0.02
    effects[[3, 7]] = 0.0
    effects[5] = -0.06
    model = SimulatedModel(effects.tolist(), documents=documents, seed=seed)
    shape = (12, documents)
    if kind == "normal":
        model.draw(effects[:, None] + generator.normal(0.0, 0.1, shape))
    elif kind == "heavy":
        model.draw(effects[:, None] + generator.standard_t(3, shape) * 0.1 / np.sqrt(3))
    else:  # the whole effect is that of 4 % of the documents
        carried = generator.random(shape) < 0.04
        model.draw(effects[:, None] * carried / 0.04 + generator.normal(0.0, 0.001, shape))
    return model


def is_wrong(decision: str, effect: float) -> bool:
    wrong = {"matters": effect <= 0.0, "no_effect": abs(effect) >= MIN_EFFECT, "harmful": effect >= 0.0}
    return wrong.get(decision, False)


RUNS = by_tier(fast=40, nightly=200)
"""Races per world; the bar for wrong verdicts, 5%, is the same in each tier."""


@pytest.mark.slow
@pytest.mark.parametrize("documents", [148, pytest.param(640, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["normal", "heavy", "rare"])
def test_familywise_error_of_a_race_is_at_most_5_percent(kind: str, documents: int) -> None:
    wrong, shares = 0, []
    for seed in range(RUNS):
        model = drawn(kind, documents, seed)
        result = race(model.measure, skip_keys(model.depth), model.lengths)
        shares.append(result.spent / result.full)
        wrong += any(is_wrong(end.decision, model.effects[layer]) for layer, end in result.finishes.items())
    print(
        f"{kind}, {documents} documents: {wrong} of {RUNS} wrong anywhere; share of the sweep {np.median(shares):.3f}"
    )
    assert wrong <= 0.05 * RUNS


def test_alpha_is_shared_among_undecided_layers() -> None:
    """A layer of 2.6 standard errors is decided among eleven that matter, but not among eleven idle ones."""
    words = []
    for others in (2.0, 0.0):
        model = SimulatedModel([0.026, *[others] * 11], documents=32)
        model.draw(np.array([[0.026], *[[others]] * 11]) + standardize(32, 0.01 * np.sqrt(32)))
        words.append(race(model.measure, skip_keys(model.depth), model.lengths).finishes[0].decision)
    assert words == ["matters", "inconclusive"]


@pytest.mark.parametrize("share", [0.999, 1.001])
@pytest.mark.parametrize("documents", [32, 40])
def test_last_look_spends_the_remaining_alpha(documents: int, share: float) -> None:
    """Student's bound by hand: one look has all of alpha, the second of two what three tenths leave."""
    rate = 1.0 if documents == 32 else 0.7
    level = 0.05 * 0.7 * rate / 4
    deviation = stats.t.ppf(1 - level, documents - 1) * share / np.sqrt(documents)
    model = SimulatedModel([0.0] * 4, documents=documents)
    model.lengths = dict.fromkeys(model.lengths, 10)
    model.draw(np.tile(standardize(documents, 1.0) + deviation, (4, 1)))
    finishes = race(model.measure, skip_keys(4), model.lengths, seed=4).finishes
    assert {end.documents for end in finishes.values()} == {documents}
    assert {end.decision for end in finishes.values()} == {"matters" if share > 1 else "inconclusive"}


@pytest.mark.parametrize(("share", "decision"), [(0.999, "inconclusive"), (1.001, "harmful")])
def test_harm_is_confirmed_on_later_documents(share: float, decision: str) -> None:
    """Eight documents of the second look, by hand: seven tenths of a tenth of alpha, over the four layers."""
    model = SimulatedModel([0.0] * 4, documents=40)
    model.lengths = dict.fromkeys(model.lengths, 10)
    order = [int(document) for _, document, _ in shuffle_pieces(model.lengths, 0)]
    changes = np.empty(40)
    changes[order[:32]] = standardize(32, 0.01) - 5.0
    bound = stats.t.ppf(1 - 0.05 * 0.1 * 0.7 / 4, 7)
    changes[order[32:]] = standardize(8, 1.0) - share * bound / np.sqrt(8)
    model.draw(np.tile(changes, (4, 1)))
    finishes = race(model.measure, skip_keys(4), model.lengths).finishes
    assert {(end.decision, end.documents) for end in finishes.values()} == {(decision, 40)}


@pytest.mark.parametrize(("documents", "decision"), [(15, "inconclusive"), (16, "harmful")])
def test_harm_requires_sixteen_documents(documents: int, decision: str) -> None:
    model = SimulatedModel([-0.5] * 4, documents=documents, noise=0.01)
    lengths = {(task, name, window): 10 for task, name, _ in model.lengths for window in range(8)}
    model.lengths = dict.fromkeys(model.lengths, 10)

    def measure(layers: Collection[int], pieces: Sequence[Piece]) -> list[Loss]:
        return [
            replace(row, window=window)
            for task, name, window in pieces
            for row in model.measure(layers, [(task, name, WHOLE)])
        ]

    finishes = race(measure, skip_keys(4), lengths).finishes
    assert {end.decision for end in finishes.values()} == {decision}


def standardize(documents: int, spread: float) -> np.ndarray:
    values = np.linspace(-1.0, 1.0, documents)
    return values / values.std(ddof=1) * spread


def test_no_layer_is_decided_before_rare_documents() -> None:
    model = SimulatedModel([0.0] * 4, documents=640, noise=0.0001)
    result = race(model.measure, skip_keys(model.depth), model.lengths)
    assert {end.decision for end in result.finishes.values()} == {"no_effect"}
    assert min(end.documents for end in result.finishes.values()) >= rare_documents(4)


def test_decided_layers_are_not_evaluated_again() -> None:
    model = SimulatedModel([2.0, 0.0, 0.0, 2.0], documents=400, noise=0.2)
    asked = [layers for layers, _ in looks(model)]
    assert asked[:2] == [(0, 1, 2, 3), (1, 2)]


def test_pieces_are_read_once_except_for_confirmation() -> None:
    model = SimulatedModel([0.01, 0.0, -0.3, 0.3], documents=128, noise=0.05)
    seen = [{document for _, document, _ in pieces} for _, pieces in looks(model)]
    assert all(one.isdisjoint(other) for index, one in enumerate(seen) for other in seen[:index])


def mixed(noises: tuple[float, float], sizes: tuple[int, int], seed: int) -> tuple[SimulatedModel, dict[Piece, int]]:
    model = SimulatedModel([0.5] * 6 + [0.0] * 6, documents=sum(sizes))
    tasks = ["prose"] * sizes[0] + ["answers"] * sizes[1]
    lengths = {(task, f"{n:04d}", WHOLE): 16 if task == "prose" else 4 for n, task in enumerate(tasks)}
    model.lengths = lengths
    spread = np.repeat(noises, sizes)
    draw = np.random.default_rng([seed, 11]).standard_t(5, size=(12, sum(sizes)))
    model.draw(np.array(model.effects)[:, None] + draw * spread)
    return model, {piece: 120 if piece[0] == "prose" else 4 for piece in lengths}


@pytest.mark.slow
def test_small_strata_keep_verdicts_correct() -> None:
    """The first look has 16 documents per stratum, and later looks depend on it."""
    wrong = 0
    for seed in range(40):
        model, whole = mixed((0.3, 3.0), (24, 100), seed)
        finishes = race(model.measure, skip_keys(model.depth), model.lengths, full_lengths=whole, seed=seed).finishes
        wrong += any(finishes[layer].decision in {"matters", "harmful"} for layer in range(6, 12))
    print(f"two unlike strata: {wrong} of 40 runs with a wrong verdict")
    assert wrong <= 2


def test_later_looks_sample_strata_by_variance() -> None:
    """Answers vary much and prose hardly, so after the first look nearly all documents are answers."""
    model, whole = mixed((0.001, 5.0), (100, 400), 0)
    asked = [[task for task, _, _ in pieces] for _, pieces in looks(model, full_lengths=whole)]
    assert asked[0].count("prose") == asked[0].count("answers") == 16
    assert set(asked[1]) == {"answers"}


def test_too_little_text_is_rejected() -> None:
    model = SimulatedModel([0.1] * 4, documents=6)
    with pytest.raises(MeasureError, match="at least 8 windows for a verdict, got 6"):
        race(model.measure, skip_keys(model.depth), model.lengths)


def test_rare_gain_is_found_once_read() -> None:
    """A gain on 16 of 400 documents cancels the loss on the others; the first look has one for the last four layers."""
    model = SimulatedModel([0.0] * 8, documents=400)
    model.lengths = dict.fromkeys(model.lengths, 100)
    order = [int(document) for _, document, _ in shuffle_pieces(model.lengths, 0)]
    changes = 0.02 + np.random.default_rng(0).normal(0.0, 0.02, (8, 400))
    changes[:4, order[32:48]] -= 0.5
    changes[4:, order[31:47]] -= 0.5
    model.draw(changes)
    finishes = race(model.measure, skip_keys(8), model.lengths).finishes
    assert [finishes[layer].decision for layer in range(8)] == ["matters"] * 4 + ["inconclusive"] * 4


@pytest.mark.nightly
@pytest.mark.parametrize("lengths", [0.0, 1.0])
@pytest.mark.parametrize("documents", [40, 148, 400])
def test_familywise_error_of_skewed_races_is_bounded(documents: int, lengths: float) -> None:
    """Thirty layers whose effects are exponential, to the left, with mean zero."""
    wrong, runs = 0, 300
    for seed in range(runs):
        generator = np.random.default_rng(seed)
        model = SimulatedModel([0.0] * 30, documents=documents, seed=seed)
        tokens = np.maximum(8, generator.lognormal(5, lengths, documents)).astype(int).tolist()
        model.lengths = dict(zip(model.lengths, tokens, strict=True))
        model.draw(0.05 * (1 - generator.exponential(size=(30, documents))))
        finishes = race(model.measure, skip_keys(30), model.lengths, seed=seed).finishes
        wrong += any(is_wrong(end.decision, 0.0) for end in finishes.values())
    print(f"{documents} documents of lengths {lengths:g}: {wrong} of {runs} races with a wrong decision")
    assert wrong <= 0.07 * runs
