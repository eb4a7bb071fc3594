"""The corpus: named, hashed documents, read from a text file or a folder.

What becomes a document:

- a text file is one document;
- a file in which lines read `<|endoftext|>` is split at those lines;
- a file in WikiText's layout is split at its title lines (` = Title = `, one equals sign, a space on either
  side), so that an article is a document and its sections (` = = Section = = `) stay inside it;
- a `.jsonl` file holds one document a line: an object with `text`, and optionally `id`, `task` and
  `answer_start`;
- `.train`, `.dev` and `.test` files, also with `.txt` behind it, are BabyLM's, one file a corpus: their documents are
  chunks of them, which end before a heading, at an empty line or at a line end (`layerwise.data.text.chunks`), unless
  lines read `<|endoftext|>`; the name of the file, such as `childes`, is their task;
- `.gz` files are unpacked; a folder is read recursively, in the order of its paths.

Nothing is skipped silently: a file that is empty, binary or unreadable is refused by name.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from layerwise.bounded import TEXT_SIZE, Unreadable, kind_of, named, parse_json, read_bytes, shortened, shown, unpacked
from layerwise.data.text.chunks import chunks
from layerwise.data.text.documents import Document
from layerwise.errors import DataError

BABYLM = (".train", ".dev", ".test")
"""The endings of the files that BabyLM distributes: text to train on, to look at, and to report."""

SUFFIXES = (".txt", ".md", ".jsonl", *BABYLM)
"""What a folder is searched for, each also with `.gz` behind it. A file given by its own name may be called
anything.
"""

SEPARATOR = re.compile(r"^<\|endoftext\|>[ \t]*$", re.MULTILINE)
TITLE = re.compile(r"^ = (?!=)[^\n]*(?<!=) = *$", re.MULTILINE)


@dataclass(frozen=True)
class Corpus:
    """Documents under a name. Two corpora with equal `digest` score the same text.

    Raises `DataError` when there is no document, or when two share an id.
    """

    name: str
    documents: tuple[Document, ...]

    def __post_init__(self) -> None:
        if not self.documents:
            raise DataError(f"corpus {self.name!r} holds no document: give it at least one text")
        repeated = [id for id, count in Counter(each.id for each in self.documents).items() if count > 1]
        if repeated:
            raise DataError(
                f"corpus {self.name!r} has {len(repeated)} ids that stand for more than one document, "
                f"first {repeated[0]!r}: rows could not be distinguished, so make them unique"
            )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over ids, texts, tasks and answer offsets, each preceded by its length; the name does not
        count.
        """
        state = hashlib.sha256()
        for document in self.documents:
            for field in (document.id, document.text, document.task, str(document.answer_start)):
                encoded = field.encode()
                state.update(len(encoded).to_bytes(8, "big") + encoded)
        return state.hexdigest()


def read_corpus(path: str | Path, *, task: str = "text") -> Corpus:
    """The documents of a text file or folder, as the module's opening says; `task` labels those that name
    none.

    Document ids are paths relative to `path`, with `#n` (or `:line` in a `.jsonl`) where a file holds
    several. Every document of a file that BabyLM distributes is a part of that file.

    Raises `DataError` for a path that is missing, a file that is empty, binary (the first offending byte is
    named), truncated or not readable, and a folder without text files.
    """
    root = Path(path)
    kind = kind_of(root)
    if kind == "nothing":
        raise DataError(f"there is no text at {named(root)}: give --text a text file, or a folder that holds some")
    if any("\udc80" <= character <= "\udcff" for character in str(root)):
        raise DataError(f"the name of the text {_spelt(str(root))} is no UTF-8, so no run can record it: rename it")
    if kind != "folder":
        return Corpus(_spelt(root.name), tuple(_documents(root, _spelt(root.name), task)))
    files = _text_files(root)
    if not files:
        wanted = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise DataError(
            f"the folder {root} holds no text file: searched it and its subfolders for {wanted}, "
            "also with .gz; rename your files, or give one by its own name"
        )
    documents = [each for file in files for each in _documents(file, _spelt(file.relative_to(root).as_posix()), task)]
    return Corpus(_spelt(root.resolve().name), tuple(documents))


def babylm_domain(name: str) -> str | None:
    """The corpus that a file of BabyLM holds, by its name; `None` for any other file.

    >>> babylm_domain("childes.train"), babylm_domain("bnc_spoken.dev.txt.gz"), babylm_domain("notes.txt")
    ('childes', 'bnc_spoken', None)
    """
    split = babylm_split(name)
    return None if split is None else name.removesuffix(".gz").removesuffix(".txt").removesuffix(split) or None


