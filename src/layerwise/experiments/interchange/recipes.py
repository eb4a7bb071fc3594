"""What `layerwise save --from` writes: the models, the plan and the data type that a file of another tool says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from layerwise.bounded import named
from layerwise.checkpoint.layer_names import UnresolvedNames
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.errors import OptionError
from layerwise.experiments.interchange.foreign_plans import depth_of, read_recipe, with_models
from layerwise.experiments.options.model import Dtype
from layerwise.experiments.reporter import Reporter
from layerwise.plan import Plan
from layerwise.plan.dialects import dialect_of
from layerwise.plan.dialects.mergekit_reader import split_revision

STORED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""Data types by the names that the headers of files have for them."""


@dataclass(frozen=True, slots=True)
class ResolvedRecipe:
    """A plan, the locations of its models by name, and how they are opened; the key of a single model is empty.

    `head` names the model whose parts behind the layers are taken. `dtype` is `auto` where every model is stored in the
    data type that is to be written.
    """

    plan: Plan
    names: Mapping[str, str]
    head: str | None
    dtype: Dtype
    revision: str | None


def resolved_recipe(
    given: str, models: Sequence[str], *, dtype: Dtype, revision: str | None, reporter: Reporter
) -> ResolvedRecipe:  # fmt: skip
    """The recipe that `given` leads to, over the models that it names or, where it names none, over `models`.

    Raises `OptionError` for models, data types and revisions that are given twice, and what `read_recipe` raises.
    """
    is_rys = dialect_of(given) == "rys"
    recipe = None if is_rys and not models else read_recipe(given, depth_of(models[0]) if is_rys else None)
    if recipe is None or not (recipe.models or models):
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
    return ResolvedRecipe(
        recipe.plan, names, recipe.head, "auto" if _stored_as(names, wanted, revision) else wanted, revision
    )


def _stored_as(names: Mapping[str, str], dtype: str, revision: str | None) -> bool:
    """Whether every tensor of the models is stored in this data type."""
    if dtype not in STORED:
        return False
    try:
        models = [StoredModel.open(location, revision) for location in names.values()]
    except UnresolvedNames:
        return False
    return {tensor.dtype for model in models for tensor in model.tensors.values()} == {STORED[dtype]}
