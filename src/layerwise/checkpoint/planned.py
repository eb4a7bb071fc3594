"""A transformers model whose layers run a plan (repeats, parallel branches, sublayers), with each layer stored once.

The folder contains an ordinary model, and its configuration has the plan under `layerwise`, as a list of visits (layer
evaluations). The list of blocks becomes a list of visits: the first visit of a layer is its block, and each further one
is a copy that shares its weights and has a separate cache slot. Written by layerwise,
https://pypi.org/project/layerwise; requires only torch and transformers.
"""

from __future__ import annotations

import copy
import re
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import nn

INDEX_NAMES = ("layer_idx", "layer_id", "layer_number", "layer_num")
REPEATED = re.compile(r"\.\d+_\d+\.")


class PlannedModel:
    """Mixin that makes a transformers model run the plan in its configuration."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        self._stored_config = copy.deepcopy(config)
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        plan = getattr(config, "layerwise", None)
        if plan is not None and "visits" in plan:
            self._run_by(plan)

    def _run_by(self: Any, plan: dict[str, Any]) -> None:
        prefix = self.base_model_prefix
        path = plan["blocks"] if hasattr(self, prefix) else plan["blocks"].removeprefix(f"{prefix}.")
        blocks, frames = self.get_submodule(path), dict[int, list[Any]]()
        if any("_" in name for name in blocks._modules):
            return  # a part of this model has done it
        own, visited = list(blocks), dict[str, nn.Module]()
        for slot, visit in enumerate(plan["visits"]):
            name = str(visit["layer"])
            visited[f"{name}_{slot}" if name in visited else name] = (
                copy_sharing_weights(own[visit["layer"]]) if name in visited else own[visit["layer"]]
            )
        for slot, (visit, block) in enumerate(zip(plan["visits"], visited.values(), strict=True)):
            for module in block.modules():
                for name in INDEX_NAMES:
                    if type(vars(module).get(name)) is int:
                        vars(module)[name] += (slot - visit["layer"]) * plan["slots"]
            if visit.get("silent"):
                block.get_submodule(visit["silent"]).register_forward_hook(silence)
            if visit.get("opens") or visit.get("closes") or slot == 0:
                block.register_forward_hook(partial(hand_on, frames, slot == 0, visit), with_kwargs=True)
            if visit.get("opens"):
                self.supports_gradient_checkpointing = False
        blocks._modules, blocks.__class__ = visited, Visits
        blocks.register_state_dict_post_hook(omit_repeated_visits)
        blocks.register_load_state_dict_post_hook(lambda _, keys: ignore_repeated_visits(keys.missing_keys))
        owner = self.get_submodule(path.rpartition(".")[0])
        vars(owner).update(plan["owner"])
        change(self.config, plan["config"])

    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        planned, self.config = self.config, self._stored_config
        try:
            return super().save_pretrained(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.config = planned

    @classmethod
    def is_custom_code(cls) -> bool:
        return False


class Visits(nn.ModuleList):
    """A list of visits that are named like their blocks, for libraries that place weights by name."""

    def __getitem__(self, index: Any) -> Any:
        visits = list(self._modules.values())[index]
        return nn.ModuleList(visits) if isinstance(visits, list) else visits

    def named_children(self) -> Any:
        return ((name.partition("_")[0], each) for name, each in self._modules.items())


def copy_sharing_weights(block: nn.Module) -> nn.Module:
    shared = [*block.parameters(), *block.buffers(), *(getattr(each, "config", None) for each in block.modules())]
    made = copy.deepcopy(block, {id(each): each for each in shared})
    for module, other in zip(block.modules(), made.modules(), strict=True):
        vars(other).update(_parameters=module._parameters, _buffers=module._buffers)
    return made


def silence(module: nn.Module, args: Any, output: Any) -> Any:
    if isinstance(output, tuple):
        return (torch.zeros_like(output[0]), *output[1:])
    return torch.zeros_like(output)


def hand_on(
    frames: dict[int, list[Any]],
    first: bool,
    visit: dict[str, Any],
    module: nn.Module,
    args: Any,
    kwargs: Any,
    output: Any,
) -> Any:
    """Return the output of a visit, with the hidden state replaced by the input of the next visit.

    The output of a parallel group is x + scale * d, where x is its input and d the sum of the updates of its branches.
    """
    state = args[0] if args else kwargs["hidden_states"]
    current = output[0] if isinstance(output, tuple) else output
    opened = frames.setdefault(get_ident(), [])
    if first:
        opened.clear()
    opened.extend([state, None] for _ in range(visit.get("opens", 0)))
    for scale in visit.get("closes", ()):
        base, total = opened[-1]
        wide = torch.promote_types(current.dtype, torch.float32)
        update = current.to(wide) - base.to(wide)
        opened[-1][1] = total = update if total is None else total + update
        current = base
        if scale is not None:
            opened.pop()
            current = (base.to(wide) + scale * total).to(base.dtype)
    return (current, *output[1:]) if isinstance(output, tuple) else current


def omit_repeated_visits(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    for name in [name for name in state if REPEATED.search(name)]:
        del state[name]


def ignore_repeated_visits(missing: list[str]) -> None:
    missing[:] = [name for name in missing if not REPEATED.search(name)]


def change(config: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        inner = vars(config).get(name)
        if hasattr(inner, "to_diff_dict"):
            change(inner, value)
        else:
            vars(config)[name] = value
