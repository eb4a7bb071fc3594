"""Decoded images in a file: bytes that every later start, and every process, maps into its memory.

A file is named by the digests of its images and by how they were prepared. So it is never out of date, and it is there
whole or not at all: it gets its name when the last image is in it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import PIL
import torch
from torch import Tensor

from layerwise.data.vision.preprocessing import Preprocessing

_DRAFT = ".draft"
_ABANDONED = 24 * 3600.0
"""Seconds after which a draft is one of a process that was stopped."""


def pixel_file(folder: Path, digests: Sequence[bytes], preprocessing: Preprocessing) -> Path:
    """The file for images of these contents, in this order, after `preprocessing`."""
    how = json.dumps([PIL.__version__, repr(preprocessing), len(digests)])
    return folder / f"{sha256(how.encode() + b''.join(digests)).hexdigest()}.npy"


def mapped_pixels(file: Path) -> Tensor | None:
    """The pixels in a file, uint8, read from the disk as they are asked for; `None` where there is no such file."""
    try:
        # Private to the process where it is written to, so that torch takes it for memory of its own.
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None


class PixelDraft:
    """Room for pixels, uint8 of `shape`: in a file of `folder` that gets its name later, or in memory where none can be
    written."""

    def __init__(self, folder: Path, shape: tuple[int, ...]) -> None:
        self.path: Path | None = folder / f"{os.getpid()}-{time.time_ns()}{_DRAFT}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(folder)
            self.pixels = torch.from_numpy(_reserved(self.path, shape))
        except OSError:
            self.discard()
            self.path = None
            self.pixels = torch.zeros(shape, dtype=torch.uint8)

    def publish(self, file: Path) -> Tensor:
        """Give the file its name; returns the pixels as `mapped_pixels` does."""
        if self.path is None:
            return self.pixels
        try:
            with self.path.open("rb+") as draft:
                os.fsync(draft.fileno())
            os.replace(self.path, file)
        except OSError:
            return self.pixels
        mapped = mapped_pixels(file)
        return self.pixels if mapped is None else mapped

    def discard(self) -> None:
        """Remove the file, where it has no name yet."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


def _reserved(path: Path, shape: tuple[int, ...]) -> np.memmap[tuple[int, ...], np.dtype[np.uint8]]:
    """A new file of zeros. Raises `OSError` where the disk has no room: a mapping would find that out by a signal."""
    pixels = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, path.stat().st_size))
    return pixels


def _remove_abandoned(folder: Path) -> None:
    for draft in folder.glob(f"*{_DRAFT}"):
        with suppress(OSError):
            if time.time() - draft.stat().st_mtime > _ABANDONED:
                draft.unlink()
