"""Check a saved checkpoint by loading it and comparing its logits with those of the plan."""

from __future__ import annotations

import copy
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

from layerwise.bounded import describe_error
from layerwise.checkpoint.compact import over_stored, written_layers
from layerwise.checkpoint.layer_names import UnresolvedNamesError
from layerwise.checkpoint.remote_code import MODULE
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.data.auto_classes import from_pretrained, on_meta
from layerwise.errors import LayerwiseError, ModelError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list, find_blocks
from layerwise.stack.inputs import accepted, evaluating, example_inputs, main_tensor
from layerwise.stack.load import model_class
from layerwise.stack.per_layer import per_layer_tensors
from layerwise.stack.placement import named_tensors
from layerwise.stack.precision import in_float32
from layerwise.stack.rounding import Agreement, compare


def proof_inputs(stack: Stack, inputs: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
    """Return the batch on which logits are compared (default: a small seeded one), on the device of `stack`."""
    batch = example_inputs(stack.model) if inputs is None else inputs
    if batch is None:
        raise ModelError(_explain_missing_inputs(stack.model))
    return {name: each.to(stack.device) if isinstance(each, Tensor) else each for name, each in batch.items()}


def _explain_missing_inputs(model: nn.Module) -> str:
    return (
        f"layerwise cannot build example inputs for {type(model).__name__}. Pass some: save(stack, plan, folder, "
        "inputs=...). Or pass a model folder and skip the check with --no-prove."
    )


def prove(stack: Stack, plan: Plan, draft: Path, inputs: Mapping[str, Tensor], *, compact: bool) -> float:
    """Load the saved model and compare its logits with those of the plan. Returns the largest relative difference.

    If `compact`, saved code is checked as well. Models in half precision are compared in float32. Raises
    `UnsupportedModelError` if the logits or the numbers of parameters differ.
    """
    kind = type(stack.model).__name__
    stored = written_layers(plan, compact)
    with explain_failure(kind, plan):
        loaded = _load_saved(stack, stored, draft)
        agreements = [_agreement(stack, plan, loaded, inputs, over_stored(plan) if compact else None)]
        own_code = _load_class_beside(draft, kind) if compact else None
        if own_code is not None:
            agreements.append(_agreement(stack, plan, _load_saved(stack, stored, draft, own_code), inputs))
    worst = max(agreements, key=lambda each: each.gap)
    if loaded.num_parameters() != parameters_of(stack, stored) or not worst.holds:
        raise UnsupportedModelError(
            f"the logits of the saved {kind} and of the plan are {worst}: its configuration cannot express the plan; "
            "run it in place with stack.under"
        )
    return worst.gap


def _agreement(
    stack: Stack, plan: Plan, loaded: PreTrainedModel, inputs: Mapping[str, Tensor], again: Plan | None = None
) -> Agreement:
    copy = Stack(loaded, stack.path)

    def compute(inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor, int]:
        actual = main_tensor(loaded(**inputs)) if again is None else copy.logits(again, **inputs)
        return actual, stack.logits(plan, **inputs), stack.capture(**inputs).state.shape[-1]

    with evaluating(stack.model), torch.inference_mode():
        actual, expected, width = in_float32(stack, inputs, compute, copy)
    return compare(actual, expected, width, len(plan.steps()))


def _load_class_beside(draft: Path, name: str) -> Any | None:
    file = draft / f"{MODULE}.py"
    if not file.is_file():
        return None
    module = types.ModuleType(f"{MODULE}_{draft.name.strip('.')}")
    sys.modules[module.__name__] = module  # needed by dataclasses
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), vars(module))
    finally:
        del sys.modules[module.__name__]
    return getattr(module, name)


def parameters_of(stack: Stack, plan: Plan) -> int:
    inside = {
        id(parameter) for block in stack.model.get_submodule(stack.path).children() for parameter in block.parameters()
    }
    outside = sum(each.numel() for each in stack.model.parameters() if id(each) not in inside)
    sizes = (sum(each.numel() for each in stack.block(s.layer, s.source).parameters()) for s in plan.steps())
    parameters = {name for name, _ in stack.model.named_parameters()}
    entries = per_layer_tensors(stack.model, stack.path).items()
    added = (each.added(len(plan.steps()), stack.depth) for name, each in entries if name in parameters)
    return outside + sum(added) + sum(sizes)


@contextmanager
def explain_failure(kind: str, plan: Plan) -> Iterator[None]:
    try:
        yield
    except LayerwiseError:
        raise
    except Exception as error:  # a model may fail in any way under an untested configuration
        raise UnsupportedModelError(
            f"the saved {kind} does not run ({describe_error(error, lines=2)}): its configuration cannot express "
            f"{plan}; run it in place with stack.under"
        ) from error


