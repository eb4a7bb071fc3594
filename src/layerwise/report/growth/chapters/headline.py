"""What it costs to reach uniform's loss, and what else the published headline promises, arm by arm."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.growth.headline import epoch_rows, headline_arm, headline_rows, how_read, nulls_in_words
from layerwise.report.page.chapter import Chapter, Heading, lead, note, spaced
from layerwise.report.page.markup import element

HEADING = Heading("cost_to_loss", "What it costs to reach uniform's loss", "Cost of a loss")


def headline(evidence: Evidence) -> Chapter:
    """A row an arm, the nulls that stand beside, and how often each arm read the text while a layer learned."""
    run = evidence.growth
    rows, epochs = headline_rows(run), epoch_rows(run)
    arm = headline_arm(run)
    if not rows.body:
        return HEADING.missing(
            "No arm was trained beside uniform in this run (growth), so nothing says what its loss costs another."
        )
    read = "" if arm is None else f" What {arm} needs is {how_read(run, arm)}."
    tables = (spaced(rows.html()), *((element("h3", "How often layers learned"), epochs.html()) if epochs.body else ()))
    body = (
        lead(f"The loss that uniform ends with, and what another way needs to come down to it.{read}"),
        element("p", nulls_in_words(run)),
        *tables,
        note(
            "A saving is a share of what uniform spent, the geometric mean over seeds with Student's interval, paired"
            " by seed. Where the loss is not reached, what was spent bounds the saving. A ratio of losses says how many"
            " times lower the arm's is; how many nats that are, the differences say. An epoch of a layer is one reading"
            " of the text while it learns."
        ),
    )
    return HEADING.chapter(body)
