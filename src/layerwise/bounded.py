"""Read untrusted files within limits of memory and time.

A few kilobytes can unpack to gigabytes, overflow the stack (nested brackets) or take hours (a number with a million
digits). `layerwise.data.plain_yaml` reads YAML within such limits. The message of an `UnreadableError` is a clause
without a subject (`is a pipe, not a file`), to which the caller adds the name of the file.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

MAX_TEXT_SIZE = 2**30
"""Maximum size in bytes of an unpacked text file, which is held in memory."""

MAX_SETTINGS_SIZE = 2**25

MAX_UNPACK_RATIO = 100
"""Maximum compression ratio: text reaches 10 or 20, a zip bomb 1,000."""

MAX_UNPACKED_SIZE = 2**26
"""Every file may unpack to this number of bytes, even if it exceeds `MAX_UNPACK_RATIO`."""

MAX_DIGITS = 4_300
"""Maximum digits of a number: Python's own limit, beyond which parsing takes quadratic time."""

_NAMED = 200  # characters of a path in an error
_SHOWN = 80  # characters of a value in an error

_KINDS = (
    ("file", stat.S_ISREG),
    ("folder", stat.S_ISDIR),
    ("pipe", stat.S_ISFIFO),
    ("device", stat.S_ISCHR),
    ("device", stat.S_ISBLK),
    ("socket", stat.S_ISSOCK),
)


class UnreadableError(ValueError):
    """The reason that a file cannot be read. The message is a clause whose subject is the file."""


def kind_of(path: Path | str) -> str:
    """Return `file`, `folder`, `pipe`, `device`, `socket`, or `nothing` if the path does not exist.

    >>> kind_of("/"), kind_of("a" * 5_000)
    ('folder', 'nothing')
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # missing, a loop of links, a name too long, a null byte
        return "nothing"
    return next((name for name, is_kind in _KINDS if is_kind(mode)), "nothing")


def named(path: Path | str) -> str:
    return shortened(str(path), _NAMED)


def shortened(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def describe_error(error: BaseException, lines: int = 1) -> str:
    r"""Return the class of an error and the first lines of its message.

    >>> describe_error(ValueError("one\n  two\nthree"), lines=2), describe_error(ValueError())
    ('ValueError: one two', 'ValueError: ')
    """
    return f"{type(error).__name__}: {' '.join(map(str.strip, str(error).strip().splitlines()[:lines]))}"


def shown(value: object) -> str:
    """Return a short representation of an invalid value for a message.

    >>> shown("yes"), shown([0] * 5_000)[:16], shown(10**5_000)
    ("'yes'", '[0, 0, 0, 0, 0, ', 'a number that is too long')
    """
    try:
        return shortened(repr(value))
    except (ValueError, RecursionError):  # Python does not print numbers that it would not parse
        return "a number that is too long"


def format_bytes(size: int) -> str:
    """Format a size with a suitable unit.

    >>> format_bytes(2**18), format_bytes(3 * 2**30)
    ('262 kB', '3.2 GB')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1000:,.0f} kB"


def read_bytes(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes. Raises `UnreadableError` for anything else."""
    check_file(path, most)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or type(error).__name__}") from error
    check_size(len(content), most)  # the file may have grown
    return content


def check_file(path: Path, most: int | None = None) -> None:
    """Raise `UnreadableError` unless `path` is a file of at most `most` bytes. The file is not opened."""
    try:
        result = path.stat()
    except (OSError, ValueError) as error:
        raise UnreadableError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    kind = next((name for name, is_kind in _KINDS if is_kind(result.st_mode)), "special file")
    if kind != "file":
        raise UnreadableError(f"is a {kind}, not a file")
    if most is not None:
        check_size(result.st_size, most)


def check_size(size: int, most: int) -> None:
    if size > most:
        raise UnreadableError(f"must have at most {format_bytes(most)}, got {format_bytes(size)}")


def check_archive(path: Path) -> None:
    """Raise `UnreadableError` if a zip archive is damaged or would unpack to too many bytes.

    Only the sizes in its headers are added up, since `zipfile`, and therefore numpy, unpacks no more than these.
    """
    import zipfile

    check_file(path)
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise UnreadableError(f"is not a complete archive ({error})") from error
    if unpacked > (most := max(MAX_UNPACKED_SIZE, MAX_UNPACK_RATIO * size)):
        raise UnreadableError(f"has {format_bytes(size)} and unpacks to more than {format_bytes(most)}")


def decoded(content: bytes) -> str:
    """Decode UTF-8. If this fails, the `UnreadableError` names the first invalid byte."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not UTF-8 text: byte {error.start} is 0x{content[error.start]:02x}") from error


def read_json(path: Path, most: int = MAX_SETTINGS_SIZE) -> Any:
    return parse_json(decoded(read_bytes(path, most)))


def parse_json(text: str) -> Any:
    """Parse JSON. Raises `UnreadableError` for invalid JSON, deep nesting, and numbers that are too long."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.strip() else ""
        raise UnreadableError(f"is not JSON ({error.msg} at {line}column {error.colno})") from error
    except RecursionError as error:
        raise UnreadableError("is nested too deeply") from error
    except ValueError as error:
        raise UnreadableError(f"contains a number of more than {MAX_DIGITS:,} digits") from error
