import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr, ttest_1samp

from layerwise.errors import MeasureError
from layerwise.measure.weights.layer_weights import (
    MARGIN,
    edge_columns,
    group_agreement,
    hypothesized_groups,
    seed_agreement,
    seed_agreement_scores,
    uniformity_distances,
    uniformity_rows,
    weights_by_seed,
)
from layerwise.measure.weights.layer_weights import alpha_rows as rows_of_weights
from layerwise.plan import Edge, LayerWeights
from layerwise.results.rows import Score
from layerwise.studies.train_elc import page as pretraining
from tier import by_tier

DEPTH = 8


def softmaxed(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    readers, sources = raw.shape[-2:]
    read = np.arange(sources)[None, :] <= np.arange(readers)[:, None]
    exponents = np.where(read, np.exp(raw), 0.0)
    return np.asarray(exponents / exponents.sum(axis=-1, keepdims=True))


def biased() -> NDArray[np.float64]:
    raw = np.zeros((DEPTH, DEPTH + 1))
    raw[np.arange(DEPTH), np.arange(DEPTH)] = 1.0
    return raw


def noise(random: np.random.Generator, seeds: int = 3) -> NDArray[np.float64]:
    return random.normal(size=(seeds, DEPTH, DEPTH + 1))


def test_shared_pattern_is_found_beyond_initialization() -> None:
    random = np.random.default_rng(0)
    pattern = 1.5 * random.normal(size=(DEPTH, DEPTH + 1))
    found = seed_agreement(softmaxed(biased() + pattern + 0.3 * noise(random)), initial=softmaxed(biased()), draws=500)
    assert found.p < 0.01
    assert found.value > 0.7 > found.high


def test_agreement_is_the_mean_spearman_over_rows_and_pairs() -> None:
    weights = softmaxed(noise(np.random.default_rng(2)))
    expected = [
        spearmanr(weights[left, row, : row + 1], weights[right, row, : row + 1]).statistic
        for left in range(3)
        for right in range(left)
        for row in range(2, DEPTH)
    ]
    assert seed_agreement(weights, draws=10).value == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("shared", [0.0, 2.0])
def test_independent_seeds_rarely_agree(shared: float) -> None:
    """Also if all rows of one seed share an error (`shared`), which a null of single rows counts many times."""
    random = np.random.default_rng(3)
    drawn = [
        noise(random) + shared * random.normal(size=(3, 1, DEPTH + 1)) for _ in range(by_tier(fast=60, nightly=200))
    ]
    found = np.array([seed_agreement(softmaxed(raw), draws=199, seed=at).p for at, raw in enumerate(drawn)])
    # Tests at 5%: at most 9 alarms of 60, or 19 of 200, in 99.7% of repetitions.
    assert (found <= 0.05).sum() <= by_tier(fast=9, nightly=19)
    assert 0.35 < found.mean() < 0.65


def test_shared_initialization_is_no_agreement() -> None:
    random = np.random.default_rng(4)
    start = softmaxed(biased())
    still = softmaxed(biased() + 0.05 * noise(random))
    assert seed_agreement(still, draws=200).p < 0.01, "the trap: a biased start correlates"
    found = seed_agreement(still, initial=start, draws=500)
    assert found.p > 0.05
    assert abs(found.value) < 0.3


def test_signed_weights_are_compared_by_difference() -> None:
    random = np.random.default_rng(6)
    identity = np.eye(DEPTH, DEPTH + 1)
    pattern = random.normal(size=(DEPTH, DEPTH + 1))
    found = seed_agreement(identity + 0.2 * pattern + 0.05 * noise(random), initial=identity, draws=200)
    assert found.p < 0.01


def grouped(strength: float, depth: int = 12) -> NDArray[np.float64]:
    random = np.random.default_rng(8)
    signs = np.array([1.0 if label == "surface" else -1.0 if label else 0.0 for label in hypothesized_groups(depth)])
    same = signs[:, None] * np.concatenate([[1.0], signs])[None, :]
    return softmaxed(strength * same + 0.2 * random.normal(size=(3, depth, depth + 1)))


def test_planted_grouping_exceeds_shuffled_labels() -> None:
    labels = hypothesized_groups(12)
    for beyond in (False, True):
        found = group_agreement(grouped(0.8), labels, beyond_distance=beyond, draws=500)
        assert found.p < 0.05
        assert found.value > found.high


def test_preference_for_near_layers_is_no_grouping() -> None:
    distance = np.arange(12)[:, None] - np.arange(13)[None, :]
    weights = softmaxed(np.broadcast_to(-0.5 * np.abs(distance), (3, 12, 13)) + 0.2 * noise_of(12))
    labels = hypothesized_groups(12)
    assert group_agreement(weights, labels, draws=500).p < 0.05
    assert group_agreement(weights, labels, beyond_distance=True, draws=500).p > 0.05


def noise_of(depth: int) -> NDArray[np.float64]:
    return np.random.default_rng(9).normal(size=(3, depth, depth + 1))


def test_random_weights_rarely_have_a_grouping() -> None:
    random = np.random.default_rng(10)
    labels = hypothesized_groups(12)
    found = [
        group_agreement(softmaxed(random.normal(size=(3, 12, 13))), labels, draws=199, seed=at).p
        for at in range(by_tier(fast=60, nightly=200))
    ]
    assert (np.array(found) <= 0.05).sum() <= by_tier(fast=9, nightly=19)


def test_groups_of_twelve_layers_match_the_paper() -> None:
    assert hypothesized_groups(12) == ("surface",) * 5 + ("linguistic",) * 5 + (None,) * 2


def alpha_rows(weights: NDArray[np.float64], variant: str = "elc") -> list[Score]:
    return [
        Score("alpha", "weight", value, variant=variant, seed=seed, **edge_columns(Edge(reader, source), DEPTH))
        for seed, readers in enumerate(weights)
        for reader, sources in enumerate(readers)
        for source, value in enumerate(sources[: reader + 1])
    ]


@pytest.mark.parametrize("mixed_output", [False, True])
def test_weights_can_be_read_from_rows(mixed_output: bool) -> None:
    random = np.random.default_rng(11)
    weights = softmaxed(random.normal(size=(2, DEPTH + mixed_output, DEPTH + 1)))
    np.testing.assert_array_equal(weights_by_seed(alpha_rows(weights), "elc"), weights)


def test_agreement_rows_have_statistic_null_and_p() -> None:
    weights = softmaxed(biased() + noise(np.random.default_rng(12)))
    scores = seed_agreement_scores("elc", weights, initial=softmaxed(biased()))
    rows = {(row.metric, row.condition, row.against): row for row in scores}
    assert {key[:2] for key in rows} == {
        ("correlation", None),
        ("correlation", "beyond the start"),
        ("contrast", None),
        ("contrast", "beyond distance"),
    }
    for (metric, condition, against), row in rows.items():
        if against == "shuffled":
            assert row.low <= row.value <= row.high
        else:
            assert 0.0 < row.p <= 1.0
            assert (metric, condition, "shuffled") in rows
    assert seed_agreement_scores("elc", weights[:1])[0].metric == "contrast", "one seed has no agreement across seeds"


def test_non_finite_weights_are_rejected() -> None:
    with pytest.raises(MeasureError, match="must be finite"):
        seed_agreement_scores("elc", np.full((3, 8, 9), np.nan))


def test_distance_and_entropy_match_their_formulas() -> None:
    """The distance is the weight to be moved; a source with weight 0 adds nothing to the entropy."""
    weights = np.array([[1.0, 0, 0], [0.75, 0.25, 0], [0.5, 0.0, 0.5]])
    assert uniformity_distances(weights).tolist() == pytest.approx([0.0, 0.25, 1 / 3])
    rows = uniformity_rows("elc", weights[None], np.full((3, 3), 1 / 3))
    own = [-(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)), np.log(2) / np.log(3)]
    entropy = {row.part or row.layer: row.value for row in rows if row.metric == "entropy"}
    assert entropy == pytest.approx({1: own[0], "output": own[1], None: np.mean(own)})
    assert all(row.low is None and row.p is None for row in rows), "one seed has no interval"


