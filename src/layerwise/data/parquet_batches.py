"""Read Parquet files in batches of bounded memory.

Repeated values are packed, so half a kilobyte can expand to gigabytes; what a batch takes is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow
from pyarrow import parquet, types

from layerwise.bounded import RATIO, UNPACKED, Unreadable, check_file, shortened, size_in_words

_MAX_ROWS = 1_024
_ROW_SIZE = 64

_ERRORS = (pyarrow.ArrowException, OSError, UnicodeDecodeError)


def column_names(file: Path) -> list[str]:
    """Return the names of the columns. Raises `Unreadable`."""
    try:
        names: list[str] = _open(file).schema_arrow.names
    except _ERRORS as fault:
        raise _unreadable(fault) from fault
    return names


def parquet_batches(file: Path, columns: Collection[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a file in batches, with those of the `columns` that hold texts or numbers.

    Raises `Unreadable` for another file, and for one whose rows take more than `RATIO` times its bytes.
    """
    try:
        with _open(file) as table:
            size, taken = file.stat().st_size, 0
            bound = max(UNPACKED, RATIO * size)
            kinds = {each.name: each.type for each in table.schema_arrow if columns is None or each.name in columns}
            chosen = [name for name, kind in kinds.items() if _is_read(kind)]
            groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
            chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
            sizes = [each.total_uncompressed_size for each in chunks if each.path_in_schema in chosen]
            if sum(sizes) > bound:
                raise Unreadable(f"unpacks to {size_in_words(sum(sizes))}, and at most {size_in_words(bound)} are read")
            # No value is larger than the column that holds it, so no batch is larger than the bound.
            rows = max(1, min(_MAX_ROWS, bound // max([1, *sizes])))
            for batch in map(_decode, table.iter_batches(rows, columns=chosen)):
                taken += max(_ROW_SIZE * batch.num_rows, batch.nbytes)
                if taken > bound:
                    raise Unreadable(f"has {size_in_words(size)} and unpacks to more than {size_in_words(bound)}")
                yield batch
    except _ERRORS as fault:
        raise _unreadable(fault) from fault


def _open(file: Path) -> parquet.ParquetFile:
    check_file(file)
    return parquet.ParquetFile(file)


def _decode(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    columns = [each.dictionary_decode() if types.is_dictionary(each.type) else each for each in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, batch.schema.names)


def _is_read(kind: pyarrow.DataType) -> bool:
    kind = kind.value_type if types.is_dictionary(kind) else kind
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(is_text or types.is_primitive(kind) or types.is_null(kind))


def _unreadable(fault: Exception) -> Unreadable:
    return Unreadable(
        f"is no parquet file that can be read ({shortened(str(fault).split(chr(10))[0]) or type(fault).__name__})"
    )
