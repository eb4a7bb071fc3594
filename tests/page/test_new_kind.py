"""The guide to a new kind of run in CONTRIBUTING.md works in every output."""

import re
from pathlib import Path
from typing import Any

import pytest

from layerwise.page import ReportData, kinds, markdown, render
from layerwise.page import kind as kind_module
from layerwise.page.writers import terminal_lines
from layerwise.results.rows import Score

GUIDE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_LINES = 60
ROWS = (
    Score("energy", "joules", 3.0, 2.9, 3.1, plan="0-11"),
    Score("energy", "joules", 2.0, 1.9, 2.1, plan="0-3 6-11"),
)


def block(name: str) -> str:
    match = re.search(rf"<!-- {re.escape(name)} -->\n```\w+\n(.*?)```", GUIDE, re.DOTALL)
    return match[1]


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    namespace: dict[str, Any] = {"__name__": "energy"}
    exec(compile(block("page.py"), "page.py", "exec"), namespace)
    (tmp_path / "studies" / "energy").mkdir(parents=True)
    (tmp_path / "studies" / "energy" / "page.md").write_text(block("page.md"))
    monkeypatch.setattr(kind_module, "files", lambda package: tmp_path)
    monkeypatch.setattr(kind_module, "PAGES", {"energy": "studies.energy.page:ENERGY_KIND"})
    monkeypatch.setattr(kinds, "load_kinds", lambda: (namespace["ENERGY_KIND"],))
    return namespace["ENERGY_KIND"]


def test_a_kind_with_a_picture_a_table_and_a_finding_takes_few_lines_in_two_files() -> None:
    assert block("page.py").count("\n") + block("page.md").count("\n") + 2 <= MOST_LINES


def test_every_output_has_it(kind: Any) -> None:
    data = ReportData({"model": "demo", "corpus": "none"}, (), ROWS)
    page = render(data)
    for words in ("What a pass takes", "0-3 6-11 takes least", "a meter reads what they take", "Student's over rounds"):
        assert words in page.replace("&#x27;", "'")
    assert '"energy"' in page
    for text in (markdown(data), "\n".join(terminal_lines(kind, data))):
        assert "0-3 6-11 takes least: 2.00 J [1.90, 2.10]." in text
        assert "3.00 J [2.90, 3.10]" in text
