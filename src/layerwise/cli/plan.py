"""`layerwise plan`: read a plan, say in words what it does, what it costs, and draw its wiring."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from layerwise.errors import OptionError
from layerwise.experiments.terminal import output, write
from layerwise.plan import Plan
from layerwise.plan.explain import explain
from layerwise.plan.picture import LEGEND, picture

# The picture stays small enough to be seen whole, and a cell is two characters wide beside the name of its row.
CELLS = 48
GAP = 3


def plan(
    *text: Annotated[str, Parameter(name="PLAN", help='A plan, such as "0-13 (14|15|16|17)*3 18-31".')],
    depth: Annotated[int | None, Parameter(metavar="LAYERS", help="Depth of the model that it is meant for.")] = None,
) -> None:
    """Read a plan: what it does in words, what it costs, and its wiring as a picture.

    layerwise plan "0-13 (14|15|16|17)*3 18-31" --depth 32

    How to write one:

    0-31                       layers 0 to 31, as trained
    0-13 18-31                 skip 14 to 17
    0-13 17-14 18-31           a descending range runs backwards
    0-13 15*4 18-31            layer 15 four times
    0-11 12.mlp 13-29          half of layer 12: its mlp, or 12.attn
    0-44 [45-51]*2 52-79       a block of layers twice
    0-13 (14|15|16|17) 18-31   side by side: the mean of their outputs
    0-5 (6 7|8 9):sum 10-31    longer branches; :sum or :gain=2, not the mean
    a:0-13 b:14-31             layers of two models, a and b
    """
    if depth is not None and depth < 1:
        raise OptionError(f"--depth takes a number from 1; found {depth}")
    read = Plan.parse(" ".join(text))
    if depth is not None:
        read.check(depth)
    write(output, str(read), style="bold")
    write(output, explain(read, depth))
    output.print(_costs(read, depth))
    cells = max(1, min(CELLS, (output.width - GAP - max(len(step.name) for step in read.steps())) // 2))
    output.print(picture(read, cells), markup=False, no_wrap=True, overflow="ignore", crop=False)
    write(output, LEGEND, style="dim")


def _costs(read: Plan, depth: int | None) -> Table:
    cost = read.cost()
    whole = f" (as trained: {depth})" if depth is not None else ""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("layer evaluations", f"{cost.evaluations}{whole}")
    table.add_row("sequential stages", f"{cost.stages}{whole}")
    sources = len(read.sources())
    of = f" of {sources} models" if sources > 1 else f" of {depth}" if depth is not None else ""
    table.add_row("layers used", f"{cost.weights}{of}")
    table.add_row("KV slots", str(cost.slots))
    return table
