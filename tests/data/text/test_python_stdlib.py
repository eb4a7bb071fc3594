"""The standard library as text: what is read, and that the split holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerwise.data.text import python_stdlib
from layerwise.errors import DataError


def test_the_split_is_written_in_stone() -> None:
    """The shipped model was trained on `train`: a change of the rule would let it be graded on what it has read."""
    heldout = {"collections", "dataclasses", "inspect", "json", "logging", "queue", "tkinter"}
    train = {"argparse", "asyncio", "email", "http", "os", "re", "socket", "typing", "unittest", "zipfile"}
    assert {python_stdlib.split_of(name) for name in heldout} == {"heldout"}
    assert {python_stdlib.split_of(name) for name in train} == {"train"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("json", "json.decoder"),
        ("decimal", "_pydecimal"),
        ("io", "_pyio"),
        ("posixpath", "ntpath"),
        ("profile", "cProfile"),
        ("sre_parse", "re._parser"),
    ],
)
def test_a_family_falls_on_one_side(one: str, other: str) -> None:
    assert python_stdlib.split_of(one) == python_stdlib.split_of(other)
    assert python_stdlib._family(one) == python_stdlib._family(other)


@pytest.mark.slow
def test_every_module_is_in_exactly_one_split_and_both_are_large() -> None:
    sides = {
        split: {document.module for document in python_stdlib.documents(split, "code")}
        for split in python_stdlib.SPLITS
    }
    assert not sides["train"] & sides["heldout"]
    assert {"argparse", "asyncio.tasks"} <= sides["train"]
    assert {"json", "json.decoder", "collections"} <= sides["heldout"]
    size = {
        split: sum(
            len(document.text) for kind in python_stdlib.KINDS for document in python_stdlib.documents(split, kind)
        )
        for split in python_stdlib.SPLITS
    }
    assert size["train"] > 4_000_000
    assert 0.05 < size["heldout"] / size["train"] < 0.4


def test_tests_tables_and_bundled_programs_are_left_out() -> None:
    parts = {part for module in python_stdlib.modules() for part in module.split(".")}
    assert parts.isdisjoint({"test", "tests", "idlelib", "lib2to3", "encodings", "site-packages"})
    assert "string" in parts


def test_prose_is_the_documentation_under_its_dotted_name() -> None:
    [prose] = [d for d in python_stdlib.documents("heldout", "prose") if d.module == "json.decoder"]
    assert "json.decoder.JSONDecoder\nSimple JSON" in prose.text
    assert "json.decoder.JSONDecoder.raw_decode\n" in prose.text
    assert "def " not in prose.text
    [code] = [d for d in python_stdlib.documents("heldout", "code") if d.module == "json.decoder"]
    assert "def raw_decode" in code.text


def test_unknown_split_or_kind_names_the_near_match() -> None:
    with pytest.raises(DataError, match="did you mean heldout"):
        python_stdlib.documents("held-out", "prose")
    with pytest.raises(DataError, match="Known: code, prose"):
        python_stdlib.documents("train", "images")


def test_unreadable_files_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path
    (root / "fine.py").write_text('"""Fine."""\n')
    (root / "latin.py").write_bytes(b'"""caf\xe9"""\n')
    (root / "broken.py").write_text("def (:\n")
    (root / "empty.py").write_text("")
    monkeypatch.setattr(python_stdlib.sysconfig, "get_paths", lambda: {"stdlib": str(root)})
    assert sorted(python_stdlib.modules()) == ["broken", "empty", "fine", "latin"]
    texts = {
        module: python_stdlib._text(module, path, "prose").strip() for module, path in python_stdlib.modules().items()
    }
    assert texts == {"broken": "", "empty": "", "fine": "fine\nFine.", "latin": ""}


def test_a_python_without_sources_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_stdlib.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="no Python source"):
        python_stdlib.modules()
