"""What the layers are made of, by depth: norms and spectra of their weights, what they add, and the attention sink."""

from __future__ import annotations

from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.diagnosis.panels import by_depth, type_name
from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter, Heading, cards, lead, note
from layerwise.report.page.figure_slot import Choice, Picture, led, variants
from layerwise.report.page.markup import Safe, element

MEASURE = "structure"
HEADING = Heading(MEASURE, "What the layers are made of", "Structure")
WEIGHTS = {
    "norm": "Frobenius norm",
    "spectral_exponent": "Spectral exponent",
    "effective_rank": "Effective rank",
    "outlier_ratio": "Outlier ratio",
}
STATES = {
    "output_ratio": "What is added, against the state it is added to",
    "sink_strength": "Attention on the sink token",
    "sink_norm": "Norm of the sink token, against the median",
}


def structure(evidence: Evidence) -> Chapter:
    """Small multiples by depth: the weights for a tensor type to choose, then what the layers do to the states."""
    weights, states = _weights(evidence.diagnosis), _states(evidence.diagnosis)
    if not weights and not states:
        return HEADING.missing("The structure of the layers was not measured in this run.")
    body: list[Safe] = [
        lead("Described, without a verdict: a curve by depth is no cause. The twin has the same shape, untrained.")
    ]
    if weights:
        controls = (picture.controls() for picture in weights.values())
        body += [element("h3", "The weights"), *controls, cards(weights, "grid pair")]
    if states:
        body += [element("h3", "What the layers do to the states"), cards(states, "grid pair")]
    twin = "Grey: a randomly initialised twin of the same configuration."
    body.append(note(f"{twin} Ribbons are intervals over {evidence.units}."))
    return HEADING.chapter(body, (*weights.values(), *states.values()))


def _weights(run: DiagnosisScores) -> dict[str, Picture]:
    types = tuple(dict.fromkeys(task for metric in WEIGHTS for task in run.tasks(MEASURE, metric)))
    choice = (Choice("Tensor type", tuple(type_name(task) for task in types)),)

    def picture(metric: str, title: str, slot: int) -> Picture:
        drawn = variants(
            types, lambda task: by_depth(run, MEASURE, metric, title, slot, task=task, upwards="", height=230)
        )
        return Picture(f"structure-{metric}", f"{title} by depth", drawn, choice)

    return led({title: picture(metric, title, slot) for slot, (metric, title) in enumerate(WEIGHTS.items())})


def _states(run: DiagnosisScores) -> dict[str, Picture]:
    pictures = {}
    for metric, title in STATES.items():
        parts = sum(bool(run.layers(MEASURE, metric, part=part)) for part in (None, "attn", "mlp"))
        figure = by_depth(run, MEASURE, metric, title, halves=True, upwards="ratio", height=320, legend=parts > 1)
        if figure:
            pictures[title] = Picture(f"structure-{metric}", f"{title}, by depth", {(): figure})
    return pictures
