"""Reading: which images of a set are damaged, which are the same, and their pixels, each decoded once and for all.

The decoders run in threads (they leave Python's lock alone while they work), and what they find is kept by position,
so the result does not depend on which thread was first.

What was found lies in the cache (`layerwise.data.cache_folder`): the digest of each file that has not changed since,
and the pixels of a set that is small enough. So a later start reads no image at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from layerwise.data.cache_folder import cache_folder
from layerwise.data.vision.content_digests import ContentDigests, FileVersion
from layerwise.data.vision.image_sources import ImageSource, decoded, fault
from layerwise.data.vision.pixel_files import PixelDraft, mapped_pixels, pixel_file
from layerwise.data.vision.preprocessing import Preprocessing
from layerwise.errors import DataError

_AT_ONCE = 4096
"""So many images wait for a thread at a time: a million waiting tasks would need memory of their own. What is known of
them is stored together."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class DecodedImages:
    """What reading the pictures of one split gave.

    `digests` holds the SHA-256 of each picture's bytes, `faults` the reason why one cannot be read, by its name.
    `pixels` is uint8 of shape (images, channels, height, width), or None where they are not kept; picture p of the
    split is `pixels[rows[p]]`.
    """

    pictures: tuple[ImageSource, ...]
    digests: tuple[bytes, ...]
    faults: Mapping[str, str]
    pixels: Tensor | None
    rows: Tensor

    def without(self, names: Collection[str]) -> DecodedImages:
        """The reading of the pictures that are not in `names`."""
        kept = [index for index, picture in enumerate(self.pictures) if picture.name not in names]
        return replace(
            self,
            pictures=tuple(self.pictures[index] for index in kept),
            digests=tuple(self.digests[index] for index in kept),
            faults={name: reason for name, reason in self.faults.items() if name not in names},
            rows=self.rows[kept],
        )


def decode_all(
    parts: Mapping[str, Sequence[ImageSource]],
    preprocessing: Preprocessing | None,
    progress: Progress | None = None,
) -> dict[str, DecodedImages]:
    """Each part of `parts`, read; its pixels are kept where `preprocessing` says what they should be.

    `progress(done, total)` is called after every image that is read, from the calling thread.
    """
    # In the order of their names: another seed divides the same images otherwise, and their pixels are the same.
    named = {picture.name: picture for part in parts.values() for picture in part}
    pictures = tuple(named[name] for name in sorted(named))
    reading = _Reading(pictures, cache_folder() / "images", progress)
    pixels = None if preprocessing is None else reading.with_pixels(preprocessing)
    if preprocessing is None:
        reading.digests_only()
    row_of = {picture.name: row for row, picture in enumerate(pictures)}

    def part_of(part: Sequence[ImageSource]) -> DecodedImages:
        rows = [row_of[picture.name] for picture in part]
        digests = tuple(reading.digests[row] or b"" for row in rows)
        faults = {picture.name: reading.faults[row_of[picture.name]] for picture in part}
        broken = {name: reason for name, reason in faults.items() if reason is not None}
        return DecodedImages(tuple(part), digests, broken, pixels, torch.tensor(rows, dtype=torch.int64))

    return {name: part_of(part) for name, part in parts.items()}


class _Reading:
    """Pictures with what is known of each, by its position: the digest of its content, and what is wrong with it."""

    def __init__(self, pictures: tuple[ImageSource, ...], folder: Path, progress: Progress | None) -> None:
        self.pictures = pictures
        self.folder = folder
        self.progress = progress
        self.store = ContentDigests(folder / "digests.sqlite")
        self.digests = self.store.known([picture.version() for picture in pictures])
        self.faults: list[str | None] = [None] * len(pictures)

    def digests_only(self) -> None:
        """Read the pictures of which nothing is known."""
        self._read([row for row, digest in enumerate(self.digests) if digest is None], lambda row, content: None)

    def with_pixels(self, preprocessing: Preprocessing) -> Tensor:
        """The pixels of all pictures, from the file of an earlier start where there is one."""
        if any(digest is not None for digest in self.digests):
            self.digests_only()
            mapped = mapped_pixels(self._file(preprocessing))
            if mapped is not None and len(mapped) == len(self.pictures):
                return mapped
        shape = (len(self.pictures), preprocessing.channels, preprocessing.height, preprocessing.width)
        draft = PixelDraft(self.folder, shape)

        def keep(row: int, image: Image.Image) -> None:
            draft.pixels[row] = preprocessing.pixels(image)

        try:
            self._read(range(len(self.pictures)), keep)
            # From what was read with the pixels: a file may have changed since it was read for its digest.
            return draft.publish(self._file(preprocessing))
        finally:
            draft.discard()

    def _file(self, preprocessing: Preprocessing) -> Path:
        return pixel_file(self.folder, [digest or b"" for digest in self.digests], preprocessing)

    def _read(self, rows: Sequence[int], keep: Callable[[int, Image.Image], None]) -> None:
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
            done = 0
            for start in range(0, len(rows), _AT_ONCE):
                some = rows[start : start + _AT_ONCE]
                storable: list[tuple[FileVersion, bytes]] = []
                for row, version in zip(some, threads.map(lambda row: self._look(row, keep), some), strict=True):
                    digest = self.digests[row]
                    if version is not None and digest is not None:
                        storable.append((version, digest))
                    done += 1
                    if self.progress is not None:
                        self.progress(done, len(rows))
                self.store.add(storable)

    def _look(self, row: int, keep: Callable[[int, Image.Image], None]) -> FileVersion | None:
        """Read one picture; the version that its digest may be stored for."""
        picture, content = self.pictures[row], b""
        before = picture.version()
        settled = before is not None and before.settled
        self.faults[row] = None
        try:
            content = picture.read()
            keep(row, decoded(content))
        except (DataError, OSError) as error:
            self.faults[row] = fault(error)
        self.digests[row] = sha256(content).digest()
        return before if settled and self.faults[row] is None and picture.version() == before else None
