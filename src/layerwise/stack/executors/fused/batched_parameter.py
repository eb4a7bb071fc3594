"""A parameter that stands for those of several layers, and what a function of torch means for one.

It has the shape, dtype and device of one layer's parameter, and behind that the weights of all members. Every
function of torch that is called with one is answered here (`call`), on a batch that holds the rows of all members,
those of the first member first. Functions that are called with no such parameter know nothing of it, and lose nothing.

`x` is an activation of all members, `(members * n, ...)`; `W` and `b` are batched parameters. Products are batched
products, elementwise functions broadcast over the members, norms are those without weights and then these. All others
go through `torch.vmap`, which is right for every function that it accepts, and slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


class UnknownOperation(Exception):
    """A parameter was used in a way that has no meaning, or none that is known, for several members at once."""


class _Rows(threading.local):
    """The rows that a batch of all members has in the pass that the calling thread is in."""

    now = 0


_ROWS = _Rows()


@contextmanager
def rows(count: int) -> Iterator[None]:
    """Within the context the first axis of activations is a multiple of `count`: members x rows of each."""
    before, _ROWS.now = _ROWS.now, count
    try:
        yield
    finally:
        _ROWS.now = before


def by_member(activation: Tensor, members: int) -> Tensor:
    """`(members * n, ...)` as `(members, n, ...)`; raises `UnknownOperation` for what is no batch of all members."""
    shape = activation.shape
    if not shape or not _ROWS.now or shape[0] % _ROWS.now:
        raise UnknownOperation(
            f"a weight meets a tensor of shape {tuple(shape)}, whose first axis is not the rows of the batch"
        )
    return activation.reshape(members, shape[0] // members, *shape[1:])


class BatchedParameter(Tensor):
    """The parameter of one layer to whoever asks, and `joint`, `(members, *shape)`, to `operations`."""

    joint: Tensor
    transposed: Tensor
    """For a matrix, `joint` with its last two axes exchanged."""
    row: Tensor
    """For a vector, `joint` as `(members, 1, length)`."""

    @staticmethod
    def __new__(cls, joint: Tensor) -> BatchedParameter:
        made = torch.Tensor._make_wrapper_subclass(
            cls, joint.shape[1:], dtype=joint.dtype, device=joint.device, requires_grad=False
        )
        made.joint = joint
        if joint.dim() == 3:
            made.transposed = joint.transpose(1, 2)
        if joint.dim() == 2:
            made.row = joint.unsqueeze(1)
        return made

    @property
    def members(self) -> int:
        """How many layers it stands for."""
        return self.joint.shape[0]

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return call(func, tuple(args), dict(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise UnknownOperation(f"{func} uses a weight past torch's functions")


Function = Callable[..., Any]

# What a parameter says of itself, which is true of every member.
_ABOUT = frozenset(
    {
        "shape",
        "dtype",
        "device",
        "ndim",
        "layout",
        "requires_grad",
        "is_cuda",
        "is_cpu",
        "is_meta",
        "is_leaf",
        "names",
        "is_sparse",
        "is_quantized",
        "is_nested",
    }
)
_ABOUT_METHODS = frozenset({"size", "dim", "numel", "is_floating_point", "is_complex", "element_size", "__len__"})

_BINARY = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "true_divide",
        "pow",
        "rsub",
        "maximum",
        "minimum",
        "__add__",
        "__radd__",
        "__sub__",
        "__rsub__",
        "__mul__",
        "__rmul__",
        "__truediv__",
        "__rtruediv__",
        "__pow__",
        "__rpow__",
    }
)
_UNARY = frozenset(
    {
        "float",
        "half",
        "bfloat16",
        "double",
        "to",
        "type_as",
        "neg",
        "__neg__",
        "exp",
        "abs",
        "sqrt",
        "rsqrt",
        "sigmoid",
        "tanh",
        "relu",
        "softplus",
        "silu",
        "clone",
        "contiguous",
        "detach",
        "clamp",
    }
)


def call(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`func(*args, **kwargs)` for every member at once; raises `UnknownOperation` where that has no meaning."""
    known = _KNOWN.get(func)
    if known is not None:
        return known(*args, **kwargs)
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return _attribute(func, args[0])
    if name in _ABOUT_METHODS:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    if name in _BINARY and len(args) == 2:
        return _elementwise(func, *args, **kwargs)
    if name in _UNARY and not any(isinstance(each, Tensor) for each in (*args[1:], *kwargs.values())):
        return BatchedParameter(func(args[0].joint, *args[1:], **kwargs))
    return _mapped(func, args, kwargs)


def _attribute(func: Function, parameter: BatchedParameter) -> Any:
    name = getattr(getattr(func, "__self__", None), "__name__", "")
    if name in ("T", "mT") and parameter.dim() == 2:
        return BatchedParameter(parameter.joint.transpose(1, 2))
    if name not in _ABOUT:
        raise UnknownOperation(f"the attribute {name} of a weight is asked for")
    with torch._C.DisableTorchFunctionSubclass():
        return func(parameter)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """`x W^T + b`."""
    if type(x) is BatchedParameter or type(weight) is not BatchedParameter or weight.joint.dim() != 3:
        return _mapped(F.linear, (x, weight, bias), {})
    return _product(x, weight.transposed, bias)


