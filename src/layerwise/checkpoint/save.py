"""`save`: a plan as a checkpoint, of a model that is on the disk or in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.checkpoint.folder import Origin, Writing
from layerwise.checkpoint.gguf_file import TO_GGUF, save_gguf
from layerwise.checkpoint.layer_names import UnresolvedNames
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
    """Write `model` under `plan` to `folder` as a Hugging Face model that plain transformers opens.

    A model that is named (a folder, a hub id, or several by their names in the plan) is streamed: its tensors go from
    file to file as they are, in shards of at most `max_shard_size` bytes, and no model is built but for the proof. With
    `prove` logits are compared with those of the plan, on `inputs` or a small seeded batch; that is the default below 2
    GB. Above, keys and shapes are compared with what transformers expects; `prove=False` leaves both out where the
    configuration does not need them. A checkpoint that cannot be taken apart on the disk is built in memory, and the
    `note` of what is returned says why. A `Stack` is written as it is in memory, and always proved.

    Of several models, the first gives what is not a layer. `head` names another one for what lies behind the layers
    (the last norm, the head), as mergekit takes it from the model of its last slice.

    A `compact` checkpoint stores each layer once and the plan beside them, which may have groups and halves, and which
    `layerwise.load(folder)` runs. With `remote_code` the folder brings code with which transformers runs the plan, or a
    model of layerwise's own, where layerwise is not installed (`trust_remote_code=True`).

    The folder appears whole or not at all; one that is there is replaced only with `overwrite`, and if it holds a
    model. A GGUF file is dequantized in memory and written as a folder, or as another file: `save("model.gguf", plan,
    "smaller.gguf")`, with layers of folders too: `save({"a": "model.gguf", "b": folder}, "b:0-27", "healed.gguf")`. Of
    the options only `overwrite` and `prove` are read then (see `layerwise.checkpoint.gguf_file`).

    Raises `PlanError` for a plan with groups or halves, `UnsupportedModelError` for a model whose configuration cannot
    say what the plan does, and `CheckpointError` for a folder that is in the way.
    """
    plan = Plan.parse(plan)
    if isinstance(model, str | Path | Mapping):
        first, *others = model.items() if isinstance(model, Mapping) else [("", model)]
        if is_gguf(folder) and is_gguf(first[1]):
            return save_gguf(first[1], plan, folder, folders=dict(others), overwrite=overwrite, prove=bool(prove))
    if is_gguf(folder):
        raise OptionError(f"a GGUF file is written of one other; {TO_GGUF}")
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
            raise OptionError("a Stack has a head of its own: name the models in place of a Stack, or leave head out")
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
        raise PlanError(
            f"there is no model {writing.head!r} whose head could be taken; {near_matches(writing.head, names)}"
        )

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
            raise UnresolvedNames(in_memory)
        return save_stored(models, plan, writing, opened)
    except UnresolvedNames as reason:
        from layerwise.checkpoint.write import save_stack

        stored = next(iter(models.values())).tensors if models else ()
        return save_stack(opened(), plan, writing, in_memory or str(reason), stored)


def _opened(names: Mapping[str, str]) -> Stack:
    from layerwise.checkpoint.proof import quiet_transformers
    from layerwise.stack import Stack, load

    with quiet_transformers():
        stacks = {name: load(location, dtype="stored") for name, location in names.items()}
    return stacks[""] if list(stacks) == [""] else Stack.with_sources(stacks)
