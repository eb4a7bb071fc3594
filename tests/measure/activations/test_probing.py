from random import Random

import numpy as np
import pytest

from layerwise.data.suites.probing import MAX_UNITS, ProbedText, generate_probed_text
from layerwise.measure.activations.probing import FOLDS, _probe, _shuffled, probing
from layerwise.results.rows import Score
from layerwise.stack import Stack, load

UNITS, WIDTH, GROUPS = 400, 24, 80


def planted(strength: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    groups = np.arange(UNITS) % GROUPS
    labels = chance.permutation(np.arange(GROUPS) % 2 == 0)[groups]
    states = chance.normal(size=(UNITS, WIDTH))
    states[:, 0] += strength * (2 * labels - 1)
    return states, labels, groups, groups % FOLDS


def accuracy(states: np.ndarray, labels: np.ndarray, groups: np.ndarray, folds: np.ndarray) -> float:
    return float(_probe(states, labels, folds).mean())


def test_planted_direction_is_predicted_optimally() -> None:
    states, labels, groups, folds = planted(1.0)
    assert accuracy(states, labels, groups, folds) == pytest.approx(0.84, abs=0.06)
    assert accuracy(*planted(6.0)) == 1.0


def test_noise_and_shuffled_labels_give_chance() -> None:
    assert accuracy(*planted(0.0)) == pytest.approx(0.5, abs=0.1)
    states, labels, groups, folds = planted(6.0)
    shuffled = _shuffled(labels, groups, Random(1))
    assert shuffled.sum() == labels.sum()
    assert all(len(set(shuffled[groups == group])) == 1 for group in range(GROUPS))
    assert accuracy(states, shuffled, groups, folds) == pytest.approx(0.5, abs=0.15)


def test_train_and_test_share_no_words() -> None:
    _, labels, groups, folds = planted(0.0)
    assert accuracy(np.eye(GROUPS)[groups], labels, groups, folds) <= 0.55
    assert accuracy(np.eye(GROUPS)[groups], labels, groups, np.arange(UNITS) // GROUPS) == 1.0


def test_features_are_balanced_and_correctly_labeled() -> None:
    text = generate_probed_text(frequency=len)
    assert {feature.side for feature in text.features} == {"surface", "linguistic"}
    for feature in text.features:
        labels = [unit.label for unit in feature.units]
        assert sum(labels) * 2 == len(labels) <= 2 * MAX_UNITS
    by_name = {feature.name: feature for feature in text.features}
    for unit in by_name["capitalisation"].units:
        assert text.sentences[unit.sentence][0][0].isupper() is unit.label
    for unit in by_name["number"].units:
        verb = text.sentences[unit.sentence][2]
        if verb in ("is", "has", "does", "are", "have", "do"):
            assert unit.label is (verb in ("are", "have", "do"))
    assert {"returns", "return"} & {
        text.sentences[unit.sentence][unit.word or 0] for unit in by_name["part_of_speech"].units if unit.label
    }
    pairs = {}
    for unit in by_name["grammaticality"].units:
        pairs.setdefault(unit.group, []).append(text.sentences[unit.sentence])
    assert all(sorted(map(str.lower, good)) == sorted(map(str.lower, bad)) for good, bad in pairs.values())
    assert all(good[0][0].isupper() is bad[0][0].isupper() for good, bad in pairs.values())


def test_sentences_depend_on_the_seed() -> None:
    assert generate_probed_text(3, pairs=4) == generate_probed_text(3, pairs=4)
    assert generate_probed_text(3, pairs=4) != generate_probed_text(4, pairs=4)


@pytest.fixture(scope="module")
def few() -> ProbedText:
    text = generate_probed_text(pairs=6)
    return ProbedText(
        text.sentences, tuple(each for each in text.features if each.name in ("length", "grammaticality"))
    )


@pytest.fixture(scope="module")
def demo() -> Stack:
    return load("demo")


@pytest.fixture(scope="module")
def rows(demo: Stack, few: ProbedText) -> list[Score]:
    return probing(demo, few)


@pytest.mark.slow
def test_every_state_has_nulls(demo: Stack, rows: list[Score]) -> None:
    for against in (None, "shuffled", "random_init"):
        own = [row for row in rows if row.metric == "accuracy" and row.against == against and row.task == "length"]
        assert [row.state for row in own] == list(range(demo.depth + 1))
        assert all(row.low is not None and row.low <= row.value <= (row.high or 0) for row in own)
    values = {(row.metric, row.against, row.state, row.task): row.value for row in rows}
    for layer in range(demo.depth + 1):
        above = values["accuracy_above", "random_init", layer, "length"]
        trained, untrained = (values["accuracy", each, layer, "length"] for each in (None, "random_init"))
        assert above == pytest.approx(trained - untrained)
        linguistic = values["accuracy_above", "random_init", layer, "grammaticality"]
        assert values["difference", None, layer, "all"] == pytest.approx(linguistic - above)


@pytest.mark.slow
def test_word_order_is_not_in_mean_embeddings(rows: list[Score]) -> None:
    """Both sentences of a pair have the same words; before the first layer only capitals differ."""
    (row,) = (
        row for row in rows if (row.metric, row.task, row.state, row.against) == ("accuracy", "grammaticality", 0, None)
    )
    assert row.value == pytest.approx(0.5, abs=0.15)
