"""The page of a comparison."""

from __future__ import annotations

from layerwise.report.comparison.chapters import chapters
from layerwise.report.comparison.compared import Compared
from layerwise.report.comparison.verdicts import ByPaper
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.render import page
from layerwise.report.page.wording import NATS, listed


def comparison_page(compared: Compared, by_paper: ByPaper) -> str:
    """The models side by side as one self-contained HTML page."""
    return page(f"{listed(compared.names)} · layerwise comparison", _masthead(compared), chapters(compared, by_paper))


def _masthead(compared: Compared) -> Safe:
    depths = sorted({run.evidence.depth for run in compared.runs})
    texts = list(dict.fromkeys(str(run.manifest.get("corpus") or "an unnamed corpus") for run in compared.runs))
    facts = {
        "models": f"{len(compared.runs)}",
        "layers": f"{depths[0]}" if len(depths) == 1 else f"{depths[0]} to {depths[-1]}",
    }
    tiles = (element("div", element("dd", value), element("dt", name)) for name, value in facts.items())
    return element(
        "header",
        element("p", "layerwise comparison", class_="kicker"),
        element("h1", listed(compared.names)),
        element("p", "measured on ", element("b", listed(texts)), class_="on"),
        element("dl", *tiles, class_="facts"),
        element(
            "p",
            f"What do these models have in common, and what does one of them alone show? Their {compared.plural} are"
            f" put side by side, over the share of the depth where their depths differ. {NATS}",
            class_="opening",
        ),
    )
