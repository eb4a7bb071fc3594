"""Write a plan as a checkpoint, streamed if possible. `--from` reads models, plan and dtype of another tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from layerwise.bounded import named, read_json
from layerwise.checkpoint import Origin
from layerwise.checkpoint.card import card_path
from layerwise.checkpoint.folder import Writing
from layerwise.checkpoint.gguf_file import TO_GGUF, save_gguf
from layerwise.checkpoint.layer_names import UnresolvedNames
from layerwise.checkpoint.save import save_named
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.data.model_location import is_gguf
from layerwise.errors import CheckpointError, ModelError, OptionError
from layerwise.plan import Plan
from layerwise.plan.checks import source_name
from layerwise.plan.dialects import MergeRecipe
from layerwise.plan.dialects.mergekit import split_revision
from layerwise.plan.quantised import quantised_layers
from layerwise.results.training_record import TrainingRecord
from layerwise.runner.foreign_plans import depth_of, read_recipe, with_models
from layerwise.runner.option import given_flag, given_options
from layerwise.runner.options.common import Dtype
from layerwise.runner.options.plans import chosen_plan
from layerwise.runner.reporter import Reporter
from layerwise.studies.save.options import Saving, bytes_of
from layerwise.studies.save.publication import Publication

if TYPE_CHECKING:
    from layerwise.stack import Stack


def save_checkpoint(config: Saving, reporter: Reporter) -> None:
    """Write the model that the options describe, and report what was verified and how to load it.

    Raises `ModelError` for models of several arms and layers that no ordinary checkpoint can hold, and as
    `layerwise.save` does.
    """
    if config.converts_gguf:
        config = replace(config, plan=str(Plan.identity(depth_of(config.models[0]))))
    if is_gguf(config.output):
        _save_gguf(config, reporter)
        return
    for location in config.models:
        reporter.log(f"loading {location}")
    head = None
    if config.recipe is not None:
        recipe, names, dtype, revision = resolved_recipe(
            config.recipe, config.models, dtype=config.dtype, revision=config.revision, reporter=reporter
        )
        plan, head, config = recipe.plan, recipe.head, replace(config, dtype=dtype, revision=revision)
    else:
        plan = chosen_plan(config.plan or "")
        names = _merged(config, reporter) if config.takes_several else _single(config)
    publication = None
    if config.card or config.evidence or config.push:
        publication = Publication.of(
            config.evidence, plan, names.values(), push=config.push, private=config.private, overwrite=config.overwrite
        )
    if len(names) == 1 and not plan.sources():
        # a plan without names is about one model, and so are its errors
        names = {"": next(iter(names.values()))}
    writing = Writing(
        folder=config.output,
        overwrite=config.overwrite,
        prove=config.prove,
        layers=config.layers,
        max_shard_size=bytes_of(config.max_shard_size),
        compact=config.compact,
        remote_code=config.remote_code,
        head=head,
    )
    origin = save_named(names, plan, writing, partial(_opened, config, names), config.revision, _in_memory(config))
    reporter.result("\n".join(_sentences(config.output, plan, origin)))
    if publication is not None:
        publication.publish(config.output, reporter)


def _save_gguf(config: Saving, reporter: Reporter) -> None:
    if config.recipe is not None:
        recipe, names, *_ = resolved_recipe(
            config.recipe, config.models, dtype="auto", revision=None, reporter=reporter
        )
        plan = recipe.plan
    else:
        plan = chosen_plan(config.plan or "")
        names = {source_name(number): location for number, location in enumerate(config.models)}
    (_, file), *folders = names.items()
    locations = tuple(names.values())
    if not is_gguf(file) or any(is_gguf(folder) for _, folder in folders):
        raise OptionError(
            f"a GGUF file is written of one other, and not of {' and '.join(map(named, locations))}; {TO_GGUF}"
        )
    card = card_path(config.output)
    if (config.card or config.evidence) and card.exists() and not config.overwrite:
        raise CheckpointError(f"{card} is there already; choose another name, leave the card out, or add --overwrite")
    publication = None
    if config.card or config.evidence:
        publication = Publication.of(config.evidence, plan, locations, push=None, private=False, overwrite=False)
    origin = save_gguf(
        file, plan, config.output, folders=dict(folders), overwrite=config.overwrite, prove=bool(config.prove)
    )
    copied = f"those of {file}, byte for byte"
    types = len(quantised_layers(plan)) + sum(step.source in dict(folders) for step in plan.steps())
    again = (
        f"its tensors are {copied}: nothing was quantised again"
        if not types
        else (f"the matrices of {types} of its layers were quantised again; what did not change is {copied}")
    )
    reporter.result(f"{_counted(config.output, plan, origin)}\n{again}\n{_proved(origin)}")
    if publication is not None:
        publication.publish(config.output, reporter, origin)


def _in_memory(config: Saving) -> str:
    given = given_options(config).keys() & {"dtype", "tokenizer", "trust_remote_code"}
    return " and ".join(given_flag(config, name) for name in sorted(given)) + " was given" if given else ""


def _single(config: Saving) -> dict[str, str]:
    (location,) = config.models
    record = TrainingRecord.read(Path(location).expanduser())
    if record is not None:
        from layerwise.runner.source_models import SourceModel, refuse_added

        refuse_added([SourceModel("", location, record)])
    return {"": location}


def _merged(config: Saving, reporter: Reporter) -> dict[str, str]:
    from layerwise.runner.source_models import arms_of, refuse_added

    arms = arms_of(config.models, config.arm, reporter)
    if len(arms) > 1:
        raise ModelError(f"models of {len(arms)} arms were given; name one: --arm {' or --arm '.join(arms)}")
    (models,) = arms.values()
    refuse_added(models.values())
    return {name: source.location for name, source in models.items()}


def _opened(config: Saving, names: Mapping[str, str]) -> Stack:
    from layerwise.runner.opening import open_model
    from layerwise.stack import Stack

    dtype = "stored" if config.dtype == "auto" else config.dtype
    stacks = {
        name: open_model(config, model=location, dtype=dtype, trust_remote_code=config.trust_remote_code)
        for name, location in names.items()
    }
    return stacks[""] if list(stacks) == [""] else Stack.with_sources(stacks)


def _counted(path: Path, plan: Plan, origin: Origin) -> str:
    visits, repeats = len(plan.steps()), len(plan.steps()) - plan.cost().weights
    copied = f"; {repeats} of its layers {'is a copy' if repeats == 1 else 'are copies'}" if repeats else ""
    beside = ", with its tokenizer" if any(path.glob("tokenizer*")) else ""
    layers = f"{visits - repeats} layers for {visits} visits" if origin.compact else f"{visits} layers"
    return f"{path}: {layers}, {origin.parameters:,} parameters{'' if origin.compact else copied}{beside}"


def _sentences(folder: Path, plan: Plan, origin: Origin) -> list[str]:
    sentences = [_counted(folder, plan, origin)]
    if origin.note:
        sentences.append(f"the model was built in memory: {origin.note}")
    if origin.unwritten:
        sentences.append(f"not written, and not counted in config.json any more: {origin.unwritten}")
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
    own = origin.compact or not origin.weights
    return f"loaded again with {'layerwise' if own else 'plain transformers'}: {gap}"


def _loading(folder: Path, origin: Origin) -> list[str]:
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


STORED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""Data types by the names that the headers of files have for them."""


