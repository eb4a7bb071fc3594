"""What the arms cost: parameters, tokens, seconds, memory and the time of a forward pass, against the backbone."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter, Heading, lead, note
from layerwise.report.pretraining.lookup import TRAINING
from layerwise.report.pretraining.tables import cost_rows

_AT_INFERENCE = (
    " Weights, states and activations are counted: a pass of the encoder"
    " over 8 texts of 128 tokens in float32; states are the outputs of layers that are kept at once, activations all"
    " tensors that are alive at once. The pass peak is an accelerator's own, with the weights."
)

HEADING = Heading("costs", "What it cost", "Cost")


def costs(evidence: Evidence) -> Chapter:
    """One table, a row an arm."""
    rows = cost_rows(evidence.pretraining)
    if not rows.body or len(rows.head) < 2:
        return HEADING.missing("Time, memory and size of the trainings were not noted (training).")
    against = evidence.pretraining.reference
    body = (
        lead("What a gain must be weighed against: at equal tokens a slower arm has had more machine."),
        rows.html(),
        note(
            "Means over seeds."
            + (f" In brackets, as a multiple of {against}." if against else "")
            + " The peak is the most memory of the training process, a pass one text of 128 tokens."
            " Times are of the machine in the manifest, and of nothing else."
            + (_AT_INFERENCE if evidence.pretraining.by_arm(TRAINING, "state_bytes") else "")
        ),
    )
    return HEADING.chapter(body)
