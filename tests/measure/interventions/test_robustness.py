import numpy as np
import pytest
from scipy import stats

from layerwise.measure.interventions.accuracy import Predictions
from layerwise.measure.interventions.robustness import (
    contribution_rows,
    identity_rows,
    order_rows,
    paired_difference,
    robustness_rows,
)
from layerwise.measure.interventions.survey import EvaluationGrid, IdentityDraws, Survey, conditions_by_name, survey
from layerwise.measure.stats.seeds import seed_interval
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from measure.planted_classifiers import Idle, Reader, classifier, splits, turning

CHANCE = np.random.default_rng(0)


def outcome(hits: list[int], nll: list[float] | None = None, scored: list[int] | None = None) -> Predictions:
    count = len(hits)
    return Predictions(
        np.array(hits, float), None, np.array(nll or [0.5] * count), np.array(scored or [1] * count, float)
    )


def images(share: float, count: int = 40) -> Predictions:
    hits = (CHANCE.random(count) < share).astype(float)
    nll = CHANCE.random(count)
    return Predictions(hits, np.maximum(hits, CHANCE.random(count) < 0.5), nll, np.ones(count))


def rows_of(variants: dict[str, dict[int, Survey]], leads: str = "accuracy", batch: int = 1) -> Rows:
    found = robustness_rows(variants, chance=0.1, classes=10, leads=leads, batch=batch)
    assert len({row.key for row in found}) == len(found), "no row is written twice"
    return Rows(found)


def one(rows: Rows, variant: str, condition: str, metric: str, seed: int | None = None, **more: str) -> Score:
    row = rows.one(variant=variant, order=condition, metric=metric, seed=seed, **more)
    assert row is not None
    return row


VARIANTS = {
    name: {seed: Survey(4, {"sequential": images(0.9), "random": images(share)}) for seed in range(3)}
    for name, share in (("baseline", 0.2), ("layershuffle", 0.8))
}


def student(seeds: np.ndarray, units: np.ndarray) -> float:
    """Half of the interval over `seeds` (their means) and equal `units` (means over seeds), as by hand."""
    over = [(stats.t(len(each) - 1).ppf(0.975) * stats.sem(each)) for each in (seeds, units) if len(each) > 1]
    return float(np.hypot.reduce(over))


def of_values(hits: np.ndarray, nats: np.ndarray) -> dict[int, Survey]:
    """Return one survey per seed from hits and losses of shape (seeds, batches, examples)."""
    each = [outcome(own.ravel().tolist(), other.ravel().tolist()) for own, other in zip(hits, nats, strict=True)]
    return {seed: Survey(4, {"sequential": one, "random": one}) for seed, one in enumerate(each)}


def test_units_are_images_or_random_orders() -> None:
    hits = (CHANCE.random((3, 12, 5)) < CHANCE.random(12)[:, None]).astype(float)
    nats = CHANCE.random((3, 12, 5))
    found = rows_of({"vit": of_values(hits, nats)}, batch=5)
    for metric, values in (("accuracy", hits), ("nll", nats)):
        row, mean = one(found, "vit", "random", metric), values.mean()
        half = student(values.mean(axis=(1, 2)), values.mean(axis=(0, 2)))
        assert (row.value, row.low, row.high) == pytest.approx((mean, mean - half, mean + half))
        alone = one(found, "vit", "random", metric, seed=1)
        assert alone.high - alone.value == pytest.approx(student(np.zeros(1), values[1].mean(axis=1)))
    in_order = one(found, "vit", "sequential", "accuracy")
    wilson = [stats.binomtest(int(each.sum()), 60).proportion_ci(method="wilson") for each in hits]
    expected = seed_interval(hits.mean(axis=(1, 2)).tolist(), "accuracy", [(each.low, each.high) for each in wilson])
    assert (in_order.low, in_order.high) == pytest.approx(expected)
    in_order = one(found, "vit", "sequential", "nll")
    assert in_order.high - in_order.value == pytest.approx(student(nats.mean(axis=(1, 2)), nats.mean(axis=0).ravel()))
    assert (in_order.documents, in_order.tokens) == (60, 60)


