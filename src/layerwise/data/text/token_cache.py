"""The token cache: a text is read, its tokenizer learned and its documents encoded once, and mapped from then on.

    CACHE/tokens/KEY/           a text with its tokenizer, as datasets of the library `datasets`
    CACHE/tokens/KEY/text.json  its name, its digest and its notes; written last, so a text without it is not whole
    CACHE/tokens/locks/         a lock for every text that is being written; other processes wait

KEY is a SHA-256 of all that decides what is behind it: the stamps of the files (or the content of a text that is in no
file), how the text is divided, the tokenizer, and the code and the libraries that encode. What changes has another key.
"""

from __future__ import annotations

import json
import platform
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from datasets import Dataset
from datasets.exceptions import DatasetGenerationError
from transformers import PreTrainedTokenizerBase

from layerwise.data.cache_folder import Stamp, cache_folder, code_digest, locked, settled, stamp, writable
from layerwise.data.splits import SPLITS, digest
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import Encoded, encoded_rows, hide_progress_bars
from layerwise.data.text.segments import PretrainingText, digest_of, pretraining_text
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import DataError

Learn = Callable[[Iterable[str]], PreTrainedTokenizerBase]
"""Learns a tokenizer from the texts of documents."""

_LIBRARIES = ("tokenizers", "datasets")
_TEXT_PACKAGE = Path(__file__).parent
_RECORD, _TOKENIZER = "text.json", "tokenizer"


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text that was read: its name, its documents by the names in `SPLITS`, and what was done to divide them."""

    name: str
    parts: Mapping[str, Sequence[Document]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextSource:
    """A text that can be read: `read` does, and `settings` decide the outcome besides `files`.

    `files` is `None` for a text that is not in files and has to be read at every start.
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
    tokenizer: PreTrainedTokenizerBase
    text: PretrainingText
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenCache:
    """Opens texts from a folder and adds those that are missing.

    `log` receives sentences, `progress` a label and the share that is done.
    """

    folder: Path = field(default_factory=lambda: cache_folder() / "tokens")
    log: Callable[[str], None] = lambda text: None
    progress: Callable[[str, float], None] = lambda label, share: None

    def open(self, source: TextSource, wanted: PreTrainedTokenizerBase | Vocabulary) -> TokenizedText:
        """Open the text of `source` with the `wanted` tokenizer, or with one learned from it.

        Raises `DataError` if the cache cannot be written.
        """
        tokenizer = wanted.settings if isinstance(wanted, Vocabulary) else tokenizer_digest(wanted)
        if isinstance(wanted, PreTrainedTokenizerBase) and tokenizer is None:
            self.log("this tokenizer cannot be compared with others, so the text is encoded at every start")
            read = source.read()
            text = pretraining_text(wanted, read.name, read.parts, self.progress)
            return TokenizedText(wanted, text, read.notes)
        known = _stamps_of(source)
        if known is not None:
            return self._open(_key(source.settings, known, tokenizer), source, source.read, wanted, known)
        read = source.read()
        return self._open(_key(source.settings, _content_digest(read), tokenizer), source, lambda: read, wanted)

    def _open(
        self,
        key: str,
        source: TextSource,
        read: Callable[[], ReadText],
        wanted: PreTrainedTokenizerBase | Vocabulary,
        known: tuple[Stamp, ...] | None = None,
    ) -> TokenizedText:
        folder = self.folder / key
        opened = self._load(folder, wanted)
        if opened is None:
            path = self.folder / "locks" / f"{key}.lock"
            with locked(path, lambda: self.log("another process prepares this text; waiting for it")):
                opened = self._load(folder, wanted)
                if opened is None:
                    opened, record = self._build(folder, read(), wanted)
                    if known is None or _stamps_of(source) == known:
                        with writable(self.folder):
                            (folder / _RECORD).write_text(json.dumps(record))
        return opened

    def _load(self, folder: Path, wanted: PreTrainedTokenizerBase | Vocabulary) -> TokenizedText | None:
        def refuse() -> Iterator[Any]:
            raise DataError(f"the text in {folder} is not whole")

        try:
            record = json.loads((folder / _RECORD).read_bytes())
            splits = {split: Encoded(_rows(folder, split, refuse), record["skipped"][split]) for split in SPLITS}
            text = PretrainingText(record["name"], record["digest"], **splits)
            tokenizer = _kept_tokenizer(folder) if isinstance(wanted, Vocabulary) else wanted
            return TokenizedText(tokenizer, text, tuple(record["notes"]))
        except (OSError, ValueError, KeyError, TypeError, DataError):
            return None

    def _build(
        self, folder: Path, read: ReadText, wanted: PreTrainedTokenizerBase | Vocabulary
    ) -> tuple[TokenizedText, dict[str, Any]]:
        with writable(self.folder):
            if folder.exists():  # a start that was killed
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
        tokenizer = wanted
        if isinstance(tokenizer, Vocabulary):
            self.log(f"learning a vocabulary from {len(read.parts['train']):,} documents of {read.name}")
            learned = tokenizer.learn(each.text for each in read.parts["train"])
            with writable(self.folder):
                learned.save_pretrained(folder / _TOKENIZER)
            tokenizer = _kept_tokenizer(folder)
        skipped: dict[str, list[str]] = {split: [] for split in SPLITS}
        splits = {}
        for split in SPLITS:
            progress = partial(self.progress, f"encoding {split}")
            rows = partial(encoded_rows, tokenizer, read.parts[split], skipped[split], progress)
            with writable(self.folder):
                splits[split] = Encoded(_rows(folder, split, rows), skipped[split])
        text = PretrainingText(read.name, digest_of(read.parts), **splits)
        record = {"name": text.name, "digest": text.digest, "notes": read.notes, "skipped": skipped}
        return TokenizedText(tokenizer, text, read.notes), record


def _rows(folder: Path, split: str, rows: Callable[[], Iterator[dict[str, Any]]]) -> Dataset:
    try:
        with hide_progress_bars():
            return Dataset.from_generator(rows, cache_dir=str(folder), fingerprint=split)
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None


def _kept_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    tokenizer = load_tokenizer(folder / _TOKENIZER)
    tokenizer.name_or_path = tokenizer.init_kwargs["name_or_path"] = ""
    return tokenizer


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """SHA-256 of all that a tokenizer does to a text; `None` for one that is written in Python."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return None if backend is None else sha256(backend.to_str().encode()).hexdigest()


def _stamps_of(source: TextSource) -> tuple[Stamp, ...] | None:
    try:
        known = None if source.files is None else tuple(map(stamp, source.files()))
    except (OSError, ValueError):
        return None
    return known if known is not None and settled(known) else None


def _content_digest(read: ReadText) -> str:
    parts = ((split, each.part_of or "", each.id.encode()) for split in SPLITS for each in read.parts[split])
    return f"{read.name} {digest_of(read.parts)} {digest(parts)} {read.notes}"


def _key(*content: object) -> str:
    return sha256(json.dumps([_program(), *content], sort_keys=True).encode()).hexdigest()


@cache
def _program() -> list[str]:
    versions = [platform.python_version(), unicodedata.unidata_version, *map(version, _LIBRARIES)]
    paths = (_TEXT_PACKAGE, *(_TEXT_PACKAGE.parents[1] / name for name in ("bounded.py", "data/splits.py")))
    return [*versions, code_digest(*paths)]
