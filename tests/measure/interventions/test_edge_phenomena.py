"""A wiring in which one edge carries one phenomenon: that edge is found, and no other; one of no effect has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from layerwise.errors import MeasureError
from layerwise.measure.interventions.edge_phenomena import (
    EdgeMargins,
    Phenomenon,
    confirmed_edges,
    estimates,
    measured,
    phenomenon_rows,
)
from layerwise.plan import Edge
from layerwise.results.rows import Score
from layerwise.results.vocabulary import EDGE_PHENOMENA
from row_names import named
from tier import by_tier

DEPTH = 6
NAMES = [f"phenomenon_{number}" for number in range(12)]
PLANTED = (Edge(4, 1), NAMES[3])


class PlantedModel:
    """A model whose margins are a sum over its edges: what each adds to a pair is noise, and for one edge more.

    The noise is heavy-tailed (Student's t of 5 degrees of freedom, of deviation 1 nat) and each paradigm has its own
    share of the planted effect, which is `effect` nats on the mean.
    """

    def __init__(self, effect: float, run: int, paradigms: int = 5, pairs: int = 20) -> None:
        chance = np.random.default_rng(run)
        self.edges = [Edge(reader, source) for reader in range(1, DEPTH) for source in range(reader + 1)]
        self.cut: int | None = None
        self.phenomena = [
            Phenomenon(name, tuple(f"{name}_{k}" for k in range(paradigms) for _ in range(pairs)), linguistic=None)
            for name in NAMES
        ]
        units = paradigms * pairs
        self.own = {name: 2 + 3 * chance.standard_normal(units) for name in NAMES}
        self.adds = {name: chance.standard_t(5, (len(self.edges), units)) / np.sqrt(5 / 3) for name in NAMES}
        shares = np.repeat(chance.uniform(0.5, 1.5, paradigms), pairs)
        self.adds[PLANTED[1]][self.edges.index(PLANTED[0])] += effect * shares / shares.mean()

    def margins(self, name: str) -> np.ndarray:
        left = self.adds[name].sum(axis=0)
        return self.own[name] + (left if self.cut is None else left - self.adds[name][self.cut])

    @contextmanager
    def without(self, edge: Edge) -> Iterator[None]:
        self.cut = self.edges.index(edge)
        yield
        self.cut = None

    def rows(self) -> list[Score]:
        asked = [(each, lambda name=each.name: self.margins(name)) for each in self.phenomena]
        margins = measured(self.edges, asked, self.without)
        return phenomenon_rows("blimp", self.edges, margins, DEPTH)


@pytest.mark.simulated
def test_a_planted_edge_is_found_and_no_other() -> None:
    """The bar: found (Holm .05) in at least 90 of 100, anything false in at most 5 of 100."""
    runs = by_tier(fast=3, nightly=100)
    wanted = (PLANTED[0].name(DEPTH), PLANTED[1])
    hits = wrong = 0
    for run in range(runs):
        carried = {(named(row), row.task) for row in confirmed_edges(PlantedModel(1.0, run).rows())}
        hits += wanted in carried
        wrong += bool(carried - {wanted})
    assert hits >= 0.9 * runs
    assert wrong <= max(0.05 * runs, 1 if runs < 100 else 0)


@pytest.mark.simulated
def test_a_wiring_without_an_effect_has_no_edge() -> None:
    runs = by_tier(fast=3, nightly=100)
    assert sum(bool(confirmed_edges(PlantedModel(0.0, run).rows())) for run in range(runs)) <= max(1, 0.05 * runs)


def test_what_is_cut_is_told_in_nats_and_points() -> None:
    """Without noise the effect is the planted one, with no width, on both halves."""
    phenomenon = Phenomenon("one", ("a",) * 20)
    whole = np.tile([1.0, -1.0], 10)
    margins = EdgeMargins(phenomenon, whole, np.stack([whole, whole - 0.5, whole - 1.5]))
    rows = phenomenon_rows("pairs", [Edge(1, 0), Edge(1, 1), Edge(2, 0)], [margins], DEPTH)
    effects = {named(row): row for row in rows if row.metric == "effect"}
    assert [effects[name].value for name in ("1<-0", "1<-1", "2<-0")] == [0.0, 0.5, 1.5]
    assert (effects["1<-0"].p, effects["1<-1"].p) == (1.0, 0.0)
    assert {named(row): row.value for row in rows if row.metric == "confirmed"} == {"1<-1": 0.5, "2<-0": 1.5}
    points = {named(row): row.value for row in rows if row.metric == "accuracy"}
    assert points == {"1<-0": 0.0, "1<-1": 0.0, "2<-0": 1.0}, "every unit of this half was right, and is wrong"
    assert [named(row) for row in confirmed_edges(rows)] == ["2<-0", "1<-1"]
    assert next(row.value for row in rows if row.metric == "right") == 0.5


def test_paradigms_count_alike_whatever_their_size() -> None:
    changes = np.array([[1.0, 1.0, 1.0, 1.0, 3.0, 3.0]])
    own = estimates(changes, ["a"] * 4 + ["b"] * 2)
    assert (own.value[0], own.error[0]) == (2.0, 0.0)


def test_the_interval_of_an_effect_holds_it() -> None:
    chance = np.random.default_rng(0)
    names = [name for name in "abc" for _ in range(12)]
    means = np.repeat([0.0, 1.0, 2.0], 12)
    found = estimates(means + chance.standard_normal((2_000, 36)), names)
    assert 0.94 <= ((found.low < 1.0) & (found.high > 1.0)).mean() <= 0.965


def test_structure_against_surface() -> None:
    """One edge serves the linguistic features and one the surface ones, whatever nats their margins have."""
    chance = np.random.default_rng(0)
    margins = []
    for name, linguistic, scale in (("verb", True, 1.0), ("the", False, 20.0)):
        whole = scale * (2 + chance.standard_normal(60))
        noise = 0.1 * scale * chance.standard_normal((5, 60))
        adds = noise + scale * np.array([[0.0], [1.0 * linguistic], [1.0 * (not linguistic)], [0.0], [0.0]])
        margins.append(EdgeMargins(Phenomenon(name, (name,) * 60, linguistic), whole, whole - adds))
    rows = phenomenon_rows("msgs-ours", [Edge(n, 0) for n in range(5)], margins, DEPTH)
    contrast = {named(row): row for row in rows if row.metric == "contrast"}
    assert contrast["1<-0"].value == pytest.approx(0.45, abs=0.05)
    assert contrast["2<-0"].value == pytest.approx(-0.45, abs=0.05)
    assert {name for name, row in contrast.items() if (row.p_adjusted or 1) < 0.05} == {"1<-0", "2<-0"}
    assert {(row.condition, row.task) for row in rows if row.metric == "rank_correlation"} == {("msgs-ours", "all")}
    assert {row.measure for row in rows} == {EDGE_PHENOMENA}


def test_too_few_units_are_refused() -> None:
    with pytest.raises(MeasureError, match="give 16 or more"):
        Phenomenon("few", ("a",) * 15)
