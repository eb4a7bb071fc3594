"""The zones of the depth of all models side by side, over relative depth, and what is claimed of them over models."""

from __future__ import annotations

from layerwise.report.comparison.compared import Compared
from layerwise.report.comparison.tables import claim_sentence, partition_rows
from layerwise.report.comparison.verdicts import ByPaper
from layerwise.report.comparison.zones import partitions
from layerwise.report.figures.zones import zones_side_by_side
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note, spaced
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.wording import listed

HEADING = Heading("zones", "Zones of the depth, by relative depth", "Zones")
CLAIMS = ("three_zones", "one_ending")
READ = (
    "The runs of hidden states that are more alike, at equal distance, than with the states around, without attention"
    " sinks; a border counts where walks without one separate as much in less than 1 of 100 cases. The longest zone is"
    " the middle: the layers before it are the beginning, those after it the ending."
)


def zones(compared: Compared, by_paper: ByPaper) -> Chapter:
    """A bar a model with its zones, the table of them, and the claims about zones over models."""
    divided = partitions(compared)
    if not divided:
        return HEADING.missing("The depth was not divided into zones in any of the runs: it takes 10 layers and more.")
    picture = Picture("zones-all", "Zones of the depth", {(): zones_side_by_side(list(divided.items()))})
    without = [name for name in compared.names if name not in divided]
    missing = f" Not divided, for want of 10 layers or of states: {listed(without)}." if without else ""
    about = {claim.published.key: claim for _, claims in by_paper for claim in claims if claim.measured}
    body = [
        lead("Where the beginning, the middle and the ending of each model lie."),
        card("Zones over relative depth", picture.html(), wide=True),
        spaced(partition_rows(compared).html()),
        note(f"{READ}{missing}"),
        *(note(f"{about[key].published.name}? {claim_sentence(about[key])}") for key in CLAIMS if key in about),
    ]
    return HEADING.chapter(body, [picture])
