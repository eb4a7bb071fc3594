"""Keep a limited number of layers in memory. Others are read when called, and replace the least recently used."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.errors import ModelError, UnsupportedModelError
from layerwise.stack.blocks import BlockList
from layerwise.stack.streaming.files import LayerFiles

# Attribute of a block with the function that reads it.
_READER = "_layerwise_reader"


def hold(block: nn.Module) -> None:
    """Read the weights of a block into memory if they are on disk."""
    reader = vars(block).get(_READER)
    if reader is not None:
        reader()


def stored_parameter(model: nn.Module, name: str) -> Tensor:
    """Read a parameter of a partly loaded model; raise `ModelError` if no file has it."""
    path = name
    while path:
        path = path.rpartition(".")[0]
        module, rest = model.get_submodule(path), name.removeprefix(f"{path}.")
        reader = vars(module).get(_READER)
        if reader is not None:
            return reader.func.__self__.stored(reader.args[0], rest)
        hook = vars(module).get("_hf_hook")  # accelerate's, for a module offloaded by a device map
        for each in getattr(hook, "hooks", (hook,)):
            weights = getattr(each, "weights_map", None)
            if weights is not None and rest in weights:
                return weights[rest]
    raise ModelError(f"{name} is not in memory, and its file is unknown")


def refuse_on_disk(model: nn.Module, action: str) -> None:
    if any(_READER in vars(module) for module in model.modules()) or any(each.is_meta for each in model.parameters()):
        raise UnsupportedModelError(
            f"cannot {action}: it requires all layers of this {type(model).__name__} in memory; load the model without "
            "--resident-layers, and without a device map that offloads"
        )


@dataclass(slots=True)
class ReadingCost:
    """Number and bytes of layer reads, and the peak number and bytes of layers in memory."""

    readings: int = 0
    bytes: int = 0
    most_bytes: int = 0
    most_layers: int = 0


class ResidentLayers:
    """The blocks of one model, of which at most `most` are in memory.

    `cost` counts reads since the last call of `count`. A running layer is never released; other threads may have to
    wait.
    """

    def __init__(self, blocks: BlockList, files: LayerFiles, most: int, device: torch.device) -> None:
        if most < 1:
            raise ModelError(f"resident_layers must be at least 1, got {most}")
        self.most = most
        self.device = device
        self.cost = ReadingCost()
        self._files = files
        self._blocks = tuple(blocks)
        self._away: list[dict[str, nn.Parameter]] = [
            {name: parameter for name, parameter in block.named_parameters() if name in stored}
            for block, stored in zip(self._blocks, files.layers, strict=True)
        ]
        self.sizes = tuple(
            sum(each.numel() * each.element_size() for each in parameters.values()) for parameters in self._away
        )
        self._resident: dict[int, None] = {}  # in order of last use
        self._ahead: dict[int, Future[dict[str, Tensor]]] = {}
        self._running: Counter[int] = Counter()
        self._changed = threading.Condition(threading.RLock())
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="layerwise-reads-layers")
        for layer, block in enumerate(self._blocks):
            block.register_forward_pre_hook(partial(self._before_forward, layer))
            block.register_forward_hook(partial(self._after_forward, layer), always_call=True)
            vars(block)[_READER] = partial(self.read, layer)

    @property
    def bytes(self) -> int:
        return sum(self.sizes[layer] for layer in (*self._resident, *self._ahead))

    def __deepcopy__(self, memo: Any) -> Any:
        raise ModelError("a model whose layers are read from disk cannot be copied; load it without --resident-layers")

    def release_all(self) -> None:
        for layer in tuple(self._resident):
            self.release(layer)

    def count(self) -> ReadingCost:
        with self._changed:
            self.release_all()
            self.cost = ReadingCost()
            return self.cost

    def read(self, layer: int) -> None:
        """Read a layer into memory, releasing others to make room."""
        with self._changed:
            early = self._ahead.get(layer)
            if early is not None and early.done() and early.exception() is not None:
                del self._ahead[layer]
            while layer not in self._resident:
                if layer in self._ahead:
                    # Removed first, so that the next call repeats a failed read.
                    self._attach(layer, self._ahead.pop(layer).result())
                elif len(self._resident) + len(self._ahead) < self.most:
                    self._begin(layer)
                else:
                    self._make_room()
            self._resident[layer] = self._resident.pop(layer)

    def read_ahead(self, layer: int) -> None:
        with self._changed:
            there = len(self._resident) + len(self._ahead)
            if layer not in self._resident and layer not in self._ahead and there < self.most:
                self._begin(layer)

    def release(self, layer: int) -> None:
        with self._changed:
            if layer in self._resident and not self._running[layer]:
                del self._resident[layer]
                put_parameters(self._blocks[layer], self._away[layer])
                self._changed.notify_all()

    def stored(self, layer: int, name: str, rows: slice | None = None) -> Tensor:
        return self._files.layers[layer][name].read(self._away[layer][name], torch.device("cpu"), rows)

    def _begin(self, layer: int) -> None:
        self.cost.readings += 1
        self.cost.bytes += self.sizes[layer]
        self._ahead[layer] = self._reader.submit(self._files.read, layer, self._away[layer], self.device)
        self.cost.most_bytes = max(self.cost.most_bytes, self.bytes)
        self.cost.most_layers = max(self.cost.most_layers, len(self._resident) + len(self._ahead))

    def _attach(self, layer: int, weights: Mapping[str, Tensor]) -> None:
        away = self._away[layer]
        with torch.inference_mode(False):
            made = {name: nn.Parameter(each, requires_grad=away[name].requires_grad) for name, each in weights.items()}
        put_parameters(self._blocks[layer], made)
        self._resident[layer] = None

    def _make_room(self) -> None:
        idle = next((layer for layer in self._resident if not self._running[layer]), None)
        if idle is not None:
            self.release(idle)
        elif self._ahead:  # not needed, so errors do not matter
            wait([self._ahead.popitem()[1]])
        else:
            self._changed.wait()

    def _before_forward(self, layer: int, *_: Any) -> None:
        with self._changed:
            self.read(layer)
            self._running[layer] += 1

    def _after_forward(self, layer: int, *_: Any) -> None:
        with self._changed:
            self._running[layer] = max(0, self._running[layer] - 1)  # an earlier hook may have failed
            self._changed.notify_all()


def put_parameters(block: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
    for path, parameter in parameters.items():
        module, _, name = path.rpartition(".")
        block.get_submodule(module)._parameters[name] = parameter
