"""GGUF files built byte by byte without layerwise and the package gguf; `bad(seed)` draws an invalid one."""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

U32, F32, STRING, ARRAY = 4, 6, 8, 9
ALIGNMENT = 32


def text(content: bytes | str, length: int | None = None) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return struct.pack("<Q", len(content) if length is None else length) + content


def array(kind: int, values: bytes, count: int) -> bytes:
    return struct.pack("<IQ", kind, count) + values


@dataclass
class Entry:
    key: bytes
    kind: int
    value: bytes


@dataclass
class Header:
    name: bytes
    shape: list[int]
    kind: int
    size: int
    offset: int | None = None


def _entries() -> list[Entry]:
    words = [b"a", "ü".encode(), b"", b"long" * 9]
    return [
        Entry(b"general.architecture", STRING, text("llama")),
        Entry(b"llama.block_count", U32, struct.pack("<I", 3)),
        Entry(b"llama.attention.head_count_kv", ARRAY, array(U32, struct.pack("<3I", 2, 0, 1), 3)),
        Entry(b"tokenizer.ggml.tokens", ARRAY, array(STRING, b"".join(map(text, words)), len(words))),
        Entry(b"tokenizer.ggml.scores", ARRAY, array(F32, struct.pack("<4f", 0, 1, 2, 3), 4)),
        Entry(b"general.name", STRING, text("small")),
    ]


def _headers() -> list[Header]:
    headers = [Header(b"token_embd.weight", [32, 4], 1, 256)]
    for layer in range(3):
        headers.append(Header(b"blk.%d.attn_q.weight" % layer, [32, 3], 8, 102))
        headers.append(Header(b"blk.%d.attn_norm.weight" % layer, [5], 0, 20))
    return [*headers, Header(b"output_norm.weight", [5], 0, 20)]


@dataclass
class Spec:
    entries: list[Entry] = field(default_factory=_entries)
    headers: list[Header] = field(default_factory=_headers)
    magic: bytes = b"GGUF"
    version: int = 3
    counts: dict[str, int] = field(default_factory=dict)

    def bytes(self) -> bytes:
        counts = (self.counts.get("tensors", len(self.headers)), self.counts.get("entries", len(self.entries)))
        head = self.magic + struct.pack("<IQQ", self.version, *counts)
        for entry in self.entries:
            head += text(entry.key) + struct.pack("<I", entry.kind) + entry.value
        data = b""
        for number, header in enumerate(self.headers):
            offset = len(data) if header.offset is None else header.offset
            head += text(header.name) + struct.pack("<I", len(header.shape))
            head += struct.pack(f"<{len(header.shape)}QIQ", *header.shape, header.kind, offset)
            data += bytes((number * 7 + at) % 251 for at in range(header.size))
            data += bytes(-len(data) % ALIGNMENT)
        return head + bytes(-len(head) % ALIGNMENT) + data


Draw = random.Random


def _large(draw: Draw) -> int:
    return int(draw.choice([2**64 - 1, 2**63, 2**32, 2 ** draw.randrange(17, 64) + draw.randrange(2**16)]))


def _cut(content: bytes, least: int, most: int, draw: Draw) -> bytes:
    return content[: draw.randrange(least, most)]


def _entry(change: Callable[[Spec, Draw], Entry]) -> Callable[[Spec, Draw], bytes]:
    def changed(spec: Spec, draw: Draw) -> bytes:
        spec.entries.insert(draw.randrange(1, len(spec.entries) + 1), change(spec, draw))
        return spec.bytes()

    return changed


def _set(part: str, **values: Callable[[Draw], object]) -> Callable[[Spec, Draw], bytes]:
    def changed(spec: Spec, draw: Draw) -> bytes:
        target = spec if part == "file" else draw.choice(spec.headers)
        for name, value in values.items():
            setattr(target, name, value(draw))
        return spec.bytes()

    return changed


def _setting(key: bytes, *values: Entry) -> Callable[[Spec, Draw], bytes]:
    def changed(spec: Spec, draw: Draw) -> bytes:
        spec.entries = [each for each in spec.entries if each.key != key]
        if values and (chosen := draw.choice([*values, None])) is not None:
            spec.entries.append(chosen)
        return spec.bytes()

    return changed


