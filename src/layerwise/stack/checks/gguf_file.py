"""A GGUF file, looked at before transformers builds a model of it."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.bounded import named, shown
from layerwise.data.auto_classes import class_named
from layerwise.data.stored_files import StoredTensor, Tensors
from layerwise.errors import CheckpointError, ModelError, UnsupportedModel
from layerwise.gguf import GGUFFile, depth_of
from layerwise.gguf.file import CONVERT_AGAIN


def check_gguf(path: Path) -> GGUFFile:
    """Check that transformers can read a GGUF file.

    Raises `CheckpointError` if it is malformed, `UnsupportedModel` for unknown types, `ModelError` without gguf.
    """
    file = GGUFFile.open(path)
    depth_of(file)
    _refuse_numbers(file)
    if find_spec("gguf") is None:
        raise ModelError(f"{named(path)} is read with the package gguf: pip install 'layerwise[gguf]'")
    numbers = {tensor.number for tensor in file.tensors.values()}
    unreadable = sorted(number for number in numbers if not _is_readable(number))
    if unreadable:
        names = {tensor.number: tensor.type.name for tensor in file.tensors.values()}
        raise UnsupportedModel(
            f"{named(path)} has tensors of type {', '.join(names[each] for each in unreadable)}, which transformers "
            "does not read; give a file of another type, such as Q8_0 or Q4_K_M"
        )
    return file


def _refuse_numbers(file: GGUFFile) -> None:
    for key, entry in file.entries.items():
        value = entry.value
        if not isinstance(value, float):
            continue
        wrong = not math.isfinite(value) or (key.endswith("_epsilon") and not 0 <= value < 1)
        if wrong or (key.endswith("rope.freq_base") and value <= 0):
            raise CheckpointError(f"{named(file.path)} says {shown(key)} = {value}; {CONVERT_AGAIN}")


def stored_in(file: GGUFFile) -> Tensors:
    return {
        name: StoredTensor(each.type.name, tuple(reversed(each.shape)), file.path, each.begin, each.end)
        for name, each in file.tensors.items()
    }


def _is_readable(number: int) -> bool:
    import gguf

    kind = gguf.GGMLQuantizationType(number)
    _, size = gguf.GGML_QUANT_SIZES[kind]
    try:
        gguf.dequantize(np.zeros((1, size), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def dense_loading() -> dict[str, Any]:
    kind = class_named("GgufConfig")  # as of transformers 5.2x
    return {} if kind is None else {"quantization_config": kind(dequantize=True)}


def forget_quantization(model: Any) -> None:
    vars(model.config).pop("quantization_config", None)
    vars(model).pop("hf_quantizer", None)


def refusal(path: str, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{named(path)} could not be loaded: {reason.rstrip('.')}; give the folder of the model from which it was "
        "converted"
    )
