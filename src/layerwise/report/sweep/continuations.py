"""The texts that a run wrote under its plans, as tables for the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.evidence import Evidence
from layerwise.report.page.table import Table
from layerwise.report.page.wording import label
from layerwise.results.rows import Continuation, read_continuations

LONGEST = 100  # characters of a text in the terminal


def by_prompt(evidence: Evidence) -> dict[str, list[Continuation]]:
    """The continuations of every prompt, in the order in which they were written."""
    texts: dict[str, list[Continuation]] = {}
    for each in read_continuations(evidence.data.notes):
        texts.setdefault(each.prompt, []).append(each)
    return texts


def strategy_of(evidence: Evidence, plan: str) -> str:
    """What a plan is called in a table: as trained, its strategy, or nothing where somebody wrote it."""
    record = evidence.records.get(plan)
    if record is None or record.strategy == "given":
        return ""
    return "as trained" if record.family == "identity" else label(record.strategy)


def continuation_lines(continuations: Sequence[Continuation]) -> tuple[str, ...]:
    """The texts as lines for a terminal, prompt by prompt."""
    lines: list[str] = []
    for prompt in dict.fromkeys(each.prompt for each in continuations):
        rows = [
            (each.plan, f"{each.same}/{each.tokens}", _in_one_line(each.text))
            for each in continuations
            if each.prompt == prompt
        ]
        table = Table((f"after {_in_one_line(prompt)}", "as trained", "text"), tuple(rows))
        lines += ["", *table.lines()]
    return tuple(lines)


def _in_one_line(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
