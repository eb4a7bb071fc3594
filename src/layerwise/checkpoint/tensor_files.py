"""Write safetensors files from byte ranges of other files. They are identical to files that safetensors writes."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from layerwise.data.stored_files import DTYPE_BITS, INDEX, WEIGHTS, Tensors
from layerwise.errors import CheckpointError

Range: TypeAlias = tuple[Path, int, int]
"""A half-open byte range of a file."""

# Files order tensors by safetensors' dtypes, reversed.
_RANKS = {dtype: rank for rank, dtype in enumerate(DTYPE_BITS)}

# Errors after which bytes are copied in user space instead.
_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
_PIECE = 1 << 22


def write_checkpoint(folder: Path, tensors: Tensors, max_shard_size: int) -> None:
    shards = list(_shards(tensors, max_shard_size))
    if len(shards) == 1:
        write_file(folder / WEIGHTS, tensors)
        return
    placed = {}
    for number, names in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_file(folder / file, {name: tensors[name] for name in names})
        placed.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": sum(each.size for each in tensors.values())}, "weight_map": placed}
    (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _shards(tensors: Tensors, most: int) -> Iterator[list[str]]:
    shard: list[str] = []
    size = 0
    for name, tensor in tensors.items():
        if shard and size + tensor.size > most:
            yield shard
            shard, size = [], 0
        shard.append(name)
        size += tensor.size
    yield shard


def write_file(file: Path, tensors: Tensors) -> None:
    """Write a safetensors file. Raises `CheckpointError` if the disk is full or a source has changed."""
    ordered = sorted(tensors, key=lambda name: (-_RANKS[tensors[name].dtype], name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in ordered:
        begin, end = end, end + tensors[name].size
        header[name] = {"dtype": tensors[name].dtype, "shape": tensors[name].shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    ranges = joined((each.file, each.begin, each.end) for each in (tensors[name] for name in ordered))
    write_pieces(file, [len(text).to_bytes(8, "little") + text, *ranges])


def write_pieces(file: Path, pieces: Iterable[bytes | Range]) -> None:
    try:
        with file.open("wb") as target, ExitStack() as opened:
            sources: dict[Path, BinaryIO] = {}
            for piece in pieces:
                if isinstance(piece, bytes):
                    target.write(piece)
                    continue
                path, begin, end = piece
                if path not in sources:
                    sources[path] = opened.enter_context(path.open("rb"))
                target.flush()
                _copy(sources[path], begin, target, end - begin)
    except OSError as error:
        raise CheckpointError(
            f"cannot write {file} ({error.strerror}); free up disk space, or choose another disk"
        ) from error


def joined(ranges: Iterable[Range]) -> Iterator[Range]:
    """Join adjacent ranges of one file, and drop empty ones.

    >>> list(joined([(Path("a"), 0, 4), (Path("a"), 4, 8), (Path("b"), 8, 8), (Path("a"), 0, 4)]))
    [(PosixPath('a'), 0, 8), (PosixPath('a'), 0, 4)]
    """
    file, begin, end = Path(), 0, 0
    for path, first, last in ranges:
        if path == file and first == end:
            end = last
            continue
        if end > begin:
            yield file, begin, end
        file, begin, end = path, first, last
    if end > begin:
        yield file, begin, end


def _copy(source: BinaryIO, begin: int, target: BinaryIO, size: int) -> None:
    end = begin + size
    while begin < end:
        copied = _copied_by_kernel(source, begin, target, end - begin)
        if copied is None:
            piece = os.pread(source.fileno(), min(_PIECE, end - begin), begin)
            copied = os.write(target.fileno(), piece) if piece else 0
        if not copied:
            raise CheckpointError(f"{source.name} was truncated while it was read; fetch or save it again")
        begin += copied


def _copied_by_kernel(source: BinaryIO, begin: int, target: BinaryIO, size: int) -> int | None:
    if not hasattr(os, "copy_file_range"):
        return None
    try:
        return os.copy_file_range(source.fileno(), target.fileno(), size, begin)
    except OSError as error:
        if error.errno in _NO_KERNEL_COPY:
            return None
        raise
