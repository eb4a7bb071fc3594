"""A case of bad input: files, a command line, and how the command must end."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from apart import Ended

MEMORY = 1536 * 2**20
"""Bytes per command."""

SECONDS = 40
"""CPU time per command."""

LONGEST = 800
"""Maximum length of a message in characters."""

Says = str | tuple[str, ...] | None
"""Words of the message, or `None` for a command that must succeed."""

_BESIDE = (".lock", "-wal", "-shm")
_HASHED = 2**22  # files up to this size are compared byte by byte


@dataclass(frozen=True, slots=True)
class Case:
    """`make` fills the folder, which must not change except for paths matching `writes`; `check` may assert more."""

    arguments: tuple[str, ...]
    says: Says
    make: Callable[[Path], object] | None = None
    name: str = ""
    writes: tuple[str, ...] = ()
    check: Callable[[Path, Ended], None] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} [{' '.join(each[:40] for each in self.arguments)}, says {self.says!r}]"


def words(says: Says) -> tuple[str, ...]:
    return (says,) if isinstance(says, str) else says or ()


def faults(case: Case, ended: Ended) -> list[str]:
    found = [f"it was killed: too much {ended.killed}"] if ended.killed else []
    if ended.rss > MEMORY:
        found.append(f"it held {ended.rss / 2**20:,.0f} MB")
    if "Traceback" in ended.err:
        found.append("a traceback")
    if case.says is None:
        return found if ended.code == 0 else [*found, f"it ended with code {ended.code}, and must succeed"]
    if ended.code != 2:
        found.append(f"it ended with code {ended.code}, not 2")
    if ended.out:
        found.append(f"it printed {ended.out[:80]!r}")
    if len(re.findall("^error: ", ended.err, re.MULTILINE)) != 1:
        found.append("there is not one line that begins with `error: `")
    found += [f"the message does not say {part!r}" for part in words(case.says) if part not in ended.message]
    return found + _verbose(ended.message)


def _verbose(message: str) -> list[str]:
    """Return whether a message has more than two sentences."""
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z])", message)
    too_many = [f"the message has {len(sentences)} sentences"] if len(sentences) > 2 else []
    return too_many + ([f"the message has {len(message)} characters"] if len(message) > LONGEST else [])


def contents(folder: Path) -> dict[str, str]:
    """Map each path to its type or content, without the side files of SQLite and locks."""
    kept = (path for path in sorted(folder.rglob("*")) if not path.name.endswith(_BESIDE))
    return {path.relative_to(folder).as_posix(): _what(path) for path in kept}


def _what(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if path.is_dir():
        return "folder"
    if not path.is_file():
        return "device or pipe"
    size = path.stat().st_size
    return f"{size} bytes" if size > _HASHED else hashlib.sha256(path.read_bytes()).hexdigest()
