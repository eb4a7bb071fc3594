"""A GGUF file, looked at before transformers builds a model of it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from layerwise.bounded import named
from layerwise.data.auto_classes import class_named
from layerwise.data.stored_files import StoredTensor, Tensors
from layerwise.errors import CheckpointError, ModelError, UnsupportedModel
from layerwise.gguf import GGUFFile, depth_of


def check_gguf(path: Path) -> Tensors:
    """The tensors of a GGUF file, which is one that transformers reads: its numbers are dequantised when it is loaded.

    Raises `CheckpointError` for a malformed file, `UnsupportedModel` for types that transformers cannot read, by name,
    and `ModelError` where the package gguf is not installed.
    """
    file = GGUFFile.open(path)
    depth_of(file)
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
    return {
        name: StoredTensor(each.type.name, tuple(reversed(each.shape)), path, each.begin, each.end)
        for name, each in file.tensors.items()
    }


def _is_readable(number: int) -> bool:
    """Whether the package gguf dequantises a type, seen on one block of it."""
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType(number)
    _, size = gguf.GGML_QUANT_SIZES[kind]
    try:
        gguf.dequantize(np.zeros((1, size), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def refuse_reading_by_layer(path: Path | str) -> None:
    """Raise `UnsupportedModel`: the layers of a GGUF file are not read one by one."""
    raise UnsupportedModel(
        f"{named(path)} is a GGUF file, whose layers cannot be read one by one yet; load it without --resident-layers "
        "and --device-map"
    )


def dense_loading() -> dict[str, Any]:
    """What transformers is to do where it could leave the weights of a file in their blocks: dequantise them."""
    kind = class_named("GgufConfig")  # as of transformers 5.2x
    return {} if kind is None else {"quantization_config": kind(dequantize=True)}


def forget_quantisation(model: Any) -> None:
    """Take off what transformers notes of the file's blocks: all weights of `model` are plain numbers."""
    vars(model.config).pop("quantization_config", None)
    vars(model).pop("hf_quantizer", None)


def refusal(path: str, reason: str) -> CheckpointError:
    """Why transformers did not make a model of a GGUF file."""
    return CheckpointError(
        f"{named(path)} could not be loaded: {reason}; give the folder of the model from which it was converted"
    )
