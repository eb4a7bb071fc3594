"""Clone modules, sharing the parameters and hooks of the original.

A clone can have its own cache position (`layer_idx`), configuration, weights, output and newly set attributes.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar, cast

from torch import Tensor, nn

from layerwise.errors import ModelError
from layerwise.stack.compilation import is_compiled

# Attributes with the position of a submodule in the stack.
INDEX_NAMES = ("layer_idx", "layer_id", "layer_number", "layer_num")

Then = Callable[[tuple[Any, ...], dict[str, Any], Any], Any]
"""Function that maps the arguments, keyword arguments and output of a module to a new output."""

# Dictionaries that a module shares with its clones; clones wrap submodules.
_SHARED = (
    "_parameters",
    "_non_persistent_buffers_set",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_modules",
)

# Class attributes that modules never override.
_OF_CLASSES = frozenset({"_compiled_call_impl", "_abc_impl"})

# Values of these types are shared with clones unchanged.
_CONSTANTS = frozenset({bool, float, str, type(None)})
_MISSING = object()
_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Own:
    module: nn.Module
    shift: int
    host: nn.Module | None
    then: Mapping[str, Then]
    weights: Mapping[str, Tensor]
    forward: Any
    children: dict[str, tuple[nn.Module, nn.Module]] = field(default_factory=dict)

    def child(self, name: str, module: nn.Module) -> nn.Module:
        entry = self.children.get(name)
        if entry is None or entry[0] is not module:
            inner, weights = _inside(name, self.then), _inside(name, self.weights)
            host = None if self.host is None else self.host.get_submodule(name)
            differs = inner or weights or _differs(module)
            entry = module, clone(module, self.shift, host, inner, weights) if differs else module
            self.children[name] = entry
        return entry[1]


def clone(
    module: nn.Module,
    shift: int,
    host: nn.Module | None = None,
    then: Mapping[str, Then] | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> nn.Module:
    """Clone `module`, adding `shift` to its cache positions.

    Args:
        module: The original module.
        shift: Number to add to its cache positions (`layer_idx`).
        host: Module whose configuration the clone uses.
        then: For some submodules, by path, a function that changes the output. The path `""` is the module itself,
            whose hooks run first.
        weights: Parameters, by path, that replace those of the module.
    """
    outer = getattr(module, "_own", None)
    if isinstance(outer, _Own):
        module, shift, weights = outer.module, shift + outer.shift, {**outer.weights, **(weights or {})}
    weights = weights or {}
    made = object.__new__(_kind(cast(Hashable, type(module))))
    state = vars(module)
    vars(made).update({name: state[name] for name in _SHARED if name in state}, _buffers={})
    if weights:
        own = {name: weight for name, weight in weights.items() if "." not in name}
        vars(made)["_parameters"] = {**state["_parameters"], **own}
    if "forward" in state and not is_compiled(state["forward"]):
        vars(made)["forward"] = rebound(state["forward"], module, made)
    if isinstance(module, nn.TransformerEncoderLayer) and any(then or ()):
        # Disables torch's fused kernel, which would not call the submodules.
        vars(made)["activation_relu_or_gelu"] = 0
    object.__setattr__(made, "_own", _Own(module, shift, host, then or {}, weights, state.get("forward")))
    return made


def indices(module: nn.Module) -> list[int]:
    return [index for each in module.modules() for index in own_indices(each)]


def own_indices(module: nn.Module) -> list[int]:
    values = (vars(module).get(name) for name in INDEX_NAMES)
    return [index for index in values if type(index) is int]


def _inside(name: str, by_path: Mapping[str, _Value]) -> dict[str, _Value]:
    return {path.partition(".")[2]: value for path, value in by_path.items() if path.partition(".")[0] == name}


def _differs(module: nn.Module) -> bool:
    return any(not type(each).__module__.startswith("torch.nn.modules.") for each in module.modules())


def rebound(value: Any, module: nn.Module, made: nn.Module) -> Any:
    """Rebind a method or partial call of `module` to the clone `made`; return any other value unchanged."""
    kind = type(value)  # not `value.__class__`, which a configuration looks up in its settings
    if kind is types.MethodType and value.__self__ is module:
        return types.MethodType(value.__func__, made)
    if issubclass(kind, partial) and any(argument is module for argument in value.args):
        return partial(value.func, *(made if each is module else each for each in value.args), **value.keywords)
    return value


def _looked_up(self: Any, name: str, value: Any) -> Any:
    own: _Own = self._own
    if name in INDEX_NAMES and type(value) is int:
        return value + own.shift
    if name == "config" and own.host is not None:
        return own.host.config
    return rebound(value, own.module, self)


@cache
def _kind(kind: Any) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        own: _Own = self._own
        if vars(own.module).get("forward") is not own.forward:
            raise ModelError(
                f"the forward of a {kind.__name__} was replaced while its model runs a plan in place; leave "
                "`with stack.under(...)`, replace it, and enter again"
            )
        output = kind.__call__(self, *args, **kwargs)
        then = own.then.get("")
        return output if then is None else then(args, kwargs, output)

    def get_attribute(self: Any, name: str) -> Any:
        # Called some 25 times per forward, so frequent cases come first.
        own: _Own = self._own
        state = own.module.__dict__
        value = state.get(name, _MISSING)
        if value is not _MISSING:
            return value if type(value) in _CONSTANTS else _looked_up(self, name, value)
        module = state["_modules"].get(name)
        if module is not None:
            entry = own.children.get(name)
            return entry[1] if entry is not None and entry[0] is module else own.child(name, module)
        if name in state["_buffers"]:
            return state["_buffers"][name]
        return kind.__getattr__(self, name)

    def refuse_pickling(self: Any, protocol: Any) -> Any:
        raise ModelError("a layer of a running plan cannot be copied or pickled; leave `with stack.under(...)` first")

    namespace = {
        "__slots__": ("_own",),
        "__call__": call,
        "__getattr__": get_attribute,
        "__reduce_ex__": refuse_pickling,
        "__repr__": lambda self: repr(self._own.module),
    }
    made = subclass(kind, namespace)
    # Class attributes must not hide those of the module; set after `kind` has processed its new subclass.
    for name in _class_values(kind):
        setattr(made, name, property(partial(_read, name, getattr(kind, name)), partial(_write, name)))
    made._modules = property(_submodules)
    made._buffers = property(lambda self: vars(self._own.module)["_buffers"])
    return made


def subclass(kind: Any, namespace: Mapping[str, Any]) -> Any:
    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs) if cls is made else kind.__new__(cls)

    named = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    made: Any = type(kind.__name__, (kind,), {**named, **namespace, "__new__": new})
    return made


def _class_values(kind: type) -> list[str]:
    values = {name: value for base in kind.__mro__ for name, value in vars(base).items() if not name.startswith("__")}
    return [
        name
        for name, value in values.items()
        if not callable(value) and not hasattr(type(value), "__get__") and name not in _OF_CLASSES
    ]


def _read(name: str, default: Any, self: Any) -> Any:
    if name in vars(self):
        return vars(self)[name]
    state = vars(self._own.module)
    return _looked_up(self, name, state[name]) if name in state else default


def _write(name: str, self: Any, value: Any) -> None:
    vars(self)[name] = value


def _submodules(self: Any) -> dict[str, nn.Module | None]:
    modules: dict[str, nn.Module | None] = vars(self._own.module)["_modules"]
    return {name: None if each is None else self._own.child(name, each) for name, each in modules.items()}
