"""User input is read within limits, and errors are described."""

from pathlib import Path

import pytest

from layerwise.bounded import UnreadableError, read_bytes


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
