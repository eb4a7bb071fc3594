"""Read the header of a GGUF file: metadata and tensors as byte ranges, without reading tensors.

Every number in the file is checked against its size and fixed limits, and long values are not read. See
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple

from layerwise.bounded import UnreadableError, check_file, format_bytes, named, shown
from layerwise.errors import CheckpointError

ARCHITECTURE, TYPE = "general.architecture", "general.type"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""Default alignment of tensor data in bytes."""

MAX_ENTRIES, MAX_TENSORS, MAX_ELEMENTS = 2**16, 2**17, 2**22
"""Maximum entries and tensors of a file, and elements of an array (the largest vocabularies have 2**18 tokens)."""

MAX_KEY, MAX_NAME, MAX_TEXT = 2**16 - 1, 63, 2**25
"""Maximum bytes of a key (set by the format), of a tensor name (set by ggml), and of other texts."""

MAX_VALUE = 2**12
"""Maximum bytes of a text, and elements of an array, that are kept in memory."""

CONVERT_AGAIN = "fetch it again, or convert the model again"

MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 2**16


@dataclass(frozen=True, slots=True)
class MetadataEntry:
    """A metadata entry in bytes `begin` to `end`. `element` is the element type of an array.

    `value` is a number, text or tuple of numbers. It is None for arrays of texts and for values longer than
    `MAX_VALUE`.
    """

    key: str
    type: int
    element: int | None
    length: int
    value: Any
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """A tensor in bytes `begin` to `end`. The innermost dimension comes first in `shape`."""

    name: str
    type: GGMLType
    number: int
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """The header of a GGUF file: metadata entries by key, and tensors by name."""

    path: Path
    size: int
    version: int
    alignment: int
    entries: Mapping[str, MetadataEntry]
    tensors: Mapping[str, GGUFTensor]

    @classmethod
    def open(cls, path: Path | str) -> GGUFFile:
        """Read the header. Raises `CheckpointError` if it is malformed or truncated."""
        path = Path(path)
        try:
            check_file(path)
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _read(path, content)
        except UnreadableError as fault:
            advice = fault.advice if isinstance(fault, _MalformedError) else "use a file of one model"
            raise CheckpointError(f"{named(path)} {fault}; {advice}") from None
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise CheckpointError(
                f"{named(path)} cannot be read as GGUF ({getattr(error, 'strerror', None) or error}); fetch it again"
            ) from error

    @property
    def architecture(self) -> str:
        """The architecture, such as `llama` (or `imatrix`). The keys of its settings begin with this name."""
        return str((self.entries.get(ARCHITECTURE) or self.entries[TYPE]).value)

    def setting(self, name: str) -> Any:
        """Return a setting of the architecture, such as `block_count`, or None if it is missing."""
        entry = self.entries.get(f"{self.architecture}.{name}")
        return None if entry is None else entry.value


class _MalformedError(UnreadableError):
    def __init__(self, clause: str, advice: str = CONVERT_AGAIN) -> None:
        self.advice = advice
        super().__init__(clause)


