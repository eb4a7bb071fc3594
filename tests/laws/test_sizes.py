"""Size is a cost that every reader pays: no figure of `tools/sizes.py` is above its ceiling in `sizes.json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import sizes


def test_nothing_has_grown_above_its_ceiling() -> None:
    ceilings = json.loads(sizes.CEILINGS.read_text())
    raised = list(sizes.above(sizes.figures(), ceilings))
    assert not raised, (
        f"{'; '.join(raised)}. Make something else smaller, or raise the ceiling in tests/laws/sizes.json with a "
        "sentence in `why`"
    )


def test_a_figure_above_its_ceiling_is_named_and_one_below_lowers_it() -> None:
    measured = {"rooms": {"plan": {"lines": 12, "files": 3}}, "circles": 0, "new": 1}
    ceilings = {"rooms": {"plan": {"lines": 10, "files": 4}, "gone": {"lines": 1, "files": 1}}, "circles": 2}
    assert list(sizes.above(measured, ceilings)) == [
        "rooms, plan, lines is 12, above 10",
        "new is 1 and has no ceiling",
    ]
    assert sizes.lowered(measured, ceilings) == {"rooms": {"plan": {"lines": 10, "files": 3}}, "circles": 0, "new": 1}


def test_circles_and_upward_imports_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "report/data.py": "def later():\n    from layerwise.report.kinds.healing import HEALING\n",
        "report/kinds/healing.py": "from layerwise.report.data import ReportData\n",
        "report/kinds/__init__.py": "from layerwise.report.kinds.healing import HEALING\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(sizes, "PACKAGE", tmp_path)
    sizes.imports.cache_clear()
    try:
        assert sizes.circles() == [["layerwise.report.data", "layerwise.report.kinds.healing"]]
        assert list(sizes.upward()) == [("layerwise.report.data", "layerwise.report.kinds.healing")]
    finally:
        sizes.imports.cache_clear()
