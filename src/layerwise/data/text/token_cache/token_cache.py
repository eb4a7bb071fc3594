"""The token cache: a text is read, its tokenizer learned and its documents encoded once, and mapped from then on.

    CACHE/tokens/sources/KEY.json   the digest of a text, by the stamps of its files and how it was divided
    CACHE/tokens/tokenizers/KEY/    a tokenizer learned from a text, by the digest of the text and the vocabulary
    CACHE/tokens/texts/KEY/         an encoded text, by the digests of the text and of the tokenizer
    CACHE/tokens/locks/KEY.lock     held by the process that fills an entry; the others wait

Every key is a SHA-256 of all that decides what is behind it, the code of layerwise that reads and encodes texts and the
version of `tokenizers` among them, so nothing is ever out of date: what changes has another key. A later start with the
same files compares their stamps and reads no text. Where the files were touched, or copied, the text is read and
hashed, and what was encoded is found by its digest. Nothing is removed by itself.
"""

from __future__ import annotations

import json
import platform
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from layerwise.data.cache_folder import cache_folder, locked, replaced, writable
from layerwise.data.file_stamps import Stamp, code_digest, settled, stamps
from layerwise.data.splits import SPLITS, digest
from layerwise.data.text.documents import Document
from layerwise.data.text.segments import PretrainingText, digest_of, pretraining_text
from layerwise.data.text.token_cache.stored_text import open_stored, store
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import DataError

Learn = Callable[[Iterable[str]], PreTrainedTokenizerBase]
"""Learns a tokenizer from the texts of documents."""

