"""A plan written as a checkpoint: streamed where that is possible, else the models are opened as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.bounded import read_json
from layerwise.checkpoint import Origin
from layerwise.checkpoint.save import save_named
from layerwise.checkpoint.stream import Writing
from layerwise.errors import ModelError
from layerwise.experiments.chosen_plan import chosen_plan
from layerwise.experiments.interchange.publishing import Publication
from layerwise.experiments.interchange.recipes import resolved_recipe
from layerwise.experiments.option import given_flag, given_options
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.saving.config import Saving, bytes_of
from layerwise.plan import Plan
from layerwise.results.training_record import TrainingRecord
from layerwise.search.moves import AVERAGE_OF_TWO

if TYPE_CHECKING:
    from layerwise.stack import Stack


def save_checkpoint(config: Saving, reporter: Reporter) -> None:
    """Write the model that the options describe, and report what was proved of it, and how it is loaded.

    Raises `ModelError` for models of several arms, and for layers that were trained with something that no ordinary
    checkpoint holds; and what `layerwise.save` raises.
    """
    for location in config.models:
        reporter.log(f"loading {location}")
    head = None
    if config.recipe is not None:
        recipe = resolved_recipe(
            config.recipe, config.models, dtype=config.dtype, revision=config.revision, reporter=reporter
        )
        plan, names, head = recipe.plan, dict(recipe.names), recipe.head
        config = replace(config, dtype=recipe.dtype, revision=recipe.revision)
    else:
        plan = chosen_plan(config.plan or "")
        names = _merged(config, reporter) if config.takes_several else _single(config)
    publication = None
    if config.card or config.evidence or config.push:
        publication = Publication.of(
            config.evidence, plan, names.values(), push=config.push, private=config.private, overwrite=config.overwrite
        )
    averages = plan.sources() == {AVERAGE_OF_TWO} and len(names) == 1
    if len(names) == 1 and (averages or not plan.sources()):
        # a plan without names is about one model, and so are its errors
        names = {"": next(iter(names.values()))}
    writing = Writing(
        folder=config.output, overwrite=config.overwrite, prove=config.prove, layers=config.layers,
        max_shard_size=bytes_of(config.max_shard_size), compact=config.compact, remote_code=config.remote_code,
        head=head,
    )  # fmt: skip
    reason = "the plan has averages of layers" if averages else _in_memory(config)
    origin = save_named(names, plan, writing, partial(_opened, config, names, plan), config.revision, reason)
    reporter.result("\n".join(_sentences(config.output, plan, origin)))
    if publication is not None:
        publication.publish(config.output, reporter)


def _in_memory(config: Saving) -> str:
    """The options that ask for more than the bytes of the files, in words; empty where there is none."""
    given = given_options(config).keys() & {"dtype", "tokenizer", "trust_remote_code"}
    return " and ".join(given_flag(config, name) for name in sorted(given)) + " was given" if given else ""


def _single(config: Saving) -> dict[str, str]:
    (location,) = config.models
    record = TrainingRecord.read(Path(location).expanduser())
    if record is not None:
        from layerwise.experiments.merging.sources import SourceModel, refuse_added

        refuse_added([SourceModel("", location, record)])
    return {"": location}


def _merged(config: Saving, reporter: Reporter) -> dict[str, str]:
    from layerwise.experiments.merging.sources import arms_of, refuse_added

    arms = arms_of(config.models, config.arm, reporter)
    if len(arms) > 1:
        raise ModelError(f"models of {len(arms)} arms were given; name one: --arm {' or --arm '.join(arms)}")
    (models,) = arms.values()
    refuse_added(models.values())
    return {name: source.location for name, source in models.items()}


def _opened(config: Saving, names: Mapping[str, str], plan: Plan) -> Stack:
    """The models in memory; without another word in the dtype in which they are stored, which is what is written."""
    from layerwise.experiments.opening import open_model
    from layerwise.search.averaging import with_averages
    from layerwise.stack import Stack

    dtype = "stored" if config.dtype == "auto" else config.dtype
    stacks = {
        name: open_model(config, model=location, dtype=dtype, trust_remote_code=config.trust_remote_code)
        for name, location in names.items()
    }
    return with_averages(stacks[""], plan) if list(stacks) == [""] else Stack.with_sources(stacks)


def _sentences(folder: Path, plan: Plan, origin: Origin) -> list[str]:
    visits, repeats = len(plan.steps()), len(plan.steps()) - plan.cost().weights
    copied = f"; {repeats} of its layers {'is a copy' if repeats == 1 else 'are copies'}" if repeats else ""
    beside = ", with its tokenizer" if any(folder.glob("tokenizer*")) else ""
    layers = f"{visits - repeats} layers for {visits} visits" if origin.compact else f"{visits} layers"
    sentences = [f"{folder}: {layers}, {origin.parameters:,} parameters{'' if origin.compact else copied}{beside}"]
    if origin.note:
        sentences.append(f"the model was built in memory: {origin.note}")
    sentences.append(_proved(origin))
    if origin.compact:
        sentences.append("transformers without trust_remote_code opens the stored layers in their order, not the plan")
    lines = _loading(folder, origin)
    return [*sentences, *(["to load it:", *(f"    {line}" for line in lines)] if lines else [])]


def _proved(origin: Origin) -> str:
    if origin.proof == "keys":
        return "its keys and shapes are those that transformers expects; its logits were not compared (--prove does)"
    if origin.proof == "none" or origin.gap is None:
        return "nothing was compared: --prove compares its logits with the plan's"
    gap = "the same logits" if origin.gap == 0 else f"logits within {origin.gap:.2g} of their size, which is rounding"
    return f"loaded again with {'layerwise' if origin.compact else 'plain transformers'}: {gap}"


def _loading(folder: Path, origin: Origin) -> list[str]:
    """The lines of Python that open the folder, where it is known who does."""
    settings = read_json(folder / "config.json")
    kind = next(iter(settings.get("architectures") or ()), None)
    code = settings.get("auto_map") or {}
    name = next((name for name, each in sorted(code.items(), reverse=True) if each.endswith(f".{kind}")), None)
    if name is not None:
        return [
            f"from transformers import {name}",
            f"model = {name}.from_pretrained({str(folder)!r}, trust_remote_code=True)",
        ]
    if origin.compact:
        return ["import layerwise", f"model = layerwise.load({str(folder)!r}).model"]
    if kind is None:
        return []
    home = "layerwise.models" if str(settings.get("model_type")).startswith("layerwise-") else "transformers"
    return [f"from {home} import {kind}", f"model = {kind}.from_pretrained({str(folder)!r})"]
