"""Index the rows of a diagnosis by layer."""

from collections.abc import Iterable
from typing import Any

from layerwise.results.rows import Score
from layerwise.results.selection import Rows

Layer = int | tuple[int, str | float]


def by_layer(rows: Iterable[Score], metric: str, **columns: Any) -> dict[Layer | None, Score]:
    own = Rows(rows).where(metric=metric, **{"task": "all", "against": None, **columns})
    return {_key(row): row for row in own}


def _key(row: Score) -> Any:
    return row.layer if row.part is None else (row.layer, row.part)
