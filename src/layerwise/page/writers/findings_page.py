"""Findings on published statements: a chapter of a run's page, and a Markdown page over several runs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from markupsafe import Markup

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding, Paper, Verdict
from layerwise.page.formatting import ABSENT, format_count, format_number, join_words
from layerwise.page.kinds import group_by_paper, judge_published
from layerwise.page.markup import escape_markdown, html_part
from layerwise.page.table import Table
from layerwise.page.writers.html import Chapter
from layerwise.results.manifest import model_name

HEAD = ("question", "verdict", "answer", "this run", "the paper")


def published_chapter(data: ReportData) -> Chapter:
    """Return the chapter on published findings. The paper with the most findings comes first."""
    chapter = Chapter("published", "Do published findings hold here?", "Published findings")
    findings = judge_published(data)
    if not findings:
        return replace(chapter, absence="This run does not measure anything that the reproduced papers state.")
    model = data.manifest.get("model")
    name = model_name(str(model)) if model else "this model"
    tested = (
        f"{format_count(len(findings), 'published finding')} tested on {name}: {_count_verdicts(findings)}. The verdict"
        " says whether the statement of the paper holds; the answer answers the question, so “supported” can go with"
        " “No”. An effect counts if its interval excludes zero and reaches the margin, the smallest size that matters,"
        " unless the rule of the question says otherwise."
    )
    papers = sorted(group_by_paper(findings).items(), key=lambda each: -len(each[1]))
    body = (
        html_part("lead", text=tested),
        *(_write_paper(paper, findings_of_paper) for paper, findings_of_paper in papers),
    )
    return replace(chapter, body=body)


def _count_verdicts(findings: Iterable[Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    return join_words([f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]])


def _write_paper(paper: Paper, findings: Sequence[Finding]) -> Markup:
    rows = tuple(
        (
            each.question,
            html_part("badge", verdict=each.verdict),
            each.answer,
            each.number or ABSENT,
            _number_of_paper(each),
        )
        for each in findings
    )
    return html_part(
        "paper",
        title=f"{paper.title}: {_count_verdicts(findings)}",
        citation=paper.citation,
        table=Table(HEAD, rows, numeric_from=len(HEAD)).html(),
        details=[(each.question, *_statement(each), _rule(each), _power(each)) for each in findings],
    )


def _number_of_paper(finding: Finding) -> str:
    return (finding.published and finding.published.number) or ABSENT


def _statement(finding: Finding) -> tuple[str, str]:
    return (finding.published.statement, finding.published.section) if finding.published else ("", "")


def _rule(finding: Finding) -> str:
    margin = f"Margin: {finding.margin:g} {finding.unit}".rstrip() + "." if finding.margin else ""
    return " ".join(filter(None, (margin, finding.rule)))


def _power(finding: Finding) -> str:
    mde = None if finding.estimate is None else finding.estimate.mde
    unit = finding.unit.partition("(")[0] if finding.margin else finding.unit  # the rule explains it with the margin
    return "" if mde is None else f"Minimum detectable effect (80 % power): {format_number(mde)} {unit}".rstrip() + "."


INTRODUCTION = (
    "Each verdict follows from the rule printed with it and from 95 % intervals on the models below. Of {count},"
    " {wrong} are expected to be wrong by chance. A verdict is about the models that were measured, not about all"
    " models."
)
ERROR_RATE = 0.05
HEADINGS = ("run", "model", "layers", "text", "tokens", "command")
RUN_OPTION = "--run"


def findings_page(runs: Sequence[ReportData]) -> str:
    """Return the published findings of several runs as Markdown. Runs are numbered in the given order."""
    descriptions = tuple(_describe(str(number), data) for number, data in enumerate(runs, start=1))
    by_run = [{finding.question: finding for finding in judge_published(data)} for data in runs]
    every = [finding for group in by_run for finding in group.values()]
    by_paper = group_by_paper(list({finding.question: finding for finding in every}.values()))
    introduction = INTRODUCTION.format(count=format_count(len(every), "verdict"), wrong=f"{ERROR_RATE * len(every):g}")
    head = ("question", *(f"{number}: {model}" for number, model, *_ in descriptions))
    parts = ["# Do published findings hold?", introduction, "## Runs", Table(HEADINGS, descriptions).markdown()]
    parts.append("## Verdicts")
    for paper, findings in by_paper.items():
        lines = ((each.question, *(_verdict_of(group.get(each.question)) for group in by_run)) for each in findings)
        parts += [f"**{escape_markdown(paper.title)}**", Table(head, tuple(lines)).markdown()]
    for paper, findings in by_paper.items():
        parts += [f"## {escape_markdown(paper.title)}", f"{escape_markdown(paper.citation)}."]
        for finding in findings:
            parts += _describe_finding(finding, [group.get(finding.question) for group in by_run])
    return "\n\n".join(parts) + "\n"


def _verdict_of(finding: Finding | None) -> str:
    return ABSENT if finding is None else str(finding.verdict)


def _describe(number: str, data: ReportData) -> tuple[str, ...]:
    manifest, tokens = data.manifest, data.manifest.get("tokens")
    return (
        number,
        str(manifest.get("model") or "unnamed"),
        str(data.depth or ABSENT),
        str(manifest.get("corpus") or "unnamed"),
        f"{tokens:,}" if isinstance(tokens, int) else ABSENT,
        command_line(manifest.get("command")),
    )


def command_line(words: object) -> str:
    """Return the command as typed, without the run directory.

    >>> command_line(["/usr/bin/layerwise", "sweep", "demo", "--run", "runs/demo"])
    'layerwise sweep demo'
    """
    arguments = [str(word) for word in words][1:] if isinstance(words, list | tuple) else []
    if not arguments:
        return ABSENT
    if RUN_OPTION in arguments:
        at = arguments.index(RUN_OPTION)
        del arguments[at : at + 2]
    return shlex.join(["layerwise", *arguments])


def _describe_finding(about: Finding, by_run: Sequence[Finding | None]) -> tuple[str, ...]:
    statement, section = _statement(about)
    body = tuple(
        (str(number), str(each.verdict), each.answer, each.number or ABSENT)
        for number, each in enumerate(by_run, start=1)
        if each is not None
    )
    return (
        f"### {escape_markdown(about.question)}",
        f"{escape_markdown(statement)} ({escape_markdown(section)})",
        f"Rule: {escape_markdown(_rule(about))}",
        *((f"The paper: {escape_markdown(_number_of_paper(about))}.",) if _number_of_paper(about) != ABSENT else ()),
        Table(("run", "verdict", "answer", "this run"), body).markdown(),
    )
