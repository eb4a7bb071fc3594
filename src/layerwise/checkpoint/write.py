"""Save a model in memory under a plan, and check the result by loading it."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import cached_file

from layerwise.bounded import describe_error
from layerwise.checkpoint.compact import refuse_inexpressible, written_layers
from layerwise.checkpoint.folder import Origin, Writing, draft_of, refuse_in_the_way
from layerwise.checkpoint.kinds import planned_config
from layerwise.checkpoint.layer_names import tensors_in_words
from layerwise.checkpoint.proof import parameters_of, proof_inputs, prove, quiet_transformers
from layerwise.checkpoint.remote_code import add_own_code, add_plan
from layerwise.checkpoint.stored_config import PREDICTING, drop_predicting_layers
from layerwise.data.stored_files import stored_tensors
from layerwise.errors import UnsupportedModelError
from layerwise.plan import Plan
from layerwise.plan.config_order import generation_in_order
from layerwise.plan.dialects.sequence import Gains, join_sublayers
from layerwise.stack import Stack, weight_hash
from layerwise.stack.adapters import refuse_adapters
from layerwise.stack.blocks import block_list
from layerwise.stack.checks.checkpoint_files import BUFFERS
from layerwise.stack.per_layer import per_layer_tensors
from layerwise.stack.quantization import refuse_quantized
from layerwise.stack.streaming.resident import refuse_on_disk

# Configurations of preprocessors; the tokenizer saves its own files.
PREPROCESSING = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")

# Output projections of the attention and MLP sublayers.
_OUTPUTS = (
    re.compile(r"att.*\.(o_proj|out_proj|c_proj|dense|wo|out_lin)\.(weight|bias)$"),
    re.compile(r"^(?!.*att).*(^|\.)(down_proj|c_proj|fc2|fc_out|dense_4h_to_h|w2|wo|lin2)(\.(weight|bias))?$"),
)


def save_stack(stack: Stack, plan: Plan, writing: Writing, note: str = "", names: Iterable[str] = ()) -> Origin:
    """Save `stack` under `plan` as a Hugging Face model, and check that it loads to the same logits.

    The record of the model has the `note`, and the tensors in `names` that the model's class ignores. Raises
    `PlanError` for groups or sublayers, `UnsupportedModelError` if transformers cannot express the plan, and
    `CheckpointError` if the folder exists.
    """
    stack.check(plan)
    compact, remote_code = writing.compact, writing.remote_code
    stored = written_layers(plan, compact)
    refuse_inexpressible(stored)
    model = stack.model
    refuse_adapters(model)
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModelError(f"only transformers models can be saved, got {type(model).__name__}")
    batch = proof_inputs(stack, writing.inputs)
    refuse_in_the_way(writing.folder, writing.overwrite)
    with draft_of(writing.folder) as draft:
        written = assemble_model(stack, model, stored, () if compact else join_sublayers(plan)[1])
        with quiet_transformers():
            written.save_pretrained(draft)
        if compact:
            add_plan(draft, plan, type(written), written.config, stack.path, stack, remote_code)
        elif remote_code:
            add_own_code(draft, type(written))
        gap = prove(stack, plan, draft, batch, compact=compact)
        lost = _ignored_tensors(model, names, stored_tensors(draft))
        origin = replace(origin_of(stack, plan, gap, note, compact=compact), head=writing.head, unwritten=lost)
        origin.write(draft)
        _copy_preprocessing(stack, draft)
    return origin


def _ignored_tensors(model: PreTrainedModel, names: Iterable[str], written: Container[str]) -> str:
    patterns = model._keys_to_ignore_on_load_unexpected or ()
    lost = [name for name in names if name not in written and any(re.search(each, name) for each in patterns)]
    return tensors_in_words(name for name in lost if BUFFERS.search(name) is None)


def assemble_model(stack: Stack, model: PreTrainedModel, plan: Plan, gains: Sequence[Gains] = ()) -> PreTrainedModel:
    """Build `model` with its layers as in the plan, sharing weights where possible.

    The `gains` of each layer evaluation are multiplied into the output projections of its sublayers.
    """
    try:
        config, *_ = planned_config(model, stack.path, plan.order())
        config._attn_implementation = model.config._attn_implementation
        if not any(PREDICTING.search(name) for name in model.state_dict()):
            drop_predicting_layers(config)
        with torch.device("meta"):
            made = type(model)(config)
        made.to(stack.dtype).load_state_dict(_weights(stack, plan, made, gains), assign=True)
    except Exception as error:  # a model may refuse a configuration in any way
        raise UnsupportedModelError(
            f"the configuration of {type(model).__name__} cannot express {plan} ({describe_error(error, lines=2)}); "
            "run the plan in place with stack.under"
        ) from error
    made.tie_weights()
    if model.can_generate():
        made.generation_config = copy.deepcopy(model.generation_config)
        values = vars(made.generation_config)
        values.update(generation_in_order(values, f"{stack.path}.", plan.order(), stack.depth))
        if values.get("alignment_heads", ()) is None:  # absent by default
            del values["alignment_heads"]
    return made.eval()


def _weights(stack: Stack, plan: Plan, made: nn.Module, gains: Sequence[Gains]) -> dict[str, Tensor]:
    for each in (stack, *stack.sources.values()):
        refuse_on_disk(each.model, "write a checkpoint from memory")
        refuse_quantized(each.model, "write a checkpoint from memory")
    prefix = f"{stack.path}."
    weights = {name: value for name, value in stack.model.state_dict().items() if not name.startswith(prefix)}
    for name, entries in per_layer_tensors(stack.model, stack.path).items():
        if name in weights:
            weights[name] = entries.gather(weights[name], plan.order())
    seen: set[tuple[int, str | None]] = set()
    # The names of blocks need not be their numbers.
    scaled = gains or [(1.0, 1.0)] * len(plan.steps())
    for slot, step, own in zip(block_list(made, stack.path)._modules, plan.steps(), scaled, strict=True):
        is_repeat = (step.layer, step.source) in seen
        seen.add((step.layer, step.source))
        for name, value in stack.block(step.layer, step.source).state_dict().items():
            gain = next((gain for output, gain in zip(_OUTPUTS, own, strict=True) if output.search(name)), 1.0)
            weights[f"{prefix}{slot}.{name}"] = value * gain if gain != 1 else value.clone() if is_repeat else value
    return weights


def origin_of(stack: Stack, plan: Plan, gap: float, note: str = "", *, compact: bool = False) -> Origin:
    host = next(iter(stack.sources.values()), stack)
    models = {"shell": host} | {name: stack.sources[name] for name in sorted(plan.sources())}
    hashes: dict[int, str] = {}
    for each in models.values():
        hashes.setdefault(id(each.model), weight_hash(each.model))
    return Origin(
        str(plan),
        {name: each.source.name for name, each in models.items()},
        {name: hashes[id(each.model)] for name, each in models.items()},
        parameters_of(stack, written_layers(plan, compact)),
        gap,
        compact=compact,
        note=note,
    )


def _copy_preprocessing(stack: Stack, draft: Path) -> None:
    if stack.tokenizer is not None:
        stack.tokenizer.save_pretrained(draft)
    host = next(iter(stack.sources.values()), stack)
    if isinstance(host.model, PreTrainedModel):
        location = host.model.config._name_or_path or host.source.name
        for name in PREPROCESSING:
            cached = cached_file(
                location,
                name,
                local_files_only=True,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False,
                _raise_exceptions_for_gated_repo=False,
            )
            if cached is not None:
                shutil.copyfile(cached, draft / name)
