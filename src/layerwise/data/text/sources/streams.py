"""Streams: the bytes of a file, unpacked, a piece at a time; a file of any length takes no more memory than a line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from layerwise.bounded import RATIO, TEXT_SIZE, UNPACKED, Unreadable, check_file, check_size, size_in_words

PACKED = (".gz", ".zst")
"""The endings of files that are unpacked while they are read: gzip and Zstandard."""

_BLOCK = 2**20


def unpacked_name(name: str) -> str:
    """The name of a file without the ending that says how it is packed.

    >>> unpacked_name("words.jsonl.zst"), unpacked_name("words.txt")
    ('words.jsonl', 'words.txt')
    """
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, unpacked. Raises `Unreadable` for a damaged one, and for one that is a bomb."""
    check_file(path)
    size, read = path.stat().st_size, 0
    bound = max(UNPACKED, RATIO * size) if path.suffix in PACKED else None
    kind = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    try:
        with _opened(path) as file:
            while block := file.read(_BLOCK):
                read += len(block)
                if bound is not None and read > bound:
                    raise Unreadable(f"has {size_in_words(size)} and unpacks to more than {size_in_words(bound)}")
                yield block
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise Unreadable(
            f"cannot be read: {reason}" if kind is None else f"is not a whole {kind} file ({error})"
        ) from error


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, each with the number of bytes before it, without the line feed.

    Raises `Unreadable` where `blocks` does, and for a line that is longer than any text that is read.
    """
    start, rest = 0, b""
    for block in blocks(path):
        *whole, rest = (rest + block).split(b"\n")
        check_size(len(rest), TEXT_SIZE)
        for line in whole:
            yield start, line
            start += len(line) + 1
    if rest:
        yield start, rest


def _opened(path: Path) -> IO[bytes] | Any:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    if path.suffix == ".zst":
        import pyarrow

        return pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd")
    return path.open("rb")
