"""Where a test may ask for equal bits, and what it asks for elsewhere.

Equal bits: the same kernel, the same shapes, the same alignment of every operand in memory, the same number of threads,
and weights of which all or none can have a gradient.
A kernel is free to sum in another order as soon as one of these differs, and processors differ in which they use.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def realigned(model: Model) -> Model:
    """The model itself, with its weights in memory of their own, as those of a model that was just built.

    The weights of an opened model lie in the file, mapped into memory behind a header of any length. Kernels are
    compared to the bit with this; that the weights are the same shows all the more. They are no inference tensors, also
    where this is called in inference mode: torch multiplies by a weight that can have a gradient with another kernel.
    """
    with torch.inference_mode(False), torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
    return model


def unit(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2