class _Cursor:
    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        self.size = len(content)
        self.at = 0

    def need(self, size: int, what: str) -> int:
        before = self.at
        if size > self.size - before:
            raise _MalformedError(
                f"is truncated: {what} needs {format_bytes(size) if size > 10**6 else f'{size} bytes'} from byte "
                f"{before}, but the file ends at byte {self.size}"
            )
        self.at = before + size
        return before

    def number(self, letter: str, what: str) -> Any:
        form = struct.Struct(f"<{letter}")
        return form.unpack_from(self.content, self.need(form.size, what))[0]

    def text(self, most: int, what: str) -> str:
        length = self.number("Q", f"the length of {what}")
        if length > most:
            raise _MalformedError(f"has {what} of {length:,} bytes, but at most {most:,} are allowed")
        begin = self.need(length, what)
        try:
            return self.content[begin : self.at].decode()
        except UnicodeDecodeError as error:
            raise _MalformedError(f"is damaged: {what} is not UTF-8 (byte {begin + error.start})") from None

    def count(self, most: int, least_size: int, what: str) -> int:
        count = int(self.number("Q", f"the number of {what}"))
        if count > most or count * least_size > self.size - self.at:
            limit = min(most, (self.size - self.at) // least_size)
            raise _MalformedError(f"claims to have {count:,} {what}, but has space for {limit:,}")
        return count


def _read(path: Path, content: mmap.mmap) -> GGUFFile:
    cursor = _Cursor(content)
    version = _version(cursor)
    tensors = cursor.count(MAX_TENSORS, 32, "tensors")
    count = cursor.count(MAX_ENTRIES, 13, "entries of metadata")
    entries: dict[str, MetadataEntry] = {}
    for entry in (_entry(cursor) for _ in range(count)):
        if entry.key in entries:
            raise _MalformedError(f"has the entry {shown(entry.key)} twice")
        entries[entry.key] = entry
    of_matrix = TYPE in entries and entries[TYPE].value == "imatrix"
    architecture = entries.get(ARCHITECTURE, entries[TYPE] if of_matrix else None)
    if architecture is None or architecture.type != STRING or not architecture.value:
        raise _MalformedError("has no general.architecture")
    alignment = _alignment(entries)
    headers = [_header(cursor, alignment) for _ in range(tensors)]
    return GGUFFile(path, cursor.size, version, alignment, entries, _locate_tensors(headers, cursor, alignment))


def _version(cursor: _Cursor) -> int:
    magic = cursor.content[cursor.need(4, "the word GGUF") : 4]
    if magic != MAGIC:
        raise _MalformedError(f"is not a GGUF file: it begins with {magic!r}", "use a file that llama.cpp opens")
    version = int(cursor.number("I", "the version"))
    if version in VERSIONS:
        return version
    if version & 0xFFFF == 0 and version:
        raise _MalformedError("is big-endian", "convert it with gguf-convert-endian from the package gguf")
    raise _MalformedError(f"has GGUF version {version}, but only versions 2 and 3 are supported")


def _entry(cursor: _Cursor) -> MetadataEntry:
    begin = cursor.at
    key = cursor.text(MAX_KEY, "a key of its metadata")
    if not key:
        raise _MalformedError(f"is damaged: the key at byte {begin} is empty")
    kind = int(cursor.number("I", f"the type of {shown(key)}"))
    element: int | None = None
    length = 1
    value: Any = None
    if kind == STRING:
        value = cursor.text(MAX_TEXT, f"the value of {shown(key)}")
        value = value if len(value) <= MAX_VALUE else None
    elif kind == ARRAY:
        element = int(cursor.number("I", f"the type of the elements of {shown(key)}"))
        length, value = _array(cursor, element, key)
    elif kind in SCALARS:
        value = cursor.number(SCALARS[kind], f"the value of {shown(key)}")
    else:
        raise _MalformedError(f"has the unknown type {kind} for {shown(key)}")
    return MetadataEntry(key, kind, element, length, value, begin, cursor.at)


def _array(cursor: _Cursor, element: int, key: str) -> tuple[int, tuple[Any, ...] | None]:
    what = f"elements of {shown(key)}"
    if element == STRING:
        count = cursor.count(MAX_ELEMENTS, 8, what)
        cursor.at = _end_of_texts(cursor, count, what)
        return count, None
    if element == ARRAY:
        raise _MalformedError(f"has nested arrays in {shown(key)}, which llama.cpp cannot read either")
    if element not in SCALARS:
        raise _MalformedError(f"has the unknown type {element} for the elements of {shown(key)}")
    form = struct.calcsize(f"<{SCALARS[element]}")
    count = cursor.count(MAX_ELEMENTS, form, what)
    begin = cursor.need(count * form, what)
    if count > MAX_VALUE:
        return count, None
    return count, struct.unpack_from(f"<{count}{SCALARS[element]}", cursor.content, begin)


def _end_of_texts(cursor: _Cursor, count: int, what: str) -> int:
    at, size = cursor.at, cursor.size
    with memoryview(cursor.content) as content, ExitStack() as opened:
        parts = [opened.enter_context(content[first : first + (size - first) // 8 * 8]) for first in range(8)]
        lengths = [opened.enter_context(part.cast("Q")) for part in parts]
        for _ in repeat(None, count):
            if at > size - 8:
                break
            at += 8 + lengths[at & 7][at >> 3]
        else:
            if at <= size:
                return at
    raise _MalformedError(f"is truncated: the {what} extend beyond its end at byte {size}")


def _alignment(entries: Mapping[str, MetadataEntry]) -> int:
    entry = entries.get("general.alignment")
    if entry is None:
        return ALIGNMENT
    value = entry.value
    if entry.type != UINT32 or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise _MalformedError(
            f"has general.alignment = {shown(value)}, which must be a power of 2 up to {MAX_ALIGNMENT:,}"
        )
    return int(value)


def _header(cursor: _Cursor, alignment: int) -> GGUFTensor:
    name = cursor.text(MAX_NAME, "the name of a tensor")
    what = f"the tensor {shown(name)}"
    dimensions = int(cursor.number("I", f"the dimensions of {what}"))
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise _MalformedError(f"has {dimensions:,} dimensions for {what}, but 1 to {MAX_DIMENSIONS} are allowed")
    form = f"<{dimensions}QIQ"
    *shape, number, offset = struct.unpack_from(form, cursor.content, cursor.need(struct.calcsize(form), what))
    if number not in TENSOR_TYPES:
        raise _MalformedError(f"has the unknown type {number} for {what}")
    kind = TENSOR_TYPES[number]
    if 0 in shape:
        raise _MalformedError(f"has the empty dimensions {shown(shape)} for {what}")
    if shape[0] % kind.values:
        raise _MalformedError(
            f"has rows of {shape[0]:,} values in {what}, but {kind.name} requires a multiple of {kind.values}"
        )
    if offset % alignment:
        raise _MalformedError(f"has {what} at byte {offset:,} of the data, which must be a multiple of {alignment}")
    size = math.prod(shape) // kind.values * kind.size
    if offset + size > cursor.size:
        raise _MalformedError(
            f"is truncated: {what} extends to byte {shown(offset + size)} of the data, but the file has {cursor.size:,}"
        )
    return GGUFTensor(name, kind, number, tuple(shape), offset, offset + size)


def _locate_tensors(headers: list[GGUFTensor], cursor: _Cursor, alignment: int) -> dict[str, GGUFTensor]:
    start = padded(cursor.at, alignment)
    tensors = {
        each.name: GGUFTensor(each.name, each.type, each.number, each.shape, start + each.begin, start + each.end)
        for each in headers
    }
    if len(tensors) < len(headers):
        twice = next(name for name, count in Counter(each.name for each in headers).items() if count > 1)
        raise _MalformedError(f"has the tensor {shown(twice)} twice")
    ordered = sorted(tensors.values(), key=lambda each: each.begin)
    for one, other in pairwise(ordered):
        if other.begin < one.end:
            raise _MalformedError(f"stores the tensors {shown(one.name)} and {shown(other.name)} in the same bytes")
    if ordered and ordered[-1].end > cursor.size:
        raise _MalformedError(
            f"is truncated: the tensor {shown(ordered[-1].name)} ends at byte {ordered[-1].end:,}, but the file has "
            f"{cursor.size:,}"
        )
    return tensors


def short_header(file: GGUFFile) -> bytes:
    """Return a small GGUF file with the short metadata and all tensor names. All tensors share four zero bytes."""
    kept = [entry for entry in file.entries.values() if entry.value is not None]
    names = [name.encode() for name in file.tensors]
    head = MAGIC + struct.pack("<IQQ", file.version, len(names), len(kept))
    with file.path.open("rb") as content:
        for entry in kept:
            content.seek(entry.begin)
            head += content.read(entry.end - entry.begin)
    head += b"".join(struct.pack(f"<Q{len(name)}sIQIQ", len(name), name, 1, 1, 0, 0) for name in names)
    return head.ljust(padded(len(head), file.alignment), b"\0") + bytes(4)


def padded(size: int, alignment: int) -> int:
    """Round `size` up to a multiple of `alignment`.

    >>> padded(33, 32), padded(64, 32)
    (64, 64)
    """
    return -(-size // alignment) * alignment


UINT32, STRING, ARRAY = 4, 8, 9
"""Value types: unsigned integer, text, and array."""

SCALARS: Mapping[int, str] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Value types of fixed size as `struct` format characters."""


class GGMLType(NamedTuple):
    """A tensor type, which stores `values` numbers in a block of `size` bytes."""

    name: str
    values: int
    size: int


TENSOR_TYPES: Mapping[int, GGMLType] = {
    number: GGMLType(*each)
    for number, each in {
        0: ("F32", 1, 4),
        1: ("F16", 1, 2),
        2: ("Q4_0", 32, 18),
        3: ("Q4_1", 32, 20),
        6: ("Q5_0", 32, 22),
        7: ("Q5_1", 32, 24),
        8: ("Q8_0", 32, 34),
        10: ("Q2_K", 256, 84),
        11: ("Q3_K", 256, 110),
        12: ("Q4_K", 256, 144),
        13: ("Q5_K", 256, 176),
        14: ("Q6_K", 256, 210),
        16: ("IQ2_XXS", 256, 66),
        17: ("IQ2_XS", 256, 74),
        18: ("IQ3_XXS", 256, 98),
        19: ("IQ1_S", 256, 50),
        20: ("IQ4_NL", 32, 18),
        21: ("IQ3_S", 256, 110),
        22: ("IQ2_S", 256, 82),
        23: ("IQ4_XS", 256, 136),
        24: ("I8", 1, 1),
        25: ("I16", 1, 2),
        26: ("I32", 1, 4),
        27: ("I64", 1, 8),
        28: ("F64", 1, 8),
        29: ("IQ1_M", 256, 56),
        30: ("BF16", 1, 2),
        34: ("TQ1_0", 256, 54),
        35: ("TQ2_0", 256, 66),
        39: ("MXFP4", 32, 17),
        40: ("NVFP4", 64, 36),
        41: ("Q1_0", 128, 18),
    }.items()
}
"""Tensor types by ggml's number; the gaps are types that are not stored (Q8_1, Q8_K) or were removed."""
