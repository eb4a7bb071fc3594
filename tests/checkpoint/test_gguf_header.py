"""Valid GGUF headers are read, and invalid ones are refused with a message."""

import random
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoint.gguf_bytes import ARRAY, F32, KINDS, STRING, U32, Entry, Header, Spec, array, bad, text
from layerwise.errors import CheckpointError, LayerwiseError
from layerwise.gguf import GGUFFile, depth_of
from layerwise.gguf.file import MAX_VALUE, SCALARS, TENSOR_TYPES

MEANS = {
    "no magic": "is not a GGUF file",
    "version": "only versions 2 and 3 are supported",
    "big-endian": "is big-endian; convert it with gguf-convert",
    "tensor count": "tensors, but has space for",
    "entry count": "entries of metadata, but has space for",
    "key length": "a key of its metadata",
    "empty key": "is empty",
    "key not UTF-8": "not UTF-8",
    "key twice": "twice",
    "value type": "has the unknown type",
    "text length": "'llama.x'",
    "text not UTF-8": "not UTF-8",
    "array of arrays": "has nested arrays in",
    "element type": "for the elements of 'llama.x'",
    "array length": "elements of 'llama.x'",
    "text array": "elements of 'llama.x'",
    "element length": "elements of 'llama.x'",
    "architecture": "general.architecture",
    "alignment": "a power of 2",
    "alignment type": "general.alignment = '32'",
    "name length": "the name of a tensor",
    "name not UTF-8": "the name of a tensor is not UTF-8",
    "name twice": "twice",
    "dimensions": "but 1 to 4 are allowed",
    "empty dimension": "has the empty dimensions",
    "large dimension": "is truncated",
    "tensor type": "has the unknown type",
    "part of a block": "but Q8_0 requires a multiple of 32",
    "misaligned": "must be a multiple of 32",
    "beyond the end": "is truncated",
    "overlapping": "in the same bytes",
    "header cut": "",
    "data cut": "is truncated",
    "noise": "",
    "empty": "an empty file",
    "block count": "layers",
}


def write(path: Path, spec: Spec) -> Path:
    path.write_bytes(spec.bytes())
    return path


def test_a_good_file_is_read(tmp_path: Path) -> None:
    spec = Spec()
    file = GGUFFile.open(write(tmp_path / "m.gguf", spec))
    content = spec.bytes()
    assert (file.version, file.alignment, file.size, file.architecture) == (3, 32, len(content), "llama")
    assert list(file.tensors) == [header.name.decode() for header in spec.headers]
    for number, (header, tensor) in enumerate(zip(spec.headers, file.tensors.values(), strict=True)):
        assert (tensor.shape, tensor.number, tensor.size) == (tuple(header.shape), header.kind, header.size)
        expected = bytes((number * 7 + at) % 251 for at in range(header.size))
        assert content[tensor.begin : tensor.end] == expected
    values = {key: (entry.value, entry.length) for key, entry in file.entries.items()}
    assert values["llama.attention.head_count_kv"] == ((2, 0, 1), 3)
    assert values["tokenizer.ggml.tokens"] == (None, 4)
    assert values["tokenizer.ggml.scores"] == ((0, 1, 2, 3), 4)
    assert (file.setting("block_count"), file.setting("nothing"), depth_of(file)) == (3, None, 3)
    one, *others = file.entries.values()
    for before, entry in zip([one, *others], others, strict=False):
        assert before.end == entry.begin
        assert content[entry.begin : entry.end].startswith(text(entry.key))


def test_every_type_of_value_is_read_and_long_ones_stay_in_the_file(tmp_path: Path) -> None:
    spec = Spec()
    for kind, letter in SCALARS.items():
        spec.entries.append(Entry(b"s.%d" % kind, kind, struct.pack(f"<{letter}", 1)))
        spec.entries.append(Entry(b"a.%d" % kind, ARRAY, array(kind, struct.pack(f"<3{letter}", 1, 0, 1), 3)))
    spec.entries.append(Entry(b"long.text", STRING, text("x" * (MAX_VALUE + 1))))
    spec.entries.append(Entry(b"long.array", ARRAY, array(F32, bytes(4 * (MAX_VALUE + 1)), MAX_VALUE + 1)))
    file = GGUFFile.open(write(tmp_path / "m.gguf", spec))
    for kind in SCALARS:
        assert (file.entries[f"s.{kind}"].value, file.entries[f"a.{kind}"].value) == (1, (1, 0, 1))
    assert file.entries["long.text"].value is None
    assert (file.entries["long.array"].value, file.entries["long.array"].length) == (None, MAX_VALUE + 1)


def opened(folder: Path, content: bytes) -> GGUFFile:
    (folder / "file.gguf").write_bytes(content)
    return GGUFFile.open(folder / "file.gguf")


