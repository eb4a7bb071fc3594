"""Save a plan as a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.checkpoint.folder import Origin, Writing
from layerwise.checkpoint.gguf_file import TO_GGUF, save_gguf
from layerwise.checkpoint.layer_names import UnresolvedNamesError
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.checkpoint.stream import save_stored
from layerwise.data.model_location import is_gguf
from layerwise.errors import OptionError, PlanError, near_matches
from layerwise.plan import Plan
from layerwise.plan.dialects.sequence import join_sublayers

if TYPE_CHECKING:
    from torch import Tensor

    from layerwise.stack import Stack


def save(
    model: Stack | str | Path | Mapping[str, str | Path],
    plan: Plan | str,
    folder: Path | str,
    *,
    inputs: Mapping[str, Tensor] | None = None,
    overwrite: bool = False,
    prove: bool | None = None,
    compact: bool = False,
    remote_code: bool = False,
    max_shard_size: int = 50 * 10**9,
    head: str | None = None,
) -> Origin:
    """Save `model` under `plan` as a Hugging Face model in `folder`, which is written completely or not at all.

    The tensors of a model given by name are copied from file to file, unless it must be built in memory (see
    `Origin.note`). A GGUF file is dequantized and saved as a folder. If the output is a GGUF file as well, tensors are
    copied without dequantizing, optionally with layers of Hugging Face folders: `save({"a": "model.gguf", "b":
    "healed"}, "b:0-27", "healed.gguf")`. For GGUF output, only the options `overwrite` and `prove` apply.

    Args:
        model: A Stack, a folder or a hub id. For several models, a mapping from their names in the plan to folders and
            hub ids; the first model provides everything but the layers.
        plan: The layer plan; groups and sublayers require `compact`.
        folder: The output folder or GGUF file.
        inputs: Batch to compare logits on (default: a small seeded one).
        overwrite: Replace an existing model.
        prove: Compare the logits with those of the plan. By default, this is done below 2 GB; for larger models, tensor
            names and shapes are compared with what transformers expects. The logits of a Stack are always compared.
        compact: Store each layer once, together with the plan. `layerwise.load(folder)` then runs the plan.
        remote_code: Add code that runs the plan, or layerwise's own models, in transformers without layerwise.
        max_shard_size: Maximum size of a shard in bytes.
        head: Name of the model that provides the parts after the layers, such as the final norm.

    Raises:
        PlanError: If the plan has groups or sublayers and `compact` is not set.
        UnsupportedModelError: If no configuration can express the plan.
        CheckpointError: If the folder exists and may not be replaced.
    """
    plan = Plan.parse(plan)
    if isinstance(model, str | Path | Mapping):
        first, *others = model.items() if isinstance(model, Mapping) else [("", model)]
        if is_gguf(folder) and is_gguf(first[1]):
            return save_gguf(first[1], plan, folder, folders=dict(others), overwrite=overwrite, prove=bool(prove))
    if is_gguf(folder):
        raise OptionError(f"saving a GGUF file requires a GGUF file as the source; {TO_GGUF}")
    writing = Writing(
        folder=Path(folder),
        overwrite=overwrite,
        prove=prove,
        max_shard_size=max_shard_size,
        inputs=inputs,
        compact=compact,
        remote_code=remote_code,
        head=head,
    )
    if not isinstance(model, str | Path | Mapping):
        from layerwise.checkpoint.write import save_stack

        if head is not None:
            raise OptionError("head requires models by name, got a Stack; pass the models instead, or omit head")
        return save_stack(model, plan, writing)
    names = {name: str(each) for name, each in model.items()} if isinstance(model, Mapping) else {"": str(model)}
    return save_named(names, plan, writing, lambda: _opened(names))


def save_named(
    names: Mapping[str, str],
    plan: Plan,
    writing: Writing,
    open_stack: Callable[[], Stack],
    revision: str | None = None,
    in_memory: str = "",
) -> Origin:
    if writing.head == next(iter(names)):
        writing = replace(writing, head=None)
    if writing.head is not None and writing.head not in names:
        raise PlanError(f"unknown model {writing.head!r} for head; {near_matches(writing.head, names)}")

    def opened() -> Stack:
        if writing.head is None:
            return open_stack()
        from layerwise.checkpoint.proof import with_head

        return with_head(open_stack(), writing.head, writing.inputs)

    models: dict[str, StoredModel] = {}
    if not writing.compact and any(gains != (1, 1) for gains in join_sublayers(plan)[1]):
        in_memory = in_memory or "gains are multiplied into weights"
    if any(map(is_gguf, names.values())):
        names, in_memory = {}, in_memory or "a GGUF file is dequantized"
    try:
        models |= {name: StoredModel.open(location, revision) for name, location in names.items()}
        if in_memory:
            raise UnresolvedNamesError(in_memory)
        return save_stored(models, plan, writing, opened)
    except UnresolvedNamesError as reason:
        from layerwise.checkpoint.write import save_stack

        stored = next(iter(models.values())).tensors if models else ()
        return save_stack(opened(), plan, writing, in_memory or str(reason), stored)


def _opened(names: Mapping[str, str]) -> Stack:
    from layerwise.checkpoint.proof import quiet_transformers
    from layerwise.stack import Stack, load

    with quiet_transformers():
        stacks = {name: load(location, dtype="stored") for name, location in names.items()}
    return stacks[""] if list(stacks) == [""] else Stack.with_sources(stacks)