@pytest.mark.parametrize("seeds", [1, 2])
def test_unanimous_predictions_have_an_interval_with_width(seeds: int) -> None:
    right, wrong = (of_values(np.full((seeds, 8, 5), hit), np.ones((seeds, 8, 5))) for hit in (1, 0))
    found = rows_of({"baseline": wrong, "vit": right}, batch=5)
    same = rows_of({"baseline": right, "vit": right}, batch=5)
    expected = stats.binomtest(40, 40).proportion_ci(method="wilson")
    for condition in ("sequential", "random"):
        row = one(found, "vit", condition, "accuracy")
        assert (row.value, row.low, row.high) == pytest.approx((1.0, expected.low, 1.0))
        above = one(found, "vit", condition, "accuracy_above", against="baseline")
        assert above.value == above.high == 1.0 > above.low > 0.8
        equal = one(same, "vit", condition, "accuracy_above", against="baseline")
        assert equal.low < equal.value == 0.0 < equal.high


@pytest.mark.parametrize("metric", ["accuracy", "nll"])
def test_fewer_than_eight_orders_have_no_interval(metric: str) -> None:
    alone = {"vit": {0: Survey(4, dict.fromkeys(("sequential", "random"), images(0.5, 42)))}}
    assert one(rows_of(alone, batch=6), "vit", "random", metric).low is None
    assert one(rows_of(alone, batch=6), "vit", "sequential", metric).low is not None
    assert one(rows_of(alone, batch=5), "vit", "random", metric).low is not None


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", [1, 3])
def test_intervals_over_seeds_and_orders_have_their_coverage(seeds: int) -> None:
    """17 orders of 21 images that differ by 15 points, several seeds by 5; the nominal coverage is 0.95."""
    draw, inside = np.random.default_rng(7), 0
    for _ in range(2000):
        of_seeds = 0.05 * draw.standard_normal((seeds, 1, 1)) if seeds > 1 else 0.0
        share = np.broadcast_to(0.4 + 0.15 * draw.standard_normal((17, 1)) + of_seeds, (seeds, 17, 1))
        hits = (draw.random((seeds, 17, 21)) < share).astype(float)
        row = one(rows_of({"vit": of_values(hits, hits)}, batch=21), "vit", "random", "accuracy")
        inside += row.low <= 0.4 <= row.high
    assert inside / 2000 >= 0.94


def test_intervals_are_limited_to_the_range_of_the_metric() -> None:
    hits = [10] * 7 + [1]
    row = one(
        rows_of({"llama": {0: Survey(4, {"random": outcome(hits, scored=[10] * 8)})}}), "llama", "random", "accuracy"
    )
    assert row.high == 1.0
    all_right, all_wrong = outcome([1] * 8), outcome([0] * 8)
    apart = [(all_right, all_wrong), (all_right, outcome([0] * 7 + [1]))]
    value, low, high = paired_difference(apart, "hits")
    assert (low, high) == pytest.approx((low, 1.0))
    assert -1.0 <= (low or 0.0) <= value


def test_differences_are_paired_by_seed_image_and_order() -> None:
    found = rows_of(VARIANTS, batch=4)
    for metric, part in (("accuracy", "hits"), ("nll", "nll")):
        gaps = np.array(
            [
                getattr(VARIANTS["layershuffle"][seed].outcomes["random"], part)
                - getattr(VARIANTS["baseline"][seed].outcomes["random"], part)
                for seed in range(3)
            ]
        )
        row = one(found, "layershuffle", "random", f"{metric}_above", against="baseline")
        half = student(gaps.mean(axis=1), gaps.mean(axis=0).reshape(10, 4).mean(axis=1))
        assert row.value == pytest.approx(gaps.mean())
        assert min(row.high - row.value, row.value - row.low) >= half - 1e-12
        if metric == "nll":
            assert (row.low, row.high) == pytest.approx((row.value - half, row.value + half))
    assert not found.where(variant="baseline", against="baseline")


