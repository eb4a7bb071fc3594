"""User input is read within limits, and errors are described."""

import os
from pathlib import Path

import pytest

from layerwise.bounded import UnreadableError, decoded, kind_of, parse_json, read_bytes


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_bytes(file, 5) == b"12345"
    with pytest.raises(UnreadableError, match="must have at most 0 kB, got 0 kB"):
        read_bytes(file, 4)


def test_files_without_a_size_are_bounded() -> None:
    longer = Path("/proc/self/status")
    assert longer.stat().st_size == 0
    with pytest.raises(UnreadableError, match="at most"):
        read_bytes(longer, 10)


def test_only_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name, kind in (("pipe", "pipe"), (".", "folder")):
        assert kind_of(tmp_path / name) == kind
        with pytest.raises(UnreadableError, match=f"is a {kind}, not a file"):
            read_bytes(tmp_path / name, 10)
    assert {kind_of(tmp_path / name) for name in ("loop", "nowhere", "a\0b", "a" * 5_000)} == {"nothing"}
    for name in ("loop", "nowhere", "a\0b", "a" * 5_000):
        with pytest.raises(UnreadableError, match="cannot be read: "):
            read_bytes(tmp_path / name, 10)


def test_the_byte_order_mark_is_removed() -> None:
    assert decoded("\ufeffa\ufeff".encode()) == "a\ufeff"
    with pytest.raises(UnreadableError, match="byte 2 is 0xff"):
        decoded(b"ab\xff")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,}', r"not JSON \(Illegal|not JSON \(Expecting"),
        ("[1,\n2", "at line 2, column 2"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5_000, "more than 4,300 digits"),
    ],
)
def test_invalid_json_is_refused(text: str, message: str) -> None:
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    with pytest.raises(UnreadableError, match=message):
        parse_json(text)
