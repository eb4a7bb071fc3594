"""Detect quantized models, and quantize single layers: round their weights to a GGUF type and back.

Only the matrices of linear layers are rounded. As in llama.cpp, they become F16 if their rows are not a whole number of
blocks. Layers with other weights of two or more axes are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from layerwise.data.model_location import is_gguf
from layerwise.errors import ModelError, UnsupportedModelError
from layerwise.gguf import GGUFFile, layer_bytes
from layerwise.gguf.file import TENSOR_TYPES
from layerwise.plan.checks import LAYER_LIMIT, TYPES, WeightType, quantized_layers
from layerwise.stack.streaming.resident import refuse_on_disk

if TYPE_CHECKING:
    from layerwise.plan import Plan
    from layerwise.stack import Stack

MAX_CACHED_BYTES = 1 << 29
"""Maximum size of the cache of quantized weights: 512 MiB, or one layer if that is larger."""

_TYPES = {each.name: each for each in TENSOR_TYPES.values()}

FALLBACK_TYPE = "F16"
"""The type of a matrix whose rows are not a whole number of blocks of the requested type."""

LIBRARIES = ("bitsandbytes", "torchao", "optimum.quanto", "hqq", "gptqmodel", "awq", "compressed_tensors")
"""Packages whose modules or tensors hold quantized weights."""

DEQUANTIZED = "gguf"
"""Quantization method in the configuration of a model that transformers dequantized while loading it."""


def quantization_method(model: nn.Module) -> str | None:
    """Return the quantization method in the configuration, or the library that quantized the weights, or None."""
    config = getattr(getattr(model, "config", None), "quantization_config", None)
    if config is not None:
        method = config.get("quant_method") if isinstance(config, dict) else getattr(config, "quant_method", None)
        name = str(getattr(method, "value", method))
        if name != DEQUANTIZED:
            return name
    modules = (f"{kind.__module__}." for kind in _weight_types(model))
    return next((name for module in modules for name in LIBRARIES if module.startswith(f"{name}.")), None)


def _weight_types(model: nn.Module) -> Iterator[type]:
    for module in model.modules():
        yield type(module)
        for parameter in module.parameters(recurse=False):
            yield type(parameter)
            yield type(parameter.data)


def refuse_quantized(model: nn.Module, action: str) -> None:
    method = quantization_method(model)
    if method is not None:
        raise UnsupportedModelError(
            f"cannot {action}: this {type(model).__name__} is quantized ({method}), so it stores codes and scales "
            "instead of weights; use the checkpoint before quantization"
        )


def plain_tensors(tensor: Tensor) -> Iterator[Tensor]:
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from plain_tensors(getattr(tensor, name))


class QuantizedLayers:
    """LRU cache of one model's quantized layer weights, limited to `MAX_CACHED_BYTES`."""

    def __init__(self) -> None:
        self._cache: dict[tuple[Any, ...], dict[str, Tensor]] = {}

    def weights(self, block: nn.Module, layer: int, kind: WeightType) -> Mapping[str, Tensor]:
        """Return the quantized matrices of a block (by path). They are cached until the block's tensors change."""
        matrices = dict(_matrices(block))
        # Inference tensors have no version counter, and are never trained.
        tensors = (each.weight for each in matrices.values())
        versions = ((each.data_ptr(), each.dtype, 0 if each.is_inference() else each._version) for each in tensors)
        key = (layer, kind, *versions)
        quantized = self._cache.pop(key, None)
        if quantized is None:
            # Outside inference mode, since a later use may need gradients of other weights.
            with torch.inference_mode(False), torch.no_grad():
                quantized = _round_trip(matrices, layer, kind)
        self._cache[key] = quantized
        size = sum(map(_count_bytes, self._cache.values()))
        while size > MAX_CACHED_BYTES and len(self._cache) > 1:
            size -= _count_bytes(self._cache.pop(next(iter(self._cache))))
        return quantized


def refuse_unquantizable(stack: Stack, plan: Plan) -> None:
    for layer, kind in quantized_layers(plan):
        refuse_on_disk(stack.model, f"run layer {layer} at {kind}")
        refuse_quantized(stack.model, f"run layer {layer} at {kind}")
        _import_gguf(kind.type)
        _refuse_block(stack.block(layer), layer, kind)


