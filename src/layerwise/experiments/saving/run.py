"""A plan written as a checkpoint: the models are opened in the data type that they are stored in."""

from __future__ import annotations

from pathlib import Path

import torch

from layerwise.checkpoint import Origin, save
from layerwise.errors import ModelError
from layerwise.experiments.merging.sources import SourceModel, arms_of, refuse_added
from layerwise.experiments.opening import open_model
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.saving.config import Saving
from layerwise.plan import Plan
from layerwise.results.training_record import TrainingRecord
from layerwise.stack import Stack

HALF = (torch.float16, torch.bfloat16)


def save_checkpoint(config: Saving, reporter: Reporter) -> None:
    """Write the model that the options describe, and report that it was compared with the plan, and how it is loaded.

    Raises `ModelError` for models of several arms, and for layers that were trained with something that no ordinary
    checkpoint holds; and what `layerwise.save` raises.
    """
    plan = Plan.parse(config.plan)
    stack = _merged(config, plan, reporter) if config.takes_several else _single(config)
    origin = save(stack, plan, config.output, overwrite=config.overwrite)
    reporter.result("\n".join(_sentences(stack, plan, config.output, origin)))


def _single(config: Saving) -> Stack:
    (location,) = config.models
    refuse_added([SourceModel("", location, TrainingRecord.read(Path(location).expanduser()))])
    return _as_stored(config, location)


def _merged(config: Saving, plan: Plan, reporter: Reporter) -> Stack:
    arms = arms_of(config.models, config.arm, reporter)
    if len(arms) > 1:
        raise ModelError(f"models of {len(arms)} arms were given; name one: --arm {' or --arm '.join(arms)}")
    (models,) = arms.values()
    refuse_added(models.values())
    stacks = {name: _as_stored(config, source.location) for name, source in models.items()}
    # A plan without names is about one model, and its errors should not mention several.
    return next(iter(stacks.values())) if len(stacks) == 1 and not plan.sources() else Stack.with_sources(stacks)


def _as_stored(config: Saving, location: str) -> Stack:
    """The model at `location`; a half type that a CPU computes wider stays the type that is written."""
    code = config.trust_remote_code
    stack = open_model(config, model=location, dtype=config.dtype, trust_remote_code=code)
    stored = getattr(stack.model.config, "dtype", None)
    if config.dtype != "auto" or stored not in HALF or stack.dtype == stored:
        return stack
    return open_model(config, model=location, dtype=str(stored).removeprefix("torch."), trust_remote_code=code)


def _sentences(stack: Stack, plan: Plan, folder: Path, origin: Origin) -> list[str]:
    gap = "the same logits" if origin.gap == 0 else f"logits within {origin.gap:.2g} of their size, which is rounding"
    repeats = len(plan.steps()) - plan.cost().weights
    copied = f"; {repeats} of its layers {'is a copy' if repeats == 1 else 'are copies'}" if repeats else ""
    beside = ", with its tokenizer" if stack.tokenizer is not None else ""
    sentences = [
        f"{folder}: {len(plan.steps())} layers, {origin.parameters:,} parameters{copied}{beside}",
        f"loaded again with plain transformers: {gap}",
    ]
    kind = type(stack.model)
    package = kind.__module__.partition(".")[0]
    if package in ("transformers", "layerwise"):
        home = "transformers" if package == "transformers" else "layerwise.models"
        sentences += [
            "to load it:",
            f"    from {home} import {kind.__name__}",
            f"    model = {kind.__name__}.from_pretrained({str(folder)!r})",
        ]
    return sentences
