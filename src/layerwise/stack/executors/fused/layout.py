"""One storage for the weights of several layers, of which their parameters are views.

A parameter that moves stays the same object under the same name, with the same values and the same gradient: only its
data stand elsewhere, and where they stood is given back. Nothing is held twice, but for one name's parameters while
they move. A `state_dict` has contiguous tensors, for writers of files ask for such. Afterwards
each parameter has data of its own again.

The matrix of a linear layer that does not narrow its input stands transposed, `(in, out)`, and its parameter is the
transposed view of that: a processor's product of a few rows with a matrix is faster along the longer of its axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

Joint: TypeAlias = Mapping[str, Tensor]
"""By the name of a parameter inside its block, the weights of all members: (members, *shape of the parameter)."""


def components(groups: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """Groups that have a member in common, directly or through others, united.

    >>> sorted(map(sorted, components([frozenset({1, 2}), frozenset({5, 6}), frozenset({2, 3})])))
    [[1, 2, 3], [5, 6]]
    """
    united: list[frozenset[int]] = []
    for group in groups:
        touching = [each for each in united if each & group]
        united = [each for each in united if not each & group]
        united.append(group.union(*touching))
    return united


@contextmanager
def laid_out(members: Sequence[nn.Module]) -> Iterator[None]:
    """Within the context the parameters of the blocks `members` follow each other in one storage for each name.

    A parameter that is given other data meanwhile (`model.to`) keeps those.
    """
    matrices = {
        f"{path}.weight"
        for path, each in members[0].named_modules()
        if isinstance(each, nn.Linear) and each.out_features >= each.in_features
    }
    moved: list[tuple[list[nn.Parameter], list[int]]] = []
    hooks: list[Any] = [
        member.register_state_dict_post_hook(_contiguous)  # type: ignore[no-untyped-call]
        for member in members
    ]
    try:
        with torch.inference_mode(False), torch.no_grad():
            for name in dict(members[0].named_parameters()):
                parameters = [member.get_parameter(name) for member in members]
                moved.append((parameters, []))
                for parameter, data in zip(parameters, _storage(parameters, name in matrices), strict=True):
                    data.copy_(parameter)
                    parameter.data = data
                    moved[-1][1].append(data.data_ptr())
        yield
    finally:
        for hook in hooks:
            hook.remove()
        with torch.inference_mode(False), torch.no_grad():
            for parameters, locations in moved:
                for parameter, location in zip(parameters, locations, strict=False):
                    if parameter.data_ptr() == location:
                        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)


def _contiguous(member: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Put contiguous copies of the member's transposed matrices into a `state_dict`."""
    for name, _parameter in member.named_parameters():
        held = state.get(prefix + name)
        if isinstance(held, Tensor) and not held.is_contiguous():
            state[prefix + name] = held.contiguous()


def _storage(parameters: Sequence[nn.Parameter], transposed: bool) -> list[Tensor]:
    """Room for parameters of one shape, behind each other in one storage."""
    first = parameters[0]
    shape = first.shape[::-1] if transposed else first.shape
    room = torch.empty((len(parameters), *shape), dtype=first.dtype, device=first.device)
    return [each.t() if transposed else each for each in room]


def joint(members: Sequence[nn.Module]) -> Joint | None:
    """The weights of the blocks `members` as views over one storage; `None` where they do not stand at equal steps."""
    collected = {}
    for name in dict(members[0].named_parameters()):
        with torch.inference_mode(False), torch.no_grad():
            view = _joint_view([member.get_parameter(name) for member in members])
        if view is None:
            return None
        collected[name] = view
    return collected


def _joint_view(parameters: Sequence[nn.Parameter]) -> Tensor | None:
    first = parameters[0]
    storage, strides = first.untyped_storage().data_ptr(), first.stride()
    if any(each.untyped_storage().data_ptr() != storage or each.stride() != strides for each in parameters):
        return None
    offsets = [each.storage_offset() for each in parameters]
    steps = {later - earlier for earlier, later in itertools.pairwise(offsets)} or {first.numel()}
    if len(steps) != 1:
        return None
    return first.detach().as_strided((len(parameters), *first.shape), (steps.pop(), *strides), offsets[0])