def _load_saved(stack: Stack, plan: Plan, draft: Path, kind: Any = None) -> PreTrainedModel:
    parameters = [each.dtype for each in _tensors(stack, plan).values() if isinstance(each, nn.Parameter)]
    kind = kind or type(stack.model)
    with quiet_transformers():
        loaded: PreTrainedModel = from_pretrained(
            kind,
            draft,
            dtype=reduce(torch.promote_types, parameters),
            use_safetensors=True,
            attn_implementation=getattr(stack.model.config, "_attn_implementation", None),
        )
    stored = _tensors(stack, plan, loaded)
    for name, tensor in named_tensors(loaded):
        tensor.data = tensor.data.to(stored.get(name, tensor).dtype)
    return loaded.to(stack.device).eval()


def _tensors(stack: Stack, plan: Plan, loaded: nn.Module | None = None) -> dict[str, Tensor]:
    prefix, steps = f"{stack.path}.", plan.steps()
    slots = range(len(steps)) if loaded is None else block_list(loaded, stack.path)._modules
    modules = {
        f"{prefix}{slot}.": stack.block(each.layer, each.source) for slot, each in zip(slots, steps, strict=False)
    }
    outside = [(name, tensor) for name, tensor in named_tensors(stack.model) if not name.startswith(prefix)]
    inside = [(f"{slot}{name}", tensor) for slot, block in modules.items() for name, tensor in named_tensors(block)]
    return dict([*outside, *inside])


@contextmanager
def quiet_transformers() -> Iterator[None]:
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def parts_behind(model: nn.Module, path: str, inputs: Mapping[str, Tensor] | None = None) -> frozenset[str]:
    """Return the names of parameters and buffers that are only used after the last block at `path`."""
    batch = example_inputs(model) if inputs is None else dict(inputs)
    blocks = block_list(model, path)
    inside = {id(module) for module in blocks.modules()}
    called: dict[bool, list[tuple[str, nn.Module]]] = {False: [], True: []}
    passed = False

    def note(name: str, module: nn.Module) -> None:
        called[passed].append((name, module))

    def pass_on(*_: Any) -> None:
        nonlocal passed
        passed = True

    if batch is None:
        raise UnsupportedModelError(_explain_missing_inputs(model))
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if id(module) not in inside:
                hooks.enter_context(module.register_forward_pre_hook(lambda module, _, name=name: note(name, module)))
        hooks.enter_context(blocks[-1].register_forward_hook(pass_on))
        try:
            with evaluating(model), torch.no_grad(), _WithoutContent():  # type: ignore[no-untyped-call]
                model(**accepted(model, batch))
        except LayerwiseError:
            raise
        except Exception as error:  # a model may fail in any way on meta tensors
            raise UnsupportedModelError(f"{type(model).__name__} does not run ({type(error).__name__})") from error
    before = {id(tensor) for _, module in called[False] for tensor in _own_tensors(module).values()}
    return frozenset(
        f"{name}.{leaf}" if name else leaf
        for name, module in called[True]
        for leaf, tensor in _own_tensors(module).items()
        if id(tensor) not in before
    )


def stored_parts_behind(model: StoredModel, path: str | None) -> frozenset[str]:
    """Return the names of stored tensors that are only used after the layers.

    Raises `UnresolvedNamesError` if they cannot be found.
    """
    try:
        config = CONFIG_MAPPING[model.settings["model_type"]].from_dict(dict(model.settings))
        drawn: Any = on_meta(model_class(config, False), config)
        drawn.tie_weights()
        names = parts_behind(drawn, find_blocks(drawn, path)) & drawn.state_dict().keys()
    except Exception as error:  # opening the model in memory reports the reason
        raise UnresolvedNamesError(
            f"the parts after the layers of {model.name} cannot be found without its weights ({type(error).__name__})"
        ) from error
    unknown = sorted(names - model.tensors.keys())
    if unknown:
        raise UnresolvedNamesError(f"{model.name} has no tensor {unknown[0]}, which its parts after the layers need")
    return names


def with_head(stack: Stack, name: str, inputs: Mapping[str, Tensor] | None = None) -> Stack:
    """Return a stack in which the parts after the layers come from the model `name`, without copying weights."""
    host, other = next(iter(stack.sources.values())), stack.sources[name]
    shared = {id(tensor): tensor for tensor in chain(host.model.parameters(), host.model.buffers())}
    model = copy.deepcopy(host.model, shared)
    batch = None if inputs is None else proof_inputs(host, inputs)
    for each in parts_behind(host.model, host.path, batch):
        module, _, leaf = each.rpartition(".")
        setattr(model.get_submodule(module), leaf, getattr(other.model.get_submodule(module), leaf))
    merged = Stack(model, host.path, tokenizer=host.tokenizer, source=stack.source)
    merged.sources = stack.sources
    return merged


class _WithoutContent(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return True if args[0].dtype == torch.bool else 1
        return func(*args, **(kwargs or {}))


def _own_tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict(chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False)))
