"""`layerwise plan`: read a plan, say in words what it does, what it costs, and draw its wiring."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from layerwise.cli.screen import output
from layerwise.plan import Plan
from layerwise.plan.explain import explain
from layerwise.plan.picture import picture


def plan(
    text: Annotated[str, typer.Argument(metavar="PLAN", help='For instance "0-13 (14|15|16|17)*3 18-31".')],
    depth: Annotated[int | None, typer.Option(min=1, help="The number of layers of the model it is meant for.")] = None,
) -> None:
    """Read a plan: what it does in words, what it costs, and its wiring as a picture.

    [dim]layerwise plan "0-13 (14|15|16|17)*3 18-31" --depth 32[/]
    """
    read = Plan.parse(text)
    if depth is not None:
        read.check(depth)
    output.print(f"[bold]{read}[/]", soft_wrap=True)
    output.print(explain(read), markup=False, soft_wrap=True)
    cost = read.cost()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    own = f" (the model as trained: {depth})" if depth is not None else ""
    table.add_row("layer evaluations", f"{cost.evaluations}{own}")
    table.add_row("sequential stages", f"{cost.stages}{own}")
    table.add_row("layers used", f"{cost.weights}{f' of {depth}' if depth is not None else ''}")
    table.add_row("KV slots", str(cost.slots))
    if depth is not None:
        missing = Plan.of(sorted(set(range(depth)) - read.layers())) if read.layers() < set(range(depth)) else None
        table.add_row("layers left out", str(missing) if missing else "none")
    output.print(table)
    output.print(picture(read), markup=False, no_wrap=True, overflow="ignore", crop=False)