def test_report_uses_the_same_margin() -> None:
    assert pretraining.MARGIN == MARGIN


@pytest.mark.parametrize("beyond", [-0.02, 0.0, 0.03])
def test_distances_are_tested_against_margin_and_initialization(beyond: float) -> None:
    """Two sources isolate the planted distance: Student's t, one-sided, and two-sided for the initialization."""
    apart = MARGIN + beyond + 0.01 * np.random.default_rng(0).standard_normal(5)
    weights = np.zeros((5, 2, 3))
    weights[:, 0, 0], weights[:, 1, 0], weights[:, 1, 1] = 1.0, 0.5 + apart, 0.5 - apart
    rows = {
        (row.layer, row.metric): row
        for row in uniformity_rows("elc", weights, np.array([[1.0, 0, 0], [0.53, 0.47, 0]]))
    }
    for metric, base, alternative in (("distance", MARGIN, "greater"), ("learned", 0.03, "two-sided")):
        row, test = rows[1, metric], ttest_1samp(apart, base, alternative=alternative)
        low, high = ttest_1samp(apart, base).confidence_interval(0.95)
        off = 0.03 if metric == "learned" else 0.0
        expected = (apart.mean() - off, low - off, high - off, test.pvalue)
        assert (row.value, row.low, row.high, row.p) == pytest.approx(expected, rel=1e-6)


def test_alpha_has_a_row_for_every_pair_of_layers() -> None:
    edges = LayerWeights(2, (((0, 1.0),), ((0, 0.7), (1, 0.1)), ((2, 0.3),)))
    rows = rows_of_weights("elc", 0, edges)
    assert len(rows) == 1 + 2 + 3
    model = {"variant": "elc", "seed": 0}
    assert rows[-1] == Score("alpha", "weight", 0.3, part="output", source=2, **model)
    assert rows[2] == Score("alpha", "weight", 0.1, layer=1, source=1, **model)
    assert Score("alpha", "weight", 0.0, part="output", source=1, **model) in rows
