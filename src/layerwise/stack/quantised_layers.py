"""Layers quantized to a GGUF type and dequantized to the model's dtype to compute.

Only the matrices of linear layers are quantized, F16 if their rows are not whole blocks, as llama.cpp does. Layers with
other weights of two axes or more are refused.
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
from layerwise.errors import ModelError, UnsupportedModel
from layerwise.gguf import GGUFFile, layer_bytes
from layerwise.gguf.types import TENSOR_TYPES
from layerwise.plan.checks import LAYER_LIMIT
from layerwise.plan.quantised import TYPES, WeightType, quantised_layers
from layerwise.stack.quantisation import refuse_quantised
from layerwise.stack.streaming.resident import refuse_on_disk

if TYPE_CHECKING:
    from layerwise.plan import Plan
    from layerwise.stack import Stack

MOST_BYTES = 1 << 29
"""The bytes of weights that are kept for their next use: 512 MiB, or those of one layer where that is larger."""

_TYPES = {each.name: each for each in TENSOR_TYPES.values()}

WHOLE_BLOCKS_OR = "F16"
"""The type of a matrix whose rows are no whole number of blocks of the type that is asked for."""


class QuantisedLayers:
    """The weights of one model's layers at types of GGUF, those of late use kept up to `MOST_BYTES`."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], dict[str, Tensor]] = {}

    def weights(self, block: nn.Module, layer: int, kind: WeightType) -> Mapping[str, Tensor]:
        """Return the quantized matrices of a block by path, cached until its tensors change; the block is unchanged."""
        matrices = dict(_matrices(block))
        # Tensors of inference mode count no changes, and nobody trains them.
        own = (each.weight for each in matrices.values())
        versions = ((each.data_ptr(), each.dtype, 0 if each.is_inference() else each._version) for each in own)
        key = (layer, kind, *versions)
        made = self._kept.pop(key, None)
        if made is None:
            # Outside inference mode, so that whoever computes with them later may need gradients of other weights.
            with torch.inference_mode(False), torch.no_grad():
                made = _at_type(matrices, layer, kind)
        self._kept[key] = made
        size = sum(map(_size, self._kept.values()))
        while size > MOST_BYTES and len(self._kept) > 1:
            size -= _size(self._kept.pop(next(iter(self._kept))))
        return made


def refuse_unquantisable(stack: Stack, plan: Plan) -> None:
    for layer, kind in quantised_layers(plan):
        refuse_on_disk(stack.model, f"run layer {layer} at {kind}")
        refuse_quantised(stack.model, f"run layer {layer} at {kind}")
        _quantisers(kind.type)
        _refuse_block(stack.block(layer), layer, kind)


def _refuse_block(block: nn.Module, layer: int, kind: WeightType) -> None:
    linear = {f"{path}.weight" for path, _ in _matrices(block)}
    for name, weight in block.named_parameters(remove_duplicate=False):
        if weight.ndim >= 2 and name not in linear:
            raise UnsupportedModel(
                f"layer {layer} cannot run at {kind}: its {name}, of shape {tuple(weight.shape)}, is no matrix of a "
                f"linear layer, and how a GGUF file would store it is not known; write {layer}, without {kind}"
            )


def stored_type(width: int, name: str) -> str:
    """The type in which a matrix with rows of `width` numbers is stored, where `name` is asked for.

    >>> stored_type(64, "Q4_0"), stored_type(48, "Q4_0")
    ('Q4_0', 'F16')
    """
    return WHOLE_BLOCKS_OR if width % _TYPES[name].values else name


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
    """The bytes of each layer's tensors in the GGUF file of a model, and of all others; `None` for other models."""
    path = Path(stack.source.name).expanduser()
    if not (is_gguf(path) and path.is_file()):
        return None
    file = GGUFFile.open(path)
    layers = layer_bytes(file)
    return layers, sum(each.size for each in file.tensors.values()) - sum(layers)


def quantised(weight: Tensor, name: str) -> np.ndarray:
    gguf = _quantisers(name)
    values = weight.detach().to("cpu", torch.float32).contiguous().numpy()
    stored: np.ndarray = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name])
    return stored


def _at_type(matrices: Mapping[str, nn.Linear | Conv1D], layer: int, kind: WeightType) -> dict[str, Tensor]:
    gguf = _quantisers(kind.type)
    draw = None
    if kind.seed is not None:  # another draw for each seed, type and layer
        draw = torch.Generator().manual_seed((kind.seed * len(TYPES) + TYPES.index(kind.type)) * LAYER_LIMIT + layer)
    made = {}
    for path, module in sorted(matrices.items()):
        rows = _rows(module).detach()
        stored = stored_type(rows.shape[1], kind.type)
        numbers = gguf.quants.dequantize(quantised(rows, stored), gguf.GGMLQuantizationType[stored])
        changed = torch.from_numpy(numbers)
        if draw is not None:
            exact = rows.to("cpu", torch.float64)
            noise = torch.randn(exact.shape, generator=draw, dtype=torch.float64, device="cpu")
            changed = exact + noise * ((changed - exact).norm() / noise.norm())
        changed = changed.to(rows.device, rows.dtype)
        made[f"{path}.weight"] = changed.T if isinstance(module, Conv1D) else changed
    return {name: nn.Parameter(weight, requires_grad=False) for name, weight in made.items()}


def _matrices(block: nn.Module) -> Iterator[tuple[str, nn.Linear | Conv1D]]:
    return ((path, module) for path, module in block.named_modules() if isinstance(module, nn.Linear | Conv1D))


def _rows(module: nn.Linear | Conv1D) -> Tensor:
    return module.weight.T if isinstance(module, Conv1D) else module.weight


def _quantisers(name: str) -> Any:
    if find_spec("gguf") is None:
        raise ModelError(f"weights are quantised to {name} by the package gguf: pip install 'layerwise[gguf]'")
    import gguf

    if name not in gguf.GGMLQuantizationType.__members__:
        raise ModelError(f"the package gguf that is installed does not have {name}: pip install --upgrade gguf")
    return gguf


def _size(weights: Mapping[str, Tensor]) -> int:
    return sum(each.nbytes for each in weights.values())
