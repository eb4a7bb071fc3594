"""Load a checkpoint but leave its blocks on disk, using transformers' loading and accelerate's offloading."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.hooks import remove_hook_from_module
from torch import nn
from transformers.initialization import no_init_weights

from layerwise.bounded import named
from layerwise.data.auto_classes import quiet
from layerwise.errors import LayerwiseError, UnsupportedModelError
from layerwise.gguf import GGUFFile
from layerwise.stack.blocks import block_list, find_blocks
from layerwise.stack.checks.checkpoint_files import dense_loading
from layerwise.stack.streaming.files import (
    ConvertedWeights,
    GGUFWeight,
    LayerFiles,
    SafetensorsWeight,
    gguf_weights,
    is_read_by_tensor,
    offloaded,
)
from layerwise.stack.streaming.resident import ResidentLayers, put_parameters

# Attributes that accelerate sets on a spread module.
_GUARDED = ("to", "cpu", "cuda", "npu", "xpu", "mlu", "sdaa", "musa", "hpu", "xla", "neuron", "hf_device_map")

Loaded = tuple[nn.Module, Mapping[str, Any]]


def load_with_layers_on_disk(
    draw: Callable[[], nn.Module], layers: str | None, device: torch.device, load: Callable[..., Loaded]
) -> tuple[nn.Module, Mapping[str, Any], OffloadedBlocks]:
    """Load a model except its blocks. Return it with the loading info and the files of the blocks' weights.

    `load` loads a model with transformers. `draw` builds it without weights, or raises `UnsupportedModelError`.
    """
    drawn = _on_meta(draw)
    path = find_blocks(drawn, layers)
    converted = ConvertedWeights()
    with _quiet():
        model, report = load(device_map=_device_map(drawn, path, device), offload_folder=str(converted.folder))
    index = _offload_index(block_list(model, path))
    stored = {name: offloaded(name, entry, converted.folder) for name, entry in index.items()}
    for module in model.modules():
        remove_hook_from_module(module)
    for name in _GUARDED:
        vars(model).pop(name, None)
    return model, report, OffloadedBlocks(path, stored, converted)


def load_gguf(
    file: GGUFFile,
    draw: Callable[[], nn.Module],
    layers: str | None,
    load: Callable[..., Loaded],
    dtype: torch.dtype,
    *,
    by_layer: bool,
) -> tuple[nn.Module, Mapping[str, Any], OffloadedBlocks | None]:
    """Load a GGUF file with all weights or, if `by_layer`, like `load_with_layers_on_disk`.

    With `by_layer`, raises `UnsupportedModelError` for architectures whose tensors transformers converts all at once.
    """
    if not is_read_by_tensor(file):
        if by_layer:
            raise UnsupportedModelError(
                f"transformers converts the tensors of {named(file.path)} ({file.architecture}) all at once, so its "
                "layers cannot be read one by one; load it without --resident-layers"
            )
        return *load(**dense_loading()), None
    with torch.device("meta"), no_init_weights():
        drawn = draw()
    weights = gguf_weights(file, drawn)
    if not by_layer:
        return *load(state_dict=weights), None
    path = find_blocks(drawn, layers)
    away = {f"{path}.{name}" for name, _ in block_list(drawn, path).named_parameters()}
    number = torch.zeros((), dtype=dtype, device="cpu")  # expanded without memory
    model, report = load(
        state_dict={name: number.expand(each.shape) if name in away else each for name, each in weights.items()}
    )
    blocks = block_list(model, path)
    put_parameters(
        blocks, {name: nn.Parameter(each.to("meta"), each.requires_grad) for name, each in blocks.named_parameters()}
    )
    return model, report, OffloadedBlocks(path, weights, None)


def load_spread(device_map: str | Mapping[str, Any], load: Callable[..., Loaded]) -> Loaded:
    """Load a model with a device map. Temporary files with converted weights are deleted with the model."""
    converted = ConvertedWeights()
    with _quiet():
        model, report = load(
            device_map=device_map if isinstance(device_map, str) else dict(device_map),
            offload_folder=str(converted.folder),
        )
    vars(model)["_layerwise_converted"] = converted
    return model, report


@dataclass(frozen=True)
class OffloadedBlocks:
    path: str
    stored: Mapping[str, SafetensorsWeight | GGUFWeight]
    converted: ConvertedWeights | None

    def residents(self, model: nn.Module, most: int, device: torch.device) -> ResidentLayers:
        """Keep at most `most` layers of `model` in memory, and move everything else to `device`."""
        model._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(device))  # type: ignore[no-untyped-call]
        blocks = block_list(model, self.path)
        return ResidentLayers(blocks, LayerFiles.of(blocks, self.path, self.stored, self.converted), most, device)


@contextmanager
def _quiet() -> Iterator[None]:
    with quiet("accelerate.big_modeling"), warnings.catch_warnings():
        # Parameters of the model itself need a device, too.
        warnings.filterwarnings("ignore", "The following device_map keys do not match")
        yield


def _on_meta(draw: Callable[[], nn.Module]) -> nn.Module:
    try:
        with torch.device("meta"), no_init_weights():
            return draw()
    except LayerwiseError:
        raise
    except Exception as error:
        raise UnsupportedModelError(
            "the layers of the model cannot be left on disk, since it cannot be built without its weights "
            f"({type(error).__name__}: {error}); load it without --resident-layers"
        ) from error


def _device_map(model: nn.Module, path: str, device: torch.device) -> dict[str, Any]:
    placed: dict[str, Any] = {}
    module, prefix = model, ""
    for part in path.split("."):
        others = [name for name, _ in module.named_children() if name != part]
        others += [name for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))]
        placed |= {f"{prefix}{name}": str(device) for name in others}
        module, prefix = module.get_submodule(part), f"{prefix}{part}."
    return placed | {f"{prefix}{number}": "disk" for number, _ in module.named_children()}


def _offload_index(blocks: nn.Module) -> dict[str, Mapping[str, Any]]:
    index: dict[str, Mapping[str, Any]] = {}
    for module in blocks.modules():
        hook = getattr(module, "_hf_hook", None)
        for each in getattr(hook, "hooks", (hook,)):
            stored = getattr(each, "weights_map", None)
            if stored is not None:
                index |= stored.dataset.index
    return index
