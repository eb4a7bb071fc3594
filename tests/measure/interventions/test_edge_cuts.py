from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from layerwise.data.suites.minimal_pairs import MinimalPair
from layerwise.measure.interventions.edge_cuts import _random_row, edge_cut_rows, estimate_means, use_edges
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Edge, EdgeCut, LayerWeights
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ALL, EDGES, ORIGINAL, RANDOM
from layerwise.stack import load
from layerwise.train import layer_mixing
from layerwise.train.methods import LayerMixingOptions
from tier import by_tier
from train.tiny_models import tiny_llama

DEPTH, PARADIGMS, PAIRS = 5, 3, 20
PHENOMENA = tuple(f"phenomenon_{number}" for number in range(4))
PLANTED = (Edge(3, 1), PHENOMENA[2])


class PlantedModel:
    """Margins are noise (Student's t, 5 degrees of freedom, 1 nat) plus, for one edge, `effect` nats on average."""

    renormalizes = False

    def __init__(self, effect: float, run: int = 0) -> None:
        chance = np.random.default_rng(run)
        matrix = np.tril(chance.uniform(0.1, 1, (DEPTH, DEPTH + 1)))
        self.wiring = self.whole = LayerWeights.of(matrix.tolist(), DEPTH)
        self.pairs = [
            MinimalPair(f"good {number}", f"bad {number}", f"{name}_{paradigm}", term=name)
            for name in PHENOMENA
            for paradigm in range(PARADIGMS)
            for number in range(PAIRS)
        ]
        self.own = 2 + 3 * chance.standard_normal(len(self.pairs))
        noise = chance.standard_t(5, (len(self.wiring), len(self.pairs))) / np.sqrt(5 / 3)
        self.adds = dict(zip(self.wiring, noise, strict=True))
        shares = np.repeat(chance.uniform(0.5, 1.5, PARADIGMS), PAIRS)
        at = [number for number, pair in enumerate(self.pairs) if pair.phenomenon == PLANTED[1]]
        self.adds[PLANTED[0]][at] += effect * shares / shares.mean()

    def edges(self) -> LayerWeights:
        return self.wiring

    def set_edges(self, edges: LayerWeights) -> None:
        self.wiring = edges

    def state_dict(self) -> LayerWeights:
        return self.wiring

    def load_state_dict(self, state_dict: LayerWeights) -> None:
        self.wiring = state_dict

    def margins(self) -> Numbers:
        return np.asarray(self.own + sum(self.adds[edge] for edge in self.wiring))

    def rows(self, *cuts: str, evaluate: Callable[[], Numbers] | None = None) -> list[Score]:
        parsed = [EdgeCut.parse(text) for text in cuts]
        return edge_cut_rows("blimp", self.pairs, self, parsed, evaluate or self.margins)


def find(rows: list[Score], **columns: Any) -> Score:
    wanted = {"metric": "margin", "task": ALL, "against": None, **columns}
    (row,) = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    return row


@pytest.mark.simulated
def test_planted_edge_is_found_for_its_phenomenon_only() -> None:
    runs = by_tier(fast=3, nightly=100)
    cuts = [edge.name(DEPTH) for edge in PlantedModel(0.0).wiring if edge.reader > 1]
    for effect, wanted in ((1.5, {(PLANTED[0].name(DEPTH), PLANTED[1])}), (0.0, set())):
        hits = wrong = 0
        for run in range(runs):
            rows = [row for row in PlantedModel(effect, run).rows(*cuts) if row.task != ALL]
            found = {
                (str(row.condition), row.task) for row in rows if row.p_adjusted is not None and row.p_adjusted < 0.05
            }
            hits += wanted <= found
            wrong += bool(found - wanted)
        assert hits >= 0.9 * runs
        assert wrong <= max(0.05 * runs, 1 if runs < 100 else 0)