def test_bounds_are_the_last_values_that_are_read(tmp_path: Path) -> None:
    one = Entry(b"general.alignment", U32, struct.pack("<I", 1))
    largest = Entry(b"general.alignment", U32, struct.pack("<I", 2**16))
    kept = [
        Entry(b"a.text", STRING, text("x" * MAX_VALUE)),
        Entry(b"an.array", ARRAY, array(F32, bytes(4 * MAX_VALUE), MAX_VALUE)),
    ]
    file = opened(tmp_path, Spec(entries=[*Spec().entries, *kept, largest], headers=[]).bytes())
    assert (len(file.entries["a.text"].value), len(file.entries["an.array"].value)) == (MAX_VALUE, MAX_VALUE)
    assert file.alignment == 2**16
    first, second = Header(b"n" * 63, [1, 1, 1, 5], 0, 20, 0), Header(b"b", [5], 0, 20, 20)
    assert len(opened(tmp_path, Spec(entries=[*Spec().entries, one], headers=[first, second]).bytes()).tensors) == 2
    for header, reason in (
        (replace(first, name=b"n" * 64), "has the name of a tensor of 64 bytes, but at most 63"),
        (replace(first, shape=[1, 1, 1, 1, 5]), "has 5 dimensions for the tensor"),
        (replace(first, offset=1), "in the same bytes"),
    ):
        with pytest.raises(CheckpointError, match=reason):
            opened(tmp_path, Spec(entries=[*Spec().entries, one], headers=[header, second]).bytes())
    whole = Spec(entries=[*Spec().entries, one], headers=[]).bytes()
    assert opened(tmp_path, whole).alignment == 1
    with pytest.raises(CheckpointError, match=r"is truncated: the value of 'general\.alignment' needs"):
        opened(tmp_path, whole[: whole.index(b"general.alignment") + 17 + 4 + 3])


def test_types_of_tensors_are_those_of_the_package_gguf() -> None:
    gguf = pytest.importorskip("gguf")
    known = {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    ours = {number: tuple(each) for number, each in TENSOR_TYPES.items()}
    assert ours.items() <= known.items()
    assert {name for number, (name, *_) in known.items() if number not in ours} <= {"Q8_1", "Q8_K"}


def is_a_sentence(message: str) -> bool:
    return (
        "\n" not in message
        and len(message) < 500
        and re.search(r"; (fetch|use|convert|run) [^;]+$", message) is not None
    )


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_a_bad_file_is_refused_with_the_reason(number: int, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    for seed in range(number, 3 * len(KINDS), len(KINDS)):
        kind, content = bad(seed)
        path.write_bytes(content)
        with pytest.raises(LayerwiseError, match=re.escape(str(path))) as refused:
            depth_of(GGUFFile.open(path))
        assert MEANS[kind] in str(refused.value)
        assert is_a_sentence(str(refused.value))


def test_changed_bytes_are_refused_or_read(tmp_path: Path) -> None:
    path, content, draw = tmp_path / "m.gguf", Spec().bytes(), random.Random(5)
    messages = []
    for _ in range(400):
        changed = bytearray(content)
        changed[draw.randrange(700)] = draw.randrange(256)
        path.write_bytes(changed)
        try:
            depth_of(GGUFFile.open(path))
        except LayerwiseError as error:
            messages.append(str(error))
    assert all(map(is_a_sentence, messages))
    assert len(messages) > 200  # most of a header is lengths, types and counts


def test_a_folder_and_an_absent_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder, not a file"):
        GGUFFile.open(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        GGUFFile.open(tmp_path / "absent.gguf")


def test_a_file_may_end_where_its_last_value_does_and_no_earlier(tmp_path: Path) -> None:
    content = Spec().bytes()  # the last tensor has 20 bytes of the last 32
    (tmp_path / "m.gguf").write_bytes(content[:-12])
    assert GGUFFile.open(tmp_path / "m.gguf").size == len(content) - 12
    (tmp_path / "m.gguf").write_bytes(content[:-13])
    with pytest.raises(CheckpointError, match=r"output_norm.weight' ends at byte"):
        GGUFFile.open(tmp_path / "m.gguf")

    spec = Spec(headers=[])
    spec.entries.append(Entry(b"llama.x", ARRAY, array(STRING, text("last", 40) + bytes(36), 1)))
    content = spec.bytes()
    cut = content.rindex(b"last") + 40
    (tmp_path / "m.gguf").write_bytes(content[:cut])
    assert GGUFFile.open(tmp_path / "m.gguf").entries["llama.x"].length == 1
    (tmp_path / "m.gguf").write_bytes(content[: cut - 1])
    with pytest.raises(CheckpointError, match=r"is truncated: the elements of 'llama\.x' extend beyond"):
        GGUFFile.open(tmp_path / "m.gguf")
