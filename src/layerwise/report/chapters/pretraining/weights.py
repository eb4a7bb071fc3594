"""What every layer learned to read: the layer weights of each arm as a map, and how far its seeds are apart."""

from __future__ import annotations

from layerwise.report.alpha import Alpha
from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, depth_key, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.markup import Safe, element, join
from layerwise.report.notation import tidy
from layerwise.report.pretraining import ALPHA
from layerwise.report.weights import weight_map
from layerwise.report.wording import counted

TITLE, SHORT = "What every layer reads", "Weights"


def weights(evidence: Evidence) -> Chapter:
    """A card an arm: the mean over seeds, and beside it the standard deviation."""
    maps = evidence.pretraining.weights
    if not maps:
        text = "No arm of this run has layer weights (alpha): its layers read the state before them and no other."
        return Chapter(ALPHA, TITLE, SHORT, (missing(text),))
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
    return Chapter(ALPHA, TITLE, SHORT, body)


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
