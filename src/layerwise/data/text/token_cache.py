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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from transformers import PreTrainedTokenizerBase

from layerwise.data.cache_folder import Stamp, cache_folder, code_digest, locked, replaced, settled, stamps, writable
from layerwise.data.splits import SPLITS, digest
from layerwise.data.text.documents import Document
from layerwise.data.text.segments import PretrainingText, digest_of, pretraining_text
from layerwise.data.text.stored_text import open_stored, store
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import DataError

Kept = TypeVar("Kept")

Learn = Callable[[Iterable[str]], PreTrainedTokenizerBase]
"""Learns a tokenizer from the texts of documents."""

_TEXT_ROOM = Path(__file__).parent


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

        def read() -> TokenizedText:
            is_settled = settled(before)
            text = source.read()
            # Under the stamps of its files it is recorded if they tell of every later change.
            if is_settled and _stamps_of(source) == before:
                with writable(self.folder), replaced(record) as draft:
                    draft.write_text(json.dumps(asdict(_Record.of(text)), indent=1))
            return self._prepared(text, wanted)

        return self._once(key, lambda: self._opened(_Record.from_file(record), wanted), read)

    def _once(self, key: str, look: Callable[[], Kept | None], make: Callable[[], Kept]) -> Kept:
        """What `look` finds, else what one process makes under the lock of `key` while others wait for it."""
        kept = look()
        if kept is None:
            path = self.folder / "locks" / f"{key}.lock"
            with locked(path, lambda: self.log("another process prepares this text; waiting for it")):
                kept = look()
                kept = make() if kept is None else kept
        return kept

    def _prepared(self, read: ReadText, wanted: PreTrainedTokenizerBase | Vocabulary) -> TokenizedText:
        """The text that was read, with all that is missing of it learned and encoded."""
        known = _Record.of(read)
        tokenizer = self._learned(known, read, wanted) if isinstance(wanted, Vocabulary) else wanted
        if tokenizer_digest(tokenizer) is None:
            self.log("this tokenizer cannot be compared with others, so the text is encoded at every start")
            text = pretraining_text(tokenizer, read.name, read.parts, self.progress)
            return TokenizedText(tokenizer, text, read.notes)
        folder = self._text_folder(known, tokenizer)

        def encode() -> TokenizedText:
            with writable(self.folder):
                store(folder, tokenizer, read.parts, self.progress)
            tokenized = self._opened(known, tokenizer)
            if tokenized is None:
                raise DataError(f"what was just written to {self.folder} cannot be read: use a cache on another disk")
            return tokenized

        return self._once(folder.name, lambda: self._opened(known, tokenizer), encode)

    def _learned(self, known: _Record, read: ReadText, wanted: Vocabulary) -> PreTrainedTokenizerBase:
        """The tokenizer that is learned from the text, kept for later starts."""
        folder = self._tokenizer_folder(known, wanted)

        def learn() -> PreTrainedTokenizerBase:
            self.log(f"learning a vocabulary from {len(read.parts['train']):,} documents of {read.name}")
            tokenizer = wanted.learn(each.text for each in read.parts["train"])
            with writable(self.folder), replaced(folder) as draft:
                tokenizer.save_pretrained(draft)
            return _kept_tokenizer(folder)

        return self._once(folder.name, lambda: _kept_tokenizer(folder) if folder.is_dir() else None, learn)

    def _opened(self, known: _Record | None, wanted: PreTrainedTokenizerBase | Vocabulary) -> TokenizedText | None:
        """The text of a record, if its tokenizer is there and it is encoded."""
        if known is None:
            return None
        if isinstance(wanted, Vocabulary):
            folder = self._tokenizer_folder(known, wanted)
            if not folder.is_dir():
                return None
            wanted = _kept_tokenizer(folder)
        if tokenizer_digest(wanted) is None:
            return None
        splits = open_stored(self._text_folder(known, wanted))
        text = None if splits is None else PretrainingText(known.name, known.digest, **splits)
        return None if text is None else TokenizedText(wanted, text, known.notes)

    def _tokenizer_folder(self, known: _Record, wanted: Vocabulary) -> Path:
        return self.folder / "tokenizers" / _key("tokenizer", known.digest, wanted.settings)

    def _text_folder(self, known: _Record, tokenizer: PreTrainedTokenizerBase) -> Path:
        return self.folder / "texts" / _key("text", known.digest, known.layout, tokenizer_digest(tokenizer))


def _kept_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """A tokenizer that was learned; where it lay is of no interest to a model that it is saved with."""
    tokenizer = load_tokenizer(folder)
    tokenizer.name_or_path = tokenizer.init_kwargs["name_or_path"] = ""
    return tokenizer


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
    versions = [platform.python_version(), unicodedata.unidata_version, f"tokenizers {version('tokenizers')}"]
    paths = (_TEXT_ROOM, *(_TEXT_ROOM.parents[1] / name for name in ("bounded.py", "data/splits.py")))
    return [*versions, code_digest(*paths)]