def _refuse_block(block: nn.Module, layer: int, kind: WeightType) -> None:
    linear = {f"{path}.weight" for path, _ in _matrices(block)}
    for name, weight in block.named_parameters(remove_duplicate=False):
        if weight.ndim >= 2 and name not in linear:
            raise UnsupportedModelError(
                f"layer {layer} cannot run at {kind}: its {name} of shape {tuple(weight.shape)} does not belong to a "
                f"linear layer, and GGUF has no standard way to store it; write {layer} without {kind}"
            )


def stored_type(width: int, name: str) -> str:
    """Return the type of a matrix with rows of `width` numbers when it is quantized to type `name`.

    >>> stored_type(64, "Q4_0"), stored_type(48, "Q4_0")
    ('Q4_0', 'F16')
    """
    return FALLBACK_TYPE if width % _TYPES[name].values else name


def bytes_at_type(module: nn.Module, name: str) -> int:
    matrices = {matrix.weight: _rows(matrix).shape[1] for _, matrix in _matrices(module)}
    total = 0
    for weight in module.parameters():
        if weight in matrices:
            kind = _TYPES[stored_type(matrices[weight], name)]
            total += weight.numel() // kind.values * kind.size
        else:
            total += weight.numel() * weight.element_size()
    return total


def bytes_in_file(stack: Stack) -> tuple[list[int], int] | None:
    """Return the bytes of each layer and of all other tensors in the GGUF file of a model, or None if it has none."""
    path = Path(stack.source.name).expanduser()
    if not (is_gguf(path) and path.is_file()):
        return None
    file = GGUFFile.open(path)
    layers = layer_bytes(file)
    return layers, sum(each.size for each in file.tensors.values()) - sum(layers)


def quantize(weight: Tensor, name: str) -> np.ndarray:
    gguf = _import_gguf(name)
    values = weight.detach().to("cpu", torch.float32).contiguous().numpy()
    stored: np.ndarray = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name])
    return stored


def _round_trip(matrices: Mapping[str, nn.Linear | Conv1D], layer: int, kind: WeightType) -> dict[str, Tensor]:
    gguf = _import_gguf(kind.type)
    generator = None
    if kind.seed is not None:
        generator = torch.Generator().manual_seed(
            (kind.seed * len(TYPES) + TYPES.index(kind.type)) * LAYER_LIMIT + layer
        )
    made = {}
    for path, module in sorted(matrices.items()):
        rows = _rows(module).detach()
        stored = stored_type(rows.shape[1], kind.type)
        numbers = gguf.quants.dequantize(quantize(rows, stored), gguf.GGMLQuantizationType[stored])
        changed = torch.from_numpy(numbers)
        if generator is not None:
            exact = rows.to("cpu", torch.float64)
            noise = torch.randn(exact.shape, generator=generator, dtype=torch.float64, device="cpu")
            changed = exact + noise * ((changed - exact).norm() / noise.norm())
        changed = changed.to(rows.device, rows.dtype)
        made[f"{path}.weight"] = changed.T if isinstance(module, Conv1D) else changed
    return {name: nn.Parameter(weight, requires_grad=False) for name, weight in made.items()}


def _matrices(block: nn.Module) -> Iterator[tuple[str, nn.Linear | Conv1D]]:
    return ((path, module) for path, module in block.named_modules() if isinstance(module, nn.Linear | Conv1D))


def _rows(module: nn.Linear | Conv1D) -> Tensor:
    return module.weight.T if isinstance(module, Conv1D) else module.weight


def _import_gguf(name: str) -> Any:
    if find_spec("gguf") is None:
        raise ModelError(f"quantizing weights to {name} requires the package gguf: pip install 'layerwise[gguf]'")
    import gguf

    if name not in gguf.GGMLQuantizationType.__members__:
        raise ModelError(f"the installed package gguf does not support {name}: pip install --upgrade gguf")
    return gguf


def _count_bytes(weights: Mapping[str, Tensor]) -> int:
    return sum(each.nbytes for each in weights.values())
