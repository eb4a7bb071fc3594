"""Layer weights on a terminal: a row for each reader, a cell for each source, the darker the more it reads of it."""

from __future__ import annotations

from rich.text import Text

from layerwise.plan import LayerWeights

_DIGITS_UNTIL = 16
"""Sources for which there is room to write each weight as hundredths."""

_SHADES = ((0.5, "█"), (0.2, "▓"), (0.05, "▒"), (0.0, "░"))
_RAMP = (234, 236, 238, 240, 242, 245, 248, 251, 254)
"""Greys of a terminal's 256 colours, from nothing to one."""


def weight_map(edges: LayerWeights) -> Text:
    """The weights as shaded cells, read from top to bottom; a cut edge is a dot, a negative weight has a minus.

    >>> print(weight_map(LayerWeights.of([[1, 0], [0.25, 0.75], [0, -0.5, 0.5]], depth=2)))
          emb    0    1
      0    1.
      1   .25  .75
    out     · -.50  .50
    """
    wide = edges.depth + 1 > _DIGITS_UNTIL
    drawn = Text(no_wrap=True)
    names = ["emb", *map(str, range(edges.depth))][: max(map(len, edges.matrix()))]
    last = max(edge.source for edge in edges)
    if not wide:
        drawn.append("    " + "".join(f" {name:>4}" for name in names[: last + 1]) + "\n", "dim")
    for reader, row in enumerate(edges.matrix()):
        drawn.append(f"{edges.reader_name(reader):>3} ")
        for weight in row[: reader + 1]:
            drawn.append(*_cell(weight, wide))
        drawn.append("\n")
    drawn.right_crop(1)
    return drawn


def _cell(weight: float, wide: bool) -> tuple[str, str]:
    if weight == 0:
        return ("·" if wide else "    ·"), "dim"
    if wide:
        return next(shade for least, shade in _SHADES if abs(weight) >= least), "red" if weight < 0 else ""
    step = min(len(_RAMP) - 1, int(abs(weight) * len(_RAMP)))
    front = "black" if step >= len(_RAMP) // 2 else "white"
    return f" {_hundredths(weight):>4}", f"{front} on color({_RAMP[step]})" if weight > 0 else "red"


def _hundredths(weight: float) -> str:
    """A weight in four characters, if it has a size below a hundred.

    >>> _hundredths(0.254), _hundredths(1.0), _hundredths(-0.5), _hundredths(0.001)
    ('.25', '1.', '-.50', '.00')
    """
    if abs(weight) >= 0.995:
        return f"{weight:.1f}".removesuffix("0")
    return f"{weight:.2f}".replace("0.", ".", 1)
