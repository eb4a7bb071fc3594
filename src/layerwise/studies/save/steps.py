"""Write a plan as a checkpoint, streamed if possible. `--from` reads models, plan and dtype of another tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from layerwise.bounded import named, read_json
from layerwise.checkpoint import Origin
from layerwise.checkpoint.folder import Writing
from layerwise.checkpoint.gguf_file import TO_GGUF, save_gguf
from layerwise.checkpoint.layer_names import UnresolvedNames
from layerwise.checkpoint.save import save_named
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.data.model_location import is_gguf
from layerwise.errors import ModelError, OptionError
from layerwise.plan import Plan
from layerwise.plan.dialects.mergekit import split_revision
from layerwise.plan.quantised import quantised_layers
from layerwise.results.run import MANIFEST
from layerwise.results.training_record import TrainingRecord
from layerwise.runner.arguments import Dtype
from layerwise.runner.foreign_plans import read_recipe, with_models
from layerwise.runner.plan_choice import chosen_plan
from layerwise.runner.reporter import Reporter

if TYPE_CHECKING:
    from layerwise.stack import Stack


@dataclass(frozen=True)
class PlannedModels:
    """A plan, its models by name, and how they are opened; `head` names the model whose last parts are taken."""

    plan: Plan
    names: Mapping[str, str]
    head: str | None = None
    dtype: Dtype = "auto"
    revision: str | None = None


def choose_models(
    models: Sequence[str], plan: str, arm: str | None, dtype: Dtype, revision: str | None, reporter: Reporter
) -> PlannedModels:
    """Name the models of a plan: a single one, or those of one variant.

    Raises `ModelError` for models of several variants and layers that no ordinary checkpoint can hold.
    """
    for location in models:
        reporter.log(f"loading {location}")
    names = _merge_runs(models, arm, reporter) if takes_several(models) else _check_single(models[0])
    return PlannedModels(chosen_plan(plan), names, None, dtype, revision)


def takes_several(models: Sequence[str]) -> bool:
    """Return whether the layers of several models are taken: several are named, or a run of trainings."""
    return len(models) > 1 or any((Path(location).expanduser() / MANIFEST).is_file() for location in models)


def write_folder(
    planned: PlannedModels, writing: Writing, opened: Callable[[Mapping[str, str]], Stack], in_memory: str
) -> Origin:
    names = planned.names
    if len(names) == 1 and not planned.plan.sources():
        # a plan without names is about one model, and so are its errors
        names = {"": next(iter(names.values()))}
    return save_named(names, planned.plan, writing, partial(opened, names), planned.revision, in_memory)


def write_gguf(planned: PlannedModels, output: Path, *, overwrite: bool, prove: bool) -> tuple[Origin, str]:
    """Write a GGUF file of another one and of trained folders; return its origin and what is said of it."""
    (_, file), *folders = planned.names.items()
    if not is_gguf(file) or any(is_gguf(folder) for _, folder in folders):
        locations = " and ".join(map(named, planned.names.values()))
        raise OptionError(f"a GGUF file is written of one other, and not of {locations}; {TO_GGUF}")
    plan = planned.plan
    origin = save_gguf(file, plan, output, folders=dict(folders), overwrite=overwrite, prove=prove)
    copied = f"those of {file}, byte for byte"
    types = len(quantised_layers(plan)) + sum(step.source in dict(folders) for step in plan.steps())
    again = (
        f"its tensors are {copied}: nothing was quantised again"
        if not types
        else (f"the matrices of {types} of its layers were quantised again; what did not change is {copied}")
    )
    return origin, f"{_counted(output, plan, origin)}\n{again}\n{_proved(origin)}"


def _check_single(location: str) -> dict[str, str]:
    record = TrainingRecord.read(Path(location).expanduser())
    if record is not None:
        from layerwise.runner.source_models import SourceModel, refuse_added

        refuse_added([SourceModel("", location, record)])
    return {"": location}


def _merge_runs(models: Sequence[str], arm: str | None, reporter: Reporter) -> dict[str, str]:
    from layerwise.runner.source_models import arms_of, refuse_added

    arms = arms_of(models, arm, reporter)
    if len(arms) > 1:
        raise ModelError(f"models of {len(arms)} arms were given; name one: --arm {' or --arm '.join(arms)}")
    (sources,) = arms.values()
    refuse_added(sources.values())
    return {name: source.location for name, source in sources.items()}


def open_stacks(names: Mapping[str, str], reporter: Reporter, *, dtype: Dtype, **options: Any) -> Stack:
    """Open the models by name, in their stored dtype unless one is given."""
    from layerwise.runner.opening import open_stack
    from layerwise.stack import Stack

    stored: Dtype = "stored" if dtype == "auto" else dtype
    stacks = {name: open_stack(location, reporter, dtype=stored, **options) for name, location in names.items()}
    return stacks[""] if list(stacks) == [""] else Stack.with_sources(stacks)


def _counted(path: Path, plan: Plan, origin: Origin) -> str:
    visits, repeats = len(plan.steps()), len(plan.steps()) - plan.cost().weights
    copied = f"; {repeats} of its layers {'is a copy' if repeats == 1 else 'are copies'}" if repeats else ""
    beside = ", with its tokenizer" if any(path.glob("tokenizer*")) else ""
    layers = f"{visits - repeats} layers for {visits} visits" if origin.compact else f"{visits} layers"
    return f"{path}: {layers}, {origin.parameters:,} parameters{'' if origin.compact else copied}{beside}"


def describe_folder(folder: Path, plan: Plan, origin: Origin) -> list[str]:
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


def read_planned(
    given: str, models: Sequence[str], *, dtype: Dtype, revision: str | None, reporter: Reporter
) -> PlannedModels:
    """Return the plan of the recipe `given` over its own models, or `models`.

    The dtype is `auto` if all models are stored in it. Raises `OptionError` for values that are given twice, and what
    `read_recipe` raises.
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
    stored = "auto" if _stored_as(names, wanted, revision) else wanted
    return PlannedModels(recipe.plan, names, recipe.head, stored, revision)


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
