"""The report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from layerwise.experiments.summary import summary
from layerwise.report import KINDS as EVERY_KIND
from layerwise.report import ReportData, markdown, side_by_side
from layerwise.report.writers import markdown_parts
from report import diagnosed, grown, pretrained, robust, synthetic
from report.kinds import test_probing
from tools.golden.outputs import stored

KINDS: dict[str, Callable[[], ReportData]] = {
    "sweep": lambda: synthetic.run(6, ("painters",)),
    "diagnosis": lambda: diagnosed.diagnosis(6),
    "robustness": lambda: robust.run(6),
    "training": robust.trained,
    "growth": grown.run,
    "layer_weights_study": lambda: pretrained.only(pretrained.run(), "study"),
    "pretraining": lambda: pretrained.only(pretrained.run(), "masked_lm", "training"),
    "evaluation": lambda: pretrained.only(pretrained.run(), "blimp", "glue"),
    "wiring": lambda: pretrained.only(pretrained.run(), "edges", "edge_phenomena", "alpha"),
    "rehearsal": lambda: stored("rehearsal"),
    "search": lambda: stored("search-planted"),
    "routing": lambda: stored("routing-planted"),
    "healing": lambda: stored("healing-planted"),
    "speculation": lambda: stored("speculation-planted"),
    "frontier": lambda: stored("frontier-planted"),
    "timing": lambda: stored("timing-planted"),
    "probing": lambda: test_probing.data(*test_probing.rows()),
    "comparison": lambda: side_by_side([(name, stored(name)) for name in ("sweep", "sweep-planted")]),
}
"""A run of every kind that the page knows."""


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
    assert text.startswith("# &lt;b>\\*x\\*\n")


HOSTILE = "<script>alert(1)</script> [a](https://b.c) ![i](j) &lt; | `x`\r\n# h <img src=x> https://d.e \x1b[2J www.f.g"


@pytest.mark.parametrize("kind", ["manifest", "tasks", "arms"])
def test_what_others_named_is_text_and_nothing_else(kind: str) -> None:
    """No markup, link, entity, cell or line begins in a name: neither on the page's title nor in any table."""
    data = robust.run() if kind == "arms" else synthetic.run(6, ("painters",))
    if kind == "manifest":
        data = replace(data, manifest={"model": HOSTILE, "corpus": HOSTILE, "depth": 6})
    names = {"layershuffle", "baseline"} if kind == "arms" else {"prose", "arithmetic"}
    pattern = re.compile("|".join(names))

    def spoilt(text: str) -> str:
        return pattern.sub(lambda found: found[0] + HOSTILE, text)

    if kind != "manifest":
        data = replace(data, scores=tuple(
            replace(s, claim=spoilt(s.claim or "") or None, task=spoilt(s.task), arm=spoilt(s.arm or "") or None)
            for s in data.scores
        ))  # fmt: skip
    text = markdown(data)
    assert "alert(1)" in text
    for raw in ("<script", "</script", "<img", "[a](", "&lt; \\|", "https://", "www.", "\x1b", "\r", "\n# h"):
        assert raw not in text
    for table in (block for block in text.split("\n\n") if block.startswith("| ")):
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_an_empty_run_says_so() -> None:
    assert "No finding" in markdown(ReportData({}, (), ()))


@pytest.mark.parametrize("kind", [kind.name for kind in EVERY_KIND])
def test_no_kind_of_run_is_forgotten(kind: str) -> None:
    """What the page has chapters for has a table in Markdown too, and results in the terminal."""
    data = KINDS[kind]()
    (own,) = (each for each in EVERY_KIND if each.name == kind)
    sections = [text for text in markdown_parts(own, data) if text]
    written = markdown(data)
    assert sections
    assert all(text in written for text in sections)
    assert summary(data).strip()
