"""Files, directories, tables and datasets become documents; nothing is skipped silently."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from layerwise.data import records
from layerwise.data.text.corpus import Corpus, list_text_files, read_corpus
from layerwise.data.text.documents import Document
from layerwise.data.text.sources import HubText
from layerwise.errors import DataError

ROWS = [{"text": "The cat sat.\nIt ran.", "id": "one", "task": "story"}, {"text": "A dög ran."}, {"text": "Who?"}]
JSON_LINES = "\n".join(map(json.dumps, ROWS)).encode()


def texts(corpus: Corpus) -> dict[str, str]:
    return {document.id: document.text for document in corpus.documents}


def zstd(content: bytes) -> bytes:
    packed: bytes = pyarrow.Codec("zstd").compress(content, asbytes=True)
    return packed


def write_parquet(path: Path, *, without: tuple[str, ...] = ()) -> None:
    columns = {"text": [row["text"] for row in ROWS], "id": ["one", "two", "three"], "task": ["story", "text", "text"]}
    parquet.write_table(pyarrow.table({**columns, "score": [1, 2, 3]}).drop_columns(list(without)), path)


FILES: dict[str, Callable[[Path], object]] = {
    "rows.jsonl": lambda path: path.write_bytes(JSON_LINES),
    "rows.jsonl.gz": lambda path: path.write_bytes(gzip.compress(JSON_LINES)),
    "rows.jsonl.zst": lambda path: path.write_bytes(zstd(JSON_LINES)),
    "rows.parquet": write_parquet,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("block", [2, 2**20])
def test_rows_are_documents_in_every_format(
    tmp_path: Path, name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_BLOCK", block)
    FILES[name](tmp_path / name)
    documents = read_corpus(tmp_path).documents
    assert [each.text for each in documents] == [row["text"] for row in ROWS]
    assert (documents[0].id, [each.task for each in documents]) == ("one", ["story", "text", "text"])
    assert list_text_files(tmp_path) == [tmp_path / name]


def test_a_file_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "notes.anything").write_bytes(b"\xef\xbb\xbffirst\r\nsecond\n")
    corpus = read_corpus(tmp_path / "notes.anything", task="notes")
    assert corpus.name == "notes.anything"
    assert corpus.documents == (Document("notes.anything", "first\nsecond\n", "notes"),)


def test_a_directory_is_read_recursively_in_path_order(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "b.txt").write_text("bee")
    (folder / "deep" / "a.md").write_text("ay")
    (folder / "c.txt.gz").write_bytes(gzip.compress(b"sea"))
    (folder / "picture.png").write_bytes(b"\0\0")
    (folder / ".hidden" / "d.txt").write_text("not read")
    corpus = read_corpus(folder)
    assert list(texts(corpus).items()) == [("b.txt", "bee"), ("c.txt.gz", "sea"), ("deep/a.md", "ay")]
    assert corpus.name == "texts"


def test_separators_and_wikitext_titles_split_documents(tmp_path: Path) -> None:
    (tmp_path / "books.txt").write_text("one\n<|endoftext|>\ntwo <|endoftext|> still two\n<|endoftext|>\n")
    assert texts(read_corpus(tmp_path / "books.txt")) == {
        "books.txt#0": "one",
        "books.txt#1": "two <|endoftext|> still two",
    }

    articles = [" = Alpha = \n\n text\n\n = = Early = = \n more\n", " = Beta = \n\n other\n"]
    (tmp_path / "wiki.txt").write_text("".join(articles))
    assert list(texts(read_corpus(tmp_path / "wiki.txt")).values()) == articles
    (tmp_path / "plain.txt").write_text("before\n = Alpha = \nafter")
    assert len(read_corpus(tmp_path / "plain.txt").documents) == 1


def test_json_lines_have_task_and_answer(tmp_path: Path) -> None:
    lines = [{"text": "2+2=4", "task": "sums", "answer_start": 4, "id": "q1"}, {"text": "plain"}]
    (tmp_path / "set.jsonl").write_text("\n\n".join(json.dumps(line) for line in lines))
    assert read_corpus(tmp_path / "set.jsonl").documents == (
        Document("q1", "2+2=4", "sums", 4),
        Document("set.jsonl:3", "plain"),
    )


def _file(name: str, content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder

    return write


def _line(line: str) -> Callable[[Path], Path]:
    return _file("set.jsonl", b'{"text": "fine"}\n' + line.encode())


def _parquet(folder: Path) -> Path:
    write_parquet(folder / "rows.parquet", without=("text",))
    return folder


MANY = JSON_LINES * 50
# The command line is tested on many more broken texts (tests/hostile/texts.py).
REFUSED: list[tuple[Callable[[Path], Path], str]] = [
    (_line('{"text": " "}'), 'nonempty "text"'),
    (_file("rows.jsonl", b'{"text": "fine"}\n{"text": "\xff"}'), "is not UTF-8 text: byte 27 is 0xff"),
    (_file("f.txt", b"<|endoftext|>\n\n" * 2), r"f\.txt is empty"),
    *((_file(f"{name}.zst", zstd(MANY)[:60]), "not a complete zstd file") for name in ("a.txt", "b.jsonl")),
    (_file("weights.bin", b"1"), r"no text files \(\*\.txt, \*\.md, \*\.jsonl"),
    (_parquet, 'row 1: the row must have a nonempty "text", got the keys id, task'),
    (_file("rows.parquet", b"PAR1 and no more"), "is not a readable Parquet file"),
]


@pytest.mark.parametrize(("written", "message"), REFUSED)
def test_non_text_files_are_rejected_by_name(tmp_path: Path, written: Callable[[Path], Path], message: str) -> None:
    path = written(tmp_path)
    with pytest.raises(DataError, match=message):
        read_corpus(path)


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_an_archive_bomb_is_rejected(
    tmp_path: Path, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_UNPACKED_SIZE", 2**16)
    ending = "gz" if pack is gzip.compress else "zst"
    (tmp_path / f"rows.jsonl.{ending}").write_bytes(pack(b" " * 2**22))
    with pytest.raises(DataError, match="decompresses to more than"):
        read_corpus(tmp_path)


def test_decompression_preserves_text(tmp_path: Path) -> None:
    (tmp_path / "words.train.zst").write_bytes(zstd(b"The cat sat.\r\n" * 3))
    (document,) = read_corpus(tmp_path).documents
    assert (document.text, document.task) == ("The cat sat.\n" * 3, "words")


def test_an_unreadable_file_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file.txt").write_text("words")

    def denied(self: Path, *how: str) -> None:
        raise PermissionError(13, "Permission denied")

    # Simulated, because root may read everything.
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match=r"file.txt cannot be read: Permission denied"):
        read_corpus(tmp_path / "file.txt")


def test_a_corpus_needs_unique_document_ids() -> None:
    with pytest.raises(DataError, match="at least one document"):
        Corpus("empty", ())
    with pytest.raises(DataError, match="first 'a'"):
        Corpus("twins", (Document("a", "x y"), Document("a", "y z")))


def test_the_digest_is_the_documented_hash_of_every_field_but_the_name() -> None:
    document = Document("a", "2+2=4", "sums", 4)
    digest = Corpus("one", (document,)).digest
    assert Corpus("two", (document,)).digest == digest
    changed = [
        replace(document, id="b"),
        replace(document, text="2+2=5"),
        replace(document, task="texts"),
        replace(document, answer_start=3),
        replace(document, answer_start=None),
        replace(document, id="a2", text="+2=4", answer_start=3),
    ]
    assert len({digest, *(Corpus("one", (each,)).digest for each in changed)}) == len(changed) + 1

    digest = Corpus("any", (Document("a", "text"),)).digest
    assert digest == "56f39cbc0a85cdbf9260aa1e1164ba9ad2e3ad832a91b71fc87a7a3717e9074b"


def test_a_dataset_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "kept"))
    folder = tmp_path / "texts"
    folder.mkdir()
    write_parquet(folder / "train.parquet")
    corpus = read_corpus(Path(f"hf:{folder}"))
    assert corpus.name == "texts"
    assert [each.text for each in corpus.documents] == [row["text"] for row in ROWS]
    assert len(read_corpus(Path(f"hf:{folder}::train[:2]")).documents) == 2
    assert list_text_files(Path(f"hf:{folder}")) == [folder / "train.parquet"]
    with pytest.raises(DataError, match="cannot be read"):
        read_corpus(Path(f"hf:{folder}::nothing"))


def test_dataset_names_have_optional_parts() -> None:
    spelt = {
        "hf:a/b": HubText("a/b", None, None, "train", None),
        "hf:a/b@abc:c": HubText("a/b", "abc", "c", "train", None),
        "hf:a/b:c:test": HubText("a/b", None, "c", "test", None),
        "hf:a/b::train[:100]": HubText("a/b", None, None, "train", 100),
    }
    assert {text: HubText.parse(text) for text in spelt} == spelt
    with pytest.raises(DataError, match="A hub dataset must be hf:NAME"):
        HubText.parse("hf:a:b:c:d")
