"""Simulate kernels that round differently by shape, alignment and threads (LAYERWISE_TEST_KERNEL=other)."""

import os
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

VARIABLE = "LAYERWISE_TEST_KERNEL"
ACTIVE = os.environ.get(VARIABLE) == "other"

_aten = torch.ops.aten
# Sums of products, whose order depends on the alignment of the operands as well as on their shapes.
PRODUCTS = (_aten.mm, _aten.bmm, _aten.addmm, _aten.baddbmm, _aten.mv, _aten.addmv, _aten.dot)
# Sums, and functions of which the last elements of a row may be computed by other instructions than the first.
OTHERS = tuple(
    getattr(_aten, name)
    for name in (
        *("sum", "mean", "cumsum", "var", "var_mean", "std", "logsumexp", "linalg_vector_norm"),
        *("convolution", "convolution_backward", "_softmax", "_softmax_backward_data", "_log_softmax"),
        *("_log_softmax_backward_data", "native_layer_norm", "native_layer_norm_backward"),
        *("native_group_norm", "_fused_rms_norm", "_scaled_dot_product_flash_attention_for_cpu", "exp"),
        *("log", "tanh", "erf", "sigmoid", "gelu", "silu", "rsqrt", "pow", "sin", "cos", "softplus"),
    )
)


class OtherKernel(TorchDispatchMode):
    """Round results of `PRODUCTS` and `OTHERS` up, down or not at all, by their operands; only the last digit moves."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        found = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        if packet in PRODUCTS or packet in OTHERS:
            operands = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
            if all(each.device.type == "cpu" and each.layout is torch.strided for each in operands):
                key = _key(str(packet), operands, aligned=packet in PRODUCTS)
                for number, each in enumerate(found if isinstance(found, tuple | list) else (found,)):
                    if isinstance(each, Tensor) and each.is_floating_point() and each.numel():
                        each.copy_(torch.where(_exact(func, args, each), each, _moved(each, key + number)))
        return found


def _key(name: str, operands: list[Tensor], aligned: bool) -> int:
    seen = [(tuple(each.shape), each.stride(), each.data_ptr() % 64 if aligned else 0) for each in operands]
    return zlib.crc32(repr((name, torch.get_num_threads(), seen)).encode())


def _exact(func: Any, args: Any, found: Tensor) -> Tensor:
    fractions = found.double() * 1024
    exact = (fractions == fractions.round()) | ~found.isfinite()
    if func.overloadpacket in (_aten.mm, _aten.bmm):
        exact |= func(*((each != 0).double() for each in args)) <= 1
    return exact


def _moved(found: Tensor, key: int) -> Tensor:
    mixed = (torch.arange(found.numel()) * 2654435761 + key) ^ (key >> 7)
    direction = (((mixed * 1103515245 + 12345) >> 16) % 3 - 1).reshape(found.shape)
    return torch.where(direction == 0, found, found.nextafter(direction.to(found.dtype) * torch.inf))
