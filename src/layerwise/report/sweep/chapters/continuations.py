"""What the model writes under the plans, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter, Heading, lead, note
from layerwise.report.page.markup import Safe, element
from layerwise.report.sweep.continuations import by_prompt, strategy_of
from layerwise.results.rows import Continuation

HEADING = Heading("texts", "What it writes", "Texts")


def continuations(evidence: Evidence) -> Chapter:
    """A table for each prompt: the plan, and the text that greedy decoding adds under it."""
    texts = by_prompt(evidence)
    if not texts:
        return HEADING.missing("No text was written under the plans (--prompt TEXT).")
    body = [
        lead("The same prompt, continued by greedy decoding under each plan: a loss is a number, and this is a text."),
        *(part for prompt, each in texts.items() for part in _prompt(evidence, prompt, each)),
        note(
            "Decoding uses the cache, in which every visit of a layer has a slot of its own. “As trained” counts the"
            " tokens that the model as trained writes at the same place. One text is an example and no measurement."
        ),
    ]
    return HEADING.chapter(body)


def _prompt(evidence: Evidence, prompt: str, each: Sequence[Continuation]) -> tuple[Safe, ...]:
    head = element("tr", *(element("th", text, scope="col") for text in ("plan", "strategy", "as trained", "text")))
    rows = (
        element(
            "tr",
            element("th", element("code", one.plan), scope="row", class_="plan"),
            element("td", strategy_of(evidence, one.plan)),
            element("td", f"{one.same} of {one.tokens}", class_="number"),
            element("td", _shown(one.text), class_="text"),
        )
        for one in each
    )
    table = element("table", element("thead", head), element("tbody", *rows))
    return (
        element("h3", "After ", element("q", prompt)),
        element("div", table, class_="scroll", tabindex="0", role="region", aria_label="Texts under the plans"),
    )


def _shown(text: str) -> Safe:
    """The text with its line breaks."""
    lines = text.strip("\n").split("\n")
    broken = [part for line in lines for part in (Safe(element("br")), line)][1:]
    return element("span", *broken)
