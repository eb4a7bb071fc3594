"""One storage for the weights of several layers, of which their parameters are views.

A parameter that moves stays the same object under the same name, with the same values and the same gradient: only its
data stand elsewhere. Nothing is held twice, but for one parameter of each member while it moves. The parameters stay
views afterwards, which costs nothing and changes nothing that can be seen: another entry of the plan moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

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


def lay_out(members: Sequence[nn.Module], groups: Sequence[Sequence[nn.Module]], others: Iterable[nn.Module]) -> None:
    """Let the parameters of the blocks `members` follow each other in one storage for each name.

    Nothing moves where each of the `groups` has its joint weights already. A block of `others` that stands in a storage
    of that kind, from an earlier layout, gets one of its own, for the earlier one would be kept for it alone.
    """
    if all(joint(group) is not None for group in groups):
        return
    staying = [block for block in others if all(block is not member for member in members)]
    with torch.inference_mode(False), torch.no_grad():
        for name in dict(members[0].named_parameters()):
            parameters = [member.get_parameter(name) for member in members]
            left = {each.untyped_storage().data_ptr() for each in parameters}
            storage = torch.empty((len(parameters), *parameters[0].shape), dtype=parameters[0].dtype,
                                  device=parameters[0].device)  # fmt: skip
            for row, parameter in zip(storage, parameters, strict=True):
                row.copy_(parameter)
                parameter.data = row
            for block in staying:
                _separate(block, name, left)


def joint(members: Sequence[nn.Module]) -> Joint | None:
    """The weights of the blocks `members` as views over one storage; `None` where they do not stand at equal steps."""
    found = {}
    for name in dict(members[0].named_parameters()):
        with torch.inference_mode(False), torch.no_grad():
            view = _joint_view([member.get_parameter(name) for member in members])
        if view is None:
            return None
        found[name] = view
    return found


def _joint_view(parameters: Sequence[nn.Parameter]) -> Tensor | None:
    first = parameters[0]
    if any(each.untyped_storage().data_ptr() != first.untyped_storage().data_ptr() for each in parameters):
        return None
    if not all(each.is_contiguous() for each in parameters):
        return None
    offsets = [each.storage_offset() for each in parameters]
    steps = {later - earlier for earlier, later in zip(offsets, offsets[1:], strict=False)} or {first.numel()}
    if len(steps) != 1 or min(steps) < 0:
        return None
    return first.detach().as_strided((len(parameters), *first.shape), (steps.pop(), *first.stride()), offsets[0])


def _separate(block: nn.Module, name: str, left: set[int]) -> None:
    """Give the parameter `name` of `block` a storage of its own if it stands in one of those that others `left`."""
    names = dict(block.named_parameters())
    if name in names and names[name].untyped_storage().data_ptr() in left:
        names[name].data = names[name].data.clone()
