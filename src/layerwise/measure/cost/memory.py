"""Memory of a model at inference, and peak memory of the process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from layerwise.stack.inputs import evaluating


@dataclass(frozen=True, slots=True)
class InferenceMemory:
    """Memory of a model at inference, in bytes.

    Args:
        weights: Parameters and buffers; tied ones count once.
        states: Peak of the hidden states: the input of the first layer and the outputs of all layers.
        activations: Peak of the results of all operations, without the workspace of kernels.
        allocated: Peak of the accelerator's allocator, or None on a CPU.
    """

    weights: int
    states: int
    activations: int
    allocated: int | None = None


def inference_memory(
    model: nn.Module, layers: Sequence[nn.Module], run: Callable[[], object], device: torch.device
) -> InferenceMemory:
    """Measure the memory of a forward pass `run()`. The first argument and the output of each layer are hidden states.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    >>> inputs = torch.zeros(1, 4)
    >>> inference_memory(model, list(model), lambda: model(inputs), torch.device("cpu"))
    InferenceMemory(weights=160, states=48, activations=32, allocated=None)
    """
    with evaluating(model), torch.inference_mode():
        states = _states(layers, run)
        with LiveBytes(chain(model.parameters(), model.buffers())) as live:
            run()
        allocated = _allocated(run, device) if device.type == "cuda" else None
    return InferenceMemory(weight_bytes(model), states, live.most, allocated)


def weight_bytes(model: nn.Module) -> int:
    storages = (tensor.untyped_storage() for tensor in chain(model.parameters(), model.buffers()))
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Track the bytes of tensors that were created within the context and still exist; `most` is their peak.

    Tensors in `known` are not counted.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = {_reference(tensor) for tensor in known}
        self.alive: dict[StorageWeakRef, int] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Inputs that no operation within returned existed before.
        self.known |= {each for each in map(_reference, _tensors((args, kwargs))) if each not in self.alive}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            reference = _reference(tensor)
            if reference not in self.known:
                self.alive[reference] = tensor.untyped_storage().nbytes()
        self.alive = _still_alive(self.alive)
        self.most = max(self.most, sum(self.alive.values()))
        return result


def _tensors(values: Any) -> list[Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, Tensor)]


def _reference(tensor: Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def _still_alive(sizes: dict[StorageWeakRef, int]) -> dict[StorageWeakRef, int]:
    return {each: size for each, size in sizes.items() if not each.expired()}  # type: ignore[no-untyped-call]


def _states(layers: Sequence[nn.Module], run: Callable[[], object]) -> int:
    alive: dict[StorageWeakRef, int] = {}
    most = 0

    def note(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal most
        returned = output[0] if isinstance(output, tuple) else output
        for state in (inputs[0], returned):
            alive[_reference(state)] = state.untyped_storage().nbytes()
        most = max(most, sum(_still_alive(alive).values()))

    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return most


def _allocated(run: Callable[[], object], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device))


_KIB = 1024


def peak_bytes() -> int:
    """Return the peak memory since `reset_peak`: the memory allocated on CUDA or, without CUDA, the resident memory."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    if status.is_file():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * _KIB
    if sys.platform == "win32":
        return 0
    import resource

    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(highest) * (1 if sys.platform == "darwin" else _KIB)


def reset_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # outside Linux the peak counts from the start of the process
