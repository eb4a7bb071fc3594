import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import MeasureError, RunError
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.interventions.survey import Condition, EvaluationGrid, IdentityDraws, Survey, conditions, survey
from layerwise.plan import Plan
from layerwise.plan.edits import skip
from layerwise.stack import Stack
from measure.planted_classifiers import Idle, Reader, classifier, splits, turning

SPLITS = splits(48)
QUESTIONS = EvaluationGrid(orders=5, draws=12)


def asked(stack: Stack, questions: EvaluationGrid = QUESTIONS) -> Survey:
    return survey(stack, SPLITS.test, SPLITS.collate, questions)


@given(depth=st.integers(2, 12), layers=st.booleans())
def test_every_condition_is_evaluated_once(depth: int, layers: bool) -> None:
    names = [condition.name for condition in conditions(depth, EvaluationGrid(layers=layers))]
    assert len(names) == len(set(names))
    # Four rules: every count from 1 to depth - 1 in order, and from 2 in random order.
    assert len(names) == 2 + 4 * (depth - 1) + 4 * (depth - 2) + (2 * depth if layers else 0)
    assert names[:2] == ["sequential", "random"]
    assert {"kept 1 even sequential"} <= set(names)
    assert "kept 1 even random" not in names, "at least 2 layers, got 1"


def test_requested_numbers_of_layers_are_evaluated() -> None:
    names = [
        condition.name for condition in conditions(4, EvaluationGrid(kept=(9, 2, 1), rules=("last",), layers=False))
    ]
    assert names == ["sequential", "random", "kept 2 last sequential", "kept 2 last random", "kept 1 last sequential"]


def test_single_layer_is_rejected() -> None:
    with pytest.raises(MeasureError, match="at least 2 layers, got 1"):
        list(conditions(1, EvaluationGrid()))


@given(seed=st.integers(0, 99), batch=st.integers(0, 99), count=st.integers(2, 5))
def test_both_orders_keep_the_same_layers(seed: int, batch: int, count: int) -> None:
    in_order, random_order = (Condition(count, "random", each).plan(6, seed, batch).order() for each in (True, False))
    assert in_order == tuple(sorted(random_order))


@given(seed=st.integers(0, 99), batch=st.integers(0, 99), layer=st.integers(0, 5))
def test_removed_layers_share_the_random_orders(seed: int, batch: int, layer: int) -> None:
    whole = Condition(6, None, False).plan(6, seed, batch)
    assert Condition(6, None, False, without=layer).plan(6, seed, batch) == skip(whole, layer)


def test_draws_differ_by_batch_seed_and_condition() -> None:
    condition = Condition(8, None, False)
    orders = {condition.plan(8, seed, batch) for seed in range(3) for batch in range(10)}
    assert len(orders) == 30
    assert Condition(7, "first", False).plan(8, 0, 0).order() != Condition(7, "last", False).plan(8, 0, 0).order()


def test_outcomes_match_the_plans_of_each_batch() -> None:
    stack = turning(4)
    found = asked(stack)
    for name in ("random", "kept 3 random random", "without 2 random", "kept 2 random sequential"):
        condition = next(each for each in conditions(4, QUESTIONS) if each.name == name)
        nats, original = [], []
        for batch in range(12):  # 48 images in 12 batches of 4
            plan = condition.plan(4, 0, batch)
            alone = evaluate(
                stack, plan, [SPLITS.test[index] for index in range(4 * batch, 4 * batch + 4)], SPLITS.collate
            )
            nats += alone.nll.tolist()
            order = condition.order(4, 0, batch).order()
            original += [not condition.in_order and order == tuple(sorted(order))] * 4
        outcome = found.outcomes[name]
        assert outcome.scored.tolist() == [float(not each) for each in original]
        np.testing.assert_allclose(outcome.nll, np.where(original, 0, nats), rtol=1e-4)


