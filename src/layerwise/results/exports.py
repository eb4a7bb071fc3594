"""A run's tables as files that other tools read: Parquet, or CSV.

Parquet files carry the manifest in their schema metadata under `layerwise.manifest`, so a table that travels
alone still says which weights and texts it came from. CSV has no place for that; the manifest is written
beside the tables. A spreadsheet takes a text that begins with `=`, `+`, `-` or `@` for a formula, so in CSV such a text
has an apostrophe before it, which `as_text` takes away. Numbers are written as they are, so that reading them gives the
same double again. Every file appears whole or not at all.

The table of scores has two columns beside those of the store, empty where they do not apply: `perplexity` is e^x of a
loss of x nats per token, and `perplexity_change` what a difference of x nats means for it, 100 (e^x - 1) percent. The
losses themselves are in nats: a percentage grows exponentially with the same difference.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

from layerwise.errors import RunError, near_matches
from layerwise.results.database import explained
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.run import MANIFEST, Run, write_whole

Format = Literal["parquet", "csv"]
Row = Loss | Score | PlanRecord

PERPLEXITIES = ("perplexity", "perplexity_change")
"""The columns of scores that are not in the store."""

DIFFERENCES = frozenset(
    {
        ("effect", "delta_nll"),
        *(("ablation", name) for name in ("skip", "mean_ablate", "neighbour_copy", "neighbour_average", "random")),
        ("predictability", "predicted_weight_loss"),
    }
)
"""The measures and metrics that are differences of losses, in nats per token."""

_MOST_NATS = 700.0
"""Above this e^x is no number."""

_PER_GROUP = 100_000
"""Rows held in memory at once, and in one Parquet row group."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠")
"""How a text begins that a spreadsheet would compute, or that could be taken for one which was kept from it."""


def export(run: Run, folder: Path | str | None = None, format: Format = "parquet") -> tuple[Path, ...]:
    """Write the losses, scores and plans of `run` to `folder` (by default its `exports`); return the files.

    Raises `RunError` for an unknown format and when the folder cannot be written.
    """
    writers = {"parquet": _write_parquet, "csv": _write_csv}
    if format not in writers:
        raise RunError(f"Cannot export as {format!r}: {near_matches(format, writers)}.")
    folder = run.exports if folder is None else Path(folder)
    tables: tuple[tuple[str, type[Row], Iterable[Row]], ...] = (
        ("losses", Loss, run.store.losses()),
        ("scores", Score, run.store.scores()),
        ("plans", PlanRecord, run.store.plans()),
    )
    written = []
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, kind, rows in tables:
            path = folder / f"{name}.{format}"
            draft = path.with_name(f".{path.name}.draft")
            try:
                writers[format](draft, kind, rows, run.manifest.to_json())
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
            written.append(path)
        if format == "csv":
            write_whole(folder / MANIFEST, run.manifest.to_json().encode())
            written.append(folder / MANIFEST)
    return tuple(written)


def _write_parquet(path: Path, kind: type[Row], rows: Iterable[Row], manifest: str) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    names = [item.name for item in fields(kind)]
    derived = PERPLEXITIES if kind is Score else ()
    schema = arrow.schema(
        [
            *(arrow.field(name, types[base], nullable) for name, (base, nullable) in _columns(kind).items()),
            *(arrow.field(name, arrow.float64(), nullable=True) for name in derived),
        ],
        metadata={"layerwise.manifest": manifest},
    )
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(rows):
            columns = {name: [getattr(row, name) for row in group] for name in names}
            columns |= {name: [_derived(row)[at] for row in group] for at, name in enumerate(derived)}
            writer.write_table(arrow.table(columns, schema=schema))


def _write_csv(path: Path, kind: type[Row], rows: Iterable[Row], manifest: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(item.name for item in fields(kind)), *(PERPLEXITIES if kind is Score else ())])
        writer.writerows([_inert(value) for value in (*astuple(row), *_derived(row))] for row in rows)


def _derived(row: Row) -> tuple[float | None, ...]:
    """What stands in a row beside its fields."""
    return perplexity(row) if isinstance(row, Score) else ()


def perplexity(score: Score) -> tuple[float | None, float | None]:
    """The perplexity of a loss, and in percent the change of it that a difference means; `None` for what is neither.

    >>> perplexity(Score("effect", "nll", 0.0, plan="0-3"))
    (1.0, None)
    >>> perplexity(Score("effect", "delta_nll", 0.0, plan="0 2"))
    (None, 0.0)
    """
    if score.value > _MOST_NATS:
        return None, None
    if (score.measure, score.metric) == ("effect", "nll"):
        return math.exp(score.value), None
    if (score.measure, score.metric) in DIFFERENCES:
        return None, 100 * math.expm1(score.value)
    return None, None


def as_text(cell: str) -> str:
    """The text that a cell of an exported CSV holds.

    >>> as_text("'=1+1"), as_text("0-3")
    ('=1+1', '0-3')
    """
    return cell.removeprefix("'")


def _inert(value: object) -> object:
    """A value for a cell that no spreadsheet takes for a formula; numbers are none."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def _columns(kind: type[Row]) -> dict[str, tuple[type, bool]]:
    """Each field's base type and whether it may be `None`, from the annotations: `float | None` -> float,
    yes.
    """
    columns: dict[str, tuple[type, bool]] = {}
    hints = get_type_hints(kind)
    for name in (item.name for item in fields(kind)):
        options: tuple[Any, ...] = getattr(hints[name], "__args__", (hints[name],))
        (base,) = (option for option in options if option is not type(None))
        columns[name] = (base, type(None) in options)
    return columns


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    remaining = iter(rows)
    while group := list(itertools.islice(remaining, _PER_GROUP)):
        yield group