_LIBRARIES = ("tokenizers", "ftfy", "sacremoses")
_TEXT_ROOM = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text that was read: its name, its documents by the names in `SPLITS`, and what was done to divide them."""

    name: str
    parts: Mapping[str, Sequence[Document]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextSource:
    """A text that can be read: `read` does, and `settings` are all that decides the outcome beside the files.

    `files` names every file of it; `None` where the text is in no file, so that it has to be read at every start.
    """

    read: Callable[[], ReadText]
    settings: Mapping[str, object]
    files: Callable[[], Sequence[Path]] | None = None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer that is learned from the documents of training: `learn` does, as the plain `settings` say."""

    learn: Learn
    settings: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text with its tokenizer, and what was done to divide it."""

    tokenizer: PreTrainedTokenizerBase
    text: PretrainingText
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Record:
    """What is known of a text that was read once: its name, its digest, that of its documents' names, and the notes."""

    name: str
    digest: str
    layout: str
    notes: tuple[str, ...]

    @classmethod
    def of(cls, read: ReadText) -> _Record:
        names = ((split, each.part_of or "", each.id.encode()) for split in SPLITS for each in read.parts[split])
        return cls(read.name, digest_of(read.parts), digest(names), read.notes)

    @classmethod
    def from_file(cls, path: Path) -> _Record | None:
        try:
            content = json.loads(path.read_bytes())
            return cls(content["name"], content["digest"], content["layout"], tuple(content["notes"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class TokenCache:
    """Opens texts from a folder, and fills it with those that are not there.

    `log` receives sentences, `progress` a label and the share that is done.
    """

    folder: Path = field(default_factory=lambda: cache_folder() / "tokens")
    log: Callable[[str], None] = lambda text: None
    progress: Callable[[str, float], None] = lambda label, share: None

    def open(self, source: TextSource, wanted: PreTrainedTokenizerBase | Vocabulary) -> TokenizedText:
        """The text of `source` with the tokenizer that is `wanted`, or with one that is learned from it.

        Raises `DataError` where the cache cannot be written, and what reading, learning and encoding raise.
        """
        before = _stamps_of(source)
        if before is None:
            return self._prepared(source.read(), wanted)
        key = _key("source", source.settings, before)
        record = self.folder / "sources" / f"{key}.json"
        tokenized = self._recorded(record, wanted)
        if tokenized is None:
            with self._lock(key):
                tokenized = self._recorded(record, wanted) or self._read(source, wanted, record, before)
        return tokenized

    def _recorded(self, record: Path, wanted: PreTrainedTokenizerBase | Vocabulary) -> TokenizedText | None:
        """The text of a record, if all of it is there."""
        known = _Record.from_file(record)
        return None if known is None else self._opened(known, wanted)

    def _read(
        self,
        source: TextSource,
        wanted: PreTrainedTokenizerBase | Vocabulary,
        record: Path,
        before: tuple[Stamp, ...],
    ) -> TokenizedText:
        """Read the text, and record it under the stamps of its files if they tell of every later change."""
        is_settled = settled(before)
        read = source.read()
        if is_settled and _stamps_of(source) == before:
            with writable(self.folder), replaced(record) as draft:
                draft.write_text(json.dumps(asdict(_Record.of(read)), indent=1))
        return self._prepared(read, wanted)

    def _prepared(self, read: ReadText, wanted: PreTrainedTokenizerBase | Vocabulary) -> TokenizedText:
        """The text that was read, with all that is missing of it learned and encoded."""
        known = _Record.of(read)
        if isinstance(wanted, Vocabulary):
            self._learn(known, read, wanted)
        elif tokenizer_digest(wanted) is None:
            self.log("this tokenizer cannot be compared with others, so the text is encoded at every start")
            text = pretraining_text(wanted, read.name, read.parts, self.progress)
            return TokenizedText(wanted, text, read.notes)
        tokenizer = self._tokenizer(known, wanted)
        tokenized = None if tokenizer is None else self._opened(known, tokenizer)
        if tokenized is None and tokenizer is not None:
            folder = self._text_folder(known, tokenizer)
            with self._lock(folder.name):
                tokenized = self._opened(known, tokenizer)
                if tokenized is None:
                    with writable(self.folder):
                        store(folder, tokenizer, read.parts, self.progress)
                    tokenized = self._opened(known, tokenizer)
        if tokenized is None:
            raise DataError(f"what was just written to {self.folder} cannot be read: use a cache on another disk")
        return tokenized

    def _opened(self, known: _Record, wanted: PreTrainedTokenizerBase | Vocabulary) -> TokenizedText | None:
        """The text, if its tokenizer is there and it is encoded."""
        tokenizer = self._tokenizer(known, wanted)
        if tokenizer is None or tokenizer_digest(tokenizer) is None:
            return None
        splits = open_stored(self._text_folder(known, tokenizer))
        if splits is None:
            return None
        return TokenizedText(tokenizer, PretrainingText(known.name, known.digest, **splits), known.notes)

    def _tokenizer(
        self, known: _Record, wanted: PreTrainedTokenizerBase | Vocabulary
    ) -> PreTrainedTokenizerBase | None:
        """The tokenizer that is wanted; one that is learned, if it was."""
        if not isinstance(wanted, Vocabulary):
            return wanted
        folder = self._tokenizer_folder(known, wanted)
        if not folder.is_dir():
            return None
        tokenizer = load_tokenizer(folder)
        # Where it lay is of no interest to a model that it is saved with.
        tokenizer.name_or_path = tokenizer.init_kwargs["name_or_path"] = ""
        return tokenizer

    def _learn(self, known: _Record, read: ReadText, wanted: Vocabulary) -> None:
        """Learn the tokenizer, unless another process has."""
        folder = self._tokenizer_folder(known, wanted)
        if folder.is_dir():
            return
        with self._lock(folder.name):
            if not folder.is_dir():
                self.log(f"learning a vocabulary from {len(read.parts['train']):,} documents of {read.name}")
                tokenizer = wanted.learn(each.text for each in read.parts["train"])
                with writable(self.folder), replaced(folder) as draft:
                    tokenizer.save_pretrained(draft)

    def _tokenizer_folder(self, known: _Record, wanted: Vocabulary) -> Path:
        return self.folder / "tokenizers" / _key("tokenizer", known.digest, wanted.settings)

    def _text_folder(self, known: _Record, tokenizer: PreTrainedTokenizerBase) -> Path:
        return self.folder / "texts" / _key("text", known.digest, known.layout, tokenizer_digest(tokenizer))

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        """Hold the lock of an entry."""
        path = self.folder / "locks" / f"{key}.lock"
        with locked(path, lambda: self.log("another process prepares this text; waiting for it")):
            yield


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """SHA-256 of all that a tokenizer does to a text; `None` for one that is written in Python."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return None if backend is None else sha256(backend.to_str().encode()).hexdigest()


def _stamps_of(source: TextSource) -> tuple[Stamp, ...] | None:
    """The stamps of the files; `None` where there are none, and reading says why."""
    try:
        return None if source.files is None else stamps(source.files())
    except (OSError, ValueError):
        return None


def _key(kind: str, *content: object) -> str:
    return sha256(json.dumps([kind, _program(), *content], sort_keys=True).encode()).hexdigest()


@cache
def _program() -> list[str]:
    """What computes: the code that reads and encodes texts, its libraries, and what Python takes for a letter."""
    versions = [platform.python_version(), unicodedata.unidata_version]
    for name in _LIBRARIES:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    paths = (_TEXT_ROOM, *(_TEXT_ROOM.parents[1] / name for name in ("bounded.py", "data/splits.py")))
    return [*versions, code_digest(*paths)]
