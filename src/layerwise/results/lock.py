"""One writer to a run folder.

The lock belongs to the operating system and not to a file's existence: it dies with its process, also by
`kill -9`, so a killed run never has to be unlocked by hand. The lock file only carries the writer's process
id, for the message that a second writer gets; it stays behind on purpose, because deleting it would let two
processes lock two files of one name.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from layerwise.errors import RunError

_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}

if sys.platform == "win32":
    import msvcrt

    def _seize(descriptor: int) -> None:
        # Windows locks forbid reading what they cover, and the process id must stay readable: lock a byte
        # beyond it.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _seize(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Lock:
    """An exclusive lock on `path`, held until `release` or until the process ends, however it ends.

    Raises `RunError` when another process holds it (the message names that process) or when it cannot be had
    at all.
    """

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(
                f"Cannot write to the run folder {path.parent} ({error.strerror}). "
                "Choose a folder on a disk that can be written."
            ) from error
        try:
            _seize(descriptor)
        except OSError as error:
            holder = _process_id(descriptor)
            os.close(descriptor)
            raise RunError(_refusal(path.parent, holder, error)) from error
        try:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, str(os.getpid()).encode())
        except OSError as error:
            os.close(descriptor)
            raise RunError(
                f"Cannot write {path} ({error.strerror}). Free some space, remove it if it is no ordinary file, or "
                "choose another folder."
            ) from error
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let the next writer in. Releasing twice does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _process_id(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 32).decode(errors="replace").strip()


def _refusal(folder: Path, holder: str, error: OSError) -> str:
    if error.errno not in _TAKEN:
        return (
            f"The file system of {folder} cannot lock files ({error.strerror}), so two processes could mix "
            "their "
            "rows. Choose a folder on a local disk."
        )
    who = f"process {holder}" if holder else "another process"
    return (
        f"The run folder {folder} is in use: {who} is writing to it. "
        "Wait for it to end, stop it (the run can be resumed), or choose another folder."
    )
