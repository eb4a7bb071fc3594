"""Reading: every image of a set decoded once, side by side, to know which are damaged and which are the same.

The decoders run in threads (they leave Python's lock alone while they work), and what they find is kept by position,
so the result does not depend on which thread was first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor

from layerwise.data.vision.image_sources import ImageSource, decoded, fault
from layerwise.data.vision.preprocessing import Preprocessing
from layerwise.errors import DataError

_AT_ONCE = 4096
"""So many images wait for a thread at a time: a million waiting tasks would need memory of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedImages:
    """What reading the pictures of one split gave.

    `digests` holds the SHA-256 of each picture's bytes, `faults` the reason why one cannot be read, by its name.
    `pixels` is uint8 of shape (pictures, channels, height, width), or None where they are not kept.
    """

    pictures: tuple[ImageSource, ...]
    digests: tuple[bytes, ...]
    faults: Mapping[str, str]
    pixels: Tensor | None

    def without(self, names: Collection[str]) -> DecodedImages:
        """The reading of the pictures that are not in `names`."""
        kept = [index for index, picture in enumerate(self.pictures) if picture.name not in names]
        if len(kept) == len(self.pictures):
            return self  # the pixels of a large set are not copied for nothing
        return DecodedImages(
            tuple(self.pictures[index] for index in kept),
            tuple(self.digests[index] for index in kept),
            {name: reason for name, reason in self.faults.items() if name not in names},
            None if self.pixels is None else self.pixels[kept],
        )


def decode_all(
    parts: Mapping[str, Sequence[ImageSource]],
    preprocessing: Preprocessing | None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, DecodedImages]:
    """Each part of `parts`, read; its pixels are kept where `preprocessing` says what they should be.

    `progress(done, total)` is called after every image, from the calling thread.
    """
    total = sum(len(pictures) for pictures in parts.values())
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        return {name: _read(tuple(part), preprocessing, threads, count) for name, part in parts.items()}


def _read(
    pictures: tuple[ImageSource, ...],
    preprocessing: Preprocessing | None,
    threads: ThreadPoolExecutor,
    count: Callable[[], None],
) -> DecodedImages:
    pixels = None
    if preprocessing is not None:
        shape = (len(pictures), preprocessing.channels, preprocessing.height, preprocessing.width)
        pixels = torch.zeros(shape, dtype=torch.uint8)

    def look(index: int) -> tuple[bytes, str | None]:
        """The digest of one picture and its fault; its pixels go to their index."""
        content = b""
        try:
            content = pictures[index].read()
            image = decoded(content)
            if pixels is not None and preprocessing is not None:
                pixels[index] = preprocessing.pixels(image)
        except (DataError, OSError) as error:
            return sha256(content).digest(), fault(error)
        return sha256(content).digest(), None

    contents: list[tuple[bytes, str | None]] = []
    for start in range(0, len(pictures), _AT_ONCE):
        for result in threads.map(look, range(start, min(start + _AT_ONCE, len(pictures)))):
            contents.append(result)
            count()
    faults = {
        picture.name: reason for picture, (_, reason) in zip(pictures, contents, strict=True) if reason is not None
    }
    return DecodedImages(pictures, tuple(content for content, _ in contents), faults, pixels)
