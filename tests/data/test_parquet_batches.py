"""Parquet and YAML are read within bounds and as plain values."""

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from layerwise.bounded import RATIO, Unreadable
from layerwise.data.parquet_batches import column_names, parquet_batches
from layerwise.data.plain_yaml import DEPTH, SIZE, parse_yaml

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


def test_plain_values_are_read() -> None:
    text = "a: [1, -2, 0x10, 1_000, 1:30]\nb: {c: 2.5, d: true, e: null}\nf: 2024-13-45\n'7': text"
    assert parse_yaml(text) == {
        "a": [1, -2, 16, 1000, 90],
        "b": {"c": 2.5, "d": True, "e": None},
        "f": "2024-13-45",
        "7": "text",
    }


def test_depth_and_size_are_read_to_their_bounds() -> None:
    assert parse_yaml("[" * (DEPTH - 1) + "1" + "]" * (DEPTH - 1)) is not None
    with pytest.raises(Unreadable, match="nested too deeply in line 1: at most 50 levels"):
        parse_yaml("[" * DEPTH + "1" + "]" * DEPTH)
    assert parse_yaml("a" * SIZE) == "a" * SIZE
    with pytest.raises(Unreadable, match="at most 262 kB"):
        parse_yaml("a" * (SIZE + 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a 1\nb: *a", r"the alias \*a in line 2"),
        ("a: !!int 1", "the tag .*int in line 1"),
        ("a: 1\na: 2", "the key a twice, the second time in line 2"),
        ("- b\n- " + "9" * 5_000, "4,300 digits in line 2"),
        ("0b_", "cannot be read"),
        ("[", "is not YAML"),
        ("{[a]: 1}", "is not YAML"),
    ],
)
def test_what_is_more_than_plain_values(text: str, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        parse_yaml(text)
