"""Layer weights drawn as a wiring: a row a reader, a column a source, the cell the fuller the greater its weight.

The look is that of `layerwise.report.wiring`: the embedding's column is grey, the others have the colour of the layer
that wrote them, violet for the first and yellow for the last. Here weights differ in every cell, so each is a shape
with its number in it (while there is room for it) and its seeds in the hover text; a negative weight is an empty frame.
"""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import fixed, tidy
from layerwise.report.page.palette import depth_colour
from layerwise.report.page.wiring import EMBEDDING
from layerwise.report.pretraining.layer_weights import Alpha, source_name

CELL = 30
EDGE = 26  # of the numbers of the readers and sources
FAINTEST = 0.05
SOLID = 0.55  # from this share on a cell is so full that its number is set against its own colour
ROOM = 16  # readers up to which the cells have numbers


def weight_map(
    alpha: Alpha, cells: Mapping[tuple[int, int], float], *, most: float, title: str, numbers: bool = True
) -> Safe:
    """The cells as an SVG; `most` is the weight that is solid, the same for all maps that are compared."""
    rows, columns = alpha.depth + alpha.mixes_output, alpha.depth + alpha.mixes_output
    numbered = numbers and rows <= ROOM
    shapes = [
        shape
        for (reader, source), value in cells.items()
        for shape in _cell(alpha, (reader, source), value, most, numbered=numbered)
    ]
    return element(
        "svg",
        element("title", title),
        *(_edges(alpha, rows, columns) if numbers else ()),
        *shapes,
        viewBox=f"0 0 {EDGE + columns * CELL + 2} {EDGE + rows * CELL + 2}",
        class_="weights",
        role="img",
        aria_label=title,
    )


def _cell(alpha: Alpha, cell: tuple[int, int], value: float, most: float, *, numbered: bool) -> list[Safe]:
    reader, source = cell
    colour = EMBEDDING if source == 0 else depth_colour(source - 1, alpha.depth)
    x, y = EDGE + source * CELL, EDGE + reader * CELL
    share = min(1.0, abs(value) / most) if most > 0.0 else 0.0
    opacity = f"{FAINTEST + (1.0 - FAINTEST) * share:.3g}"
    filled = {"fill": colour, "fill_opacity": opacity} if value >= 0.0 else _frame(colour, opacity)
    box = {"x": f"{x + 1}", "y": f"{y + 1}", "width": f"{CELL - 2}", "height": f"{CELL - 2}", "rx": "2"}
    shapes = [element("rect", element("title", _hover(alpha, cell)), **box, **filled)]
    if numbered:
        middle = {"x": f"{x + CELL / 2:g}", "y": f"{y + CELL / 2:g}"}
        ink = _ink(colour) if share > SOLID and value >= 0.0 else None
        shapes.append(element("text", _short(value), **middle, class_="value", style=ink))
    return shapes


def _ink(colour: str) -> str:
    """White on a dark colour, black on a bright one, whatever the page is."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "fill:#fff" if 0.3 * red + 0.59 * green + 0.11 * blue < 140 else "fill:#14161b"


def _frame(colour: str, opacity: str) -> dict[str, str]:
    return {"fill": "none", "stroke": colour, "stroke_opacity": opacity, "stroke_width": "2"}


def _edges(alpha: Alpha, rows: int, columns: int) -> list[Safe]:
    """The names of the rows and columns: the number of the layer, `e` for the embedding, `out` for the output."""
    step = 1 if rows <= 2 * ROOM else 4
    named = [
        element("text", "e" if at == 0 else str(at - 1), x=f"{EDGE + at * CELL + CELL / 2:g}", y=f"{EDGE - 10}")
        for at in range(0, columns, step)
    ]
    return named + [
        element(
            "text",
            "out" if at == alpha.depth else str(at),
            x=f"{EDGE / 2:g}",
            y=f"{EDGE + at * CELL + CELL / 2:g}",
        )
        for at in range(0, rows, step)
    ]


def _hover(alpha: Alpha, cell: tuple[int, int]) -> str:
    """The hover text: who reads what, the number, and the weight in every seed."""
    reader, source = cell
    spread = alpha.spread.get(cell)
    seeds = "; ".join(f"{name}: {tidy(weight)}" for name, weight in alpha.values[cell].items())
    more = "" if spread is None else f", standard deviation over seeds {tidy(spread)}"
    return f"{alpha.reader(reader)} reads {source_name(source)}: {tidy(alpha.mean[cell])}{more} ({seeds})"


def _short(value: float) -> str:
    """Two decimals without the leading zero.

    >>> _short(0.214), _short(-0.05), _short(1.0), _short(0.001)
    ('.21', '−.05', '1', '0')
    """
    text = fixed(value, 2).replace("0.", ".", 1) if abs(value) < 0.995 else fixed(value, 1).removesuffix(".0")
    return "0" if text in (".00", "−.00") else text
