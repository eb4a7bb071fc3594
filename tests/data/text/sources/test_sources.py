"""Texts that are packed, lie in rows or are datasets are the documents that plain files with the same words are."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from layerwise.data.text.corpus import read_corpus, source_files
from layerwise.data.text.sources import streams
from layerwise.data.text.sources.hub_texts import HubText
from layerwise.errors import DataError

ROWS = [{"text": "The cat sat.\nIt ran.", "id": "one", "task": "story"}, {"text": "A dög ran."}, {"text": "Who?"}]
JSON_LINES = "\n".join(map(json.dumps, ROWS)).encode()


def zstd(content: bytes) -> bytes:
    packed: bytes = pyarrow.Codec("zstd").compress(content, asbytes=True)
    return packed


def table() -> pyarrow.Table:
    columns = {name: [row.get(name) for row in ROWS] for name in ("text", "id", "task")}
    columns["id"] = ["one", "two", "three"]
    columns["task"] = ["story", "text", "text"]
    return pyarrow.table({**columns, "score": [1, 2, 3]})


def write_parquet(path: Path) -> None:
    parquet.write_table(table(), path)


FILES: dict[str, Callable[[Path], object]] = {
    "rows.jsonl": lambda path: path.write_bytes(JSON_LINES),
    "rows.jsonl.gz": lambda path: path.write_bytes(gzip.compress(JSON_LINES)),
    "rows.jsonl.zst": lambda path: path.write_bytes(zstd(JSON_LINES)),
    "rows.parquet": write_parquet,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("block", [2, 2**20])
def test_rows_are_documents_however_they_are_packed(
    tmp_path: Path, name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_BLOCK", block)
    FILES[name](tmp_path / name)
    documents = read_corpus(tmp_path).documents
    assert [each.text for each in documents] == [row["text"] for row in ROWS]
    assert (documents[0].id, [each.task for each in documents]) == ("one", ["story", "text", "text"])
    assert source_files(tmp_path) == [tmp_path / name]


def test_packed_text_is_text(tmp_path: Path) -> None:
    (tmp_path / "words.train.zst").write_bytes(zstd(b"The cat sat.\r\n" * 3))
    (document,) = read_corpus(tmp_path).documents
    assert (document.text, document.task) == ("The cat sat.\n" * 3, "words")


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.jsonl.zst", "words.txt.zst"])
def test_a_packed_file_that_is_cut_short_is_refused(tmp_path: Path, name: str) -> None:
    content = JSON_LINES * 50
    packed = gzip.compress(content) if name.endswith(".gz") else zstd(content)
    (tmp_path / name).write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match=r"is not a whole (gzip|zstd) file"):
        read_corpus(tmp_path)


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_file_that_unpacks_to_far_more_than_text_does_is_refused(
    tmp_path: Path, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "UNPACKED", 2**16)
    ending = "gz" if pack is gzip.compress else "zst"
    (tmp_path / f"rows.jsonl.{ending}").write_bytes(pack(b" " * 2**22))
    with pytest.raises(DataError, match="unpacks to more than"):
        read_corpus(tmp_path)


def test_a_byte_that_is_no_text_is_named_in_a_file_of_lines(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"text": "fine"}\n{"text": "\xff"}')
    with pytest.raises(DataError, match="is not UTF-8 text: byte 27 is 0xff"):
        read_corpus(tmp_path)


def test_parquet_without_texts_is_refused_with_its_columns(tmp_path: Path) -> None:
    parquet.write_table(table().drop_columns(["text"]), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="has the columns id, task, score; its texts should be in one called text"):
        read_corpus(tmp_path)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="is no parquet file that can be read"):
        read_corpus(tmp_path)


def test_a_dataset_is_read_as_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "kept"))
    folder = tmp_path / "texts"
    folder.mkdir()
    write_parquet(folder / "train.parquet")
    corpus = read_corpus(Path(f"hf:{folder}"))
    assert corpus.name == "texts"
    assert [each.text for each in corpus.documents] == [row["text"] for row in ROWS]
    assert len(read_corpus(Path(f"hf:{folder}::train[:2]")).documents) == 2
    assert source_files(Path(f"hf:{folder}")) == [folder / "train.parquet"]
    with pytest.raises(DataError, match="cannot be read"):
        read_corpus(Path(f"hf:{folder}::nothing"))


def test_a_dataset_is_spelt_in_parts() -> None:
    spelt = {
        "hf:a/b": HubText("a/b", None, None, "train", None),
        "hf:a/b@abc:c": HubText("a/b", "abc", "c", "train", None),
        "hf:a/b:c:test": HubText("a/b", None, "c", "test", None),
        "hf:a/b::train[:100]": HubText("a/b", None, None, "train", 100),
    }
    assert {text: HubText.parse(text) for text in spelt} == spelt
    with pytest.raises(DataError, match="a dataset of the hub is written as hf:NAME"):
        HubText.parse("hf:a:b:c:d")
