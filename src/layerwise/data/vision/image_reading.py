"""Reading: which images of a set are damaged, which are the same, and their pixels, each decoded once and for all.

The decoders run in threads (they leave Python's lock alone while they work), and what they find is kept by position,
so the result does not depend on which thread was first.

What was read lies in the cache (`layerwise.data.cache_folder`): in a database the digest of each image that can be
read, by the version of its file, and in a file that every process maps into its memory the pixels of a set that is
small enough. So a later start reads nothing but what has changed. A digest is stored only where the version was the
same before and after the image was read, and is settled; pixels are named by the digests of the images and by how they
were prepared, so they are never out of date. Where the cache cannot be read or written, nothing is known, or kept.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import PIL
import torch
import transformers
from PIL import Image
from torch import Tensor

from layerwise.data.cache_folder import cache_folder
from layerwise.data.vision.image_sources import ImageSource, Version, decoded, fault
from layerwise.data.vision.preprocessing import Preprocessing
from layerwise.errors import DataError

_AT_ONCE = 4096
"""So many images wait for a thread at a time: a million waiting tasks would need memory of their own. What is known of
them is stored together."""

_WAIT = 60.0
"""Seconds that a process waits for others that write."""

_DRAFT = ".draft"
_ABANDONED = 24 * 3600.0
"""Seconds after which a draft is one of a process that was stopped."""

_TABLE = "CREATE TABLE IF NOT EXISTS digests (name TEXT PRIMARY KEY, stamp TEXT NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID"  # noqa: E501

Progress = Callable[[int, int], None]
Keep = Callable[[int, Image.Image], object]
"""What is done with an image, by its row."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadImages:
    """What reading images gave, by their names.

    `digests` holds the SHA-256 of each image's bytes, `faults` the reason why one cannot be read. `pixels` is uint8 of
    shape (images, channels, height, width), or None where they are not kept; `rows` says which is whose.
    """

    digests: Mapping[str, bytes]
    faults: Mapping[str, str]
    pixels: Tensor | None
    rows: Mapping[str, int]


def read_all(
    pictures: Iterable[ImageSource], preprocessing: Preprocessing | None, progress: Progress | None = None
) -> ReadImages:
    """The pictures, read; their pixels are kept where `preprocessing` says what they should be.

    `progress(done, total)` is called after every image that is read, from the calling thread.
    """
    # In the order of their names: another seed divides the same images otherwise, and their pixels are the same.
    reading = _Reading(sorted(pictures, key=lambda each: each.name), cache_folder() / "images", progress)
    pixels = None
    if preprocessing is None:
        reading.unknown()
    else:
        pixels = reading.pixels(preprocessing)
    names = [picture.name for picture in reading.pictures]
    faults = {name: reason for name, reason in zip(names, reading.faults, strict=True) if reason is not None}
    digests = {name: digest or b"" for name, digest in zip(names, reading.digests, strict=True)}
    return ReadImages(digests, faults, pixels, {name: row for row, name in enumerate(names)})


