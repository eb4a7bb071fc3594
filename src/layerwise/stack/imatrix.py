"""Read llama.cpp's importance matrix: the mean squared inputs of each layer's matrices on a calibration text.

    power[layer] = sum over matrices of sum over inputs of in_sum2 / counts

`in_sum2` is the sum of the squares of an input over all tokens, and `counts` the number of tokens (per expert).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from layerwise.data.model_location import is_gguf
from layerwise.errors import CheckpointError
from layerwise.gguf import GGUFFile, GGUFTensor

if TYPE_CHECKING:
    from layerwise.stack import Stack

NAME = "imatrix.gguf"
_SUMS = re.compile(r"blk\.(\d{1,6})\.(.+)\.in_sum2", re.ASCII)


def imatrix_beside(stack: Stack) -> Path | None:
    """Return the path of a model's importance matrix, or None if there is no such file.

    It is `imatrix.gguf` in the model's folder or, next to a GGUF file `m.gguf`, `imatrix.gguf` or `m.imatrix.gguf`.
    """
    path = Path(stack.source.name).expanduser()
    candidates = [path.with_suffix(f".{NAME}"), path.parent / NAME] if is_gguf(path) else [path / NAME]
    return next((each for each in candidates if each.is_file()), None)


def layer_power(path: Path, depth: int) -> dict[int, float]:
    """Return the input power of each layer. Raise `CheckpointError` unless the file fits a model of `depth` layers."""
    file = GGUFFile.open(path)
    powers = dict.fromkeys(range(depth), 0.0)
    seen: set[int] = set()
    for name, tensor in file.tensors.items():
        match = _SUMS.fullmatch(name)
        counts = None if match is None else file.tensors.get(name.removesuffix("in_sum2") + "counts")
        if match is None or counts is None or int(match[1]) >= depth:
            continue
        sums, tokens = _numbers(file, tensor), _numbers(file, counts)
        if sums.size % tokens.size:
            raise CheckpointError(
                f"{path} is not an importance matrix: {name} has {sums.size} numbers for {tokens.size} counts; create "
                "it again with llama-imatrix, or remove it"
            )
        powers[int(match[1])] += float((sums.reshape(tokens.size, -1) / np.maximum(tokens, 1)[:, None]).sum())
        seen.add(int(match[1]))
    if len(seen) < depth or not all(map(math.isfinite, powers.values())):
        raise CheckpointError(
            f"{path} is not an importance matrix of these {depth} layers: it has finite statistics of {len(seen)}; "
            "create it again with llama-imatrix, or remove it"
        )
    return powers


def _numbers(file: GGUFFile, tensor: GGUFTensor) -> np.ndarray:
    if tensor.type.name != "F32":
        raise CheckpointError(
            f"{file.path} is not an importance matrix: {tensor.name} must be F32, got {tensor.type.name}"
        )
    with file.path.open("rb") as content:
        content.seek(tensor.begin)
        return np.frombuffer(content.read(tensor.size), dtype="<f4").astype(np.float64)