def _overlapping(spec: Spec, draw: Draw) -> bytes:
    one, other = draw.sample(range(len(spec.headers)), 2)
    offsets = [sum(-(-each.size // ALIGNMENT) * ALIGNMENT for each in spec.headers[:n]) for n in range(8)]
    spec.headers[one].offset = offsets[other]
    return spec.bytes()


def _twice(spec: Spec, draw: Draw) -> bytes:
    one, other = draw.sample(spec.headers, 2)
    one.name = other.name
    return spec.bytes()


def _key_twice(spec: Spec, draw: Draw) -> Entry:
    return Entry(draw.choice(spec.entries).key, U32, struct.pack("<I", draw.randrange(99)))


def _u32(key: bytes, value: int) -> Entry:
    return Entry(key, U32, struct.pack("<I", value))


def _header_size(spec: Spec) -> int:
    return len(spec.bytes()) - sum(-(-each.size // ALIGNMENT) * ALIGNMENT for each in spec.headers)


NOT_UTF8 = (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80")

KINDS: dict[str, Callable[[Spec, Draw], bytes]] = {
    "no magic": _set("file", magic=lambda draw: bytes(draw.randrange(256) for _ in range(3)) + b"f"),
    "version": _set("file", version=lambda draw: draw.choice([0, 1, 4, draw.randrange(4, 2**32)])),
    "big-endian": _set("file", version=lambda draw: draw.choice([2 << 24, 3 << 24])),
    "tensor count": _set("file", counts=lambda draw: {"tensors": _large(draw)}),
    "entry count": _set("file", counts=lambda draw: {"entries": _large(draw)}),
    "key length": lambda spec, draw: spec.bytes()[:24] + struct.pack("<Q", _large(draw)) + spec.bytes()[32:],
    "empty key": _entry(lambda spec, draw: _u32(b"", 1)),
    "key not UTF-8": _entry(lambda spec, draw: _u32(b"llama." + draw.choice(NOT_UTF8), 1)),
    "key twice": _entry(_key_twice),
    "value type": _entry(lambda spec, draw: Entry(b"llama.x", draw.randrange(13, 2**32), bytes(64))),
    "text length": _entry(lambda spec, draw: Entry(b"llama.x", STRING, text(b"abc", _large(draw)))),
    "text not UTF-8": _entry(lambda spec, draw: Entry(b"llama.x", STRING, text(draw.choice(NOT_UTF8)))),
    "array of arrays": _entry(lambda spec, draw: Entry(b"llama.x", ARRAY, array(ARRAY, bytes(99), draw.randrange(9)))),
    "element type": _entry(lambda spec, draw: Entry(b"llama.x", ARRAY, array(draw.randrange(13, 2**32), b"", 1))),
    "array length": _entry(lambda spec, draw: Entry(b"llama.x", ARRAY, array(draw.randrange(8), b"", _large(draw)))),
    "text array": _entry(lambda spec, draw: Entry(b"llama.x", ARRAY, array(STRING, bytes(99), _large(draw)))),
    "element length": _entry(
        lambda spec, draw: Entry(b"llama.x", ARRAY, array(STRING, text("") * 8 + text("a", _large(draw)), 9))
    ),
    "architecture": _setting(b"general.architecture", _u32(b"general.architecture", 7)),
    "alignment": _entry(lambda spec, draw: _u32(b"general.alignment", draw.choice([0, 3, 48, 2**17, 2**31]))),
    "alignment type": _entry(lambda spec, draw: Entry(b"general.alignment", STRING, text("32"))),
    "name length": _set("header", name=lambda draw: b"n" * draw.randrange(64, 2000)),
    "name not UTF-8": _set("header", name=lambda draw: b"blk.0." + draw.choice(NOT_UTF8)),
    "name twice": _twice,
    "dimensions": _set("header", shape=lambda draw: draw.choice([[], [1] * 5, [1] * draw.randrange(5, 99)])),
    "empty dimension": _set("header", shape=lambda draw: draw.choice([[0], [32, 0], [0, 32, 1]])),
    "large dimension": _set("header", shape=lambda draw: [2 ** draw.randrange(20, 63), 2 ** draw.randrange(63)]),
    "tensor type": _set("header", kind=lambda draw: draw.choice([4, 5, 9, 15, 31, 36, draw.randrange(42, 2**32)])),
    "part of a block": _set("header", shape=lambda draw: [33 + 32 * draw.randrange(9)], kind=lambda draw: 8),
    "misaligned": _set("header", offset=lambda draw: draw.randrange(500) * 32 + draw.randrange(1, 32)),
    "beyond the end": _set("header", offset=lambda draw: draw.choice([2**63, 2 ** draw.randrange(11, 63)])),
    "overlapping": _overlapping,
    "header cut": lambda spec, draw: _cut(spec.bytes(), 1, _header_size(spec), draw),
    "data cut": lambda spec, draw: _cut(spec.bytes(), _header_size(spec), len(spec.bytes()) - 32, draw),
    "noise": lambda spec, draw: spec.bytes()[:8] + draw.randbytes(draw.randrange(300)),
    "empty": lambda spec, draw: b"",
    "block count": _setting(
        b"llama.block_count",
        *(_u32(b"llama.block_count", count) for count in (0, 1, 2, 4, 2**32 - 1)),
        Entry(b"llama.block_count", STRING, text("3")),
    ),
}


def bad(seed: int) -> tuple[str, bytes]:
    kind = list(KINDS)[seed % len(KINDS)]
    return kind, KINDS[kind](Spec(), random.Random(seed))
