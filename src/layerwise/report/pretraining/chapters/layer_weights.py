"""What every layer learned to read: the layer weights of each arm as a map, and how far its seeds are apart."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter, Heading, depth_key, lead, note
from layerwise.report.page.markup import Safe, element, join
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import counted
from layerwise.report.pretraining.layer_weights import Alpha
from layerwise.report.pretraining.lookup import ALPHA
from layerwise.report.pretraining.weight_map import weight_map

HEADING = Heading(ALPHA, "What every layer reads", "Weights")


def weights(evidence: Evidence) -> Chapter:
    """A card an arm: the mean over seeds, and beside it the standard deviation."""
    maps = evidence.pretraining.weights
    if not maps:
        return HEADING.missing(
            "No arm of this run has layer weights (alpha): its layers read the state before them and no other."
        )
    slots = arm_slots(evidence.pretraining.arms)
    several = {arm: alpha.seeds > 1 for arm, alpha in maps.items()}
    depth = max(alpha.depth for alpha in maps.values())
    grey = join([element("i", class_="embedding"), " e, the embedding"])
    body = (
        lead(
            "Row by row, what each layer reads; column by column, of whom. The fuller a cell, the greater its weight."
        ),
        depth_key(depth, element("span", grey)),
        element("div", *(_card(arm, alpha, slots[arm]) for arm, alpha in maps.items()), class_="weight-cards"),
        note(
            "Weights are the mean over seeds; an empty frame is a negative one."
            + (" The small map is their standard deviation over seeds." if any(several.values()) else "")
            + " Each map has its own scale, named under it. A great weight is not yet a great effect: what a state is"
            " worth to its reader is measured by cutting the edge."
        ),
    )
    return HEADING.chapter(body)


def _card(arm: str, alpha: Alpha, slot: int) -> Safe:
    mean, spread = alpha.mean, alpha.spread
    most = _most(mean)
    name = element("h4", element("i", style=f"--swatch:var(--series-{slot})"), arm)
    maps = [_figure(weight_map(alpha, mean, most=most, title=f"Layer weights of {arm}"), f"solid: {tidy(most)}")]
    if spread:
        widest = _most(spread)
        drawn = weight_map(
            alpha, spread, most=widest, title=f"Standard deviation of the layer weights of {arm}", numbers=False
        )
        maps.append(_figure(drawn, f"spread over {counted(alpha.seeds, 'seed')}, solid: {tidy(widest)}"))
    return element("div", name, element("div", *maps, class_="maps"), class_="card")


def _figure(drawn: Safe, words: str) -> Safe:
    return element("figure", drawn, element("figcaption", words))


def _most(cells: dict[tuple[int, int], float]) -> float:
    """The greatest weight of a reader that has a choice: the first layer reads the embedding, with weight one."""
    return max((abs(value) for (reader, _), value in cells.items() if reader > 0), default=1.0) or 1.0
