"""Corpora of named documents."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from layerwise.bounded import kind_of, named
from layerwise.data.records import read_text, strip_compression_suffix
from layerwise.data.text.documents import Document, split_chunks
from layerwise.data.text.sources import PARQUET, HubText, is_hub_text, read_row_documents
from layerwise.errors import DataError

BABYLM = (".train", ".dev", ".test")
"""Suffixes of BabyLM's training, validation and test files."""

SUFFIXES = (".txt", ".md", ".jsonl", *BABYLM)
"""Suffixes of text files in a directory, which may be followed by `.gz` or `.zst`. `.parquet` files are read, too."""

SEPARATOR = re.compile(r"^<\|endoftext\|>[ \t]*$", re.MULTILINE)
TITLE = re.compile(r"^ = (?!=)[^\n]*(?<!=) = *$", re.MULTILINE)


@dataclass(frozen=True, repr=False)
class Corpus:
    """Documents with a name. Two corpora with the same `digest` have the same texts.

    Raises `DataError` if there are no documents, or if two have the same id.
    """

    name: str
    documents: tuple[Document, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str], name: str = "texts") -> Corpus:
        """Create a corpus of texts. The id of a text is its number.

        >>> [document.id for document in Corpus.of(["a text", "another"]).documents]
        ['0', '1']
        """
        return cls(name, tuple(Document(str(number), text) for number, text in enumerate(texts)))

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not all(isinstance(each, Document) for each in self.documents):
            raise DataError("A corpus must have a name and documents. Use Corpus.of(['a text']) for plain texts.")
        if not self.documents:
            raise DataError(f"Corpus {self.name!r} must have at least one document, got none.")
        repeated = [id for id, count in Counter(each.id for each in self.documents).items() if count > 1]
        if repeated:
            raise DataError(
                f"Document ids of corpus {self.name!r} must be unique, got {len(repeated)} repeated ids, first "
                f"{repeated[0]!r}."
            )

    def distinct(self) -> Corpus:
        """Remove documents with the same text, task and answer offset as an earlier one.

        >>> [document.id for document in Corpus.of(["a text", "another", "a text"]).distinct().documents]
        ['0', '1']
        """
        first = {(each.task, each.text, each.answer_start): each for each in reversed(self.documents)}
        if len(first) == len(self.documents):
            return self
        ids = {each.id for each in first.values()}
        return replace(self, documents=tuple(each for each in self.documents if each.id in ids))

    def __repr__(self) -> str:
        count = len(self.documents)
        characters = sum(len(each.text) for each in self.documents)
        return f"Corpus({self.name!r}, {count:,} document{'s' * (count != 1)}, {characters:,} characters)"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all ids, texts, tasks and answer offsets, each preceded by its length."""
        state = hashlib.sha256()
        for document in self.documents:
            for field in (document.id, document.text, document.task, str(document.answer_start)):
                encoded = field.encode()
                state.update(len(encoded).to_bytes(8, "big") + encoded)
        return state.hexdigest()


def read_corpus(path: str | Path, *, task: str = "text") -> Corpus:
    """Read the documents of a text file, a directory or a hub dataset.

    A text file is one document, unless it has lines that read `<|endoftext|>`, or WikiText's title lines (` = Title =
    `). A `.jsonl` file has one document per line, a `.parquet` file one per row. A BabyLM file is cut into chunks,
    whose task is the name of the file, such as `childes`. Directories are read recursively, in the order of paths.

    Args:
        path: A file, a directory, or a dataset name `hf:...`.
        task: Name of the task (group of documents), if a document has none.

    Returns:
        The corpus. The id of a document is its path relative to `path`. If a file has several documents, `#n` follows,
        or `:line` in a `.jsonl` file.

    Raises:
        DataError: If the path is missing, a file is empty, binary, truncated or unreadable, or a directory has no text
            files.

    Example:
        >>> read_corpus("texts/").documents  # doctest: +SKIP
    """
    root = Path(path)
    if is_hub_text(root):
        dataset = HubText.parse(str(root))
        documents = tuple(dataset.documents(task))
        return Corpus(_spelt(dataset.name.rstrip("/").rpartition("/")[2]), documents)
    files = list_text_files(root)
    if kind_of(root) != "folder":
        return Corpus(_spelt(root.name), tuple(_documents(root, _spelt(root.name), task)))
    names = (_spelt(file.relative_to(root).as_posix()) for file in files)
    documents = tuple(each for file, name in zip(files, names, strict=True) for each in _documents(file, name, task))
    return Corpus(_spelt(root.resolve().name), documents)


def list_text_files(root: Path) -> list[Path]:
    if is_hub_text(root):
        return HubText.parse(str(root)).files()
    kind = kind_of(root)
    if kind == "nothing":
        raise DataError(f"{named(root)} does not exist. Set --text to a text file or a directory of text files.")
    if any("\udc80" <= character <= "\udcff" for character in str(root)):
        raise DataError(f"The name {_spelt(str(root))} must be valid UTF-8 to be recorded. Rename the file.")
    if kind != "folder":
        return [root]
    files = _text_files(root)
    if not files:
        patterns = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise DataError(
            f"{root} has no text files ({patterns}, also with .gz or .zst, or *.parquet). Rename your files, or pass "
            "one by name."
        )
    return files


def find_babylm_domain(name: str) -> str | None:
    """Return the subcorpus in the name of a BabyLM file, or `None` for other files.

    >>> [find_babylm_domain(name) for name in ("childes.train", "bnc_spoken.dev.txt.gz", "notes.txt")]
    ['childes', 'bnc_spoken', None]
    """
    split = find_babylm_split(name)
    return None if split is None else strip_compression_suffix(name).removesuffix(".txt").removesuffix(split) or None


def find_babylm_split(name: str) -> str | None:
    """Return the suffix of a BabyLM file (one of `BABYLM`), or `None` for other files.

    >>> find_babylm_split("childes.train"), find_babylm_split("bnc_spoken.dev.txt.gz"), find_babylm_split("notes.txt")
    ('.train', '.dev', None)
    """
    stem = strip_compression_suffix(name).removesuffix(".txt")
    return next((ending for ending in BABYLM if stem.endswith(ending)), None)


def _spelt(name: str) -> str:
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def _text_files(folder: Path) -> list[Path]:
    def is_text(file: Path) -> bool:
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        return (
            not hidden
            and (strip_compression_suffix(file.name).endswith(SUFFIXES) or file.suffix == PARQUET)
            and file.is_file()
        )

    return sorted(file for file in folder.rglob("*") if is_text(file))


def _documents(file: Path, name: str, task: str) -> list[Document]:
    if file.suffix == PARQUET or strip_compression_suffix(file.name).endswith(".jsonl"):
        return list(read_row_documents(file, name, task))
    text = read_text(file)
    pieces = [piece for piece in _split(text) if piece.strip()]
    if not pieces:
        raise DataError(f"{file} is empty. Remove it or add text.")
    domain = find_babylm_domain(file.name)
    task = task if domain is None else domain
    if len(pieces) == 1 and domain is not None:
        return [replace(chunk, part_of=name) for chunk in split_chunks(Document(name, text, task))]
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
