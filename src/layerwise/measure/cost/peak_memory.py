"""The most memory that a process held at once: that of the accelerator where there is one, else what is resident.

Resident memory has one high-water mark a process, which the kernel keeps. Whoever measures sets it back, so a watch
that is open notes what it was first, and watches may stand within one another. Where the mark cannot be set back
(outside Linux) it counts from the start of the process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import torch

_KIB = 1024


class PeakMemory:
    """Within the context `most` is the most bytes that were held at once since it was entered."""

    _open: ClassVar[list[PeakMemory]] = []

    def __init__(self) -> None:
        self._noted = 0

    def __enter__(self) -> Self:
        forget_peak()
        self._open.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._noted = self.most
        self._open.remove(self)

    @property
    def most(self) -> int:
        """In bytes, so far."""
        return max(self._noted, peak_bytes()) if self in self._open else self._noted

    @classmethod
    def note_all(cls) -> None:
        """Let every open watch keep what the mark says now."""
        for watch in cls._open:
            watch._noted = watch.most


def peak_bytes() -> int:
    """The most memory that was held at once since the mark was set back, in bytes."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    if status.is_file():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * _KIB
    if sys.platform == "win32":
        return 0
    import resource

    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(highest) * (1 if sys.platform == "darwin" else _KIB)


def forget_peak() -> None:
    """Set the mark back to what is held now."""
    PeakMemory.note_all()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # the peak then counts from the start of the process
