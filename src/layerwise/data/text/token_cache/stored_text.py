"""An encoded text on disk: arrays that are mapped into memory, and a manifest of their digests.

    FOLDER/train.ids.npy         token ids, of 16 bits where the vocabulary allows
    FOLDER/train.sentences.npy   where each sentence begins, and where the last one ends; see `Encoded`
    FOLDER/train.documents.npy   the sentence that each document begins with, and where the last one ends
    FOLDER/train.names.npy       the documents' ids as UTF-8, one after another
    FOLDER/train.name_ends.npy   where each of them begins, and where the last one ends
    FOLDER/train.cut-126.npy     segments of at most 126 ids: starts, ends and documents; written when first asked for,
    FOLDER/train.cut-126.json    and their digest and stamp, as the manifest has those of the others
    FOLDER/...                   the same for validation and test
    FOLDER/manifest.json         SHA-256 and stamp of every array, and the documents that hold nothing

While it is written, its folder begins with a full stop, and every batch of documents is a file (a shard) of its own:
a process that is killed has lost one shard at most, and nothing that is not whole is ever taken for a text. Arrays are
mapped, so processes of one machine share them, and reading a segment reads its pages alone.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, overload
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from layerwise.data.cache_folder import replaced
from layerwise.data.file_stamps import content_digest, stamp
from layerwise.data.splits import SPLITS
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import (
    Encoded,
    EncodedBatch,
    Ranges,
    encoded_batches,
    offsets,
    refuse_nothing,
    whole_documents,
)

MANIFEST = "manifest.json"
ARRAYS = ("ids", "sentences", "documents", "names", "name_ends")


@dataclass(frozen=True, slots=True, eq=False)
class StoredEncoded(Encoded):
    """Documents as token ids, mapped from the files of `split` in `folder`."""

    folder: Path = Path()
    split: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """A process that is handed the text maps the files itself."""
        return open_split, (self.folder, self.split, tuple(self.skipped))

    def ranges(self, room: int) -> Ranges:
        """Segments of at most `room` ids: mapped where they were cut before, else cut and kept."""
        path = self.folder / f"{self.split}.cut-{room}.npy"
        if not _is_as_recorded(path):
            # Not `super()`: a dataclass with slots is another class than the one that the method was written in.
            ranges = Encoded.ranges(self, room)
            try:
                with replaced(path) as draft, draft.open("wb") as file:
                    np.save(file, np.stack(ranges))
                with replaced(path.with_suffix(".json")) as record:
                    record.write_text(json.dumps(_recorded(path)))
            except OSError:  # a cache that others filled, and that this user may only read
                return ranges
        starts, ends, owners = _mapped(path)
        return starts, ends, owners


@dataclass(frozen=True, slots=True, eq=False)
class StoredNames(Sequence[str]):
    """Names that are read when they are asked for: `ends` (names + 1,) are their bounds in the bytes of `text`."""

    text: NDArray[np.uint8]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = range(len(self))[index]
        return bytes(self.text[self.ends[number] : self.ends[number + 1]]).decode()


def open_stored(folder: Path) -> dict[str, StoredEncoded] | None:
    """The three splits in `folder`; `None` where there are none, or where a file is not the one that was written."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
        if not all(_is_recorded(folder / name, record) for name, record in content["arrays"].items()):
            return None
        return {split: open_split(folder, split, tuple(content["skipped"][split])) for split in SPLITS}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _recorded(path: Path) -> list[Any]:
    """The digest and the stamp of a file."""
    return [content_digest(path), *stamp(path)[1:]]


def _is_recorded(path: Path, record: Sequence[Any]) -> bool:
    """Whether a file is the one that was recorded; its stamp tells without reading it."""
    digest, *before = record
    return list(stamp(path)[1:]) == before or content_digest(path) == digest


