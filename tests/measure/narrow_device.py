"""A pretended device without float64: its tensors are on the CPU, report `mps`, and raise when widened.

Moves to the CPU that widen, `.numpy()`, and arithmetic with CPU tensors that have axes raise too, as on the device.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("mps")
_CPU = torch.device("cpu")

_MIXES = frozenset(
    {Tensor.to, Tensor.cpu, Tensor.copy_, Tensor.__getitem__, Tensor.__setitem__, Tensor.set_, Tensor.register_hook}
)
"""Functions that accept tensors of both devices: moves, copies, and indices."""


class Narrow(Tensor):
    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return DEVICE

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.detach().clone().as_subclass(Narrow).requires_grad_(self.requires_grad)


@contextmanager
def pretended() -> Iterator[torch.device]:
    with _Pretended():
        yield DEVICE


def moved(model: nn.Module) -> nn.Module:
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                narrow = parameter.detach().as_subclass(Narrow)
                module._parameters[name] = nn.Parameter(narrow, parameter.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.as_subclass(Narrow)
    return model


class _Pretended(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        leaves = [*_leaves(args), *_leaves(kwargs.values())]
        inside = any(isinstance(leaf, Narrow) for leaf in leaves)
        to = next((torch.device(leaf).type for leaf in leaves if _is_device(leaf)), None)
        left = inside and (func is Tensor.cpu or to == "cpu")
        if inside:
            self._refuse(func, leaves)
        if inside and func is Tensor.register_hook:
            args = (args[0], _narrowing(args[1]))
        if inside and func is Tensor.register_post_accumulate_grad_hook:
            args = (args[0], _after_narrowing(args[1]))
        if to is not None:
            args = tuple(_CPU if _is_device(value) else value for value in args)
            kwargs = {name: _CPU if _is_device(value) else value for name, value in kwargs.items()}
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **kwargs)
        if left:
            if found.dtype == torch.float64:
                raise _without_float64()
            return found.as_subclass(Tensor)
        return _narrowed(found) if inside or to == "mps" else found

    def _refuse(self, func: Callable[..., Any], leaves: list[Any]) -> None:
        if func is Tensor.numpy:
            raise TypeError("can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() first")
        if func not in _MIXES and any(isinstance(leaf, Tensor) and _of_the_cpu(leaf) for leaf in leaves):
            raise RuntimeError(f"{func.__name__}: Expected all tensors to be on the same device, found mps:0 and cpu!")


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value in ("mps", "cpu"))


def _of_the_cpu(tensor: Tensor) -> bool:
    return not isinstance(tensor, Narrow) and tensor.ndim > 0


def _narrowed(value: Any) -> Any:
    if isinstance(value, list | tuple) and any(isinstance(each, Tensor) for each in value):
        return type(value)([_narrowed(each) for each in value])
    if not isinstance(value, Tensor):
        return value
    if value.dtype == torch.float64:
        raise _without_float64()
    return value if isinstance(value, Narrow) else value.as_subclass(Narrow)


def _narrowing(hook: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    return lambda gradient: hook(_narrowed(gradient))


def _after_narrowing(hook: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def read(parameter: Tensor) -> None:
        parameter.grad = _narrowed(parameter.grad)
        hook(parameter)

    return read


def _without_float64() -> TypeError:
    return TypeError(
        "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
        "Please use float32 instead."
    )
