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
        Score("healing", "nll", 3.0, variant="lora", seed=0, task="qa"),
        Score("healing", "nll", 1.0, variant="lora"),
        Score("healing", "nll", 2.0, variant="identity"),
        Score("healing", "share", 0.5, variant="lora", against="identity"),
    ]
)


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        ({"variant": "lora"}, [3.0, 1.0, 0.5]),
        ({"variant": "lora", "seed": None}, [1.0, 0.5]),
        ({"seed": PRESENT}, [3.0]),
        ({"variant": ("identity", None), "metric": "nll"}, [2.0]),
        ({"metric": ("nll",), "against": None}, [3.0, 1.0, 2.0]),
        ({"variant": "none"}, []),
        ({}, [3.0, 1.0, 2.0, 0.5]),
    ],
)
def test_where_selects_rows_by_column(asked: dict[str, object], values: list[float]) -> None:
    assert [row.value for row in ROWS.where(**asked)] == values


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda: ROWS.where(variants="lora"), TypeError, "no column 'variants'; did you mean variant"),
        (lambda: ROWS.one(variant="lora"), RunError, "3 rows have variant='lora'. Name more columns"),
    ],
)
def test_unknown_columns_and_ambiguous_rows_are_refused(
    ask: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ask()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, 0, 1]), st.floats(0, 1)), max_size=12))
def test_the_index_finds_the_same_rows_as_a_scan(cells: list[tuple[str, int | None, float]]) -> None:
    rows = Rows(Score("m", "nll", value, variant=variant, seed=seed) for variant, seed, value in cells)
    for variant in "ab":
        for seed in (None, 0, 1):
            assert list(rows.where(variant=variant, seed=seed)) == [
                row for row in rows if (row.variant, row.seed) == (variant, seed)
            ]
