"""Read plans in the formats of other tools from files or text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from layerwise import gguf
from layerwise.bounded import UnreadableError, decoded, kind_of, named, read_bytes
from layerwise.data.model_location import is_gguf, location_of
from layerwise.errors import ModelError, OptionError, PlanError
from layerwise.plan.checks import source_name
from layerwise.plan.dialects import DIALECTS, MergeRecipe, read, write_mergekit, write_tensor_types
from layerwise.plan.dialects.located import SIZE


def read_recipe(source: str) -> MergeRecipe:
    """Read a plan, and the models it names, from text or a file in mergekit's format or in plan syntax."""
    with _of_file(source):
        return read(_content(source))


def _content(source: str) -> str:
    path = Path(source)
    if kind_of(path) == "file":
        return decoded(read_bytes(path, SIZE))
    if path.suffix in (".yml", ".yaml") or kind_of(path) != "nothing":
        raise PlanError(f"{named(source)} is not a file. Pass a mergekit YAML file or a plan.")
    return source


@contextmanager
def _of_file(source: str) -> Iterator[None]:
    try:
        yield
    except UnreadableError as fault:
        raise PlanError(f"{named(source)} {fault}. Pass a mergekit YAML file or a plan.") from None
    except PlanError as refused:
        if kind_of(source) != "file":
            raise
        raise PlanError(f"{named(source)}, {refused.reason}", text=refused.text, position=refused.position) from None


def add_models(recipe: MergeRecipe, models: Sequence[str]) -> MergeRecipe:
    """Add models to a merge recipe. If there are several, their names are a, b, c, and so on."""
    if not models:
        return recipe
    models = [location_of(model) for model in models]
    if recipe.models:
        raise OptionError(
            f"--model cannot be combined with a file that names its models: {', '.join(recipe.models.values())}."
        )
    if not recipe.plan.sources() and len(models) == 1:
        return MergeRecipe(recipe.plan, {None: models[0]}, notes=recipe.notes)
    by_name: dict[str | None, str] = {source_name(number): model for number, model in enumerate(models)}
    return MergeRecipe(recipe.plan, by_name, source_name(0), notes=recipe.notes)


def write_recipe(recipe: MergeRecipe, dialect: str, depth: int | None = None) -> str:
    if dialect not in DIALECTS:
        raise OptionError(f"--to must be one of {', '.join(DIALECTS)}, got {dialect!r}.")
    if dialect == "text":
        return str(recipe.plan)
    if dialect == "tensor-types":
        return write_tensor_types(recipe.plan, depth)
    if not recipe.models:
        raise OptionError(
            "--to mergekit requires --model, because every slice names its model. Pass --model once for each "
            "model of the plan, in the order a, b, ..."
        )
    return write_mergekit(recipe.plan, recipe.models, recipe.dtype, recipe.head).rstrip("\n")


def read_depth(model: str) -> int:
    """Read the number of layers of a model from its configuration or GGUF header, without loading weights."""
    if is_gguf(model):
        return gguf.depth_of(gguf.GGUFFile.open(location_of(model)))
    import layerwise.models  # noqa: F401  (registers its architectures)
    from layerwise.stack.checks.checkpoint_files import open_config

    config = open_config(location_of(model))
    with suppress(ValueError):  # several text configurations
        config = config.get_text_config()
        depth = getattr(config, "num_hidden_layers", None)
        if type(depth) is int and depth > 0 and not getattr(config, "is_encoder_decoder", False):
            return depth
    raise ModelError(f"Cannot read the number of layers of {named(model)}. Pass it with --depth.")
