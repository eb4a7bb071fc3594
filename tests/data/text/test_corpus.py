from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.data.text.documents import Document
from layerwise.errors import DataError


def texts(corpus: Corpus) -> dict[str, str]:
    return {document.id: document.text for document in corpus.documents}


def test_a_file_is_one_document_named_after_it(tmp_path: Path) -> None:
    (tmp_path / "notes.anything").write_bytes(b"\xef\xbb\xbffirst\r\nsecond\n")
    corpus = read_corpus(tmp_path / "notes.anything", task="notes")
    assert corpus.name == "notes.anything"
    assert corpus.documents == (Document("notes.anything", "first\nsecond\n", "notes"),)


def test_a_folder_is_read_recursively_in_the_order_of_paths(tmp_path: Path) -> None:
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


def test_separator_lines_part_documents(tmp_path: Path) -> None:
    (tmp_path / "books.txt").write_text("one\n<|endoftext|>\ntwo <|endoftext|> still two\n<|endoftext|>\n")
    assert texts(read_corpus(tmp_path / "books.txt")) == {
        "books.txt#0": "one",
        "books.txt#1": "two <|endoftext|> still two",
    }


def test_wikitext_titles_part_documents_and_section_titles_do_not(tmp_path: Path) -> None:
    articles = [" = Alpha = \n\n text\n\n = = Early = = \n more\n", " = Beta = \n\n other\n"]
    (tmp_path / "wiki.txt").write_text("".join(articles))
    assert list(texts(read_corpus(tmp_path / "wiki.txt")).values()) == articles


def test_one_line_between_equals_signs_does_not_make_a_file_wikitext(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("before\n = Alpha = \nafter")
    assert len(read_corpus(tmp_path / "plain.txt").documents) == 1


def test_json_lines_carry_task_and_answer(tmp_path: Path) -> None:
    lines = [{"text": "2+2=4", "task": "sums", "answer_start": 4, "id": "q1"}, {"text": "plain"}]
    (tmp_path / "set.jsonl").write_text("\n\n".join(json.dumps(line) for line in lines))
    assert read_corpus(tmp_path / "set.jsonl").documents == (
        Document("q1", "2+2=4", "sums", 4),
        Document("set.jsonl:3", "plain"),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "line 2: it is not JSON"),
        ("[1]", "line 2: found list"),
        ('{"txt": "a"}', "line 2: found the keys txt"),
        ('{"text": " "}', 'non-empty "text"'),
        ('{"text": "abc", "answer_start": "1"}', "answer_start is '1'"),
        ('{"text": "abc", "answer_start": true}', "answer_start is True"),
        ('{"text": "abc", "answer_start": 3}', "between 1 and 2"),
        ('{"text": "\\ud800"}', "lone surrogate"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "set.jsonl").write_text('{"text": "fine"}\n' + line)
    with pytest.raises(DataError, match=message):
        read_corpus(tmp_path / "set.jsonl")


def test_a_missing_path_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="give --text a text file, or a folder"):
        read_corpus(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("file.txt", b""),
        ("file.txt", b"  \n\t\n"),
        ("file.txt", b"<|endoftext|>\n\n<|endoftext|>\n"),
        ("file.jsonl", b""),
        ("file.jsonl", b" \n\n"),
    ],
)
def test_an_empty_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} is empty"):
        read_corpus(tmp_path)


@pytest.mark.parametrize(
    ("content", "offset", "value"),
    [
        (b"abc\0def", 3, "00"),
        (b"abc\xff", 3, "ff"),
        ("spät".encode("latin-1"), 2, "e4"),
        (b"\xff\0", 0, "ff"),
    ],
)
def test_a_binary_file_is_refused_at_its_first_bad_byte(
    tmp_path: Path, content: bytes, offset: int, value: str
) -> None:
    (tmp_path / "file.txt").write_bytes(content)
    with pytest.raises(DataError, match=f"file.txt is not UTF-8 text: byte {offset} is 0x{value}"):
        read_corpus(tmp_path / "file.txt")


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(b"words " * 99, mtime=0)[:-9]])
def test_a_broken_gzip_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.txt.gz").write_bytes(content)
    with pytest.raises(DataError, match="not a whole gzip file"):
        read_corpus(tmp_path / "file.txt.gz")


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file.txt").write_text("words")

    def denied(self: Path, *how: str) -> None:
        raise PermissionError(13, "Permission denied")

    # Simulated, because tests may run as root, who may read everything.
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match=r"file.txt cannot be read: Permission denied"):
        read_corpus(tmp_path / "file.txt")


def test_a_folder_without_text_says_what_it_looked_for(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"1")
    with pytest.raises(DataError, match=r"no text file: .*\*\.txt, \*\.md, \*\.jsonl"):
        read_corpus(tmp_path)


def test_a_corpus_needs_documents_with_ids_of_their_own() -> None:
    with pytest.raises(DataError, match="no document"):
        Corpus("empty", ())
    with pytest.raises(DataError, match="first 'a'"):
        Corpus("twins", (Document("a", "x y"), Document("a", "y z")))


def test_the_digest_sees_every_field_and_not_the_name() -> None:
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


def test_the_digest_is_the_documented_hash() -> None:
    """A golden value: run folders of the past refer to it."""
    digest = Corpus("any", (Document("a", "text"),)).digest
    assert digest == "56f39cbc0a85cdbf9260aa1e1164ba9ad2e3ad832a91b71fc87a7a3717e9074b"