def test_change_matches_the_weight_of_the_edges() -> None:
    model = PlantedModel(1.0)
    without = model.whole.without(Edge(3, 1), Edge(4, 0), renormalize=False)
    cut = "3<-1+4<-0"
    rows = model.rows(cut, "30%")
    lost = -(model.adds[Edge(3, 1)] + model.adds[Edge(4, 0)])
    assert find(rows, condition=cut).value == pytest.approx(lost.mean())
    own = [pair.phenomenon == PLANTED[1] for pair in model.pairs]
    assert find(rows, condition=cut, task=PLANTED[1]).value == pytest.approx(lost[own].mean())
    assert find(rows, condition=cut, metric="edges").value == len(without)
    right = {against: find(rows, condition=cut, metric="accuracy", against=against) for against in (None, ORIGINAL)}
    assert right[ORIGINAL].value == pytest.approx((model.margins() > 0).mean())
    assert right[None].value == pytest.approx((model.margins() + lost > 0).mean())
    assert right[None].low < right[None].value < right[None].high
    assert {row.suite for row in rows} == {"blimp"}
    assert {row.measure for row in rows} == {EDGES}


def test_random_cuts_have_equal_size() -> None:
    model = PlantedModel(0.0)
    asked: list[LayerWeights] = []

    def evaluate() -> Numbers:
        asked.append(model.wiring)
        return model.margins()

    rows = model.rows("3<-1", "4<-0", evaluate=evaluate)
    assert asked[0] == model.whole
    assert {len(edges) for edges in asked[1:]} == {len(model.whole) - 1}
    assert len(asked) <= 1 + 2 + 20
    first, second = (find(rows, condition=cut, against=RANDOM) for cut in ("3<-1", "4<-0"))
    assert (first.value, first.low, first.high) == (second.value, second.low, second.high)
    assert model.wiring == model.whole


@pytest.mark.parametrize(("value", "p"), [(-9.0, 2 / 21), (0.0, 2 / 21), (0.5, 4 / 21), (9.5, 1.0), (19.5, 2 / 21)])
def test_p_is_the_two_sided_share_of_draws(value: float, p: float) -> None:
    drawn = np.arange(20.0) if value else np.arange(1.0, 21.0)
    row = _random_row(drawn, value, {})
    assert (row.value, row.low, row.high) == (drawn.mean(), drawn.min(), drawn.max())
    assert row.p == pytest.approx(p)


def test_range_of_20_draws_has_coverage_19_of_21() -> None:
    """Each of 21 draws is compared with the band of the others; by symmetry the share is exact."""
    drawn = np.sin(np.linspace(-np.pi / 2, np.pi / 2, 21))
    rows = [_random_row(np.delete(drawn, one), 0.0, {}) for one in range(21)]
    assert sum(row.low - 1e-12 <= own <= row.high + 1e-12 for row, own in zip(rows, drawn, strict=True)) == 19


def test_pairs_without_a_margin_are_omitted() -> None:
    model = PlantedModel(1.0)

    def evaluate() -> Numbers:
        margins = model.margins()
        margins[::2] = np.nan
        return margins

    row = find(model.rows("3<-1", evaluate=evaluate), condition="3<-1")
    assert row.documents == len(model.pairs) / 2
    assert row.value == pytest.approx(-model.adds[Edge(3, 1)][1::2].mean())


def test_intervals_of_changes_have_their_coverage() -> None:
    chance = np.random.default_rng(0)
    names = [name for name in "abc" for _ in range(12)]
    means = np.repeat([0.0, 1.0, 2.0], 12)
    found = estimate_means(means + chance.standard_normal((2_000, 36)), names)
    assert 0.94 <= ((found.low < 1.0) & (found.high > 1.0)).mean() <= 0.965


def test_model_is_unchanged() -> None:
    stack = load(tiny_llama())
    wired = layer_mixing.attach(stack, LayerMixingOptions("softmax", "zero"))
    before = {name: tensor.clone() for name, tensor in stack.model.state_dict().items()}
    left = EdgeCut.parse("40%").apply(wired.edges())
    with use_edges(wired, left):
        np.testing.assert_allclose(wired.edges().matrix(), left.matrix(), rtol=1e-6)
        assert all(sum(row) == pytest.approx(1.0) for row in left.matrix())
    after = stack.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
