"""Models with quantized weights, which run plans; comparing, averaging, redrawing or training weights is refused."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from layerwise.errors import UnsupportedModel

LIBRARIES = ("bitsandbytes", "torchao", "optimum.quanto", "hqq", "gptqmodel", "awq", "compressed_tensors")
"""The packages whose modules or tensors hold quantised weights."""


DEQUANTISED = "gguf"
"""The method that stays in the configuration of a model whose weights transformers dequantised as it read them."""


def quantisation_of(model: nn.Module) -> str | None:
    """How the weights of a model are quantised: the method of its configuration, else the library; `None` for not."""
    config = getattr(getattr(model, "config", None), "quantization_config", None)
    if config is not None:
        method = config.get("quant_method") if isinstance(config, dict) else getattr(config, "quant_method", None)
        name = str(getattr(method, "value", method))
        if name != DEQUANTISED:
            return name
    modules = (f"{kind.__module__}." for kind in _kinds(model))
    return next((name for module in modules for name in LIBRARIES if module.startswith(f"{name}.")), None)


def refuse_quantised(model: nn.Module, wish: str) -> None:
    method = quantisation_of(model)
    if method is not None:
        raise UnsupportedModel(
            f"cannot {wish}: this {type(model).__name__} is quantised ({method}), and what it stores are codes and "
            "scales; use the checkpoint before it was quantised"
        )


def plain_tensors(tensor: Tensor) -> Iterator[Tensor]:
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from plain_tensors(getattr(tensor, name))


def _kinds(model: nn.Module) -> Iterator[type]:
    for module in model.modules():
        yield type(module)
        for parameter in module.parameters(recurse=False):
            yield type(parameter)
            yield type(parameter.data)
