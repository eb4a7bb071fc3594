"""Render, write and compare the stored outputs of a kind of run."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from layerwise.page import ReportData, findings_page, judge_published, markdown, render
from layerwise.results.vocabulary import CLAIM
from layerwise.runner.summary import summary
from layerwise.studies.compare.side_by_side import compare_side_by_side
from tools.golden.comparable import comparable_figures, visible_text
from tools.golden.stored_run import has_run, read_run

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "golden"
OUTPUTS = ("verdicts.json", "figures.json", "terminal.txt", "report.md", "page.txt")
COMPARED: Mapping[str, tuple[str, ...]] = {
    "comparison": ("sweep", "sweep-planted"),
    "comparison-diagnosis": ("diagnosis", "diagnosis-planted"),
}
"""Kinds without rows that compare the stored runs of other kinds."""
SHOWN = 12
"""Maximum number of differing lines that a failure shows."""


def kinds() -> tuple[str, ...]:
    stored = sorted(path.name for path in FOLDER.iterdir() if has_run(path))
    return (*stored, *(name for name, others in COMPARED.items() if set(others) <= set(stored)))


def rendered(kind: str) -> dict[str, str]:
    """Render every output of a kind, by file name."""
    if kind in COMPARED:
        return compared_outputs([(name, stored(name)) for name in COMPARED[kind]])
    return run_outputs(stored(kind))


@cache
def stored(kind: str) -> ReportData:
    return read_run(FOLDER / kind)


def page_of(kind: str) -> str:
    if kind in COMPARED:
        return render(compare_side_by_side([(name, stored(name)) for name in COMPARED[kind]]))
    return render(stored(kind))


def run_outputs(data: ReportData) -> dict[str, str]:
    return _outputs(
        _verdicts((each.question, str(each.verdict), each.answer, each.number) for each in judge_published(data)),
        render(data),
        summary(data),
        markdown(data),
    )


def compared_outputs(runs: Sequence[tuple[str, ReportData]]) -> dict[str, str]:
    """Render the outputs of compared runs, and the page of their findings."""
    data = compare_side_by_side(runs)
    verdicts = _verdicts(
        (
            question,
            *(f"in {row.against}: {row.metric}" for row in rows.where(variant=None)),
            *(f"{row.variant}: {row.metric}" for row in rows.where(against=None)),
        )
        for question, rows in data.rows.where(measure=CLAIM).by("claim").items()
    )
    texts = (markdown(data), findings_page([run for _, run in runs]))
    return _outputs(verdicts, render(data), summary(data), "\n".join(texts))


def write_outputs(kind: str) -> None:
    for name, text in rendered(kind).items():
        (FOLDER / kind / name).write_text(text, encoding="utf-8")


def difference(kind: str, name: str, now: str) -> str | None:
    """Describe how an output differs from its file, or return `None` if it is equal."""
    path = FOLDER / kind / name
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    if before == now:
        return None
    changed = [
        line if len(line) <= 400 else f"{line[:397]}..."
        for line in difflib.unified_diff(before.splitlines(), now.splitlines(), "frozen", "now", n=0, lineterm="")
    ]
    rest = [f"... and {len(changed) - SHOWN:,} more lines"] if len(changed) > SHOWN else []
    head = f"tests/golden/{kind}/{name} is not what the stored rows give now:"
    advice = (
        f"If the change is intended, run `python -m tools.golden write {kind}` (`run {kind}` if the rows change) "
        "and read the diff."
    )
    return "\n".join([head, *changed[:SHOWN], *rest, advice])


def _outputs(verdicts: str, page: str, terminal: str, markdown_text: str) -> dict[str, str]:
    texts = (verdicts, _figures(page), f"{terminal}\n", markdown_text, visible_text(page))
    return dict(zip(OUTPUTS, texts, strict=True))


def _verdicts(rows: Iterable[Sequence[str]]) -> str:
    return "[\n" + ",\n".join(map(_json, rows)) + "\n]\n"


def _figures(page: str) -> str:
    pictures = []
    for name, picture in comparable_figures(page).items():
        variants = (f" {_json(key)}: [\n{_lines(traces)}]" for key, traces in picture["variants"].items())
        head = f'{_json(name)}: {{"alternative": {_json(picture["alternative"])}, "variants": {{'
        pictures.append(head + "\n" + ",\n".join(variants) + "}}")
    return "{\n" + ",\n".join(pictures) + "\n}\n"


def _lines(traces: Iterable[object]) -> str:
    return ",\n".join(f"  {_json(trace)}" for trace in traces)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
