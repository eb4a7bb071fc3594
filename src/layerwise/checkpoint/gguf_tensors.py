"""Tensors of a GGUF file that are written anew: their numbers in float32, some rows at a time, at the type of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from layerwise.bounded import named
from layerwise.errors import CheckpointError
from layerwise.gguf import GGUFFile, GGUFTensor
from layerwise.gguf.types import TENSOR_TYPES, GGMLType
from layerwise.plan.quantized import TYPES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NUMBERS = 1 << 20
"""Numbers of a matrix that are quantized at once, about."""

GGML_TYPES = {each.name: each for each in TENSOR_TYPES.values()}
NUMBERS_OF = {each.name: number for number, each in TENSOR_TYPES.items()}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A tensor that is not copied: its type in the new file, and its numbers in float32, some rows at a time."""

    kind: GGMLType
    rows: Callable[[], Iterator[NDArray[np.float32]]]

    def content(self, name: str) -> Iterator[bytes]:
        """The numbers at the type. Raises `CheckpointError` where the package gguf does not write it."""
        import gguf

        for numbers in self.rows():
            try:
                yield gguf.quants.quantize(numbers, gguf.GGMLQuantizationType(NUMBERS_OF[self.kind.name])).tobytes()
            except NotImplementedError:
                raise CheckpointError(
                    f"the package gguf does not quantize {name} to {self.kind.name}; begin with a file in F16, or in "
                    f"one of {', '.join(TYPES)}"
                ) from None


def need_gguf(what: str) -> None:
    if find_spec("gguf") is None:
        raise CheckpointError(f"{what} by the package gguf: pip install 'layerwise[gguf]'")


def rows_of(file: GGUFFile, tensor: GGUFTensor) -> Iterator[NDArray[np.float32]]:
    """Yield the float32 rows of a matrix, about `NUMBERS` at a time. Raises `CheckpointError` for unreadable types."""
    import gguf
    import numpy as np

    width, rows = tensor.shape
    stored, size = gguf.GGMLQuantizationType(tensor.number), tensor.size // rows
    with file.path.open("rb") as content:
        content.seek(tensor.begin)
        for first in range(0, rows, step := max(1, NUMBERS // width)):
            count = min(step, rows - first)
            data = np.frombuffer(content.read(count * size), dtype=np.uint8)
            if data.size < count * size:
                raise CheckpointError(f"{named(file.path)} became shorter while it was read; start again")
            try:
                numbers = gguf.quants.dequantize(data.reshape(count, size), stored)
            except NotImplementedError:
                raise CheckpointError(
                    f"the package gguf does not dequantize {tensor.name}, which is {tensor.type.name}; begin with a "
                    "file in F16, or in a type that it does"
                ) from None
            yield numbers.astype(np.float32, copy=False)
