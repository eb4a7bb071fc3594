"""The corpus: named, hashed documents, read from a file, a folder, or a dataset of the hub.

A text file is one document, unless lines read `<|endoftext|>`, or it has WikiText's title lines (` = Title = `, one
equals sign; sections such as ` = = Section = = ` stay inside their article). A `.jsonl` file holds a document a line, a
`.parquet` file one a row. Files of BabyLM (`.train`, `.dev`, `.test`, also with `.txt` behind it) are cut into chunks
(`layerwise.data.text.documents`); the name of the file, such as `childes`, is their task. `.gz` and `.zst` files are
unpacked, and folders read recursively, in the order of their paths. A file that is empty, binary or unreadable is
refused by name. See `docs/guides/large_texts.md`.
"""

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
from layerwise.data.records import read_text, unpacked_name
from layerwise.data.text.documents import Document, chunks
from layerwise.data.text.sources import PARQUET, HubText, is_hub_text, row_documents
from layerwise.errors import DataError

BABYLM = (".train", ".dev", ".test")
"""The endings of the files that BabyLM distributes: text to train on, to look at, and to report."""

SUFFIXES = (".txt", ".md", ".jsonl", *BABYLM)
"""What a folder is searched for, each also with `.gz` or `.zst` behind it, beside `.parquet`. A file given by its own
name may be called anything.
"""

SEPARATOR = re.compile(r"^<\|endoftext\|>[ \t]*$", re.MULTILINE)
TITLE = re.compile(r"^ = (?!=)[^\n]*(?<!=) = *$", re.MULTILINE)


@dataclass(frozen=True, repr=False)
class Corpus:
    """Documents under a name; equal `digest`s mean the same text.

    Raises `DataError` without documents or for a repeated id.
    """

    name: str
    documents: tuple[Document, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str], name: str = "texts") -> Corpus:
        """A corpus of texts, each a document whose id is its number.

        >>> [document.id for document in Corpus.of(["a text", "another"]).documents]
        ['0', '1']
        """
        return cls(name, tuple(Document(str(number), text) for number, text in enumerate(texts)))

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not all(isinstance(each, Document) for each in self.documents):
            raise DataError(
                "a corpus is a name and documents; of texts alone it is made by Corpus.of, as in Corpus.of(['a text'])"
            )
        if not self.documents:
            raise DataError(f"corpus {self.name!r} holds no document: give it at least one text")
        repeated = [id for id, count in Counter(each.id for each in self.documents).items() if count > 1]
        if repeated:
            raise DataError(
                f"corpus {self.name!r} has {len(repeated)} ids that stand for more than one document, "
                f"first {repeated[0]!r}: rows could not be distinguished, so make them unique"
            )

    def distinct(self) -> Corpus:
        """Return the corpus without the documents that equal an earlier one in text, task and answer.

        >>> [document.id for document in Corpus.of(["a text", "another", "a text"]).distinct().documents]
        ['0', '1']
        """
        first = {(each.task, each.text, each.answer_start): each for each in reversed(self.documents)}
        if len(first) == len(self.documents):
            return self
        kept = {each.id for each in first.values()}
        return replace(self, documents=tuple(each for each in self.documents if each.id in kept))

    def __repr__(self) -> str:
        count = len(self.documents)
        characters = sum(len(each.text) for each in self.documents)
        return f"Corpus({self.name!r}, {count:,} document{'s' * (count != 1)}, {characters:,} characters)"

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
    """Read the documents of a text file or folder (see the module); `task` labels those that name none.

    Ids are paths relative to `path`, with `#n` (`:line` in a `.jsonl`) if a file holds several. Raises `DataError` for
    a missing path, a file that is empty, binary, truncated or unreadable, and a folder without text files.
    """
    root = Path(path)
    if is_hub_text(root):
        dataset = HubText.parse(str(root))
        documents = tuple(dataset.documents(task))
        return Corpus(_spelt(dataset.name.rstrip("/").rpartition("/")[2]), documents)
    files = source_files(root)
    if kind_of(root) != "folder":
        return Corpus(_spelt(root.name), tuple(_documents(root, _spelt(root.name), task)))
    names = (_spelt(file.relative_to(root).as_posix()) for file in files)
    documents = tuple(each for file, name in zip(files, names, strict=True) for each in _documents(file, name, task))
    return Corpus(_spelt(root.resolve().name), documents)


def source_files(root: Path) -> list[Path]:
    if is_hub_text(root):
        return HubText.parse(str(root)).files()
    kind = kind_of(root)
    if kind == "nothing":
        raise DataError(f"there is no text at {named(root)}: give --text a text file, or a folder that holds some")
    if any("\udc80" <= character <= "\udcff" for character in str(root)):
        raise DataError(f"the name of the text {_spelt(str(root))} is no UTF-8, so no run can record it: rename it")
    if kind != "folder":
        return [root]
    files = _text_files(root)
    if not files:
        wanted = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise DataError(
            f"the folder {root} holds no text file: searched it and its subfolders for {wanted}, "
            "also with .gz or .zst, and for *.parquet; rename your files, or give one by its own name"
        )
    return files


def babylm_domain(name: str) -> str | None:
    """The corpus that a file of BabyLM holds, by its name; `None` for any other file.

    >>> babylm_domain("childes.train"), babylm_domain("bnc_spoken.dev.txt.gz"), babylm_domain("notes.txt")
    ('childes', 'bnc_spoken', None)
    """
    split = babylm_split(name)
    return None if split is None else unpacked_name(name).removesuffix(".txt").removesuffix(split) or None


def babylm_split(name: str) -> str | None:
    """The ending that says which part of BabyLM a file is, one of `BABYLM`; `None` for any other file.

    >>> babylm_split("childes.train"), babylm_split("bnc_spoken.dev.txt.gz"), babylm_split("notes.txt")
    ('.train', '.dev', None)
    """
    stem = unpacked_name(name).removesuffix(".txt")
    return next((ending for ending in BABYLM if stem.endswith(ending)), None)


def _spelt(name: str) -> str:
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def _text_files(folder: Path) -> list[Path]:
    def wanted(file: Path) -> bool:
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        return not hidden and (unpacked_name(file.name).endswith(SUFFIXES) or file.suffix == PARQUET) and file.is_file()

    return sorted(file for file in folder.rglob("*") if wanted(file))


def _documents(file: Path, name: str, task: str) -> list[Document]:
    if file.suffix == PARQUET or unpacked_name(file.name).endswith(".jsonl"):
        return list(row_documents(file, name, task))
    text = read_text(file)
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
