"""The report as Markdown."""

from __future__ import annotations

import re
from dataclasses import replace

from layerwise.report import ReportData, markdown
from report import synthetic
from tools.golden.outputs import stored


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of the table under a heading, an escaped bar being no border."""
    section = text.split(f"## {title}")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_table_is_rectangular_even_with_bars_in_plans() -> None:
    run = synthetic.run(6, ("painters", "gain_sweep"))
    text = markdown(run)
    for title in ("Tasks", "Plans", "Benchmarks"):
        table = rows(text, title)
        assert {len(row) for row in table} == {len(table[0])}
    assert any("(1\\|2" in row[0] for row in rows(text, "Plans"))
    assert len(rows(text, "Plans")) == 2 + len({record.plan for record in run.plans})


def test_names_are_escaped_and_an_empty_run_says_so() -> None:
    text = markdown(replace(stored("sweep-planted"), scores=(), manifest={"model": "<b>*x*", "depth": 6}))
    assert text.startswith("# &lt;b>\\*x\\*\n")
    assert "No finding" in markdown(ReportData({}, (), ()))