def test_fixed_orders_cover_all_examples() -> None:
    stack = turning(4)
    for text, pair in asked(stack).orders.items():
        outcome = evaluate(stack, Plan.parse(text), SPLITS.test, SPLITS.collate)
        assert pair == pytest.approx((outcome.accuracy, outcome.mean_nll))


def test_model_fails_only_without_its_decisive_layer() -> None:
    found = asked(classifier([Idle(), Idle(), Reader(), Idle()]))
    for name, outcome in found.outcomes.items():
        if name.startswith("without"):
            assert (outcome.accuracy == 1) == (" 2 " not in name)
    assert found.outcomes["sequential"].accuracy == found.outcomes["random"].accuracy == 1
    assert found.outcomes["kept 2 last sequential"].accuracy == 1
    assert found.outcomes["kept 2 first sequential"].accuracy < 0.5


def test_original_orders_are_separate() -> None:
    """Half the orders of two layers are the original one, which must not raise the accuracy of random orders."""
    found = asked(turning(2), EvaluationGrid(orders=1, draws=24, layers=False))
    apart, outcome = found.identical["random"], found.outcomes["random"]
    orders = [Condition(2, None, False).order(2, 0, batch).order() for batch in range(24)]
    mask = np.repeat([order == (0, 1) for order in orders], 2)
    assert (apart.draws, apart.identical) == (24, int(mask.sum() / 2))
    assert 0 < apart.identical < 24
    assert np.array_equal(outcome.scored, 1 - mask)
    assert not outcome.hits[mask].any()
    assert not outcome.nll[mask].any()
    in_order = evaluate(turning(2), Plan.parse("0 1"), SPLITS.test, SPLITS.collate)
    assert apart.accuracy == pytest.approx(in_order.hits[mask].mean())
    assert set(found.identical) == {"random"}, "what runs in order is never apart"


def test_original_order_without_draws_has_no_accuracy() -> None:
    found = asked(turning(6), EvaluationGrid(orders=1, draws=4, kept=(), layers=False))
    assert found.identical["random"] == IdentityDraws(4, 0, None)
    assert found.outcomes["random"].scored.all()


def test_survey_survives_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "survey-1.npz"
    found = asked(turning(3))
    found.save(path)
    again = Survey.read(path)
    assert [each.name for each in tmp_path.iterdir()] == ["survey-1.npz"]
    assert (again.depth, again.orders, again.identical) == (found.depth, found.orders, found.identical)
    assert list(again.outcomes) == list(found.outcomes)
    for name, outcome in found.outcomes.items():
        other = again.outcomes[name]
        for part in ("hits", "hits_top5", "nll", "scored"):
            assert np.array_equal(getattr(outcome, part), getattr(other, part))


def test_selected_conditions() -> None:
    told: list[tuple[int, int]] = []
    only = [Condition(2, "even", True), Condition(2, "even", False)]
    found = survey(turning(4), SPLITS.test, SPLITS.collate, QUESTIONS, only=only, progress=lambda *at: told.append(at))
    assert list(found.outcomes) == ["kept 2 even sequential", "kept 2 even random"]
    assert found.orders == {}
    assert told == [(1, 2), (2, 2)]


def test_compressed_bomb_is_rejected_before_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layerwise.bounded.MAX_UNPACKED_SIZE", 2**20)
    np.savez_compressed(tmp_path / "s.npz", **{"sequential|hits": np.zeros(2**18)})
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(RunError, match=r"has 2 kB and unpacks to more than 1\.0 MB"):
        Survey.read(tmp_path / "s.npz")


def test_oversized_array_is_rejected(tmp_path: Path) -> None:
    endless = io.BytesIO()
    np.lib.format.write_array_header_1_0(endless, {"descr": "<f8", "fortran_order": False, "shape": (2**50,)})
    with zipfile.ZipFile(tmp_path / "s.npz", "w") as archive:
        archive.writestr("depth.npy", endless.getvalue())
    with pytest.raises(RunError, match="is not a survey"):
        Survey.read(tmp_path / "s.npz")