def babylm_split(name: str) -> str | None:
    """The ending that says which part of BabyLM a file is, one of `BABYLM`; `None` for any other file.

    >>> babylm_split("childes.train"), babylm_split("bnc_spoken.dev.txt.gz"), babylm_split("notes.txt")
    ('.train', '.dev', None)
    """
    stem = name.removesuffix(".gz").removesuffix(".txt")
    return next((ending for ending in BABYLM if stem.endswith(ending)), None)


def _spelt(name: str) -> str:
    """The name of a file as text; bytes of it that are no UTF-8 are written as `\\xff`."""
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def _text_files(folder: Path) -> list[Path]:
    """Files with one of `SUFFIXES`, hidden ones left out."""

    def wanted(file: Path) -> bool:
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        return not hidden and file.name.removesuffix(".gz").endswith(SUFFIXES) and file.is_file()

    return sorted(file for file in folder.rglob("*") if wanted(file))


def _documents(file: Path, name: str, task: str) -> list[Document]:
    text = _read_text(file)
    if file.name.removesuffix(".gz").endswith(".jsonl"):
        return _json_documents(text, file, name, task)
    pieces = [piece for piece in _split(text) if piece.strip()]
    if not pieces:
        raise DataError(f"{file} is empty: nothing but white space in it; remove it, or fill it")
    domain = babylm_domain(file.name)
    task = task if domain is None else domain
    if len(pieces) == 1 and domain is not None:
        whole = Document(name, text, task)
        return [replace(chunk, part_of=name) for chunk in chunks(whole)]
    if len(pieces) == 1:
        return [Document(name, pieces[0], task)]
    return [Document(f"{name}#{number}", piece, task) for number, piece in enumerate(pieces)]


def _split(text: str) -> list[str]:
    if SEPARATOR.search(text):
        return [piece.strip("\n") for piece in SEPARATOR.split(text)]
    starts = [match.start() for match in TITLE.finditer(text)]
    if len(starts) < 2:
        return [text]
    bounds = [0, *starts, len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


def _json_documents(text: str, file: Path, name: str, task: str) -> list[Document]:
    documents = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            documents.append(_json_document(line, f"{file}, line {number}", f"{name}:{number}", task))
    if not documents:
        raise DataError(f'{file} is empty: it should hold one object a line, such as {{"text": "..."}}')
    return documents


def _json_document(line: str, location: str, fallback_id: str, task: str) -> Document:
    try:
        record = parse_json(line)
    except Unreadable as fault:
        raise DataError(f"{location}: it {fault}; each line should be an object with a text") from fault
    if not isinstance(record, dict) or not isinstance(record.get("text"), str) or not record["text"].strip():
        description = (
            f"the keys {shortened(', '.join(sorted(record)))}" if isinstance(record, dict) else type(record).__name__
        )
        raise DataError(f'{location}: found {description}; each line should be an object with a non-empty "text"')
    start = record.get("answer_start")
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise DataError(f"{location}: answer_start is {shown(start)}; it should be a number of characters, or left out")
    labels = {"id": record.get("id", fallback_id), "task": record.get("task", task)}
    for key, value in labels.items():
        if type(value) not in (str, int):
            raise DataError(f"{location}: {key} is {shown(value)}; it should be text or a whole number, or left out")
    try:
        return Document(str(labels["id"]), record["text"], str(labels["task"]), start)
    except DataError as error:
        raise DataError(f"{location}: {error}") from error


def _read_text(file: Path) -> str:
    """The file as text, with line ends as `\\n` and without a byte-order mark."""
    try:
        content = read_bytes(file, TEXT_SIZE)
    except Unreadable as fault:
        raise DataError(f"{file} {fault}; name a file or a folder of text that can be read") from fault
    try:
        content = unpacked(content) if file.suffix == ".gz" else content
    except Unreadable as fault:
        raise DataError(f"{file} {fault}: copy it again, or unpack it first") from fault
    offset = _first_binary_byte(content)
    if offset is not None:
        raise DataError(
            f"{file} is not UTF-8 text: byte {offset} is 0x{content[offset]:02x}; "
            "layerwise reads plain text, so convert the file (iconv -t UTF-8) or name another"
        )
    return content.decode("utf-8-sig").replace("\r\n", "\n")


def _first_binary_byte(content: bytes) -> int | None:
    """The offset of the first byte that no UTF-8 text holds: a NUL, or one that does not decode."""
    nul = content.find(b"\0")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start if nul < 0 else min(nul, error.start)
    return None if nul < 0 else nul
