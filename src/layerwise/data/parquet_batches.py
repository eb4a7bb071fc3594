"""Parquet files, some rows at a time, never more of them than a machine can take.

A parquet file writes a value that stands in many rows once, and packs it as well: half a kilobyte can hold gigabytes.
So texts stay as they are written, each once, until it is known how long they are row by row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from layerwise.bounded import RATIO, UNPACKED, Unreadable, check_file, shortened, size_in_words

_ROWS = 1_024
_OF_ROW = 64
"""Bytes that a row takes at least, whatever it holds: it becomes an object."""

_DIFFERENCES = "DELTA_"
"""How the encodings begin in which a text may repeat the beginning of the one before it: pyarrow reads such texts whole
alone, so they are read a few at a time."""


def column_names(file: Path) -> list[str]:
    """The names of the columns. Raises `Unreadable`."""
    import pyarrow

    try:
        names: list[str] = _opened(file).schema_arrow.names
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as fault:
        raise _unreadable(fault) from fault
    return names


def parquet_batches(file: Path, columns: Collection[str] | None = None) -> Iterator[Any]:
    """The rows of a file as record batches of pyarrow, with those of the `columns` that hold texts or numbers.

    Raises `Unreadable` for another file, and for one whose rows take more than `RATIO` times its bytes.
    """
    import pyarrow

    size = file.stat().st_size
    bound, taken = max(UNPACKED, RATIO * size), 0
    try:
        chosen, texts, rows = _plan(_opened(file), columns, bound)
        with _opened(file, texts) as table:
            for batch in table.iter_batches(rows, columns=chosen):
                taken += max(_OF_ROW * batch.num_rows, sum(map(_bytes, batch.columns)))
                if taken > bound:
                    raise Unreadable(f"has {size_in_words(size)} and unpacks to more than {size_in_words(bound)}")
                yield batch
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as fault:
        raise _unreadable(fault) from fault


def _opened(file: Path, texts: Collection[str] = ()) -> Any:
    from pyarrow import parquet

    check_file(file)
    return parquet.ParquetFile(file, read_dictionary=list(texts))


def _plan(table: Any, columns: Collection[str] | None, bound: int) -> tuple[list[str], list[str], int]:
    """The columns to read, those of texts to leave as they are written, and the rows to read at a time."""
    known = {each.name: each.type for each in table.schema_arrow if columns is None or each.name in columns}
    chosen = [name for name, kind in known.items() if _is_read(kind)]
    texts, most, rows = set(chosen), 0, _ROWS
    for number in range(table.metadata.num_row_groups):
        group = table.metadata.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema not in chosen:
                continue
            most += chunk.total_uncompressed_size
            if any(each.startswith(_DIFFERENCES) for each in chunk.encodings):
                texts.discard(chunk.path_in_schema)
                rows = min(rows, max(1, bound // max(1, chunk.total_uncompressed_size)))
    if most > bound:
        raise Unreadable(f"says that it unpacks to {size_in_words(most)}, and at most {size_in_words(bound)} are read")
    return chosen, [name for name in chosen if name in texts and _is_text(known[name])], rows


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_read(kind: Any) -> bool:
    from pyarrow import types

    return _is_text(kind) or types.is_primitive(kind) or types.is_null(kind)


def _bytes(column: Any) -> int:
    """The bytes of the values of a column, each as often as it stands there."""
    from pyarrow import compute, types

    if not types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = compute.take(compute.binary_length(column.dictionary), column.indices)
    return int(compute.sum(lengths).as_py() or 0)


def _unreadable(fault: Exception) -> Unreadable:
    return Unreadable(
        f"is no parquet file that can be read ({shortened(str(fault).split(chr(10))[0]) or type(fault).__name__})"
    )
