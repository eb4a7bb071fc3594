"""Parquet is read within bounds: repeated or well-packed values are counted before they are unpacked."""

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from layerwise.bounded import RATIO, Unreadable
from layerwise.data.parquet_batches import column_names, parquet_batches

LONG = "a" * 2**12
REPEATED = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 512, pyarrow.int32()), [LONG])
WRITTEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "a dictionary": (REPEATED, {}),
    "packed": ([LONG] * 512, {"use_dictionary": False, "compression": "zstd"}),
    "prefixes": ([LONG] * 512, {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}),
    "rows of one letter": (["a"] * 20_000, {}),
}


def rows(file: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    return [row for batch in parquet_batches(file, columns) for row in batch.to_pylist()]


@pytest.mark.parametrize(("values", "written"), WRITTEN.values(), ids=WRITTEN)
def test_a_bomb_is_refused_before_it_is_unpacked(
    values: Any, written: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{parquet_batches.__module__}.UNPACKED", 2**20)
    file = tmp_path / "bomb.parquet"
    parquet.write_table(pyarrow.table({"text": values}), file, write_statistics=False, **written)
    assert RATIO * file.stat().st_size < 2**20
    with pytest.raises(Unreadable, match="unpacks to"):
        rows(file)


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", None])
def test_every_encoding_gives_the_rows_that_were_written(encoding: str | None, tmp_path: Path) -> None:
    written = {} if encoding is None else {"use_dictionary": False, "column_encoding": {"text": encoding}}
    texts = [f"text {number % 7}" for number in range(3_000)]
    table = pyarrow.table({"text": texts, "id": list(range(3_000)), "list": [[1]] * 3_000, "score": [0.5] * 3_000})
    parquet.write_table(table.select(["text"]), tmp_path / "one.parquet", row_group_size=500, **written)
    parquet.write_table(table, tmp_path / "all.parquet")
    assert [row["text"] for row in rows(tmp_path / "one.parquet")] == texts
    assert column_names(tmp_path / "all.parquet") == ["text", "id", "list", "score"]
    assert rows(tmp_path / "all.parquet", ["text", "id", "list"])[1] == {"text": "text 1", "id": 1}


def test_another_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "none.parquet").write_bytes(b"PAR1" + bytes(99) + b"PAR1")
    with pytest.raises(Unreadable, match="no parquet file that can be read"):
        rows(tmp_path / "none.parquet")
    with pytest.raises(Unreadable, match="folder"):
        column_names(tmp_path)