def test_random_draws_of_the_original_order_are_excluded() -> None:
    masked = outcome([0, 1, 0, 0], [0.0, 1.0, 3.0, 0.0], [0, 1, 1, 0])
    rows = rows_of({"vit": {0: Survey(2, {"random": masked})}})
    assert one(rows, "vit", "random", "accuracy").value == 0.5
    assert one(rows, "vit", "random", "nll").value == 2
    assert one(rows, "vit", "random", "accuracy").documents == 2
    nothing = outcome([0, 0], [0.0, 0.0], [0, 0])
    both = {"vit": {0: Survey(2, {"sequential": outcome([1, 0]), "random": nothing})}}
    assert rows_of(both).axis("order") == ("sequential",)


SPLITS = splits(48)
SURVEYED = survey(
    classifier([Idle(), Idle(), Reader(), Idle()]), SPLITS.test, SPLITS.collate, EvaluationGrid(orders=3, draws=8)
)


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("order", ["sequential", "random"])
def test_accuracy_is_lost_where_planted(order: str, seeds: int) -> None:
    found = Rows(contribution_rows({"vit": dict.fromkeys(range(seeds), SURVEYED)}, batch=6)).where(
        order=order, variant="vit"
    )
    lost, added = (
        [found.value(metric=metric, layer=layer) for layer in range(4)] for metric in ("accuracy_lost", "nll_added")
    )
    without = SURVEYED.outcomes[f"without 2 {order}"].accuracy
    assert lost == pytest.approx([0, 0, 1 - without, 0])
    assert lost[2] > 0.5
    assert added[2] > 0
    assert [added[layer] for layer in (0, 1, 3)] == pytest.approx([0, 0, 0], abs=1e-6)
    row = found.one(metric="accuracy_lost", layer=2)
    assert row.low <= row.value <= row.high
    assert row.documents == int(SURVEYED.outcomes[order].scored.sum())


def test_orders_have_one_row_by_seed_and_order() -> None:
    both = {seed: survey(turning(4, seed), SPLITS.test, SPLITS.collate, EvaluationGrid(orders=3)) for seed in range(2)}
    found = order_rows({"shuffled": both})
    assert len(found) == 2 * 3 * 2
    for seed, each in both.items():
        for plan, (accuracy, nats) in each.orders.items():
            values = {
                row.metric: row.value for row in found if (row.variant, row.seed, row.plan) == ("shuffled", seed, plan)
            }
            assert values == {"accuracy": accuracy, "nll": nats}


def test_original_orders_are_summed_over_seeds() -> None:
    once = Survey(3, {}, {}, {"random": IdentityDraws(10, 2, 0.5), "kept 2 even random": IdentityDraws(10, 0, None)})
    other = Survey(3, {}, {}, {"random": IdentityDraws(10, 4, 0.9)})
    found = {(row.strategy, row.kept, row.metric): row.value for row in identity_rows({"vit": {0: once, 1: other}})}
    assert found == {
        (None, None, "draws"): 20,
        (None, None, "identical"): 6,
        (None, None, "accuracy"): pytest.approx(0.7),
        ("even", 2, "draws"): 10,
        ("even", 2, "identical"): 0,
    }


def test_every_condition_has_separate_columns() -> None:
    named = conditions_by_name(6)
    columns = [tuple(sorted(condition.columns(6).items())) for condition in named.values()]
    assert len(set(columns)) == len(named) > 100
    assert {dict(each).get("layer", dict(each).get("node", 0)) for each in columns} == set(range(6))
    assert dict(named["nodes 3 blocks without 1 random"].columns(6)) == {
        "order": "random",
        "layout": "blocks",
        "nodes": 3,
        "failed": 1,
        "node": 2,
    }
