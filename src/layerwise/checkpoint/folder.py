"""A folder that appears whole or not at all, with the file modes that the user's own files have."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from layerwise.errors import CheckpointError


def refuse_in_the_way(folder: Path, overwrite: bool) -> None:
    """Raise `CheckpointError` for a folder that is not to be replaced."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is there and is not a model, so it stays; choose another folder")
    if not overwrite:
        raise CheckpointError(f"{folder} holds a model already; choose another folder, or replace it with --overwrite")


@contextmanager
def draft_of(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` that takes its name if all goes well, and is gone if not.

    A process that is killed leaves its draft, which the next one that writes the same folder removes.
    """
    folder = folder.absolute()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        draft = folder.with_name(f".{folder.name}-{os.getpid()}-{secrets.token_hex(4)}")
        draft.mkdir()
    except OSError as error:
        raise CheckpointError(
            f"cannot write to {folder.parent} ({error.strerror}); choose a folder on a disk that can be written"
        ) from error
    try:
        yield draft
        _take_own_modes(draft)
        old = draft.with_name(f"{draft.name}-old")
        if folder.exists():
            os.replace(folder, old)
        os.replace(draft, folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _take_own_modes(draft: Path) -> None:
    """Give every file the mode that a new file of this user has: some libraries write theirs for nobody else."""
    probe = draft / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for path in draft.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def _remove_abandoned(folder: Path) -> None:
    """Remove the drafts of `folder` that processes of this machine left which are no more."""
    for draft in folder.parent.glob(f".{_escaped(folder.name)}-*"):
        number = draft.name.removeprefix(f".{folder.name}-").partition("-")[0]
        only_copy = draft.name.endswith("-old") and not folder.exists()
        if number.isdecimal() and not only_copy and not _runs(int(number)):
            shutil.rmtree(draft, ignore_errors=True)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _runs(process: int) -> bool:
    with suppress(ProcessLookupError, OverflowError):
        try:
            os.kill(process, 0)
        except PermissionError:
            return True
        return True
    return False
