"""One storage for the weights of several layers, of which their parameters are views.

A parameter that moves stays the same object under the same name, with the same values and the same gradient: only its
data stand elsewhere, and where they stood is given back. Nothing is held twice, but for one name's parameters while
they move. A `state_dict` has contiguous tensors, for writers of files ask for such. Afterwards
each parameter has data of its own again.

The matrix of a linear layer that does not narrow its input stands transposed, `(in, out)`, and its parameter is the
transposed view of that: a processor's product of a few rows with a matrix is faster along the longer of its axes.
Linear layers that read one tensor (`Siblings`) stand side by side, so that their weights are one matrix too.
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

Siblings: TypeAlias = tuple[tuple[str, ...], ...]
"""Linear layers of a block, by their paths inside it: those of one tuple read one tensor."""


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
def laid_out(members: Sequence[nn.Module], siblings: Siblings = ()) -> Iterator[None]:
    """Within the context the parameters of the blocks `members` follow each other in one storage for each name, or for
    each tuple of `siblings`, whose outputs follow each other in each member.

    A parameter that is given other data meanwhile (`model.to`) keeps those.
    """
    moved: list[tuple[nn.Parameter, int]] = []
    hooks: list[Any] = [
        member.register_state_dict_post_hook(_contiguous)  # type: ignore[no-untyped-call]
        for member in members
    ]
    try:
        with torch.inference_mode(False), torch.no_grad():
            for names, transposed in _arrangement(members[0], siblings):
                parameters = [[member.get_parameter(name) for name in names] for member in members]
                for row, views in zip(parameters, _storage(parameters, transposed), strict=True):
                    for parameter, data in zip(row, views, strict=True):
                        data.copy_(parameter)
                        parameter.data = data
                        moved.append((parameter, data.data_ptr()))
        yield
    finally:
        for hook in hooks:
            hook.remove()
        with torch.inference_mode(False), torch.no_grad():
            for parameter, location in moved:
                if parameter.data_ptr() == location:
                    parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)


def _arrangement(block: nn.Module, siblings: Siblings) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The names of the parameters that stand in one storage, and whether they stand transposed in it."""
    linear = {path: each for path, each in block.named_modules() if isinstance(each, nn.Linear)}
    placed: set[str] = set()
    for paths in (*siblings, *((path,) for path in linear if not any(path in each for each in siblings))):
        outputs = sum(linear[path].out_features for path in paths)
        for name in ("weight", "bias"):
            names = tuple(f"{path}.{name}" if path else name for path in paths)
            if getattr(linear[paths[0]], name) is not None:
                placed.update(names)
                yield names, name == "weight" and outputs > linear[paths[0]].in_features
    yield from (((name,), False) for name, _ in block.named_parameters() if name not in placed)


def _contiguous(member: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Put contiguous copies of the member's transposed matrices into a `state_dict`."""
    for name, _parameter in member.named_parameters():
        held = state.get(prefix + name)
        if isinstance(held, Tensor) and not held.is_contiguous():
            state[prefix + name] = held.contiguous()


def _storage(parameters: Sequence[Sequence[nn.Parameter]], transposed: bool) -> list[list[Tensor]]:
    """Room for the parameters of every member, which follow each other along their first axis, in one storage."""
    first = parameters[0]
    sizes = [each.shape[0] if each.dim() else 1 for each in first]
    rest = first[0].shape[1:]
    shape = (*rest, sum(sizes)) if transposed else (sum(sizes), *rest)
    room = torch.empty((len(parameters), *shape), dtype=first[0].dtype, device=first[0].device)
    pieces = (each.t() if transposed else each for each in room)
    return [
        [view.view(own.shape) if not own.dim() else view for own, view in zip(first, each.split(sizes), strict=True)]
        for each in pieces
    ]


def side_by_side(joint: Joint, paths: Sequence[str]) -> tuple[Tensor, Tensor | None]:
    """The weights `(members, sum of out, in)` and the biases `(members, sum of out)` of the linear layers at `paths`.

    They are views where the layers stand side by side, as `laid_out` puts siblings, and copies elsewhere.
    """
    weights = [joint[f"{path}.weight"] for path in paths]
    biases = [joint[name] for path in paths if (name := f"{path}.bias") in joint]
    return _united(weights), _united(biases) if biases else None


def _united(tensors: Sequence[Tensor]) -> Tensor:
    """`torch.cat(tensors, dim=1)`, as a view where they follow each other along that axis in one storage."""
    first, expected = tensors[0], tensors[0].storage_offset()
    for each in tensors:
        if (
            each.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
            or each.stride() != first.stride()
            or each.storage_offset() != expected
        ):
            return torch.cat(list(tensors), dim=1)
        expected += each.shape[1] * each.stride(1)
    shape = (first.shape[0], sum(each.shape[1] for each in tensors), *first.shape[2:])
    return first.as_strided(shape, first.stride(), first.storage_offset())


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