def _matmul(x: Tensor, weight: Tensor) -> Any:
    """`x W`."""
    if type(x) is BatchedParameter or type(weight) is not BatchedParameter or weight.joint.dim() != 3:
        return _mapped(torch.matmul, (x, weight), {})
    return _product(x, weight.joint, None)


def _addmm(bias: Tensor, x: Tensor, weight: Tensor, **scales: Any) -> Any:
    """`b + x W`."""
    if scales or type(x) is BatchedParameter or type(weight) is not BatchedParameter:
        return _mapped(torch.addmm, (bias, x, weight), scales)
    return _product(x, weight.joint, bias)


def _product(x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
    """Each member's rows times its matrix, `(members, in, out)`, plus its bias."""
    shape = x.shape
    members, width, out = weights.shape
    rows = by_member(x, members).reshape(members, -1, width)
    if bias is None:
        result = torch.bmm(rows, weights)
    elif type(bias) is BatchedParameter:
        result = torch.baddbmm(bias.row, rows, weights)
    else:
        result = torch.bmm(rows, weights) + bias
    return result.view(*shape[:-1], out)


def _elementwise(func: Function, left: Any, right: Any, **kwargs: Any) -> Any:
    """A function of two operands that broadcast, at least one of them a batched parameter."""
    batched = [each for each in (left, right) if type(each) is BatchedParameter]
    plain = [each for each in (left, right) if isinstance(each, Tensor) and type(each) is not BatchedParameter]
    if not plain or plain[0].dim() == 0:
        axes = max(each.joint.dim() for each in batched)
        operands = (_spread(each, axes - 1) if type(each) is BatchedParameter else each for each in (left, right))
        return BatchedParameter(func(*operands, **kwargs))
    activation = plain[0]
    parameter = batched[0]
    rows = by_member(activation, parameter.members)
    weights = _spread(parameter, activation.dim())
    if weights.shape[1] != 1:
        raise UnknownOperation(f"a weight of shape {tuple(parameter.shape)} has an axis for the rows of the batch")
    operands = (weights if type(each) is BatchedParameter else rows for each in (left, right))
    result: Tensor = func(*operands, **kwargs)
    return result.reshape(-1, *result.shape[2:])


def _spread(parameter: BatchedParameter, axes: int) -> Tensor:
    """The joint weights as `(members, 1, ..., *shape)`, `axes` of them behind the members."""
    shape = parameter.joint.shape
    missing = axes + 1 - len(shape)
    if missing < 0:
        raise UnknownOperation(f"a weight of shape {tuple(shape[1:])} has more axes than what it meets")
    return parameter.joint.view(shape[0], *(1,) * missing, *shape[1:]) if missing else parameter.joint


def _layer_norm(
    x: Tensor, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, *_: Any
) -> Any:
    return _scaled(F.layer_norm(x, shape, None, None, eps), weight, bias)


def _rms_norm(x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Any:
    return _scaled(F.rms_norm(x, shape, None, eps), weight, None)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Any:
    if type(weight) is BatchedParameter and type(bias) is BatchedParameter:
        rows = by_member(x, weight.members)
        scaled = torch.addcmul(_spread(bias, x.dim()), rows, _spread(weight, x.dim()))
        return scaled.view(x.shape)
    scaled = x if weight is None else x * weight
    return scaled if bias is None else scaled + bias


def _transposed(parameter: BatchedParameter) -> Any:
    return BatchedParameter(parameter.transposed) if parameter.joint.dim() == 3 else parameter


def _mapped(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Any other function, by `torch.vmap` over the members."""
    everything = [*args, *kwargs.values()]
    members = next((each.members for each in everything if type(each) is BatchedParameter), 0)
    if not members:
        raise UnknownOperation(f"{getattr(func, '__name__', func)} takes a weight inside a list")
    activations = [each for each in everything if isinstance(each, Tensor) and type(each) is not BatchedParameter]
    operands: list[Tensor] = []

    def operand(value: Any) -> Any:
        if type(value) is BatchedParameter:
            operands.append(value.joint)
        elif isinstance(value, Tensor):
            operands.append(by_member(value, members))
        else:
            return lambda _: value
        position = len(operands) - 1
        return lambda given: given[position]

    locations = [operand(each) for each in args]
    named = {name: operand(each) for name, each in kwargs.items()}

    def one_member(*given: Tensor) -> Any:
        return func(
            *(location(given) for location in locations), **{name: location(given) for name, location in named.items()}
        )

    try:
        result = torch.vmap(one_member)(*operands)
    except (RuntimeError, ValueError, TypeError) as error:
        name = getattr(func, "__name__", str(func))
        raise UnknownOperation(f"{name} cannot be computed for several members: {error}") from error
    if not isinstance(result, Tensor):
        raise UnknownOperation(f"{getattr(func, '__name__', func)} returns no single tensor")
    return result.flatten(0, 1) if activations else BatchedParameter(result)


_KNOWN: dict[Any, Function] = {
    F.linear: _linear,
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    torch.layer_norm: _layer_norm,
    torch.rms_norm: _rms_norm,
    torch.addmm: _addmm,
    torch.matmul: _matmul,
    torch.mm: _matmul,
    Tensor.matmul: _matmul,
    Tensor.mm: _matmul,
    Tensor.__matmul__: _matmul,
    Tensor.t: _transposed,
    torch.t: _transposed,
}
