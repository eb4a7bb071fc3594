"""The published claims: a chapter of a run's page, and one Markdown page over all models with the runs behind it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from layerwise.page.claims import CLAIMS, PAPERS, Claim, Judged, Published, Verdict, judged
from layerwise.page.claims.claim import BADGES, NOT_MEASURED
from layerwise.page.data import ReportData
from layerwise.page.show import ABSENT
from layerwise.page.text.markup import Safe, element, escaped
from layerwise.page.text.table import Table
from layerwise.page.text.wording import counted, listed
from layerwise.page.writers.chapter import Chapter, folded, lead, note
from layerwise.results.identity import model_name

CHAPTER = Chapter("claims", "What became of the claims", "Claims")
HEAD = ("claim", "verdict", "why", "this run", "the paper")


def claims(data: ReportData) -> Chapter:
    """How many claims got which verdict; a table for each paper, a claim a row, is folded, and so are the rules."""
    # The paper of which most is measured comes first: it is what the run was made for.
    papers = sorted(judged(data), key=lambda each: -each.count)
    if not papers:
        return CHAPTER.missing("No published claim can be decided from these rows.")
    model = data.manifest.get("model")
    name = model_name(str(model)) if model else "this model"
    decided = [claim for each in papers for claim in each.measured]
    missing = [claim.name for each in papers for claim in each.claims if claim not in each.measured]
    body = (
        lead(
            f"{counted(len(decided), 'claim')} of the literature, put to {name}: {_verdicts(decided)}. A rule stated"
            " beforehand decides each."
        ),
        *(_paper_chapter(each) for each in papers),
        *((note(f"Not measured here: {'; '.join(missing)}."),) if missing else ()),
    )
    return replace(CHAPTER, body=body)


def _verdicts(decided: Sequence[Claim]) -> str:
    counts = {verdict: sum(claim.verdict == verdict for claim in decided) for verdict in BADGES}
    return listed([f"{count} {verdict}" for verdict, count in counts.items() if count])


def _paper_chapter(each: Judged) -> Safe:
    rows = tuple(
        (claim.name, badge(claim.verdict), claim.why, claim.figures, claim.published.prose.number or ABSENT)
        for claim in each.measured
    )
    details = element("ol", *(_claim_item(claim) for claim in each.measured), class_="claims")
    return folded(
        f"{each.paper.title}: {_verdicts(each.measured)}",
        note(each.paper.citation),
        element("div", Table(HEAD, rows, numeric_from=len(HEAD)).html(), class_="verdicts"),
        folded("What was published, the rules, and what could have been seen", details),
    )


def badge(verdict: Verdict) -> Safe:
    return element("span", verdict, class_=f"badge {BADGES[verdict]}")


def _claim_item(claim: Claim) -> Safe:
    prose = claim.published.prose
    return element(
        "li",
        element(
            "div",
            element("h4", prose.name),
            element("p", prose.statement, " ", element("cite", prose.citation), class_="published"),
        ),
        element(
            "div",
            *((element("p", claim.power, class_="why"),) if claim.power else ()),
            element("details", element("summary", "The rule"), element("p", prose.rule), class_="rule"),
        ),
    )


INTRODUCTION = (
    "Each claim was decided by the rule printed with it, from contrasts with intervals at 95 %, on the models below. Of"
    " {count} at 95 %, {wrong} are expected to be wrong by chance. “Supported”, “contradicted” and “explained by"
    " the null” are each shown by an interval; “inconclusive” is all else, and says what would decide. A verdict is"
    " about the models that were measured, not about all models."
)
ERROR_RATE = 0.05
HEADINGS = ("run", "model", "layers", "text", "tokens", "command")
WHERE_ROWS_LIE = "--run"


def claims_page(runs: Sequence[ReportData]) -> str:
    """The page of the claims as Markdown, from the rows of `runs`; they are numbered in the order given."""
    described = tuple(_described(str(number), data) for number, data in enumerate(runs, start=1))
    decided = {key: [claim.decide(data) for data in runs] for key, claim in CLAIMS.items()}
    head = ("claim", *(f"{number}: {model}" for number, model, *_ in described))
    measured = sum(claim.verdict != NOT_MEASURED for own in decided.values() for claim in own)
    introduction = INTRODUCTION.format(count=counted(measured, "verdict"), wrong=f"{ERROR_RATE * measured:g}")
    parts = ["# What became of the published claims", introduction, "## Runs", Table(HEADINGS, described).markdown()]
    parts.append("## Verdicts")
    for paper in PAPERS:
        verdicts = {claim.name: [each.verdict for each in decided[claim.key]] for claim in paper.claims}
        lines = ((name, *(each.replace(NOT_MEASURED, ABSENT) for each in own)) for name, own in verdicts.items())
        parts += [f"**{escaped(paper.title)}**", Table(head, tuple(lines)).markdown()]
    for paper in PAPERS:
        parts += [f"## {escaped(paper.title)}", f"{escaped(paper.citation)}."]
        parts += (part for claim in paper.claims for part in _claim(claim, decided[claim.key]))
    return "\n\n".join(parts) + "\n"


def _described(number: str, data: ReportData) -> tuple[str, ...]:
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
    """The command as it is typed; where its rows lie is left out.

    >>> command_line(["/usr/bin/layerwise", "sweep", "demo", "--run", "runs/demo"])
    'layerwise sweep demo'
    """
    given = [str(word) for word in words][1:] if isinstance(words, list | tuple) else []
    if not given:
        return ABSENT
    kept = [
        word
        for index, word in enumerate(given)
        if word != WHERE_ROWS_LIE and (index == 0 or given[index - 1] != WHERE_ROWS_LIE)
    ]
    return shlex.join(["layerwise", *kept])


def _claim(published: Published, decided: Sequence[Claim]) -> tuple[str, ...]:
    prose = published.prose
    body = tuple(
        (str(number), claim.verdict, " ".join(part for part in (claim.figures, claim.why) if part))
        for number, claim in enumerate(decided, start=1)
        if claim.verdict != NOT_MEASURED
    )
    return (
        f"### {escaped(prose.name)}",
        f"{escaped(prose.statement)} ({escaped(prose.citation)})",
        f"Rule: {escaped(prose.rule)}",
        *((f"The paper: {escaped(prose.number)}.",) if prose.number else ()),
        Table(("run", "verdict", "figures"), body).markdown() if body else f"Not measured. {escaped(prose.needs)}",
    )
