"""What others named, a model, a task, an arm, a note, reaches every kind of page as text: no tag, script or link."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from layerwise.report import ReportData, render
from layerwise.results.rows import Note
from report import diagnosed, grown, pretrained, robust

HOSTILE = "<i>E</i></script><!--<script>\"'&amp;"

RUNS: dict[str, Callable[[], ReportData]] = {
    "diagnosis": lambda: diagnosed.diagnosis(6),
    "robustness": robust.run,
    "pretraining": pretrained.run,
    "growth": grown.run,
}
GROUPS = {"legendgroup"}
"""Keys of a figure whose texts are compared and never shown."""


def spoilt(data: ReportData) -> ReportData:
    """The run with every name that a user chooses followed by markup."""
    tasks = {score.task for score in data.scores if not re.fullmatch(r"[\d, ]*|all", score.task)}
    arms = {
        re.split(r"[/.@]", score.claim or "")[0] for score in data.scores if re.match("[a-z]{4}", score.claim or "")
    }
    arms |= {arm for arm in data.rows.axis("arm") if re.match("[a-z]{4}", arm)}
    names = arms if arms & {"layershuffle", "elc", "ltg", "uniform"} else tasks
    pattern = re.compile("|".join(sorted(map(re.escape, names), key=len, reverse=True)))

    def named(text: str) -> str:
        return pattern.sub(lambda found: found[0] + HOSTILE, text)

    measures = {score.measure for score in data.scores}
    return replace(
        data,
        manifest={**data.manifest, "model": HOSTILE, "corpus": HOSTILE, "command": [HOSTILE], HOSTILE: {HOSTILE: "x"}},
        scores=tuple(
            replace(
                score,
                claim=named(score.claim or "") or None,
                task=named(score.task),
                arm=named(score.arm or "") or None,
            )
            for score in data.scores
        ),
        notes=tuple(Note(measure, HOSTILE) for measure in sorted(measures)),
    )


def texts(value: object, key: str = "") -> Iterator[str]:
    """Every text of a figure that may be shown."""
    if isinstance(value, str) and key not in GROUPS:
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, key)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_no_name_is_markup(kind: str) -> None:
    page = render(spoilt(RUNS[kind]()))
    (block,) = re.findall(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.DOTALL)
    assert "<" not in block
    beside = page.replace(block, "")
    assert "&lt;i&gt;E&lt;/i&gt;" in beside
    assert HOSTILE not in beside
    assert "<i>E" not in beside
    assert "<!--<script>" not in beside
    assert not [text for text in texts(json.loads(block)["figures"]) if "<i>E" in text]
