"""Export the tables of a run as Parquet or CSV files, each written atomically.

Parquet files contain the manifest in their schema metadata, under `layerwise.manifest`. For CSV files, it is a separate
file. In CSV files, text that starts with `=`, `+`, `-` or `@` gets a leading apostrophe, because spreadsheets would
evaluate it. Exported scores have two more columns: `perplexity`, which is e^x for a loss x, and `perplexity_change`,
which is 100 (e^x - 1) percent for a loss difference x.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from layerwise.errors import RunError, near_matches
from layerwise.results.rows import Loss, PlanRecord, Score, list_columns
from layerwise.results.run import MANIFEST, Run, write_whole
from layerwise.results.store import explain_errors

if TYPE_CHECKING:
    from pandas import DataFrame

Format = Literal["parquet", "csv"]
Row = Loss | Score | PlanRecord

PERPLEXITIES = ("perplexity", "perplexity_change")
"""Columns of exported scores that the database does not have."""

DIFFERENCES = frozenset(
    {
        ("effect", "delta_nll"),
        *(("ablation", name) for name in ("skip", "mean_ablate", "neighbor_copy", "neighbor_average", "random")),
        ("predictability", "predicted_weight_loss"),
    }
)
"""Pairs of measure and metric whose values are loss differences in nats/token."""

MAX_EXPONENT = 700.0

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠")

_DTYPES = {str: "string", int: "Int64", float: "float64"}


def export(run: Run, folder: Path | str | None = None, format: Format = "parquet") -> tuple[Path, ...]:
    """Write the losses, scores and plans of a run to `folder` (default: RUN/exports), and return the paths.

    Raises:
        RunError: If the format is unknown or the folder cannot be written.
    """
    writers = {"parquet": _write_parquet, "csv": _write_csv}
    if format not in writers:
        raise RunError(f"Cannot export as {format!r}; {near_matches(format, writers)}.")
    folder = run.exports if folder is None else Path(folder)
    manifest = run.manifest.to_json()
    tables: tuple[tuple[str, type[Row], Iterable[Row]], ...] = (
        ("losses", Loss, run.store.losses()),
        ("scores", Score, run.store.scores()),
        ("plans", PlanRecord, run.store.plans()),
    )
    paths = []
    with explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, kind, rows in tables:
            path = folder / f"{name}.{format}"
            draft = path.with_name(f".{path.name}.draft")
            try:
                writers[format](draft, kind, rows, manifest)
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
            paths.append(path)
        if format == "csv":
            write_whole(folder / MANIFEST, manifest.encode())
            paths.append(folder / MANIFEST)
    return tuple(paths)


def _build_frame(kind: type[Row], rows: Iterable[Row]) -> DataFrame:
    from pandas import DataFrame

    types = {name: _DTYPES[base] for name, (base, _) in _list_columns(kind).items()}
    records = [(*astuple(row), *(compute_perplexity(row) if isinstance(row, Score) else ())) for row in rows]
    return DataFrame(records, columns=list(types), dtype=object).astype(types)


def _list_columns(kind: type[Row]) -> dict[str, tuple[type, bool]]:
    return list_columns(kind) | (dict.fromkeys(PERPLEXITIES, (float, True)) if kind is Score else {})


def _write_parquet(path: Path, kind: type[Row], rows: Iterable[Row], manifest: str) -> None:
    import pyarrow

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema(
        [pyarrow.field(name, types[base], nullable) for name, (base, nullable) in _list_columns(kind).items()],
        metadata={"layerwise.manifest": manifest},
    )
    _build_frame(kind, rows).to_parquet(path, compression="zstd", index=False, schema=schema)


def _write_csv(path: Path, kind: type[Row], rows: Iterable[Row], manifest: str) -> None:
    frame = _build_frame(kind, rows)
    texts = [name for name, (base, _) in _list_columns(kind).items() if base is str]
    frame[texts] = frame[texts].map(_escape_formula, na_action="ignore")
    frame.to_csv(path, index=False, lineterminator="\r\n")


def _escape_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULAS) else text


def compute_perplexity(score: Score) -> tuple[float | None, float | None]:
    """Return the perplexity if a score is a loss, and the change in perplexity (in percent) if it is a difference.

    The other value is None.

    >>> compute_perplexity(Score("effect", "nll", 0.0, plan="0-3"))
    (1.0, None)
    >>> compute_perplexity(Score("effect", "delta_nll", 0.0, plan="0 2"))
    (None, 0.0)
    """
    if score.value > MAX_EXPONENT:
        return None, None
    if (score.measure, score.metric) == ("effect", "nll"):
        return math.exp(score.value), None
    if (score.measure, score.metric) in DIFFERENCES:
        return None, 100 * math.expm1(score.value)
    return None, None
