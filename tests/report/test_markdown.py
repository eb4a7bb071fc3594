"""The report as Markdown."""

from __future__ import annotations

import re
from dataclasses import replace

from layerwise.report import ReportData, markdown
from report import synthetic


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of the table under a heading, an escaped bar being no border."""
    section = text.split(f"## {title}")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_findings_and_tables_are_there() -> None:
    text = markdown(synthetic.run(12))
    assert text.startswith("# demo-12-layers\n")
    assert "- **Which change hurts least?** (resolved)" in text
    assert len(rows(text, "Layers")) == 2 + 12
    assert len(rows(text, "Plans")) == 2 + len({record.plan for record in synthetic.run(12).plans})
    assert "no effect detectable above" in text


def test_every_table_is_rectangular_even_with_bars_in_plans() -> None:
    text = markdown(synthetic.run(6, ("painters", "gain_sweep")))
    for title in ("Tasks", "Plans", "Benchmarks"):
        table = rows(text, title)
        assert {len(row) for row in table} == {len(table[0])}
    assert any("(1\\|2" in row[0] for row in rows(text, "Plans"))


def test_names_are_escaped() -> None:
    plain = synthetic.run(6, ("painters",))
    text = markdown(replace(plain, manifest={"model": "<b>*x*", "depth": 6}))
    assert text.startswith("# \\<b>\\*x\\*\n")


def test_an_empty_run_says_so() -> None:
    assert "No finding" in markdown(ReportData({}, (), ()))
