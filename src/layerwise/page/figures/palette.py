"""The colors of the report in the light and the dark theme.

Figures are written in light colors, and the script of the page replaces them in the dark theme. The colors of series
are distinguishable with common forms of color blindness, and the markers of series differ, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ROLES: dict[str, tuple[str, str]] = {
    "ink": ("#1b1d22", "#eceae4"),
    "muted": ("#646a76", "#9aa0ad"),
    "grid": ("#e4e1d9", "#2b2f39"),
    "zero": ("#a8a499", "#596070"),
    "paper": ("#fbfaf7", "#14161b"),
    "card": ("#ffffff", "#1b1e25"),
    "accent": ("#0b62a4", "#6cb6f5"),
    "quiet": ("#b9b6ad", "#4c525f"),
}
SERIES: tuple[tuple[str, str], ...] = (
    ("#0072b2", "#58aef0"),
    ("#d55e00", "#ff8f4f"),
    ("#009e73", "#35c99b"),
    ("#b4589a", "#e694cf"),
    ("#c18a00", "#f0bd3d"),
    ("#3f4a5a", "#c3ccd9"),
    ("#4aa3df", "#9fd6ff"),
    ("#8c4a2f", "#d69a7c"),
    ("#7466c9", "#b3a8ff"),
    ("#8a8d00", "#d3d655"),
    ("#b81b57", "#ff83ad"),
    ("#4f8560", "#9fd0ab"),
)
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "x",
    "star",
    "hexagon",
    "pentagon",
    "cross",
    "star-diamond",
    "bowtie",
)
DIVERGING: tuple[tuple[str, str], ...] = (
    ("#0b4f8a", "#7cc0ff"),
    ("#6fa8d6", "#2f6fa8"),
    ("#f3f1ec", "#20242c"),
    ("#e39a63", "#a85a1e"),
    ("#9c4300", "#ffb07a"),
)
# Ten even steps through viridis (public domain, BIDS), without its palest yellow, which is invisible on white.
VIRIDIS = ("#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#a5d72f", "#dde318")
# Layers by depth: like viridis, but visible in both themes.
DEPTH = ("#6a3fa3", "#4c62b4", "#3280b3", "#239aa3", "#36b083", "#72c164", "#aecb4b", "#dfd03c")

# The published strategies have the same color in every run.
PUBLISHED = ("skip", "reverse", "looped_parallel", "random", "parallel", "middle_repeat")


def light_color(role: str) -> str:
    return ROLES[role][0]


def fade(color: str, opacity: float) -> str:
    """Add an opacity to a `#rrggbb` color, in the notation that the script of the page replaces.

    >>> fade("#0072b2", 0.2)
    'rgba(0,114,178,0.2)'
    """
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def list_dark_colors() -> dict[str, str]:
    return dict([*ROLES.values(), *SERIES, *DIVERGING])


def depth_color(layer: int, depth: int) -> str:
    """Return the color of a layer, from violet (first) to yellow (last).

    >>> depth_color(0, 12), depth_color(11, 12)
    ('#6a3fa3', '#dfd03c')
    """
    if depth <= 1:
        return DEPTH[0]
    position = min(1.0, max(0.0, layer / (depth - 1))) * (len(DEPTH) - 1)
    lower = min(int(position), len(DEPTH) - 2)
    share = position - lower
    mixed = (
        round((1 - share) * int(DEPTH[lower][at : at + 2], 16) + share * int(DEPTH[lower + 1][at : at + 2], 16))
        for at in (1, 3, 5)
    )
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def series_slots(strategies: Sequence[str]) -> dict[str, int]:
    """Return the color index of each strategy. Published strategies have a fixed one; others follow in the given order.

    >>> series_slots(["gain_2", "skip"])
    {'gain_2': 6, 'skip': 0}
    """
    slots: dict[str, int] = {}
    following = len(PUBLISHED)
    for strategy in dict.fromkeys(strategies):
        fixed = next((slot for slot, name in enumerate(PUBLISHED) if strategy == name), None)
        if fixed is None:
            slots[strategy] = following % len(SERIES)
            following += 1
        else:
            slots[strategy] = fixed
    return slots


EMBEDDING = "#8d919c"


VARIANT_COLORS: dict[str, int] = {
    "baseline": 5,
    "sequential": 6,
    "layershuffle": 0,
    "layershuffle-position": 2,
    "layershuffle-predict": 3,
    "layershuffle-layerdrop": 8,
    "layerdrop": 1,
    "layerdrop-scratch": 7,
    "ltg": 5,
    "elc": 0,
    "elc-base": 6,
    "zero": 2,
    "normalized": 3,
    "weighted-output": 4,
    "denseformer": 1,
    "uniform": 5,
    "published": 1,
    "importance": 0,
    "permuted": 2,
    "reversed": 3,
    "random": 4,
    "stacking": 8,
    "ramp": 7,
    "freezing": 6,
    "lisa": 3,
    "retrained": 4,
}
"""Color index of each training variant. `page/provenance.md` describes the variants."""
SPARE = (10, 9, 11)  # colors that no known variant has


def sort_variants(variants: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct variants: those in `VARIANT_COLORS` in its order, then all others.

    >>> sort_variants(["mine", "layerdrop", "baseline", "mine"])
    ('baseline', 'layerdrop', 'mine')
    """
    present = dict.fromkeys(variants)
    return (
        *(variant for variant in VARIANT_COLORS if variant in present),
        *(variant for variant in present if variant not in VARIANT_COLORS),
    )


def assign_colors(variants: Iterable[str]) -> dict[str, int]:
    """Return the color index of each variant.

    >>> assign_colors(["baseline", "mine"])
    {'baseline': 5, 'mine': 10}
    """
    slots: dict[str, int] = {}
    others = 0
    for variant in dict.fromkeys(variants):
        fixed = VARIANT_COLORS.get(variant)
        slots[variant] = SPARE[others % len(SPARE)] if fixed is None else fixed
        others += fixed is None
    return slots
