"""Convert layers of Hugging Face folders to GGUF tensors, by inverting how transformers loads GGUF files.

Loading a tensor with the values 0, 1, 2, ... shows where each value is put. To check a converted tensor, it is loaded
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise.bounded import named
from layerwise.checkpoint.gguf_file import Rewritten, need_gguf
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.data.auto_classes import from_config
from layerwise.errors import CheckpointError, UnsupportedModelError
from layerwise.gguf import GGUFFile, GGUFTensor, PlannedFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from layerwise.plan.plan import Step
    from layerwise.stack.streaming.files import GGUFWeight

_SLOT = re.compile(r"blk\.(\d+)\..+")


def tensors_of_folders(
    file: GGUFFile, planned: PlannedFile, folders: Mapping[str, Path | str], steps: Sequence[Step]
) -> dict[str, Rewritten]:
    """Map tensor names of the new file to the tensors that are taken from `folders`.

    If all layers come from one folder, the tensors outside the layers do too. Raises `UnsupportedModelError` if the
    parameters differ from those of the file, and `CheckpointError` if the package gguf is missing.
    """
    need_gguf("quantizing folders")
    weights = _weights(file)
    models = {name: StoredModel.open(str(folder), None) for name, folder in folders.items()}
    sources = {step.source for step in steps}
    around = models.get(next(iter(sources)) or "") if len(sources) == 1 else None
    made = {}
    for name, tensor in planned.tensors:
        match = _SLOT.fullmatch(name)
        if match is not None and int(match[1]) >= len(steps):
            continue  # a layer that predicts further tokens
        model = around if match is None else models.get(steps[int(match[1])].source or "")
        weight = weights.get(tensor.name)
        if model is None or (weight is None and match is None):
            continue
        if weight is None or len(weight.tensors) > 1:
            raise UnsupportedModelError(
                f"{tensor.name} does not correspond to a single parameter; take its layer from {named(file.path)}"
            )
        if match is None and _is_same(model, weight):
            continue
        made[name] = Rewritten(tensor.type, partial(_rows, model, weight, tensor))
    return made


def _weights(file: GGUFFile) -> dict[str, GGUFWeight]:
    import torch
    from transformers.initialization import no_init_weights

    from layerwise.stack.streaming.files import gguf_config, gguf_weights, is_read_by_tensor

    if not is_read_by_tensor(file):
        raise UnsupportedModelError(
            f"layerwise cannot convert {file.architecture}, because transformers reads all of its tensors at once; "
            "convert the folder with llama.cpp's convert_hf_to_gguf.py"
        )
    with torch.device("meta"), no_init_weights():
        model = from_config("AutoModelForCausalLM", gguf_config(file))
    weights = gguf_weights(file, model)
    return {tensor.name: weight for weight in weights.values() for tensor in weight.tensors}


def _rows(model: StoredModel, weight: GGUFWeight, tensor: GGUFTensor) -> Iterator[NDArray[np.float32]]:
    import numpy as np

    shape, count = tuple(reversed(tensor.shape)), prod(tensor.shape)
    values = _read_stored(model, weight.name).numpy()
    offset = _read_as(weight, np.zeros(shape))
    if offset.shape != values.shape:
        raise UnsupportedModelError(
            f"{model.name} has {weight.name} of shape {values.shape}, but the file has shape {offset.shape}; use the "
            "file of the model that the folder was made from"
        )
    positions = _read_as(weight, np.arange(count, dtype=np.float64).reshape(shape)) - offset
    numbers = np.zeros(count, dtype=np.float32)
    numbers[positions.astype(np.int64).ravel().clip(0, count - 1)] = (values - offset).ravel()
    numbers = numbers.reshape(shape)
    if not np.allclose(_read_as(weight, numbers), values, rtol=1e-5, atol=1e-6):
        raise UnsupportedModelError(
            f"transformers' conversion of {tensor.name} cannot be inverted; convert the folder with llama.cpp's "
            "convert_hf_to_gguf.py"
        )
    yield numbers


def _read_as(weight: GGUFWeight, numbers: NDArray[Any]) -> NDArray[Any]:
    return weight.made_of([numbers]).numpy()


def _read_stored(model: StoredModel, name: str) -> Tensor:
    from safetensors import safe_open

    where = model.tensors.get(name)
    if where is None:
        raise UnsupportedModelError(
            f"the plan needs {name}, which is not among the {len(model.tensors)} tensors of {model.name}"
        )
    with safe_open(where.file, framework="pt", device="cpu") as tensors:
        values: Tensor = tensors.get_tensor(name)
    if not values.is_floating_point():
        raise CheckpointError(f"{model.name} stores {name} as {where.dtype}; use a model that is not quantized")
    return values.float()


def _is_same(model: StoredModel, weight: GGUFWeight) -> bool:
    import torch

    return weight.name not in model.tensors or torch.equal(_read_stored(model, weight.name), weight[...])