def resolved_recipe(
    given: str, models: Sequence[str], *, dtype: Dtype, revision: str | None, reporter: Reporter
) -> tuple[MergeRecipe, dict[str, str], Dtype, str | None]:
    """Return the recipe of `given` (over its own models, or `models`), locations by name, dtype and revision.

    Locations are empty for a single model; the dtype is `auto` if all models are stored in it. Raises `OptionError` for
    values that are given twice, and what `read_recipe` raises.
    """
    recipe = read_recipe(given)
    if not (recipe.models or models):
        raise OptionError(f"a model is needed: layerwise save MODEL --from {named(given)} --output FOLDER")
    recipe = with_models(recipe, models)
    for note in recipe.notes:
        reporter.log(f"note: {note}")
    split = {name or "": split_revision(location) for name, location in recipe.models.items()}
    names = {name: location for name, (location, _) in split.items()}
    revisions = {stated for _, stated in split.values() if stated is not None}
    if revisions and (len(split) > 1 or revision is not None):
        raise OptionError(
            "one revision of one model can be opened: download each to a folder of its own, and name the folders"
        )
    if recipe.dtype is not None and dtype != "auto" and dtype != recipe.dtype:
        raise OptionError(f"{named(given)} says {recipe.dtype} and --dtype {dtype}; leave one of them out")
    wanted = next((each for each in get_args(Dtype) if each == recipe.dtype), dtype)
    revision = next(iter(revisions), revision)
    return recipe, names, "auto" if _stored_as(names, wanted, revision) else wanted, revision


def _stored_as(names: Mapping[str, str], dtype: str, revision: str | None) -> bool:
    if any(map(is_gguf, names.values())):
        return True  # nothing of it is converted
    if dtype not in STORED:
        return False
    try:
        models = [StoredModel.open(location, revision) for location in names.values()]
    except UnresolvedNames:
        return False
    return {tensor.dtype for model in models for tensor in model.tensors.values()} == {STORED[dtype]}
