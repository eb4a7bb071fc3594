"""Rows of a robustness run: means over seeds, paired differences and contributions, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from layerwise.measure.interventions.accuracy import Predictions
from layerwise.measure.interventions.robustness import contribution, identity, orders, paired, robustness
from layerwise.measure.interventions.survey import EvaluationGrid, Identical, Survey, survey
from layerwise.measure.stats.seeds import over_seeds
from layerwise.results.rows import Score
from measure.planted_classifiers import Idle, Reader, classifier, splits, turning

CHANCE = np.random.default_rng(0)


def outcome(hits: list[int], nll: list[float] | None = None, scored: list[int] | None = None) -> Predictions:
    count = len(hits)
    return Predictions(
        np.array(hits, float), None, np.array(nll or [0.5] * count), np.array(scored or [1] * count, float)
    )  # fmt: skip


def images(share: float, count: int = 40) -> Predictions:
    hits = (CHANCE.random(count) < share).astype(float)
    nll = CHANCE.random(count)
    return Predictions(hits, np.maximum(hits, CHANCE.random(count) < 0.5), nll, np.ones(count))


def rows_of(arms: dict[str, dict[int, Survey]], leads: str = "accuracy") -> dict[tuple[str, str, str], Score]:
    found = robustness(arms, chance=0.1, classes=10, leads=leads)
    rows = {(row.subject, row.task, row.metric): row for row in found}
    assert len(rows) == len(found), "no row is written twice"
    return rows


ARMS = {
    name: {seed: Survey(4, {"sequential": images(0.9), "random": images(share)}) for seed in range(3)}
    for name, share in (("baseline", 0.2), ("layershuffle", 0.8))
}


def test_the_model_and_its_null() -> None:
    found = rows_of(ARMS)
    assert {metric: row.value for (subject, _, metric), row in found.items() if subject == "model"} == {
        "depth": 4, "classes": 10, "accuracy@chance": 0.1, "leads": 1.0,
    }  # fmt: skip
    assert rows_of(ARMS, "nll")["model", "all", "leads"].value == 0


@pytest.mark.parametrize("metric", ["accuracy", "accuracy_top5", "nll"])
def test_an_arm_is_the_mean_of_its_seeds_with_their_interval_over_seeds_and_images(metric: str) -> None:
    found = rows_of(ARMS)
    part = {"accuracy": "hits", "accuracy_top5": "hits_top5", "nll": "nll"}[metric]
    values = [getattr(ARMS["layershuffle"][seed].outcomes["random"], part).mean() for seed in range(3)]
    row = found["layershuffle", "random", metric]
    seeds = [found[f"layershuffle/{seed}", "random", metric] for seed in range(3)]
    assert [each.value for each in seeds] == pytest.approx(values)
    assert row.value == pytest.approx(np.mean(values))
    assert (row.low, row.high) == over_seeds(values, metric, [(each.low, each.high) for each in seeds])
    assert (row.low, row.high) != over_seeds(values, metric)
    assert (row.documents, row.tokens) == (40, 40)


def test_one_seed_has_wilson_s_interval_over_images() -> None:
    alone = {"vit": {0: Survey(4, {"random": outcome([1] * 30 + [0] * 10)})}}
    expected = stats.binomtest(30, 40).proportion_ci(method="wilson")
    for subject in ("vit", "vit/0"):
        row = rows_of(alone)[subject, "random", "accuracy"]
        assert (row.value, row.low, row.high) == pytest.approx((0.75, expected.low, expected.high))
    assert not any(metric == "accuracy_above@baseline" for _, _, metric in rows_of(alone))


def test_texts_have_intervals_over_windows() -> None:
    """Tokens of one window err together: eighty tokens in eight windows are eight."""
    hits, scored, nats = [9, 2, 8, 1] * 2, [10] * 8, [1.0, 30.0, 2.0, 31.0] * 2
    alone = {"llama": {0: Survey(4, {"random": outcome(hits, nats, scored)})}}
    row = rows_of(alone, "nll")["llama", "random", "accuracy"]
    shares = np.array(hits) / 10
    reach = stats.t(7).ppf(0.975) * shares.std(ddof=1) / 8**0.5
    assert (row.value, row.low, row.high) == pytest.approx((0.5, 0.5 - reach, 0.5 + reach))
    assert (row.documents, row.tokens) == (8, 80)
    assert rows_of(alone, "nll")["llama", "random", "nll"].value == pytest.approx(128 / 80)
    assert ("llama", "random", "accuracy_top5") not in rows_of(alone, "nll")


def test_of_few_windows_the_value_has_no_interval() -> None:
    """Nor does the loss of one example end a survey of minutes."""
    for count in (1, 7):
        hits, nats = [9, 2, 8, 1, 4, 4, 4][:count], [3.0] * count
        rows = rows_of({"llama": {0: Survey(4, {"random": outcome(hits, nats, [10] * count)})}}, "nll")
        for metric in ("accuracy", "nll"):
            row = rows["llama", "random", metric]
            assert (row.low, row.high, row.documents) == (None, None, count)


def test_differences_are_paired_by_seed_and_by_image() -> None:
    found = rows_of(ARMS)
    for metric, part in (("accuracy", "hits"), ("nll", "nll")):
        gaps = [
            (getattr(ARMS["layershuffle"][seed].outcomes["random"], part)
             - getattr(ARMS["baseline"][seed].outcomes["random"], part)).mean()
            for seed in range(3)
        ]  # fmt: skip
        row = found["layershuffle", "random", f"{metric}_above@baseline"]
        alone = [
            paired([(ARMS["layershuffle"][seed].outcomes["random"], ARMS["baseline"][seed].outcomes["random"])], part)
            for seed in range(3)
        ]
        assert [value for value, _, _ in alone] == pytest.approx(gaps)
        assert row.value == pytest.approx(np.mean(gaps))
        assert (row.low, row.high) == pytest.approx(over_seeds(gaps, "", [bounds for _, *bounds in alone]))  # type: ignore[misc]
    assert ("baseline", "random", "accuracy_above@baseline") not in found


def test_a_pair_on_the_same_images_is_closer_than_two_shares() -> None:
    """Three images of forty apart in the same direction: the paired interval knows that the others agree."""
    one, other = outcome([1] * 20 + [0] * 20), outcome([1] * 17 + [0] * 23)
    value, low, high = paired([(one, other)], "hits")
    gaps = np.array([0] * 17 + [1] * 3 + [0] * 20)
    reach = stats.t(39).ppf(0.975) * gaps.std(ddof=1) / np.sqrt(40)
    assert (value, low, high) == pytest.approx((0.075, 0.075 - reach, 0.075 + reach))
    assert high - low < 0.2


def test_seeds_that_the_baseline_lacks_are_not_compared() -> None:
    arms = {"baseline": {0: ARMS["baseline"][0]}, "layershuffle": ARMS["layershuffle"]}
    row = rows_of(arms)["layershuffle", "sequential", "accuracy_above@baseline"]
    gaps = arms["layershuffle"][0].outcomes["sequential"].hits - arms["baseline"][0].outcomes["sequential"].hits
    assert row.value == pytest.approx(gaps.mean())


def test_draws_of_the_original_order_count_for_nothing() -> None:
    masked = outcome([0, 1, 0, 0], [0.0, 1.0, 3.0, 0.0], [0, 1, 1, 0])
    row = rows_of({"vit": {0: Survey(2, {"random": masked})}})
    assert row["vit", "random", "accuracy"].value == 0.5
    assert row["vit", "random", "nll"].value == 2
    assert row["vit", "random", "accuracy"].documents == 2
    nothing = outcome([0, 0], [0.0, 0.0], [0, 0])
    both = {"vit": {0: Survey(2, {"sequential": outcome([1, 0]), "random": nothing})}}
    assert {task for _, task, _ in rows_of(both)} == {"all", "sequential"}


# Planted truth

SPLITS = splits(48)
SURVEYED = survey(
    classifier([Idle(), Idle(), Reader(), Idle()]), SPLITS.test, SPLITS.collate, EvaluationGrid(orders=3, draws=8)
)  # fmt: skip


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("order", ["sequential", "random"])
def test_accuracy_is_lost_exactly_where_it_was_planted(order: str, seeds: int) -> None:
    found = {
        (row.subject, row.metric): row for row in contribution({"vit": dict.fromkeys(range(seeds), SURVEYED)})
    }  # fmt: skip
    lost = [found[str(layer), f"accuracy_lost.{order}"].value for layer in range(4)]
    added = [found[str(layer), f"nll_added.{order}"].value for layer in range(4)]
    without = SURVEYED.outcomes[f"without 2 {order}"].accuracy
    assert lost == pytest.approx([0, 0, 1 - without, 0])
    assert lost[2] > 0.5
    assert added[2] > 0
    assert [added[layer] for layer in (0, 1, 3)] == pytest.approx([0, 0, 0], abs=1e-6)
    row = found["2", f"accuracy_lost.{order}"]
    assert row.low <= row.value <= row.high
    assert (row.task, row.documents) == ("vit", int(SURVEYED.outcomes[order].scored.sum()))


def test_orders_are_one_row_a_seed_and_an_order() -> None:
    both = {seed: survey(turning(4, seed), SPLITS.test, SPLITS.collate, EvaluationGrid(orders=3)) for seed in range(2)}
    found = orders({"shuffled": both})
    assert len(found) == 2 * 3 * 2
    for seed, each in both.items():
        for plan, (accuracy, nats) in each.orders.items():
            values = {row.metric: row.value for row in found if (row.subject, row.task) == (f"shuffled/{seed}", plan)}
            assert values == {"accuracy": accuracy, "nll": nats}


def test_original_orders_are_added_up_over_seeds() -> None:
    one = Survey(2, {}, {}, {"random": Identical(10, 2, 0.5), "kept 2 even random": Identical(10, 0, None)})
    other = Survey(2, {}, {}, {"random": Identical(10, 4, 0.9)})
    found = {(row.task, row.metric): row.value for row in identity({"vit": {0: one, 1: other}})}
    assert found == {
        ("random", "draws"): 20, ("random", "identical"): 6, ("random", "accuracy"): pytest.approx(0.7),
        ("kept 2 even random", "draws"): 10, ("kept 2 even random", "identical"): 0,
    }  # fmt: skip
