"""The models of a comparison: how large they are, what they were measured on, and what was not measured of each."""

from __future__ import annotations

from layerwise.report.comparison.compared import Compared
from layerwise.report.comparison.tables import model_rows
from layerwise.report.page.chapter import Chapter, Heading, lead, note
from layerwise.report.page.markup import element
from layerwise.report.page.wording import label, listed

HEADING = Heading("models", "The models", "Models")
UNCOUNTED = (
    "A run that was made before layerwise counted the parameters has no number; sweep or diagnose the model again."
)


def models(compared: Compared) -> Chapter:
    """The table of the models, what the runs do not have in common, and what is missing in some of them."""
    body = [
        lead("One run a model. Every number below is a row of these runs; nothing is measured anew."),
        model_rows(compared).html(),
        *(note(sentence) for sentence in compared.differences()),
        *((note(UNCOUNTED),) if any(run.parameters is None for run in compared.runs) else ()),
    ]
    missing = compared.missing()
    if missing:
        lines = (
            element("li", element("b", label(name)), f": missing in {listed(models)}")
            for name, models in missing.items()
        )
        body.append(element("div", element("h3", "Not measured in every run"), element("ul", *lines)))
    return HEADING.chapter(body)
