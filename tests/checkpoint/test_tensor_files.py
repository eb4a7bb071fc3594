"""Safetensors files equal those of the library to the byte, and damaged files are refused."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from layerwise.checkpoint import tensor_files
from layerwise.checkpoint.tensor_files import write_checkpoint, write_file
from layerwise.data.stored_files import INDEX, WEIGHTS, read_header, stored_tensors
from layerwise.errors import CheckpointError

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.uint32,
    torch.float32,
    torch.complex64,
    torch.float64,
    torch.int64,
    torch.uint64,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
)


def every_dtype(folder: Path) -> Path:
    tensors = {
        f"{letter}.{number}": torch.arange(16, dtype=torch.uint8).view(dtype).clone()
        for number, dtype in enumerate(DTYPES)
        for letter in "ba"
    }
    save_file({**tensors, "nothing": torch.empty(0, 3)}, folder / "in.safetensors", metadata={"format": "pt"})
    return folder / "in.safetensors"


def test_a_copy_is_the_file_byte_for_byte(tmp_path: Path) -> None:
    source = every_dtype(tmp_path)
    write_file(tmp_path / "out.safetensors", read_header(source))
    assert (tmp_path / "out.safetensors").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("kernel", [True, False])
def test_renamed_tensors_are_those_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    source = every_dtype(tmp_path)
    if not kernel:
        monkeypatch.setattr(tensor_files, "_copied_by_kernel", lambda *_: None)
        monkeypatch.setattr(tensor_files, "_PIECE", 5)
    renamed = {f"x{name[::-1]}": tensor for name, tensor in read_header(source).items() if name != "a.3"}
    write_file(tmp_path / "out.safetensors", renamed)
    tensors = {f"x{name[::-1]}": each for name, each in load_file(source).items() if name != "a.3"}
    save_file(tensors, tmp_path / "library.safetensors", metadata={"format": "pt"})
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "library.safetensors").read_bytes()


def test_shards_hold_what_fits_and_an_index(tmp_path: Path) -> None:
    tensors = {f"t.{number}": torch.full((100,), float(number)) for number in range(7)}
    save_file(tensors, tmp_path / WEIGHTS)
    out = tmp_path / "out"
    out.mkdir()
    write_checkpoint(out, stored_tensors(tmp_path), max_shard_size=800)
    assert sorted(path.name for path in out.iterdir()) == [
        *(f"model-0000{number}-of-00004.safetensors" for number in (1, 2, 3, 4)),
        INDEX,
    ]
    assert json.loads((out / INDEX).read_text())["metadata"] == {"total_size": 2800}
    loaded = {name: each for file in out.glob("*.safetensors") for name, each in load_file(file).items()}
    assert {name: each.tolist() for name, each in loaded.items()} == {n: each.tolist() for n, each in tensors.items()}
    assert stored_tensors(out).keys() == tensors.keys()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[:-1], "reach beyond its end"),
        (lambda content: content[:40], "header would have"),
        (lambda content: b"", "header would have 0 bytes"),
        (lambda content: b"\xff" * 16, "header would have"),
        (lambda content: content.replace(b'"shape"', b'"shade"', 1), "not a whole safetensors file"),
        (lambda content: (8).to_bytes(8, "little") + b"[1,2,3] ", "not a whole safetensors file"),
        (lambda content: content + b"more", "one behind the other up to its end"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: object, reason: str) -> None:
    content = every_dtype(tmp_path).read_bytes()
    (tmp_path / WEIGHTS).write_bytes(damage(content))  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=reason):
        stored_tensors(tmp_path)


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ({"metadata": {}, "weight_map": {"a": "../other.safetensors"}}, "beside it"),
        ({"metadata": {}, "weight_map": {"a": "model.bin"}}, "beside it"),
        ({}, "should hold"),
        (
            {"metadata": {}, "weight_map": {"missing": "in.safetensors"}},
            "missing lies in in.safetensors, which does not",
        ),
    ],
)
def test_an_index_names_files_beside_it(tmp_path: Path, index: object, reason: str) -> None:
    every_dtype(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=reason):
        stored_tensors(tmp_path)


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors"):
        stored_tensors(tmp_path)


def test_a_source_that_shrinks_is_noticed(tmp_path: Path) -> None:
    source = every_dtype(tmp_path)
    tensors = read_header(source)
    os.truncate(source, source.stat().st_size - 20)
    with pytest.raises(CheckpointError, match="became shorter"):
        write_file(tmp_path / "out.safetensors", tensors)
