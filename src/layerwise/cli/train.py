"""`layerwise train`: a model is refined by some methods, or grows up by a way of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from layerwise.cli.asked import Asked
from layerwise.cli.elc import elc
from layerwise.cli.growth import growth
from layerwise.cli.refine import refine

if TYPE_CHECKING:
    from collections.abc import Sequence

METHODS = "METHODS"
"""What stands for the names of methods in the list of commands."""


class Ways(TyperGroup):
    """Commands for the ways of training that have one; any other word names methods that refine a model."""

    def resolve_command(self, ctx: Any, args: Sequence[str]) -> tuple[str | None, Any, list[str]]:
        """The command, and what is left for it to read."""
        if args[0] == METHODS and len(args) > 1:
            args = args[1:]
        elif args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, list(args))
        return "", self.commands[METHODS], list(args)


train = typer.Typer(
    cls=Ways,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Train a model: to bear other orders of its layers, from nothing, or in phases.

    Each way has its own help: [dim]layerwise train METHODS --help[/], where METHODS stands for their names.

    [dim]layerwise train layershuffle,layerdrop --model demo-vit[/]

    [dim]layerwise train elc[/]

    [dim]layerwise train growth[/]
    """,
)
train.command(METHODS, cls=Asked)(refine)
train.command(cls=Asked)(elc)
train.command(cls=Asked)(growth)
