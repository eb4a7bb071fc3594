"""Tasks in three disjoint, hashed sets, stratified by label."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.data.suites.classification import Labelled, Task, cut, without
from layerwise.errors import DataError


def _rows(start: int, stop: int, classes: int = 2) -> tuple[Labelled, ...]:
    return tuple(Labelled(f"text {number}", None, number % classes) for number in range(start, stop))


def _task(**changes: object) -> Task:
    whole = Task("glue", "numbers", ("even", "odd"), "mcc", _rows(0, 40), _rows(40, 50), _rows(50, 70))
    return replace(whole, **changes)  # type: ignore[arg-type]


@given(st.integers(20, 200), st.integers(2, 4), st.integers(0, 1000))
def test_a_cut_shares_nothing_loses_nothing_and_keeps_every_label(count: int, classes: int, seed: int) -> None:
    rows = _rows(0, count, classes)
    train, selection = cut(rows, seed)
    assert not set(train) & set(selection)
    assert sorted(train + selection) == sorted(rows)
    whole, chosen = Counter(row.label for row in rows), Counter(row.label for row in selection)
    assert chosen == {label: max(1, int(0.1 * held)) for label, held in whole.items()}
    assert cut(rows, seed) == (train, selection)


@given(st.integers(0, 100))
def test_a_text_that_stands_in_a_file_twice_is_not_taught_and_selected_on(seed: int) -> None:
    rows = _rows(0, 30) * 2
    train, selection = cut(rows, seed)
    assert not {row.content for row in train} & {row.content for row in selection}


def test_texts_are_the_same_whatever_their_labels_and_pairs_are_read_as_pairs() -> None:
    rows = [Labelled("a", None, 0), Labelled("a", "b", 0), Labelled("a", "c", 1)]
    assert without(rows, [Labelled("a", "b", 1)]) == (rows[0], rows[2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "mmc"}, "did you mean mcc"),
        ({"also": ("recall",)}, "metric 'recall' is not known"),
        ({"labels": ("a", "b", "c"), "also": ("f1",)}, "f1 is of two labels, and it has 3"),
        ({"selection": ()}, "its selection set is empty"),
        ({"labels": ("even",)}, r"has the labels \[0, 1\], but only 0 to 0 have names"),
        ({"train": _rows(0, 51)}, "a test example is in the train set too"),
        ({"selection": _rows(69, 71)}, "a test example is in the selection set too"),
    ],
)
def test_a_task_that_is_none_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        _task(**changes)


def test_every_example_label_and_set_counts_in_the_digest() -> None:
    changed = [
        _task(),
        _task(train=_rows(0, 39)),
        _task(train=(*_rows(0, 39), Labelled("text 39", None, 0))),
        _task(train=(*_rows(0, 39), Labelled("text 39", "", 1))),
        _task(train=_rows(0, 50), selection=_rows(40, 50)),
        _task(labels=("odd", "even")),
    ]
    assert len({task.digest for task in changed}) == len(changed)
    assert _task().digest == _task().digest


def test_a_limit_keeps_the_share_of_labels_and_leaves_the_selection_alone() -> None:
    skewed = _task(train=(*_rows(0, 10), *(Labelled(f"more {number}", None, 1) for number in range(390))))
    small = skewed.limited(train=200, test=6)
    assert Counter(row.label for row in small.train)[1] > 180
    assert [len(small.train), len(small.test)] == [200, 6]
    assert set(small.train) < set(skewed.train)
    assert set(small.test) < set(skewed.test)
    assert small.selection == skewed.selection
    assert small.commonest == skewed.commonest
    assert small == skewed.limited(train=200, test=6)
    assert small != skewed.limited(train=200, test=6, seed=1)
    assert skewed.limited() == skewed == skewed.limited(train=1000, test=1000)
    with pytest.raises(DataError, match="0 examples were asked for"):
        skewed.limited(train=0)


def test_the_commonest_label_is_of_training_and_the_smaller_of_two_that_tie() -> None:
    assert _task().commonest == 0
    assert _task(train=_rows(1, 40)).commonest == 1
