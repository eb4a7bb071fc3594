"""Write checkpoint folders and files atomically, with a record of their origin and the user's file modes."""

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
"""File with the plan and the origin of the weights."""

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux

Proof: TypeAlias = Literal["logits", "keys", "none"]
"""Check of a saved model: its logits, its tensor names and shapes (`keys`), or only its headers (`none`)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a saved model.

    Attributes:
        plan: The layer plan.
        models: Maps names in the plan to models. The first one, `shell`, provides the parts other than layers, except
            those of `head`.
        weights: Weight hashes of the models, if logits were compared.
        parameters: Number of parameters of the new model.
        gap: Largest relative difference between a token's logits in the saved model and under the plan; None if not
            compared.
        proof: How the saved model was checked.
        compact: True if each layer is stored once, with the plan.
        note: Reason why the model was built in memory instead of copied from file to file.
        head: Name of the model that provides the parts after the layers.
        unwritten: Source tensors that were not written, although they are not part of a skipped layer.
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
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Writing:
    """Options for saving a model.

    Attributes:
        folder: The output folder.
        overwrite: Replace an existing model.
        prove: Compare the logits of the saved model and the plan (default: only for small models).
        max_shard_size: Maximum size of a shard in bytes.
        layers: Module path of the blocks.
        compact: Store each layer once.
        remote_code: Add code with which transformers runs the checkpoint without layerwise.
        head: Name of the model that provides the parts after the layers.
        inputs: Batch to compare logits on (default: a small seeded one).
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
        raise CheckpointError(
            f"{folder} already exists but contains no model, so layerwise will not overwrite it. Choose another folder."
        )
    if not overwrite:
        raise CheckpointError(f"{folder} already has a model. Choose another folder, or replace it with --overwrite.")


@contextmanager
def draft_of(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which replaces `folder` on success. If `folder` is a link, its target is replaced.

    If the process is killed, either the old or the new folder exists, and the next save removes the temporary one.
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
            if error.errno != errno.EINVAL:  # unsupported by the file system
                raise CheckpointError(f"cannot write {path} ({error.strerror}); free up disk space") from error
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
            f"cannot write to {target.parent} ({error.strerror}); choose a writable folder"
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
