"""The folder of a written checkpoint: what it says of itself; it appears whole or not at all, with the user's modes."""

from __future__ import annotations

import ctypes
import errno
import glob
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from layerwise.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

FILE = "plan.json"
"""What the plan was, and whose weights, beside the weights."""

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux

Proof: TypeAlias = Literal["logits", "keys", "none"]
"""The extent of the check: logits with the plan's, keys and shapes with transformers', or headers only."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a written model comes from: its plan, and the weight hash of each model by its name in the plan.

    The model at hand, whose parts that are no layers were taken, is called `shell`. `parameters` counts the new
    model's. `gap` is how far its logits are from those of the plan, over the batch it was checked on: the largest
    difference of a token's logits by its norm, beside the norm of its logits; it is `None`, and there are no hashes of
    weights, where no logits were compared. `head` is the name of the model whose parts behind the layers were taken, if
    that is not the model at hand. `note` says why a model was built in memory that might have been streamed, and
    `unwritten` which stored tensors were not written although no layer that the plan skips has them.
    """

    plan: str
    models: Mapping[str, str]
    weights: Mapping[str, str]
    parameters: int
    gap: float | None
    proof: Proof = "logits"
    compact: bool = False
    note: str = ""
    head: str | None = None
    unwritten: str = ""

    def write(self, folder: Path) -> None:
        """Write it to its file in `folder`."""
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How a checkpoint is written: `prove` is `None` for what suits its size; a model in memory is always proved.

    The proof is run on `inputs`, by default on a small seeded batch. A folder that is there is replaced only if
    `overwrite` is set and it holds a model. `layers` is where a user says that the blocks are. A `compact` checkpoint
    stores each layer once. `head` is the name of the model whose parts behind the layers are taken, if that is not the
    first one. With `remote_code` it brings the code with which transformers runs it.
    """

    folder: Path
    overwrite: bool = False
    prove: bool | None = None
    max_shard_size: int = 50 * 10**9
    layers: str | None = None
    compact: bool = False
    remote_code: bool = False
    head: str | None = None
    inputs: Mapping[str, Tensor] | None = None


def refuse_in_the_way(folder: Path, overwrite: bool) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is there and is not a model, so it stays; choose another folder")
    if not overwrite:
        raise CheckpointError(f"{folder} holds a model already; choose another folder, or replace it with --overwrite")


@contextmanager
def draft_of(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `folder`, or what it links to, on success.

    A process that is killed leaves the folder as it was, or the new one, and a draft for the next process to remove.
    """
    folder = Path(os.path.realpath(folder))
    with _draft_beside(folder) as draft:
        yield draft
        _take_own_modes(draft)
        _synchronize(draft)
        if not folder.exists():
            os.replace(draft, folder)
        elif not _exchange(draft, folder):
            old = draft.with_name(f"{draft.name}-old")
            os.replace(folder, old)
            try:
                os.replace(draft, folder)
            except OSError:
                os.replace(old, folder)
                raise
            shutil.rmtree(old, ignore_errors=True)
        _synchronize(folder.parent, deep=False)


@contextmanager
def draft_of_file(file: Path) -> Iterator[Path]:
    file = Path(os.path.realpath(file))
    with _draft_beside(file) as draft:
        yield draft / file.name
        _take_own_modes(draft)
        _synchronize(draft)
        os.replace(draft / file.name, file)
        _synchronize(file.parent, deep=False)


def _synchronize(folder: Path, deep: bool = True) -> None:
    for path in (*(folder.rglob("*") if deep else ()), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # of file systems that cannot
                raise CheckpointError(f"cannot write {path} ({error.strerror}); free the disk") from error
        finally:
            os.close(descriptor)


def _exchange(one: Path, other: Path) -> bool:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    return rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


@contextmanager
def _draft_beside(target: Path) -> Iterator[Path]:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        draft = target.with_name(f".{target.name}-{os.getpid()}-{secrets.token_hex(4)}")
        draft.mkdir()
    except OSError as error:
        raise CheckpointError(
            f"cannot write to {target.parent} ({error.strerror}); choose a folder on a disk that can be written"
        ) from error
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _take_own_modes(draft: Path) -> None:
    probe = draft / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for path in draft.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def _remove_abandoned(folder: Path) -> None:
    for draft in folder.parent.glob(f".{glob.escape(folder.name)}-*"):
        number = draft.name.removeprefix(f".{folder.name}-").partition("-")[0]
        only_copy = draft.name.endswith("-old") and not folder.exists()
        if number.isdecimal() and not only_copy and not _runs(int(number)):
            shutil.rmtree(draft, ignore_errors=True)


def _runs(process: int) -> bool:
    with suppress(ProcessLookupError, OverflowError):
        try:
            os.kill(process, 0)
        except PermissionError:
            return True
        return True
    return False
