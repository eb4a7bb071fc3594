"""Folders are written atomically, with tensor files equal to those of safetensors."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file

from apart import Watch, apart
from layerwise.checkpoint import folder as folders
from layerwise.checkpoint import save, tensor_files
from layerwise.checkpoint.folder import draft_of
from layerwise.checkpoint.tensor_files import write_checkpoint, write_file
from layerwise.data.stored_files import INDEX, WEIGHTS, read_header, stored_tensors
from layerwise.errors import CheckpointError
from layerwise.stack import load


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), pytest.param(0o077, 0o600, marks=pytest.mark.slow)])
def test_files_have_the_modes_of_the_user(home: Path, tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        save(home, "0 1", tmp_path / "streamed")
        save(load(home), "0 1", tmp_path / "memory")
    finally:
        os.umask(before)
    for name in ("streamed", "memory"):
        assert modes(tmp_path / name) == {mode}
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o777 & ~mask


def test_a_draft_of_a_process_that_is_no_more_is_removed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    abandoned, alive, old, other = (
        tmp_path / name
        for name in (
            f".m-{int(ended.stdout)}-1234",
            f".m-{os.getpid()}-1234",
            f".m-{int(ended.stdout)}-1234-old",
            f".more-{int(ended.stdout)}-1234",
        )
    )
    for folder in (abandoned, alive, old, other):
        (folder / "deep").mkdir(parents=True)
    with draft_of(tmp_path / "m") as draft:
        (draft / "config.json").write_text("{}")
        assert not abandoned.exists()
        assert old.exists()  # what a user had before, while nothing has taken its name
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["m", alive.name, old.name, other.name])
    with draft_of(tmp_path / "m"):
        assert not old.exists()


@pytest.mark.parametrize("can_exchange", [True, False])
def test_the_files_are_on_the_disk_before_the_folder_takes_its_name(
    can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    synchronize, exchange, replace = os.fsync, folders._exchange, os.replace

    def note_sync(descriptor: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        synchronize(descriptor)

    def note_exchange(one: Path, other: Path) -> bool:
        events.append("exchange")
        return can_exchange and exchange(one, other)

    def note_replace(one: Path, other: Path) -> None:
        events.append("replace")
        replace(one, other)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(folders, "_exchange", note_exchange)
    monkeypatch.setattr(os, "replace", note_replace)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "old").touch()
    (tmp_path / "link").symlink_to(tmp_path / "m")
    with draft_of(tmp_path / "link") as draft:
        (draft / "sub").mkdir()
        (draft / "sub" / "new").touch()
    renames = ["exchange"] if can_exchange else ["exchange", "replace", "replace"]
    assert (sorted(events[:2]), events[2:]) == (["new", "sub"], [draft.name, *renames, tmp_path.name])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "m"]
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "m").rglob("*")] == ["sub", "new"]


def test_a_folder_that_cannot_be_renamed_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def fail_to_name(one: Path, other: Path) -> None:
        if other == tmp_path / "m" and not one.name.endswith("-old"):
            raise OSError(28, "no space")
        replace(one, other)

    monkeypatch.setattr(folders, "_exchange", lambda one, other: False)
    monkeypatch.setattr(os, "replace", fail_to_name)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "old").touch()
    with pytest.raises(OSError, match="no space"), draft_of(tmp_path / "m") as draft:
        (draft / "new").touch()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["m", "m/old"]


def save_in_pieces(home: Path, folder: Path) -> None:
    copied = tensor_files._copied_by_kernel

    def copied_in_pieces(source: BinaryIO, begin: int, target: BinaryIO, size: int) -> int | None:
        sys.audit("apart.write", "a piece")
        return copied(source, begin, target, min(size, 4096))

    with patch.object(tensor_files, "_copied_by_kernel", copied_in_pieces):
        save(home, "0-5 5", folder, prove=False, overwrite=True)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [0, 6])
def test_a_killed_process_leaves_the_folder_that_was_there_or_a_whole_one(
    home: Path, depth: int, tmp_path: Path
) -> None:
    def prepare(target: Path) -> Path:
        shutil.rmtree(target.parent, ignore_errors=True)
        if depth:
            shutil.copytree(home, target)
        return target

    target = prepare(tmp_path / "there" / "m")
    whole = apart(save_in_pieces, home, target, watch=Watch(target.parent))
    assert whole.code == 0, whole.err
    assert whole.writes.count("a piece") > 20
    assert load(target).depth == 7
    last = len(whole.writes) - 1
    for strike in {*range(0, last, last // 10), *range(last - 10, last + 1)}:
        killed = apart(save_in_pieces, home, prepare(target), watch=Watch(target.parent, strike))
        assert killed.code == -signal.SIGKILL, killed.err
        assert (load(target).depth in (depth, 7)) if target.exists() else not depth


INTEGERS = "uint8 int8 int16 uint16 int32 uint32 int64 uint64"
FLOATS = "float16 bfloat16 float32 complex64 float64 float8_e5m2 float8_e4m3fn"
DTYPES = tuple(getattr(torch, name) for name in f"bool {INTEGERS} {FLOATS}".split())


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
        (lambda content: content[:-1], "its tensors exceed the file"),
        (lambda content: content[:40], "header would have"),
        (lambda content: b"", "header would have 0 bytes"),
        (lambda content: b"\xff" * 16, "header would have"),
        (lambda content: content.replace(b'"shape"', b'"shade"', 1), "not a complete safetensors file"),
        (lambda content: (8).to_bytes(8, "little") + b"[1,2,3] ", "not a complete safetensors file"),
        (lambda content: content + b"more", "its tensors are not contiguous"),
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
        ({"metadata": {}, "weight_map": {"a": "../other.safetensors"}}, "in the same directory"),
        ({"metadata": {}, "weight_map": {"a": "model.bin"}}, "in the same directory"),
        ({}, "must be .*weight_map"),
        (
            {"metadata": {}, "weight_map": {"missing": "in.safetensors"}},
            r"maps missing to in\.safetensors, which does not",
        ),
    ],
)
def test_an_index_names_files_in_its_directory(tmp_path: Path, index: object, reason: str) -> None:
    every_dtype(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=reason):
        stored_tensors(tmp_path)


def test_a_source_that_shrinks_is_noticed(tmp_path: Path) -> None:
    source = every_dtype(tmp_path)
    tensors = read_header(source)
    os.truncate(source, source.stat().st_size - 20)
    with pytest.raises(CheckpointError, match="was truncated while it was read"):
        write_file(tmp_path / "out.safetensors", tensors)
