"""Writing a plan out as a checkpoint: the model opened in the number format that it is stored in, and what was written
told with the lines that load it."""

from __future__ import annotations

from pathlib import Path

import torch

from layerwise.cli.model import open_model
from layerwise.cli.screen import output, write
from layerwise.errors import ModelError
from layerwise.merge import save
from layerwise.merge.lenders import Lender
from layerwise.plan import Plan
from layerwise.results.pedigree import Pedigree
from layerwise.stack import Stack

HALF = (torch.float16, torch.bfloat16)


def open_as_stored(
    model: str,
    tokenizer: str | None,
    layers: str | None,
    device: str,
    dtype: str,
    revision: str | None,
    trust_remote_code: bool,
) -> Stack:
    """The model as `open_model` opens it, but a half type that a CPU computes wider stays what is written.

    Raises `ModelError` for a model whose layers were trained with something that no ordinary checkpoint holds.
    """
    refuse_added([Lender("", model, Pedigree.read(Path(model).expanduser()))])
    found = open_model(model, tokenizer, layers, device, dtype, revision, trust_remote_code)
    stored = getattr(found.model.config, "dtype", None)
    if dtype != "auto" or stored not in HALF or found.dtype == stored:
        return found
    named = str(stored).removeprefix("torch.")
    return open_model(model, tokenizer, layers, device, named, revision, trust_remote_code)


def refuse_added(lenders: list[Lender]) -> None:
    """Raise `ModelError` where any layers need more than an ordinary checkpoint holds."""
    added = next((lender.added for lender in lenders if lender.added), None)
    if added:
        raise ModelError(
            f"these layers were trained with {added}, which no ordinary checkpoint holds; "
            "write out models of another arm"
        )


def write_out(stack: Stack, plan: Plan, folder: Path, *, fresh: bool) -> None:
    """Write the model of `plan` to `folder`, and say what it is, that it was proved, and how it is loaded."""
    origin = save(stack, plan, folder, fresh=fresh)
    gap = "the same logits" if origin.gap == 0 else f"logits within {origin.gap:.2g} of their size, which is rounding"
    repeats = len(plan.steps()) - plan.cost().weights
    copied = f"; {repeats} of its layers {'is a copy' if repeats == 1 else 'are copies'}" if repeats else ""
    beside = ", with its tokenizer" if stack.tokenizer is not None else ""
    write(output, f"{folder}: {len(plan.steps())} layers, {origin.parameters:,} parameters{copied}{beside}")
    write(output, f"loaded again with plain transformers: {gap}")
    kind = type(stack.model)
    room = kind.__module__.partition(".")[0]
    if room in ("transformers", "layerwise"):
        home = "transformers" if room == "transformers" else "layerwise.models"
        write(output, "to load it:")
        write(output, f"    from {home} import {kind.__name__}")
        write(output, f"    model = {kind.__name__}.from_pretrained({str(folder)!r})")
