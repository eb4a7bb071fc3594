"""`layerwise verify`: run the laws of re-planning on a user's own model and plan, and print which hold."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from layerwise.cli.options import Device, Dtype, Layers, ModelName, Revision, TrustRemoteCode
from layerwise.cli.screen import output
from layerwise.plan import Plan
from layerwise.stack import load
from layerwise.stack import verify as laws


def verify(
    model: ModelName,
    plan: Annotated[str | None, typer.Option(help="The plan to verify; without one, the model as trained.")] = None,
    layers: Layers = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Check that a model under a plan computes what the plan says, cached decoding included.

    Exit code 1 if a law does not hold.

    [dim]layerwise verify demo --plan "0-3 (4|5|6)*2 7-11"[/]
    """
    stack = load(
        model, layers=layers, device=device, dtype=dtype, revision=revision, trust_remote_code=trust_remote_code
    )
    wanted = Plan.parse(plan) if plan is not None else Plan.identity(stack.depth)
    found = laws(stack, wanted)
    table = Table(title=f"{stack.source.name} under {wanted}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("law", "holds", "detail"):
        table.add_column(column)
    words = {True: "[green]yes[/]", False: "[bold red]NO[/]", None: "[dim]n/a[/]"}
    for law in found:
        table.add_row(law.name, words[law.holds], law.detail)
    output.print(table)
    if any(law.holds is False for law in found):
        raise typer.Exit(1)
