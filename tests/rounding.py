"""Equal bits need the same kernel, shapes, alignment, threads and gradient setting of the weights."""

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def realigned(model: Model) -> Model:
    """Copy the weights out of the mapped file, whose header shifts their alignment."""
    with torch.inference_mode(False), torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
    return model


def unit(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2
