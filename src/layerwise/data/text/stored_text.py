"""An encoded text on disk: arrays that are mapped into memory, and a manifest of their digests.

    FOLDER/train.ids.npy         token ids, of 16 bits where the vocabulary allows
    FOLDER/train.sentences.npy   where each sentence begins, and where the last one ends; see `Encoded`
    FOLDER/train.documents.npy   the sentence that each document begins with, and where the last one ends
    FOLDER/train.names.json      the documents' ids, and those of documents that hold nothing
    FOLDER/train.cut-126.npy     segments of at most 126 ids: starts, ends and documents; written when first asked for,
    FOLDER/train.cut-126.json    and their digest and stamp, as the manifest has those of the others
    FOLDER/...                   the same for validation and test
    FOLDER/manifest.json         SHA-256 and stamp of every other file

While it is written, its folder begins with a full stop, so nothing that is not whole is ever taken for a text. Arrays
are mapped, so processes of one machine share them, and reading a segment reads its pages alone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from layerwise.data.cache_folder import content_digest, replaced, stamp
from layerwise.data.splits import SPLITS
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import Encoded, Ranges, encode

MANIFEST = "manifest.json"
ARRAYS = ("ids", "sentences", "documents")


@dataclass(frozen=True, slots=True, eq=False)
class StoredEncoded(Encoded):
    """Documents as token ids, mapped from the files of `split` in `folder`."""

    folder: Path = Path()
    split: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """A process that is handed the text maps the files itself."""
        return open_split, (self.folder, self.split)

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


def open_stored(folder: Path) -> dict[str, StoredEncoded] | None:
    """The three splits in `folder`; `None` where there are none, or where a file is not the one that was written."""
    try:
        recorded = json.loads((folder / MANIFEST).read_bytes())
        if not all(_is_recorded(folder / name, record) for name, record in recorded.items()):
            return None
        return {split: open_split(folder, split) for split in SPLITS}
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


def open_split(folder: Path, split: str) -> StoredEncoded:
    """One split of a folder."""
    ids, sentences, documents = (_mapped(folder / f"{split}.{each}.npy") for each in ARRAYS)
    known = json.loads((folder / f"{split}.names.json").read_bytes())
    return StoredEncoded(ids, sentences, documents, known["names"], known["skipped"], folder, split)


def store(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    parts: Mapping[str, Sequence[Document]],
    progress: Callable[[str, float], None],
) -> None:
    """Encode the documents of the three splits into `folder`; what a process left there that was killed is removed.

    The caller holds the lock of the folder. Raises `DataError` for a split without a word.
    """
    for left_over in folder.parent.glob(f".{folder.name}-*"):
        shutil.rmtree(left_over)
    with replaced(folder) as draft:
        draft.mkdir()
        for split in SPLITS:
            _write_split(draft, split, tokenizer, parts[split], partial(progress, f"encoding {split}"))
        recorded = {path.name: _recorded(path) for path in sorted(draft.iterdir())}
        with _synced(draft / MANIFEST) as file:
            file.write(json.dumps(recorded, indent=1).encode())
        shutil.rmtree(folder, ignore_errors=True)


def _write_split(
    draft: Path,
    split: str,
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Document],
    progress: Callable[[float], None],
) -> None:
    """Write the files of a split, its ids as they are encoded."""
    dtype = np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.int32)
    with _synced(draft / f"{split}.ids.npy") as file:
        _write_header(file, dtype, 0)
        text = encode(tokenizer, documents, progress, lambda ids: file.write(ids.astype(dtype).tobytes()))
        file.seek(0)
        _write_header(file, dtype, int(text.sentences[-1]))
    for name, array in (("sentences", text.sentences), ("documents", text.documents)):
        with _synced(draft / f"{split}.{name}.npy") as file:
            np.save(file, array)
    with _synced(draft / f"{split}.names.json") as file:
        file.write(json.dumps({"names": text.names, "skipped": text.skipped}).encode())


def _write_header(file: BinaryIO, dtype: np.dtype[Any], count: int) -> None:
    """What stands before the numbers of an array in a file; it has one length for every count."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, header)


@contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    """A new file, which is on the disk when the context ends."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _mapped(path: Path) -> NDArray[Any]:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
