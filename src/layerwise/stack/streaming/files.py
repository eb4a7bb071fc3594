"""Where the weights of each layer are on the disk, as transformers (or `gguf_weights`) maps them to parameters."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils.offload import load_offloaded_weight
from safetensors import safe_open
from torch import Tensor

from layerwise.errors import CheckpointError, UnsupportedModel
from layerwise.stack.blocks import BlockList

if TYPE_CHECKING:
    from layerwise.stack.streaming.gguf_weights import GGUFWeight

ALIGNMENT = 64
"""Bytes that kernels tell memory apart by: products of operands that are aligned alike have the same bits."""


@dataclass(frozen=True, slots=True)
class SafetensorsWeight:
    """A parameter in safetensors: its file, its name there, and its entry where the file was converted."""

    file: Path
    name: str
    converted: Mapping[str, Any] | None

    @property
    def shape(self) -> tuple[int, ...]:
        if self.converted is not None:
            return tuple(self.converted["shape"])
        with safe_open(self.file, framework="pt", device="cpu") as tensors:
            return tuple(tensors.get_slice(self.name).get_shape())

    def read(self, like: Tensor, device: torch.device, rows: slice | None = None) -> Tensor:
        """The tensor, or some of its `rows`, in the dtype of `like`, in memory of its own on `device`."""
        if self.converted is not None:
            whole = load_offloaded_weight(str(self.file), dict(self.converted))
            return (whole if rows is None else whole[rows]).to(device=device, dtype=like.dtype)
        # Opened for one tensor: what is mapped counts as memory until the file is closed.
        with safe_open(self.file, framework="pt", device="cpu") as tensors:
            if rows is not None:
                return tensors.get_slice(self.name)[rows].to(device=device, dtype=like.dtype)
            return _copied(tensors.get_tensor(self.name), like.dtype, device)


def _copied(mapped: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    moved = mapped.to(device=device, dtype=dtype)
    if moved.data_ptr() != mapped.data_ptr():
        return moved
    size = prod(mapped.shape) * mapped.element_size()
    memory = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device="cpu")
    start = (mapped.data_ptr() - memory.data_ptr()) % ALIGNMENT
    if start % mapped.element_size():
        return mapped.clone()
    return memory[start : start + size].view(dtype).view(mapped.shape).copy_(mapped)


class ConvertedWeights:
    """A folder for weights that have another form on the disk than in their block; it goes when nobody holds this."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="layerwise-converted-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


class LayerFiles:
    """The stored weights of every layer, by their paths inside its block."""

    def __init__(
        self, layers: Sequence[Mapping[str, SafetensorsWeight | GGUFWeight]], converted: ConvertedWeights | None
    ) -> None:
        self.layers = tuple(layers)
        self.converted = converted

    @classmethod
    def of(
        cls,
        blocks: BlockList,
        path: str,
        stored: Mapping[str, SafetensorsWeight | GGUFWeight],
        converted: ConvertedWeights | None = None,
    ) -> LayerFiles:
        """Return the weights of `blocks` (at `path`) by parameter name.

        Raises `UnsupportedModel` for a parameter that is not stored, `CheckpointError` for one of another shape.
        """
        layers = []
        for number, block in enumerate(blocks):
            weights = {}
            for name, parameter in block.named_parameters():
                whole = f"{path}.{number}.{name}"
                if not parameter.is_meta:
                    continue
                if whole not in stored:
                    raise UnsupportedModel(
                        f"the checkpoint does not say where {whole} is stored, so its layers cannot be read one by "
                        "one; load the model without --resident-layers"
                    )
                weights[name] = stored[whole]
                if weights[name].shape != tuple(parameter.shape):
                    raise CheckpointError(
                        f"{weights[name].file} holds {weights[name].name} of shape {weights[name].shape}, and the "
                        f"model needs {tuple(parameter.shape)}; correct config.json, or save the model again"
                    )
            layers.append(weights)
        return cls(layers, converted)

    def read(self, layer: int, like: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """The weights of one layer, each in the dtype of the parameter `like` it."""
        # Not inference tensors, whoever asks for them: the layer may stay, and be trained through later.
        with torch.inference_mode(False), torch.no_grad():
            return {name: stored.read(like[name], device) for name, stored in self.layers[layer].items()}


def offloaded(whole: str, entry: Mapping[str, Any], folder: Path) -> SafetensorsWeight:
    file = entry.get("safetensors_file")
    if file is None:
        return SafetensorsWeight(folder / f"{whole}.dat", whole, entry)
    return SafetensorsWeight(Path(file), entry.get("weight_name", whole), None)
