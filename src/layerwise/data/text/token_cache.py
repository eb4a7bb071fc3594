"""Token cache: a text is read, tokenized and encoded once, and memory-mapped afterwards.

    CACHE/tokens/KEY/           a text and its tokenizer, in the format of `datasets`
    CACHE/tokens/KEY/text.json  name, digest and notes; written last, so a text without it is incomplete
    CACHE/tokens/locks/         locks of texts that are being written

KEY is a SHA-256 of everything that determines the content: the stamps of the files (or the content of a text without
files), the splits, the tokenizer, and the code and libraries that encode.
"""

from __future__ import annotations

import json
import platform
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from datasets import Dataset
from datasets.exceptions import DatasetGenerationError
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase

from layerwise.data.cache_folder import Stamp, cache_folder, hash_code, is_settled, locked, read_stamp, writable
from layerwise.data.splits import SPLITS, digest
from layerwise.data.text.division import Division
from layerwise.data.text.encoding import Encoded, encode_rows, hide_progress_bars
from layerwise.data.text.segments import PretrainingText, hash_parts
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.errors import DataError

_LIBRARIES = ("tokenizers", "datasets")
_TEXT_PACKAGE = Path(__file__).parent
_RECORD, _TOKENIZER = "text.json", "tokenizer"


@dataclass(frozen=True, slots=True)
class TextSource:
    """A text to encode. `read` reads it from `files` with `settings`. Without `files`, it is read at every start."""

    read: Callable[[], Division]
    settings: Mapping[str, object]
    files: Callable[[], Sequence[Path]] | None = None


@dataclass(frozen=True, slots=True)
class TokenizedText:
    tokenizer: PreTrainedTokenizerBase
    text: PretrainingText
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A WordPiece vocabulary to learn from the training documents. If `size` is None, it depends on the text."""

    size: int | None


def open_text(
    source: TextSource,
    tokenizer: PreTrainedTokenizerBase | Vocabulary,
    *,
    log: Callable[[str], None],
    progress: Callable[[str, float], None],
) -> TokenizedText:
    """Open a text from the cache, or read, encode and cache it.

    Args:
        source: The text.
        tokenizer: A tokenizer, or the size of a vocabulary to learn from the text.
        log: Called with messages.
        progress: Called with a label and the completed fraction.

    Raises:
        DataError: If the cache cannot be written.
    """
    is_learned = isinstance(tokenizer, Vocabulary)
    identity = {"kind": "wordpiece", "size": tokenizer.size} if is_learned else _tokenizer_digest(tokenizer)
    cache, stamps, read = cache_folder() / "tokens", _read_stamps(source), None
    if stamps is None:
        read = source.read()
    key = _key(source.settings, _content_digest(read) if read is not None else stamps, identity)
    folder = cache / key
    opened = _load(folder, tokenizer)
    if opened is None:
        with locked(cache / "locks" / f"{key}.lock", lambda: log("waiting for another process to prepare this text")):
            opened = _load(folder, tokenizer)
            if opened is None:
                opened, record = _build(folder, read or source.read(), tokenizer, log, progress)
                if stamps is None or _read_stamps(source) == stamps:
                    with writable(cache):
                        (folder / _RECORD).write_text(json.dumps(record))
    return opened


def _load(folder: Path, tokenizer: PreTrainedTokenizerBase | Vocabulary) -> TokenizedText | None:
    def refuse() -> Iterator[Any]:
        raise DataError(f"the text in {folder} is incomplete")

    try:
        record = json.loads((folder / _RECORD).read_bytes())
        splits = {split: Encoded(_rows(folder, split, refuse), record["skipped"][split]) for split in SPLITS}
        text = PretrainingText(record["name"], record["digest"], **splits)
        opened = _load_learned(folder) if isinstance(tokenizer, Vocabulary) else tokenizer
        return TokenizedText(opened, text, tuple(record["notes"]))
    except (OSError, ValueError, KeyError, TypeError, DataError):
        return None


def _build(
    folder: Path,
    read: Division,
    tokenizer: PreTrainedTokenizerBase | Vocabulary,
    log: Callable[[str], None],
    progress: Callable[[str, float], None],
) -> tuple[TokenizedText, dict[str, Any]]:
    with writable(folder.parent):
        if folder.exists():  # left by a killed process
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
    if isinstance(tokenizer, Vocabulary):
        log(f"learning a vocabulary from {len(read.parts['train']):,} documents of {read.name}")
        learned = train_wordpiece((each.text for each in read.parts["train"]), vocabulary=tokenizer.size)
        with writable(folder.parent):
            learned.save_pretrained(folder / _TOKENIZER)
        tokenizer = _load_learned(folder)
    skipped: dict[str, list[str]] = {split: [] for split in SPLITS}
    splits = {}
    for split in SPLITS:
        rows = partial(
            encode_rows, tokenizer, read.parts[split], skipped[split], partial(progress, f"encoding {split}")
        )
        with writable(folder.parent):
            splits[split] = Encoded(_rows(folder, split, rows), skipped[split])
    text = PretrainingText(read.name, hash_parts(read.parts), **splits)
    record = {"name": text.name, "digest": text.digest, "notes": read.notes, "skipped": skipped}
    return TokenizedText(tokenizer, text, read.notes), record


def _rows(folder: Path, split: str, rows: Callable[[], Iterator[dict[str, Any]]]) -> Dataset:
    try:
        with hide_progress_bars():
            return Dataset.from_generator(rows, cache_dir=str(folder), fingerprint=split)
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None


def _load_learned(folder: Path) -> PreTrainedTokenizerBase:
    tokenizer = load_tokenizer(folder / _TOKENIZER)
    tokenizer.name_or_path = tokenizer.init_kwargs["name_or_path"] = ""
    return tokenizer


def _tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # Tokenizers written in Python are hashed like the arguments of `datasets.map`.
    return str(Hasher.hash(tokenizer)) if backend is None else sha256(backend.to_str().encode()).hexdigest()


def _read_stamps(source: TextSource) -> tuple[Stamp, ...] | None:
    try:
        stamps = None if source.files is None else tuple(map(read_stamp, source.files()))
    except (OSError, ValueError):
        return None
    return stamps if stamps is not None and is_settled(stamps) else None


def _content_digest(read: Division) -> str:
    parts = ((split, each.part_of or "", each.id.encode()) for split in SPLITS for each in read.parts[split])
    return f"{read.name} {hash_parts(read.parts)} {digest(parts)} {read.notes}"


def _key(*content: object) -> str:
    return sha256(json.dumps([_program(), *content], sort_keys=True).encode()).hexdigest()


@cache
def _program() -> list[str]:
    versions = [platform.python_version(), unicodedata.unidata_version, *map(version, _LIBRARIES)]
    paths = (_TEXT_PACKAGE, *(_TEXT_PACKAGE.parents[1] / name for name in ("bounded.py", "data/splits.py")))
    return [*versions, hash_code(*paths)]
