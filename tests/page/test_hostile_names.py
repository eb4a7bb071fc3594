"""Names of models, tasks, variants, plans and notes reach every page as text: no tag, script or link."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from layerwise.page import ReportData, markdown, render
from layerwise.results.rows import Note, PlanRecord, Score
from page.page.test_render import read
from tier import first_fast
from tools.golden.outputs import stored

HOSTILE = "<i>E</i></script><!--<script>\"'&amp;|%{x}"
IN_MARKDOWN = (
    "<script>alert(1)</script> [a](https://b.c) ![i](j) &lt; | `x`\r\n# h <img src=x> https://d.e \x1b[2J www.f.g"
)
GROUPS = {"legendgroup"}
"""Their values are compared and never shown."""
KINDS = ("sweep-planted", "robustness-planted", "diagnosis-planted", "pretraining-planted", "growth-planted")


def spoilt(data: ReportData, hostile: str) -> ReportData:
    def named(row: Score) -> Score:
        own: dict[str, Any] = {}
        if row.task != "all" and not data.rows.axis("variant"):
            own = {"task": row.task + hostile}
        return replace(
            row, variant=row.variant and row.variant + hostile, claim=row.claim and row.claim + hostile, **own
        )

    more: tuple[PlanRecord, ...] = (PlanRecord(hostile, hostile, hostile, 1, None, 1, 1, 1, 1),) if data.plans else ()
    return replace(
        data,
        manifest={
            **data.manifest,
            "model": hostile,
            "corpus": hostile,
            "command": ["run", hostile],
            hostile: {hostile: hostile},
        },
        plans=(*data.plans, *more),
        scores=(
            *map(named, data.scores),
            Score("run", hostile, 1.0, section="sweep"),
            Score("benchmark", hostile, 1.0, task=hostile, plan=hostile),
        ),
        notes=tuple(Note(measure, hostile) for measure in data.rows.axis("measure")),
    )


def texts(value: object, key: str = "") -> Iterator[str]:
    if isinstance(value, str) and key not in GROUPS:
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, key)


@pytest.mark.parametrize("kind", first_fast(KINDS, 2))
def test_names_are_escaped_in_html(kind: str) -> None:
    html = render(spoilt(stored(kind), HOSTILE))
    page = read(html)
    assert page.open == []
    assert page.names.count("script") == 3
    assert HOSTILE in page.text
    (block,) = re.findall(r'<script type="application/json" id="report-data">(.*?)</script>', html, re.DOTALL)
    assert "<" not in block
    rest = html.replace(block, "")
    assert "&lt;i&gt;E&lt;/i&gt;" in rest
    for raw in (HOSTILE, "<i>E", "<!--<script>"):
        assert raw not in rest
    assert not [text for text in texts(json.loads(block)["figures"]) if "<i>E" in text]


@pytest.mark.parametrize("kind", first_fast(KINDS, 2))
def test_names_are_escaped_in_markdown(kind: str) -> None:
    text = markdown(spoilt(stored(kind), IN_MARKDOWN))
    assert "alert(1)" in text
    for raw in ("<script", "</script", "<img", "[a](", "&lt; \\|", "https://", "www.", "\x1b", "\r", "\n# h"):
        assert raw not in text
    for table in (block for block in text.split("\n\n") if block.startswith("| ")):
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