class _Reading:
    """Pictures with what is known of each, by its row: the digest of its content, and what is wrong with it."""

    def __init__(self, pictures: Sequence[ImageSource], folder: Path, progress: Progress | None) -> None:
        self.pictures = pictures
        self.folder = folder
        self.progress = progress
        self.faults: list[str | None] = [None] * len(pictures)
        self.digests: list[bytes | None] = [None] * len(pictures)
        with suppress(sqlite3.Error, OSError), self._database() as database:
            for row, picture in enumerate(pictures):
                if (version := picture.version()) is not None:
                    kept = database.execute("SELECT digest FROM digests WHERE (name, stamp) = (?, ?)", version[:2])
                    self.digests[row] = next((digest for (digest,) in kept), None)

    def unknown(self) -> None:
        """Read the pictures of which nothing is known."""
        self._read([row for row, digest in enumerate(self.digests) if digest is None], lambda row, image: None)

    def pixels(self, preprocessing: Preprocessing) -> Tensor:
        """The pixels of all pictures, from the file of an earlier start where there is one."""
        if any(digest is not None for digest in self.digests):
            self.unknown()
            mapped = _mapped(self._file(preprocessing))
            if mapped is not None and len(mapped) == len(self.pictures):
                return mapped
        shape = (len(self.pictures), preprocessing.channels, preprocessing.height, preprocessing.width)
        draft = self.folder / f"{os.getpid()}-{time.time_ns()}{_DRAFT}"
        try:
            pixels = _reserved(draft, shape)
            self._read(range(len(self.pictures)), lambda row, image: pixels[row].copy_(preprocessing.pixels(image)))
            # Named by what was read with the pixels: a file may have changed since it was read for its digest.
            file = self._file(preprocessing)
            with suppress(OSError):
                with draft.open("rb+") as written:
                    os.fsync(written.fileno())
                os.replace(draft, file)
                mapped = _mapped(file)
                return pixels if mapped is None else mapped
            return pixels
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def _file(self, preprocessing: Preprocessing) -> Path:
        how = json.dumps([PIL.__version__, transformers.__version__, repr(preprocessing), len(self.digests)])
        name = sha256(how.encode() + b"".join(digest or b"" for digest in self.digests)).hexdigest()
        return self.folder / f"{name}.npy"

    def _read(self, rows: Sequence[int], keep: Keep) -> None:
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
            done = 0
            for start in range(0, len(rows), _AT_ONCE):
                some = rows[start : start + _AT_ONCE]
                storable: list[tuple[str, str, bytes]] = []
                for row, version in zip(some, threads.map(lambda row: self._look(row, keep), some), strict=True):
                    digest = self.digests[row]
                    if version is not None and digest is not None:
                        storable.append((version.name, version.stamp, digest))
                    done += 1
                    if self.progress is not None:
                        self.progress(done, len(rows))
                with suppress(sqlite3.Error, OSError), self._database() as database:
                    database.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", storable)

    def _look(self, row: int, keep: Keep) -> Version | None:
        """Read one picture; the version that its digest may be stored for."""
        picture, content = self.pictures[row], b""
        before = picture.version()
        settled = before is not None and before.is_settled
        self.faults[row] = None
        try:
            content = picture.read()
            keep(row, decoded(content))
        except (DataError, OSError) as error:
            self.faults[row] = fault(error)
        self.digests[row] = sha256(content).digest()
        return before if settled and self.faults[row] is None and picture.version() == before else None

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        path = self.folder / "digests.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(path, timeout=_WAIT)) as database, database:
                database.execute(_TABLE)
                yield database
        except sqlite3.DatabaseError as error:
            # A file that is no database knows nothing; one that others write just now is left as it is.
            if not isinstance(error, sqlite3.OperationalError):
                path.unlink(missing_ok=True)
            raise


def _mapped(file: Path) -> Tensor | None:
    """The pixels in a file, uint8, read from the disk as they are asked for; `None` where there is no such file."""
    try:
        # Private to the process where it is written to, so that torch takes it for memory of its own.
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None


def _reserved(draft: Path, shape: tuple[int, ...]) -> Tensor:
    """Room for pixels, uint8 of `shape`: in the file `draft`, or in memory where none can be written.

    The room on the disk is reserved, where a mapping would find out by a signal that there is none.
    """
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        for other in draft.parent.glob(f"*{_DRAFT}"):
            with suppress(OSError):
                if time.time() - other.stat().st_mtime > _ABANDONED:
                    other.unlink()
        pixels = np.lib.format.open_memmap(draft, mode="w+", dtype=np.uint8, shape=shape)
        if hasattr(os, "posix_fallocate"):
            with draft.open("rb+") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, draft.stat().st_size))
        return torch.from_numpy(pixels)
    except OSError:
        # What was begun holds no pixels, and is never to be taken for a file that does.
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        return torch.zeros(shape, dtype=torch.uint8)
