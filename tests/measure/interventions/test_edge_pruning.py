"""Edges ranked by what they do: planted truth, cuts by hand, and nulls that the choice must beat."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from layerwise.errors import MeasureError
from layerwise.measure.interventions import edge_pruning as measured
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.interventions.edge_pruning import (
    Losses,
    _random_row,
    cut,
    losses_as,
    prune,
    pruned_rows,
    rank,
    ranking_rows,
    wired_as,
)
from layerwise.plan import Edge, LayerWeights, Plan
from layerwise.results.rows import Score
from layerwise.stack import Stack
from layerwise.train import layer_mixing
from layerwise.train.layer_mixing import LayerMixing
from layerwise.train.methods.layer_weights import LayerMixingOptions
from measure.planted_classifiers import CLASSES, WIDTH, Classifier, splits
from rounding import unit
from row_names import named

DEPTH = 4
SPLITS = splits(40)

LOUD, MUTE, WHISPER = 1, 2, 3
"""Sources: a state that says the label a thousand times too loud, one that says nothing, one that says a little."""

PLANTED = LayerWeights(
    DEPTH,
    (
        ((0, 1.0),),
        ((0, 0.7), (1, 0.1)),
        ((0, 0.5),),
        ((0, 0.4),),
        ((0, 0.1), (LOUD, 0.002), (MUTE, 0.9), (WHISPER, 0.5), (4, 0.3)),
    ),
)


class Says(nn.Module):
    """A layer that says the label, `volume` times as loud as the input does, and nothing else."""

    def __init__(self, volume: float) -> None:
        super().__init__()
        self.volume = volume

    def forward(self, state: Tensor) -> Tensor:
        said = torch.zeros_like(state)
        said[..., CLASSES:] = self.volume * state[..., : WIDTH - CLASSES]
        return said


def planted() -> tuple[Stack, LayerMixing]:
    """A classifier whose output reads one loud state by a small weight and a mute one by a large weight."""
    stack = Stack(Classifier([Says(1000.0), Says(0.0), Says(0.1), Says(0.01)]), "layers")
    found = layer_mixing.attach(stack, LayerMixingOptions("free"))
    found.set_edges(PLANTED)
    return stack, found


def asking(stack: Stack, part: str = "validation") -> measured.LossEvaluation:
    def ask() -> Losses:
        found = evaluate(stack, Plan.identity(stack.depth), getattr(SPLITS, part), SPLITS.collate)
        return Losses(found.nll, found.scored)

    return ask


def by_hand(edges: LayerWeights, part: str) -> float:
    """Nats an image, from what the layers say and the edges of the output: no layer but the first reads the label."""
    row = dict(edges.rows[DEPTH])
    total = 0.0
    for index in range(len(getattr(SPLITS, part))):
        example = getattr(SPLITS, part)[index]
        clear = example["pixel_values"][0].double()
        label, quiet = clear[:CLASSES], clear[CLASSES:] / 10_000
        heard = {
            1: 1000.0 * label,
            2: 0.0 * label,
            3: 0.1 * dict(edges.rows[2]).get(0, 0.0) * label,
            4: 0.01 * dict(edges.rows[3]).get(0, 0.0) * label,
        }
        logits = row.get(0, 0.0) * quiet + sum(row.get(source, 0.0) * said for source, said in heard.items())
        total -= float(torch.log_softmax(logits, 0)[int(example["labels"])])
    return total / len(getattr(SPLITS, part))


def of(rows: list[Score], name: str, metric: str, against: str | None = None) -> Score:
    (found,) = [
        row for row in rows if (row.condition or named(row), row.metric, row.against) == (name, metric, against)
    ]
    return found


def test_the_edge_that_carries_all_is_first_though_it_is_small_and_the_mute_one_last_though_it_is_large() -> None:
    stack, wired = planted()
    ranked = rank(wired, asking(stack))
    assert len(ranked.edges) == 7  # those of the readers 1 and out: the others read one state each
    assert ranked.by_effect()[-1] == ranked.by_size()[0] == Edge(DEPTH, LOUD)
    effects = dict(zip(ranked.edges, ranked.effect.value, strict=True))
    # A loss is a mix of 5 states, a log-sum-exp over the classes and a difference; the effect is that of two losses,
    # of logits that are at most the loud ones. Without the mute state a mix adds up one term less.
    loudest = 2 * max(float(SPLITS.validation[index]["pixel_values"].abs().max()) for index in range(40))
    assert abs(effects[Edge(DEPTH, MUTE)]) <= 2 * (5 + CLASSES + 1) * unit(torch.float32) * loudest
    assert ranked.by_size()[-1] == Edge(DEPTH, MUTE)
    assert effects[Edge(DEPTH, LOUD)] > 10 * max(value for edge, value in effects.items() if edge[1] != LOUD)
    index = ranked.edges.index(Edge(DEPTH, LOUD))
    assert ranked.effect.low[index] > 0
    assert ranked.p_adjusted[index] < 0.01
    for edge, effect in effects.items():
        left = PLANTED.without(edge, renormalise=False)
        assert effect == pytest.approx(by_hand(left, "validation") - by_hand(PLANTED, "validation"), abs=1e-5)


def test_rows_hold_both_rankings_and_how_they_agree() -> None:
    stack, wired = planted()
    ask = asking(stack)
    ranked = rank(wired, ask)
    rows = ranking_rows(ranked, ask(), depth=DEPTH)
    assert of(rows, "out<-1", "weight").value == pytest.approx(0.002)
    assert of(rows, "out<-1", "effect").value == pytest.approx(float(ranked.effect.value.max()))
    agreed = of(rows, "all", "rank_correlation")
    assert agreed.value < 0.5
    assert agreed.low <= agreed.value <= agreed.high
    assert of(rows, "all", "nll").value == pytest.approx(by_hand(PLANTED, "validation"), abs=1e-5)


def test_pruning_to_a_budget_keeps_what_carries_and_beats_both_nulls() -> None:
    stack, wired = planted()
    ask = asking(stack)
    ranked = rank(wired, ask)
    pruned = prune(wired, ask, keep=0.5, ranked=ranked)
    assert len(pruned) == 5
    assert dict(pruned.rows[DEPTH]) == pytest.approx({LOUD: 0.002})
    rows = pruned_rows(wired, pruned, ranked, asking(stack, "test"))
    expected = by_hand(pruned, "test") - by_hand(PLANTED, "test")
    assert of(rows, "pruned", "difference").value == pytest.approx(expected, abs=1e-5)
    assert of(rows, "pruned", "kept").value == pytest.approx(5 / 10)
    assert (of(rows, "pruned", "live_before").value, of(rows, "pruned", "live_after").value) == (5, 2)
    assert of(rows, "pruned", "unheard").value == 3
    worse = of(rows, "pruned", "difference", "size")
    assert worse.value > 1
    spared = of(rows, "pruned", "less_than_by_size")
    assert spared.value == pytest.approx(worse.value - expected, abs=1e-5)
    assert spared.low > 0
    assert spared.p < 0.01
    assert of(rows, "pruned", "difference", "random").value > expected


@pytest.mark.parametrize("rounds", [1, 3])
def test_pruning_stops_where_the_rise_is_no_longer_tolerated(rounds: int) -> None:
    stack, wired = planted()
    ask = asking(stack)
    before = ask()
    for tolerance in (0.0005, 0.1, 50.0):
        pruned = prune(wired, ask, tolerance=tolerance, rounds=rounds)
        after = losses_as(wired, pruned, ask)
        assert (after.nll - before.nll).mean() <= tolerance
        rest = [left for edge in pruned if len(left := cut(pruned, [edge], 1, renormalise=False)) < len(pruned)]
        rises = [(losses_as(wired, left, ask).nll - before.nll).mean() for left in rest]
        assert all(rise > tolerance for rise in rises)


def test_afterwards_the_model_is_what_it_was_to_the_bit() -> None:
    stack, wired = planted()
    before = {name: tensor.clone() for name, tensor in stack.model.state_dict().items()}
    ask = asking(stack)
    pruned_rows(wired, prune(wired, ask, keep=0.6), rank(wired, ask), ask, draws=2)
    after = stack.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    with wired_as(wired, PLANTED.without(Edge(DEPTH, 0), renormalise=False)):
        assert wired.edges().weight(Edge(DEPTH, 0)) == 0
    assert torch.equal(stack.model.state_dict()["layer_wiring.raw"], before["layer_wiring.raw"])


def test_a_row_of_means_stays_one_when_an_edge_is_cut() -> None:
    stack = Stack(Classifier([Says(10.0), Says(0.0), Says(0.1)]), "layers")
    wired = layer_mixing.attach(stack, LayerMixingOptions("softmax", "zero"))
    ranked = rank(wired, asking(stack))
    assert len(ranked.edges) == 5
    pruned = prune(wired, asking(stack), keep=0.5)
    assert all(sum(row) == pytest.approx(1.0) for row in pruned.matrix())
    with wired_as(wired, pruned):
        np.testing.assert_allclose(wired.edges().matrix(), pruned.matrix(), rtol=1e-6)


def test_a_cut_spares_the_last_edge_of_a_reader() -> None:
    order = [Edge(1, 0), Edge(1, 1), Edge(4, 0), Edge(0, 0), Edge(2, 0)]
    left = cut(PLANTED, order, 3, renormalise=False)
    assert set(PLANTED) - set(left) == {Edge(1, 0), Edge(4, 0)}


def test_alpha_has_a_row_for_every_pair() -> None:
    rows = measured.alpha_rows("elc", 0, PLANTED)
    assert len(rows) == 1 + 2 + 3 + 4 + 5
    model = {"arm": "elc", "seed": 0}
    assert rows[-1] == Score("alpha", "weight", pytest.approx(0.3), part="output", other=4, **model)
    assert rows[2] == Score("alpha", "weight", pytest.approx(0.1), layer=1, other=1, **model)
    assert Score("alpha", "weight", 0.0, layer=2, other=1, **model) in rows


def test_what_cannot_be_pruned_is_refused() -> None:
    stack, wired = planted()
    ask = asking(stack)
    with pytest.raises(MeasureError, match="needs an end"):
        prune(wired, ask)
    with pytest.raises(MeasureError, match="between 0 and 1, not 3"):
        prune(wired, ask, keep=3)
    with (
        wired_as(wired, LayerWeights(DEPTH, (*LayerWeights.identity(DEPTH).rows, ((DEPTH, 1.0),)))),
        pytest.raises(MeasureError, match="there is none to cut"),
    ):
        rank(wired, ask)


def test_the_band_of_20_draws_holds_another_in_19_of_21_cases() -> None:
    """Each of 21 draws against the band of the others: all orders of them are alike, so this share is exact."""
    drawn = np.sin(np.linspace(-np.pi / 2, np.pi / 2, 21))
    rows = [_random_row(np.delete(drawn, one), 0.0) for one in range(21)]
    assert sum(row.low - 1e-12 <= own <= row.high + 1e-12 for row, own in zip(rows, drawn, strict=True)) == 19
