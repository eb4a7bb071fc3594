"""Filters, axes, single rows, and unknown columns."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import RunError
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

ROWS = Rows(
    [
        Score("healing", "nll", 3.0, arm="lora", seed=0, task="qa"),
        Score("healing", "nll", 1.0, arm="lora"),
        Score("healing", "nll", 2.0, arm="whole"),
        Score("healing", "share", 0.5, arm="lora", against="whole"),
    ]
)


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        ({"arm": "lora"}, [3.0, 1.0, 0.5]),
        ({"arm": "lora", "seed": None}, [1.0, 0.5]),
        ({"seed": PRESENT}, [3.0]),
        ({"arm": ("whole", None), "metric": "nll"}, [2.0]),
        ({"metric": ("nll",), "against": None}, [3.0, 1.0, 2.0]),
        ({"arm": "none"}, []),
        ({}, [3.0, 1.0, 2.0, 0.5]),
    ],
)
def test_where_selects_rows_by_column(asked: dict[str, object], values: list[float]) -> None:
    assert [row.value for row in ROWS.where(**asked)] == values


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda: ROWS.where(arms="lora"), TypeError, "no column 'arms'; did you mean arm"),
        (lambda: ROWS.one(arm="lora"), RunError, "3 rows have arm='lora'. Name more columns"),
    ],
)
def test_unknown_columns_and_ambiguous_rows_are_refused(
    ask: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ask()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, 0, 1]), st.floats(0, 1)), max_size=12))
def test_the_index_finds_the_same_rows_as_a_scan(cells: list[tuple[str, int | None, float]]) -> None:
    rows = Rows(Score("m", "nll", value, arm=arm, seed=seed) for arm, seed, value in cells)
    for arm in "ab":
        for seed in (None, 0, 1):
            assert list(rows.where(arm=arm, seed=seed)) == [row for row in rows if (row.arm, row.seed) == (arm, seed)]
