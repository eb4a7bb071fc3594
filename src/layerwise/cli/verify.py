"""`layerwise verify`: run the laws of re-planning on a user's own model and plan, and print which hold."""

from __future__ import annotations

from typing import Annotated

import typer

from layerwise.cli.options import Device, Dtype, Layers, ModelName, Revision, TrustRemoteCode
from layerwise.cli.screen import output, write
from layerwise.plan import Plan

WORDS = {True: "holds", False: "FAILS", None: "n/a"}
STYLES = {True: "green", False: "bold red", None: "dim"}


def verify(
    model: ModelName,
    plan: Annotated[
        str | None, typer.Option(metavar="PLAN", help="The plan to verify; without one, the model as trained.")
    ] = None,
    layers: Layers = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Check that a model under a plan computes what the plan says, cached decoding included.

    Exit code 1 if a law does not hold.

    [dim]layerwise verify demo --plan "0-3 (4|5|6)*2 7-11"[/]

    [dim]layerwise verify HuggingFaceTB/SmolLM2-135M --plan "0-13 18-29"[/]
    """
    wanted = Plan.parse(plan) if plan is not None else None
    from layerwise.cli.model import open_model
    from layerwise.results.model_name import model_name
    from layerwise.stack import verify as laws

    stack = open_model(model, None, layers, device, dtype, revision, trust_remote_code)
    wanted = wanted or Plan.identity(stack.depth)
    found = laws(stack, wanted)
    write(output, f"{model_name(stack.source.name)} under {wanted}", style="bold")
    widest = max(len(law.name) for law in found)
    for law in found:
        write(output, f"{WORDS[law.holds]:5}  {law.name:{widest}}  {law.detail}", style=STYLES[law.holds])
    if any(law.holds is False for law in found):
        raise typer.Exit(1)
