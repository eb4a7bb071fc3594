"""Shares of a text hold one another, and what layer weights are worth on each of them is told seed by seed."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from layerwise.data.text.documents import Document
from layerwise.experiments.layer_weights_study.arms import answers, share_arm
from layerwise.experiments.layer_weights_study.shares import part_of, share_recipes, share_rows
from layerwise.results.rows import Score
from layerwise.train.pretrain.recipe import pretraining_recipe
from row_names import named

DOCUMENTS = tuple(Document(f"{n}", " ".join(["word"] * Random(n).randint(5, 60))) for n in range(80))


def words(documents: tuple[Document, ...]) -> int:
    return sum(len(each.text.split()) for each in documents)


def test_a_larger_share_holds_the_smaller_ones_and_none_is_far_off() -> None:
    shares = [part_of(DOCUMENTS, share, 0) for share in (0.125, 0.25, 0.5, 1.0)]
    assert all(set(small) < set(large) for small, large in pairwise(shares))
    assert shares[-1] == DOCUMENTS
    for share, documents in zip((0.125, 0.25, 0.5), shares, strict=False):
        assert share * words(DOCUMENTS) <= words(documents) < share * words(DOCUMENTS) + 60
        assert list(documents) == [each for each in DOCUMENTS if each in documents], "they stay in their order"


def test_recipes_of_a_share_differ_in_their_name_alone() -> None:
    recipes = [pretraining_recipe("tiny", name) for name in ("ltg", "elc", "zero")]
    assert [each.arm for each in share_recipes(recipes, 0.5)] == ["ltg-share-0.5", "elc-share-0.5"]


def models(gain: dict[float, float]) -> list[Score]:
    """Losses that fall with the text, and less without layer weights by `gain` of each share."""
    rows = []
    for share, gap in gain.items():
        for seed, own in enumerate((3.0, 3.1, 3.3)):
            value = own - share
            rows.append(Score("masked_lm", "nll", value, arm=share_arm("ltg", share), seed=seed))
            timed = value - gap - 0.001 * seed
            rows.append(Score("masked_lm", "nll", timed, arm=share_arm("elc", share), seed=seed))
    return rows


def test_gains_and_what_a_halving_adds_to_them() -> None:
    rows = models({0.25: 0.3, 0.5: 0.2, 1.0: 0.1})
    found = {(named(row), row.amount): row for row in share_rows(rows)}
    assert found["ltg", 0.5].value == pytest.approx(3.4 / 3 * 1 + 2.0 - 0.5, abs=0.01)
    gaps = {share: found["elc - ltg", share] for share in (0.25, 0.5, 1.0)}
    assert {share: round(row.value, 3) for share, row in gaps.items()} == {0.25: -0.301, 0.5: -0.201, 1.0: -0.101}
    assert all((row.p_adjusted or 0) >= (row.p or 1) for row in gaps.values())
    assert found["elc - ltg", None].value == pytest.approx(-0.1)


def test_shares_are_compared_with_each_other_alone() -> None:
    assert set(answers(models({0.5: 0.1, 1.0: 0.1}))["masked_lm"]) == {"ltg", "elc"}
    assert share_rows(models({1.0: 0.1})) == []
