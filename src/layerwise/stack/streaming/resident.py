"""At most so many layers of a model in memory; others are read when called, and the least recently used is released."""

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

# The attribute of a block under which it has what reads it.
_READER = "_layerwise_reader"


def hold(block: nn.Module) -> None:
    """Read the weights of a block that may be on the disk; one that is in memory stays as it is."""
    reader = vars(block).get(_READER)
    if reader is not None:
        reader()


def stored_parameter(model: nn.Module, name: str) -> Tensor:
    """Read a parameter of a partly loaded model. Raises `ModelError` if no file has it."""
    path = name
    while path:
        path = path.rpartition(".")[0]
        module, rest = model.get_submodule(path), name.removeprefix(f"{path}.")
        reader = vars(module).get(_READER)
        if reader is not None:
            return reader.func.__self__.stored(reader.args[0], rest)
        hook = vars(module).get("_hf_hook")  # accelerate's, of a module that was offloaded by a device map
        for each in getattr(hook, "hooks", (hook,)):
            weights = getattr(each, "weights_map", None)
            if weights is not None and rest in weights:
                return weights[rest]
    raise ModelError(f"the content of {name} is not in memory, and no file is known to have it")


def refuse_on_disk(model: nn.Module, wish: str) -> None:
    if any(_READER in vars(module) for module in model.modules()) or any(each.is_meta for each in model.parameters()):
        raise UnsupportedModelError(
            f"cannot {wish}: layers of this {type(model).__name__} are read when they are called, and that needs "
            "all of them in memory; load the model without --resident-layers, and without a device map that offloads"
        )


@dataclass(slots=True)
class ReadingCost:
    """How often layers were read, how many bytes that were, and the most bytes of layers in memory at once."""

    readings: int = 0
    bytes: int = 0
    most_bytes: int = 0
    most_layers: int = 0


class ResidentLayers:
    """The blocks of one model, of which at most `most` hold their weights at a time.

    `cost` counts from the last `count`. A layer that runs is not let go; with several threads that run more layers
    than `most`, one waits for another.
    """

    def __init__(self, blocks: BlockList, files: LayerFiles, most: int, device: torch.device) -> None:
        if most < 1:
            raise ModelError(f"at least one layer has to be in memory to run; {most} were allowed")
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
        self._resident: dict[int, None] = {}  # the one that was used last stands last
        self._ahead: dict[int, Future[dict[str, Tensor]]] = {}
        self._running: Counter[int] = Counter()
        self._changed = threading.Condition(threading.RLock())
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="layerwise-reads-layers")
        for layer, block in enumerate(self._blocks):
            block.register_forward_pre_hook(partial(self._before, layer))
            block.register_forward_hook(partial(self._after, layer), always_call=True)
            vars(block)[_READER] = partial(self.read, layer)

    @property
    def bytes(self) -> int:
        return sum(self.sizes[layer] for layer in (*self._resident, *self._ahead))

    def __deepcopy__(self, memo: Any) -> Any:
        raise ModelError(
            "a model whose layers are read from the disk cannot be copied; load it whole, without --resident-layers"
        )

    def release_all(self) -> None:
        for layer in tuple(self._resident):
            self.release(layer)

    def count(self) -> ReadingCost:
        with self._changed:
            self.release_all()
            self.cost = ReadingCost()
            return self.cost

    def read(self, layer: int) -> None:
        """See to it that the layer is in memory; what has to make room for it is let go."""
        with self._changed:
            early = self._ahead.get(layer)
            if early is not None and early.done() and early.exception() is not None:
                del self._ahead[layer]
            while layer not in self._resident:
                if layer in self._ahead:
                    # Removed before its result is known: the next call repeats a read that fails.
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
        """Let the weights of a layer go; the parameters that stand for them are as before."""
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
        elif self._ahead:  # it is not needed, so its error does not matter
            wait([self._ahead.popitem()[1]])
        else:
            self._changed.wait()

    def _before(self, layer: int, *_: Any) -> None:
        with self._changed:
            self.read(layer)
            self._running[layer] += 1

    def _after(self, layer: int, *_: Any) -> None:
        with self._changed:
            self._running[layer] = max(0, self._running[layer] - 1)  # what came before may have failed
            self._changed.notify_all()


def put_parameters(block: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
    for path, parameter in parameters.items():
        module, _, name = path.rpartition(".")
        block.get_submodule(module)._parameters[name] = parameter
