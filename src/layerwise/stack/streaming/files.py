"""Find the weights of each layer on disk, in safetensors or GGUF files, and read them as parameters."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from accelerate.utils.offload import load_offloaded_weight
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedConfig

from layerwise.bounded import named
from layerwise.data.auto_classes import from_pretrained, list_model_classes, make_config, quiet
from layerwise.errors import CheckpointError, UnsupportedModelError
from layerwise.gguf import GGUFFile, GGUFTensor, short_header
from layerwise.stack.blocks import BlockList
from layerwise.stack.checks.checkpoint_files import listed

ALIGNMENT = 64
"""Memory alignment in bytes; equally aligned operands give the same bits in matrix products."""


@dataclass(frozen=True, slots=True)
class SafetensorsWeight:
    """A parameter in a safetensors file or, if `converted` is given, in a file that accelerate wrote.

    `converted` has the dtype and the shape.
    """

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
        """Read the tensor, or some of its `rows`, in the dtype of `like`, into its own memory on `device`."""
        if self.converted is not None:
            whole = load_offloaded_weight(str(self.file), dict(self.converted))
            return (whole if rows is None else whole[rows]).to(device=device, dtype=like.dtype)
        # Opened per tensor, since mapped memory is counted until the file is closed.
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
    """A temporary folder for converted weights, removed with this object."""

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
        """Find the weights of `blocks` among the `stored` ones.

        Raises `UnsupportedModelError` if a parameter is not stored, and `CheckpointError` if it has a wrong shape.
        """
        layers = []
        for number, block in enumerate(blocks):
            weights = {}
            for name, parameter in block.named_parameters():
                whole = f"{path}.{number}.{name}"
                if not parameter.is_meta:
                    continue
                if whole not in stored:
                    raise UnsupportedModelError(
                        f"the location of {whole} in the checkpoint is unknown, so its layers cannot be read one by "
                        "one; load the model without --resident-layers"
                    )
                weights[name] = stored[whole]
                if weights[name].shape != tuple(parameter.shape):
                    raise CheckpointError(
                        f"{weights[name].file} has {weights[name].name} of shape {weights[name].shape}, but the model "
                        f"needs {tuple(parameter.shape)}; correct config.json, or save the model again"
                    )
            layers.append(weights)
        return cls(layers, converted)

    def read(self, layer: int, like: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        # Not inference tensors, since later training may need gradients through the layer.
        with torch.inference_mode(False), torch.no_grad():
            return {name: stored.read(like[name], device) for name, stored in self.layers[layer].items()}


def offloaded(whole: str, entry: Mapping[str, Any], folder: Path) -> SafetensorsWeight:
    file = entry.get("safetensors_file")
    if file is None:
        return SafetensorsWeight(folder / f"{whole}.dat", whole, entry)
    return SafetensorsWeight(Path(file), entry.get("weight_name", whole), None)


_CHUNK = 2**20

ROTATION = ".attn_rot_embd."
"""Part of the name of rotary tensors, which old files contain, but models compute."""


@dataclass(frozen=True, slots=True)
class GGUFWeight:
    """A parameter in a GGUF file, converted by `processor` from one tensor, or from several for experts.

    `names` maps tensor names to parameter names.
    """

    file: Path
    name: str
    tensors: tuple[GGUFTensor, ...]
    names: Mapping[str, str]
    processor: Any
    shape: tuple[int, ...]

    def read(self, like: Tensor, device: torch.device, rows: slice | None = None) -> Tensor:
        values = self[...]
        if values.shape != like.shape:
            raise CheckpointError(
                f"{named(self.file)} has {self.name} of shape {tuple(values.shape)}, but its settings require "
                f"{tuple(like.shape)}; convert the model again"
            )
        return (values if rows is None else values[rows].clone()).to(device=device, dtype=like.dtype)

    def __getitem__(self, _: Any) -> Tensor:
        """Return the parameter in float32. transformers reads stored tensors by indexing."""
        values = self.made_of(_dequantized(self.file, tensor).numpy() for tensor in self.tensors)
        return values.clone() if values.data_ptr() % ALIGNMENT else values

    def made_of(self, arrays: Iterable[Any]) -> Tensor:
        made: dict[str, Tensor] = {}
        for tensor, array in zip(self.tensors, arrays, strict=True):
            result = self.processor.process(
                weights=array, name=tensor.name, tensor_key_mapping=self.names, parsed_parameters={"tensors": made}
            )
            if result.name is not None:
                made[self.name] = torch.from_numpy(result.weights)
        return made[self.name]


def _dequantized(path: Path, tensor: GGUFTensor) -> Tensor:
    import gguf

    kind = gguf.GGMLQuantizationType(tensor.number)
    values = torch.empty(tuple(reversed(tensor.shape)), device="cpu")
    flat = values.view(-1).numpy()
    with path.open("rb") as file:
        file.seek(tensor.begin)
        for first in range(0, flat.size, _CHUNK):
            part = flat[first : first + _CHUNK]
            stored = np.fromfile(file, np.uint8, part.size // tensor.type.values * tensor.type.size)
            if stored.size * tensor.type.values != part.size * tensor.type.size:
                raise CheckpointError(f"{named(path)} is truncated in {tensor.name}; it was changed, so load it again")
            part[:] = gguf.dequantize(stored.reshape(1, -1), kind).reshape(-1)
    return values


def gguf_config(file: GGUFFile) -> Any:
    config = make_config(_settings(file)) if is_read_by_tensor(file) else from_pretrained("AutoConfig", file.path)
    config.name_or_path = str(file.path.absolute().parent)
    classes = dict(list_model_classes())
    kinds = (classes[name].get(type(config), None) for name in ("AutoModelForCausalLM", "AutoModel"))
    config.architectures = [kind.__name__ for kind in kinds if kind is not None][:1]
    return config


def _settings(file: GGUFFile) -> dict[str, Any]:
    with TemporaryDirectory(prefix="layerwise-header-") as folder, quiet("transformers.modeling_gguf_pytorch_utils"):
        (Path(folder) / "header.gguf").write_bytes(short_header(file))
        settings: dict[str, Any] = PreTrainedConfig.get_config_dict(folder, gguf_file="header.gguf")[0]
    if (tokens := file.entries.get("tokenizer.ggml.tokens")) is not None:
        settings.setdefault("vocab_size", tokens.length)
    return settings


def is_read_by_tensor(file: GGUFFile) -> bool:
    """Return whether transformers converts tensors of this architecture one by one instead of all at once."""
    try:
        from transformers.integrations.gguf import GGUF_ARCHS
    except ImportError:  # before transformers 5.2x
        return True
    return file.architecture not in GGUF_ARCHS


def gguf_weights(file: GGUFFile, model: nn.Module) -> dict[str, GGUFWeight]:
    """Find the parameters of `model` in a GGUF file.

    Raises `UnsupportedModelError` if layers in the file have tensors that the model lacks.
    """
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    processor = TENSOR_PROCESSORS.get(file.architecture, TensorProcessor)(config=_settings(file))
    names = get_gguf_hf_weights_map(_Outline(model), processor)
    parts: dict[str, list[GGUFTensor]] = defaultdict(list)
    unused = []
    for tensor in file.tensors.values():
        # Experts have a suffix `.weight` in the file, but not in the model.
        name = names.get(tensor.name, names.get(tensor.name.removesuffix(".weight")))
        if name is not None:
            parts[name].append(tensor)
        elif tensor.name.startswith("blk.") and ROTATION not in tensor.name:
            unused.append(tensor.name)
    if unused:
        raise UnsupportedModelError(
            f"{named(file.path)} has tensors that {type(model).__name__} does not use: {listed(unused)}; use the "
            "folder of the model from which it was converted"
        )
    shapes = {name: tuple(each.shape) for name, each in model.state_dict().items()}
    return {
        name: GGUFWeight(file.path, name, tuple(each), names, processor, _shape(each, shapes.get(name, ())))
        for name, each in parts.items()
    }


def _shape(tensors: list[GGUFTensor], expected: tuple[int, ...]) -> tuple[int, ...]:
    is_same_size = sum(prod(each.shape) for each in tensors) == prod(expected)
    return expected if is_same_size else tuple(reversed(tensors[0].shape))


@dataclass(frozen=True, slots=True)
class _Outline:
    module: Any

    @property
    def config(self) -> Any:
        return self.module.config

    def state_dict(self) -> Mapping[str, Any]:
        return self.module.state_dict()

    def named_children(self) -> Iterator[tuple[str, _Outline]]:
        for name, child in self.module.named_children():
            if not isinstance(child, nn.ModuleList):
                yield name, _Outline(child)