def _is_as_recorded(path: Path) -> bool:
    """Whether a file is there and is what the record beside it says."""
    try:
        return _is_recorded(path, json.loads(path.with_suffix(".json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return False


def open_split(folder: Path, split: str, skipped: tuple[str, ...]) -> StoredEncoded:
    """One split of a folder."""
    ids, sentences, documents, names, ends = (_mapped(folder / f"{split}.{each}.npy") for each in ARRAYS)
    return StoredEncoded(ids, sentences, documents, StoredNames(names, ends), skipped, folder, split)


def store(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    parts: Mapping[str, Sequence[Document]],
    progress: Callable[[str, float], None],
) -> None:
    """Encode the documents of the three splits into `folder`, or go on where a process was killed.

    The caller holds the lock of the folder. Raises `DataError` for a split without a word.
    """
    draft = folder.with_name(f".{folder.name}")
    draft.mkdir(parents=True, exist_ok=True)
    small = len(tokenizer) <= 2**16
    skipped = {}
    for split in SPLITS:
        shards = _encode_shards(draft, split, tokenizer, parts[split], partial(progress, f"encoding {split}"))
        skipped[split] = _join(draft, split, shards, np.dtype(np.uint16 if small else np.int32))
    arrays = {
        path.name: _recorded(path) for path in (draft / f"{split}.{each}.npy" for split in SPLITS for each in ARRAYS)
    }
    for path in draft.iterdir():
        if path.name not in arrays:
            path.unlink()
    with replaced(draft / MANIFEST) as file:
        file.write_text(json.dumps({"arrays": arrays, "skipped": skipped}, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(draft, folder)


def _encode_shards(
    draft: Path,
    split: str,
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Document],
    progress: Callable[[float], None],
) -> list[Path]:
    """Encode the documents that are in no shard yet: those behind the last shard before one that is damaged."""
    written = sorted(draft.glob(f"{split}-*.npz"))
    shards = list(takewhile(_is_whole, written))
    for left_over in written[len(shards) :]:
        left_over.unlink()
    first = sum(_about(shard)["read"] for shard in shards)
    for batch in encoded_batches(tokenizer, documents, progress, first=first):
        path = draft / f"{split}-{len(shards):06}.npz"
        with replaced(path) as file:
            _write_shard(file, batch)
        shards.append(path)
    return shards


def _write_shard(path: Path, batch: EncodedBatch) -> None:
    about = {"names": batch.names, "skipped": batch.skipped, "read": batch.read}
    with path.open("wb") as file:
        np.savez(
            file, ids=batch.ids, sentences=batch.sentences, documents=batch.documents, parts=batch.parts,
            about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        )  # fmt: skip


def _is_whole(shard: Path) -> bool:
    """Whether a shard holds what was written, by its checksums."""
    try:
        with ZipFile(shard) as file:
            return file.testzip() is None and "read" in _about(shard)
    except (OSError, EOFError, ValueError, KeyError, BadZipFile, zlib.error):
        return False


def _about(shard: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(bytes(_of_shard(shard, "about")))
    return about


def _of_shard(shard: Path, name: str) -> NDArray[Any]:
    with np.load(shard, allow_pickle=False) as arrays:
        array: NDArray[Any] = arrays[name]
    return array


def _join(draft: Path, split: str, shards: Sequence[Path], ids: np.dtype[Any]) -> list[str]:
    """Write the arrays of the shards as those of one text; returns the documents that hold nothing."""
    abouts = [_about(shard) for shard in shards]
    names = [name for about in abouts for name in about["names"]]
    skipped = [name for about in abouts for name in about["skipped"]]
    refuse_nothing(len(names), len(skipped))
    sentences, counts, parts = (
        np.concatenate([_of_shard(shard, name) for shard in shards]) for name in ("sentences", "documents", "parts")
    )
    kept = whole_documents(names, parts)
    spelt = [names[number].encode() for number in kept]
    _write(draft, split, "sentences", offsets(sentences))
    _write(draft, split, "documents", offsets(counts)[[*kept, len(names)]])
    _write(draft, split, "names", np.frombuffer(b"".join(spelt) or b"\0", dtype=np.uint8))
    _write(draft, split, "name_ends", offsets(np.array([len(name) for name in spelt])))
    path, end = draft / f"{split}.ids.npy", 0
    whole = np.lib.format.open_memmap(path, mode="w+", dtype=ids, shape=(int(sentences.sum()),))
    for shard in shards:
        rows = _of_shard(shard, "ids")
        whole[end : end + len(rows)] = rows
        end += len(rows)
    whole.flush()
    return skipped


def _write(draft: Path, split: str, name: str, array: NDArray[Any]) -> None:
    with (draft / f"{split}.{name}.npy").open("wb") as file:
        np.save(file, array)
        file.flush()
        os.fsync(file.fileno())


def _mapped(path: Path) -> NDArray[Any]:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
