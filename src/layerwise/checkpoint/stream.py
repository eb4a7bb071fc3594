"""Save a plan by copying tensors from safetensors to safetensors, without building the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.checkpoint.compact import over_stored, refuse_inexpressible, write_record, written_layers
from layerwise.checkpoint.folder import Origin, Proof, Writing, draft_of, refuse_in_the_way
from layerwise.checkpoint.layer_names import (
    LayerNames,
    LayerPatterns,
    UnresolvedNamesError,
    layer_groups,
    tensors_in_words,
    unlike_layers,
)
from layerwise.checkpoint.stored_config import VisitConfig, predicts_further, visit_config
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.checkpoint.tensor_files import write_checkpoint
from layerwise.data.stored_files import CONFIG, StoredTensor, Tensors
from layerwise.errors import OptionError
from layerwise.plan import Plan
from layerwise.plan.config_order import HOST_SETTINGS

if TYPE_CHECKING:
    from layerwise.stack import Stack

PROVED_SIZE = 2 * 10**9
"""Maximum size in bytes of a model whose logits are compared by default; two copies are held in memory."""


def save_stored(
    models: Mapping[str, StoredModel], plan: Plan, writing: Writing, open_stack: Callable[[], Stack]
) -> Origin:
    """Save the plan with the layers of `models`. The first model provides everything else.

    Raises `UnresolvedNamesError` if the model must be built in memory, `PlanError` or `UnsupportedModelError` if no
    checkpoint can express the plan, and `CheckpointError` if the folder exists.
    """
    stored = written_layers(plan, writing.compact)
    refuse_inexpressible(stored)
    refuse_in_the_way(writing.folder, writing.overwrite)
    host = next(iter(models.values()))
    _refuse_different_models(models)
    _refuse_idle_code(host, writing)
    proof = _proof(host, writing.prove)
    if writing.remote_code and proof == "none":
        proof = "keys"  # the code depends on the model's class
    config, names, proof, layers = _resolve_stack(host, stored, writing.layers, proof)
    plan.check(config.depth, models if len(models) > 1 else ())
    order = stored.order()
    tensors = planned_tensors(models, names, stored)
    patterns = LayerPatterns(host.tensors, config.prefix, order, config.depth)
    if writing.head is not None:
        from layerwise.checkpoint.proof import stored_parts_behind

        tensors |= {name: models[writing.head].tensors[name] for name in stored_parts_behind(host, layers)}
    text, expected = patterns.rewrite_config(config.text), None
    if proof != "none":
        from layerwise.checkpoint.kinds import Expectation

        predicts = predicts_further(layer_groups(host.tensors), config.prefix, order, config.depth)
        expected = Expectation.of(host.settings, order, layers, predicts)
        expected.prove(host.tensors, tensors, host.quantized)
        text = patterns.rewrite_config(expected.text)
        if writing.prove is None and writing.inputs is None and not expected.has_inputs:
            proof = "keys"
    needs_stack = proof == "logits" or (writing.remote_code and plan.has_sublayers())
    with draft_of(writing.folder) as draft:
        write_checkpoint(draft, tensors, writing.max_shard_size)
        (draft / CONFIG).write_text(text, encoding="utf-8")
        host.copy_other_files(draft, config.prefix, order, config.depth)
        stack = open_stack() if needs_stack else None
        if expected is not None and writing.compact and (writing.remote_code or stack is not None):
            from layerwise.checkpoint.remote_code import add_plan

            add_plan(draft, plan, expected.kind, expected.config, expected.blocks, stack, writing.remote_code)
        elif writing.compact:
            write_record(draft, over_stored(plan))
        elif expected is not None and writing.remote_code:
            from layerwise.checkpoint.remote_code import add_own_code

            add_own_code(draft, expected.kind)
        if proof == "logits" and stack is not None:
            origin = _prove_logits(stack, plan, draft, writing)
        else:
            origin = _origin(models, plan, tensors, proof, writing.compact)
        lost = [name for name in names.behind if name not in tensors]
        origin = replace(origin, head=writing.head, unwritten=tensors_in_words(lost))
        origin.write(draft)
    return origin


def _refuse_idle_code(host: StoredModel, writing: Writing) -> None:
    own = str(host.settings.get("model_type", "")).startswith("layerwise-")
    if writing.remote_code and not writing.compact and not own:
        raise OptionError(
            f"--remote-code has no effect: transformers opens an ordinary checkpoint of {host.name} without it; omit "
            "it, or add --compact"
        )


def _proof(host: StoredModel, prove: bool | None) -> Proof:
    if prove is None:
        return "logits" if host.size < PROVED_SIZE and not host.quantized else "keys"
    return "logits" if prove else "none"


def _resolve_stack(
    host: StoredModel, plan: Plan, layers: str | None, proof: Proof
) -> tuple[VisitConfig, LayerNames, Proof, str | None]:
    task = (host.settings, layer_groups(host.tensors), plan.order())
    try:
        config = visit_config(*task, layers)
    except UnresolvedNamesError:
        from layerwise.checkpoint.kinds import blocks_path

        if layers is not None or (layers := blocks_path(host.settings)) is None:
            raise
        config = visit_config(*task, layers)
    names = LayerNames.of(host.tensors, config.prefix, config.depth)
    shapes = {name: (each.dtype, each.shape) for name, each in host.tensors.items()}
    if proof == "none" and (config.index_coded or (unlike_layers(names, shapes) and not config.listed)):
        proof = "keys"
    return config, names, proof, layers


def planned_tensors(models: Mapping[str, StoredModel], names: LayerNames, plan: Plan) -> dict[str, StoredTensor]:
    host = next(iter(models.values()))
    is_identity = plan.order() == tuple(range(len(names.layers)))
    tensors = {name: host.tensors[name] for name in (*names.others, *(names.behind if is_identity else ()))}
    for slot, step in enumerate(plan.steps()):
        source = host if step.source is None else models[step.source]
        for rest, name in names.layers[step.layer].items():
            tensors[f"{names.prefix}{slot}{rest}"] = source.tensors[name]
    return dict(sorted(tensors.items(), key=lambda item: _natural_key(item[0])))


def _natural_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _refuse_different_models(models: Mapping[str, StoredModel]) -> None:
    (_, host), *others = models.items()
    for _, other in others:
        shapes = [{name: (each.dtype, each.shape) for name, each in m.tensors.items()} for m in (host, other)]
        settings = [{k: v for k, v in m.settings.items() if not HOST_SETTINGS.search(k)} for m in (host, other)]
        if settings[0] != settings[1] or shapes[0] != shapes[1]:
            raise UnresolvedNamesError(f"{other.name} differs from {host.name} in its settings or tensor shapes")


def _prove_logits(stack: Stack, plan: Plan, draft: Path, writing: Writing) -> Origin:
    from layerwise.checkpoint.proof import proof_inputs, prove
    from layerwise.checkpoint.write import origin_of

    stack.check(plan)
    gap = prove(stack, plan, draft, proof_inputs(stack, writing.inputs), compact=writing.compact)
    return origin_of(stack, plan, gap, compact=writing.compact)


def _origin(models: Mapping[str, StoredModel], plan: Plan, tensors: Tensors, proof: Proof, compact: bool) -> Origin:
    host = next(iter(models.values()))
    named = {"shell": host.name} | {name: models[name].name for name in sorted(plan.sources())}
    parameters = sum(prod(each.shape) for each in tensors.values())
    return Origin(str(plan), named, {}, parameters, None, proof, compact)
