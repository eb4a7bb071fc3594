"""A slow oracle without the engine: `NaiveLoop` runs a sketch recursively.

A sketch is nested tuples: a layer, `("block", times, *items)`, or `("group", rule, gain, *branches)`.
"""

import inspect
import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Sketch = tuple[Any, ...]


def text(sketch: Sketch) -> str:
    """The sketch in the plan language.

    >>> text((0, ("group", "gain", 2.0, (1, 2), (3,)), ("block", 2, 4, 0)))
    '0 (1 2|3):gain=2.0 [4 0]*2'
    """
    return " ".join(_item_text(item) for item in sketch)


def _item_text(item: Any) -> str:
    match item:
        case int():
            return str(item)
        case ("block", times, *items):
            return f"[{text(tuple(items))}]*{times}"
        case ("group", rule, gain, *branches):
            inside = "|".join(text(branch) for branch in branches)
            return f"({inside}):gain={gain}" if rule == "gain" else f"({inside}):{rule}"
    raise ValueError(item)


def draw(seed: int, depth: int) -> Sketch:
    chance = random.Random(seed)

    def item(level: int) -> Any:
        kind = chance.random()
        if level == 0 or kind < 0.6:
            return chance.randrange(depth)
        if kind < 0.75:
            return ("block", 2, *(item(level - 1) for _ in range(chance.randint(1, 2))))
        rule = chance.choice(("mean", "sum", "gain"))
        branches = tuple(
            tuple(item(level - 1) for _ in range(chance.randint(1, 2))) for _ in range(chance.randint(2, 3))
        )
        return ("group", rule, 0.5, *branches)

    return tuple(item(2) for _ in range(4))


def layers_of(sketch: Sketch) -> Iterator[tuple[int, bool]]:
    for item in sketch:
        match item:
            case int():
                yield item, False
            case ("block", times, *inner):
                yield from [*layers_of(tuple(inner))] * times
            case ("group", _, _, *branches):
                yield from ((layer, True) for branch in branches for layer, _ in layers_of(branch))


def breaks(sketch: Sketch, reads: Mapping[int, int]) -> bool:
    seen: set[int] = set()
    for layer, grouped in layers_of(sketch):
        if reads.get(layer, layer) not in {*seen, layer} or (grouped and layer in reads.values()):
            return True
        seen.add(layer)
    return False


def behind(sketch: Sketch, reads: Mapping[int, int]) -> Sketch:
    """The sketch with the layers that read in the roles of its layers, behind those that they read.

    >>> behind((0, ("group", "mean", None, (1,), (4,))), {2: 0, 3: 1, 4: 1})
    (0, 1, 2, ('group', 'mean', None, (3,), (3,)))
    """
    readers = sorted(reads)

    def renamed(item: Any) -> Any:
        match item:
            case int():
                return readers[item % len(readers)]
            case ("block", times, *inner):
                return ("block", times, *map(renamed, inner))
            case ("group", rule, gain, *branches):
                return ("group", rule, gain, *(tuple(map(renamed, branch)) for branch in branches))
        raise ValueError(item)

    return (*sorted(set(reads.values())), *map(renamed, sketch)) if reads else sketch


class NaiveLoop:
    def __init__(self, model: nn.Module, path: str, batch: Mapping[str, Tensor]) -> None:
        self._model = model
        self._blocks = list(model.get_submodule(path))
        self._batch = uncached(model, batch)
        self._calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        watching = [
            block.register_forward_pre_hook(
                lambda _module, args, kwargs: self._calls.append((args, kwargs)), with_kwargs=True
            )
            for block in self._blocks
        ]
        model(**self._batch)
        for hook in watching:
            hook.remove()

    def output(self, sketch: Sketch) -> Any:
        final = self._run(sketch, self._calls[0][0][0])
        hand_back = self._blocks[-1].register_forward_hook(
            lambda _module, _args, out: type(out)((final, *out[1:])) if isinstance(out, tuple | list) else final
        )
        try:
            return self._model(**self._batch)
        finally:
            hand_back.remove()

    def _run(self, items: Sketch, state: Tensor) -> Tensor:
        for item in items:
            match item:
                case int():
                    args, kwargs = self._calls[item]
                    returned = self._blocks[item](state, *args[1:], **kwargs)
                    state = returned[0] if isinstance(returned, tuple | list) else returned
                case ("block", times, *inner):
                    for _ in range(times):
                        state = self._run(tuple(inner), state)
                case ("group", rule, gain, *branches):
                    updates = torch.stack([self._run(branch, state) - state for branch in branches])
                    factor = {"mean": 1 / len(branches), "sum": 1.0, "gain": (gain or 0) / len(branches)}[rule]
                    state = state + factor * updates.sum(0)
        return state


def uncached(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    names = inspect.signature(model.forward).parameters
    takes_cache = "use_cache" in names or ("kwargs" in names and model.can_generate())
    return {**batch, "use_cache": False} if takes_cache else dict(batch)
