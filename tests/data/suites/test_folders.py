"""Folders of evaluation sets: what links lead to is there, and links in a circle end."""

from __future__ import annotations

from pathlib import Path

from layerwise.data.suites.records import below


def test_links_are_followed_and_circles_end(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "inside").mkdir(parents=True)
    (tmp_path / "elsewhere" / "inside" / "b.jsonl").touch()
    data = tmp_path / "data"
    (data / "z").mkdir(parents=True)
    (data / "z" / "a.jsonl").touch()
    (data / "linked").symlink_to(tmp_path / "elsewhere")
    (data / "z" / "above").symlink_to(data)
    names = [path.relative_to(data).as_posix() for path in below(data)]
    assert names == ["linked", "z", "linked/inside", "linked/inside/b.jsonl", "z/a.jsonl", "z/above"]
