"""The states behind a frozen prefix, kept on disk by the number of the example, and read in place of computing them.

Layers that are frozen, above nothing that learns, give the same states whenever an example is read, so the second
reading of an example need not run them: the first layer that learns is handed what was kept. That holds where an
example is always the same, which augmentation undoes, and where the prefix leaves nothing to chance, which dropout
undoes; both are refused, dropout by behaviour: two passes in training mode must agree.

    FOLDER/about.json    what the states are of: base, data, recipe, seed; and the phase and the weights of the prefix
    FOLDER/states        float32 (examples, positions, width), in the order of the training examples
    FOLDER/sums          uint64 (examples): the step that kept a row, and its checksum; 0 for rows that are not kept

The states of one phase are kept at a time, and are gone when it ends. A row is kept the first time its example is read;
every pass goes on from what is kept, also the one that keeps it. A training that resumes lets go what was kept behind
its checkpoint, so it computes what it would have computed and reads the bits that it would have read. A row that is
torn or was never written has no checksum that fits, and is computed again.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from numpy.typing import NDArray
from torch import Tensor, nn

from layerwise.data.splits import Example, Examples
from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.results.checked import read
from layerwise.results.run import write_whole
from layerwise.stack import Stack
from layerwise.stack.executors.state import read_state, with_state
from layerwise.stack.history.tracker import reads_history

NUMBER = "example"
"""The key of the numbers of the examples in a batch."""

_ABOUT, _STATES, _SUMS = "about.json", "states", "sums"
_STEP = 32
"""The bit from which a sum holds the number of the step, from 1, so that no sum of a row that is kept is 0."""


class Numbered(Examples):
    """`examples`, each with its number."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return {**self.examples[index], NUMBER: torch.tensor(index)}


@dataclass(frozen=True, slots=True)
class NumberedBatches:
    """What `collate` makes of examples, and their numbers where they have one."""

    collate: Callable[[Sequence[Example]], Example]

    def __call__(self, examples: Sequence[Example]) -> Example:
        """One batch."""
        batch = self.collate([{key: each for key, each in example.items() if key != NUMBER} for example in examples])
        numbers = [example[NUMBER] for example in examples if NUMBER in example]
        return {**batch, NUMBER: torch.stack(numbers)} if numbers else batch


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is kept: as many rows as there are examples, each of `positions` states of so many numbers."""

    rows: int
    positions: int
    width: int

    @property
    def bytes(self) -> int:
        """What both files take."""
        return self.rows * (self.positions * self.width * 4 + 8)


class PrefixCache:
    """The states of one phase at a time, in `folder`.

    `training` says which training they belong to. Raises `TrainError` for a folder whose states are of something else,
    and for one with too little room, before anything is written.
    """

    def __init__(self, folder: Path, training: Mapping[str, Any], extent: Extent) -> None:
        self.folder = folder
        self.training = dict(training)
        self.extent = extent
        self._states: NDArray[np.float32] | None = None
        self._sums: NDArray[np.uint64] | None = None
        self._refuse_others()
        self._refuse_too_small()

    def open(self, phase: str, weights: str, step: int) -> None:
        """Keep the states of `phase` from `step` on; go on with those in the folder that are of the same `weights` and
        were kept before it.
        """
        about = {**self.training, "phase": phase, "weights": weights, "extent": [*self._shape]}
        state = PartialState()
        with state.local_main_process_first():
            if self._about() != about:
                self._make(about)
            self._states = np.memmap(self.folder / _STATES, np.float32, "r+", shape=self._shape)
            self._sums = np.memmap(self.folder / _SUMS, np.uint64, "r+", shape=(self.extent.rows,))
            if state.is_local_main_process:  # the others come when it may have kept the first states of this step
                self._sums[self._sums >> np.uint64(_STEP) > step] = 0

    def close(self) -> None:
        """Let the states go, on disk too."""
        if self._states is None:
            return
        self._states = self._sums = None
        state = PartialState()
        state.wait_for_everyone()
        if state.is_local_main_process:
            self._discard()

    def read(self, numbers: Sequence[int]) -> Tensor | None:
        """The rows of these examples, float32 (examples, positions, width), or `None` if one is not kept."""
        assert self._states is not None, "states are read while a phase is open"
        rows = self._states[list(numbers)]
        return torch.from_numpy(rows) if all(map(self._fits, numbers, rows)) else None

    def write(self, numbers: Sequence[int], states: Tensor, lengths: Sequence[int], step: int) -> None:
        """Keep at `step` what is not kept yet of `states` (examples, seq, width), of each example its first `lengths`
        states.
        """
        assert self._states is not None, "states are written while a phase is open"
        assert self._sums is not None, "states are written while a phase is open"
        values = states.detach().to("cpu", torch.float32).numpy()
        for number, row, length in zip(numbers, values, lengths, strict=True):
            if not self._fits(number, self._states[number]):
                self._sums[number] = 0
                self._states[number] = 0
                self._states[number, :length] = row[:length]
                self._sums[number] = (step + 1) << _STEP | _sum(self._states[number])

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.extent.rows, self.extent.positions, self.extent.width

    def _fits(self, number: int, row: NDArray[np.float32]) -> bool:
        assert self._sums is not None
        kept = int(self._sums[number])
        return kept != 0 and kept & (1 << _STEP) - 1 == _sum(row)

    def _about(self) -> dict[str, Any] | None:
        path = self.folder / _ABOUT
        description = read(path) if path.exists() else None
        return description if isinstance(description, dict) else None

    def _make(self, about: Mapping[str, Any]) -> None:
        self._discard()
        self.folder.mkdir(parents=True, exist_ok=True)
        _reserve(self.folder / _SUMS, self.extent.rows * 8)
        _reserve(self.folder / _STATES, self.extent.bytes - self.extent.rows * 8)
        write_whole(self.folder / _ABOUT, (json.dumps(about) + "\n").encode())

    def _discard(self) -> None:
        for name in (_ABOUT, _SUMS, _STATES):
            (self.folder / name).unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _refuse_others(self) -> None:
        about = self._about()
        for name, value in self.training.items():
            if about is not None and about.get(name) != value:
                raise TrainError(
                    f"{self.folder} keeps states of another training: its {name} differs; remove the "
                    "folder, or keep the states in another"
                )

    def _refuse_too_small(self) -> None:
        existing = next(each for each in (self.folder.absolute(), *self.folder.absolute().parents) if each.is_dir())
        held = sum(path.stat().st_size for name in (_STATES, _SUMS) if (path := self.folder / name).is_file())
        free = shutil.disk_usage(existing).free + held
        if free < self.extent.bytes:
            raise TrainError(
                f"the states of {self.extent.rows} examples, {self.extent.positions} x {self.extent.width} numbers "
                f"each, take {self.extent.bytes:,} bytes, and {self.folder} has {free:,} free; keep them in a folder "
                "with more room, or leave cached out of the schedule"
            )


class Substitution:
    """What a cached pass does at the first layer behind the prefix: hands it the states that are kept."""

    def __init__(self, cache: PrefixCache, numbers: Sequence[int], lengths: Sequence[int], step: int) -> None:
        self.cache = cache
        self.numbers = numbers
        self.lengths = lengths
        self.step = step
        self.rows = cache.read(numbers)

    def __call__(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A pre-hook: the call of the block with the states that are kept; those that were not are kept now."""
        handed = read_state(args, kwargs)
        kept = self.rows
        if kept is None:
            self.cache.write(self.numbers, handed, self.lengths, self.step)
            kept = self.cache.read(self.numbers)
            assert kept is not None, "what was written is read"
        return with_state(args, kwargs, kept[:, : handed.shape[1]].to(handed.device))

    @contextmanager
    def at(self, block: nn.Module) -> Iterator[None]:
        """Within the context `block` is handed what is kept."""
        hook = block.register_forward_pre_hook(self, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()


def extent_of(stack: Stack, plan: Plan, layer: int, batch: Mapping[str, Any], rows: int) -> Extent:
    """How much the states before `layer` take, `batch` being the longest example.

    Raises `TrainError` where they cannot be kept: states of other shapes than (examples, positions, width), layers
    that read more than the state before them, and a prefix with dropout.
    """
    first, second = (_state_before(stack, plan, layer, batch, chance) for chance in (0, 1))
    if not torch.allclose(first, second, equal_nan=True):
        raise TrainError(
            f"the layers before layer {layer} of {stack.source.name} give an example other states each time they "
            "train (dropout), so that they cannot be kept; set their dropout to 0, or leave cached out of the schedule"
        )
    if first.ndim != 3:
        raise TrainError(
            f"the states of {stack.source.name} have the shape {tuple(first.shape)}, and those that are kept are "
            "(examples, positions, width); leave cached out of the schedule"
        )
    return Extent(rows, first.shape[1], first.shape[2])


@torch.no_grad()
def _state_before(stack: Stack, plan: Plan, layer: int, batch: Mapping[str, Any], chance: int) -> Tensor:
    """The state that `layer` is handed in training mode, with dropout drawn from the seed `chance`."""
    states: list[Tensor] = []

    def note(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if reads_history(kwargs) or stack.sharing is not None:
            raise TrainError(
                f"the layers of {stack.source.name} read more than the state before them, so that keeping that one is "
                "not enough; leave cached out of the schedule"
            )
        states.append(read_state(args, kwargs))

    hook = stack.block(layer).register_forward_pre_hook(note, with_kwargs=True)
    before = stack.model.training
    try:
        with torch.random.fork_rng(), stack.under(plan, single_pass=True):
            torch.manual_seed(chance)
            stack.model.train()(**batch)
    finally:
        hook.remove()
        stack.model.train(before)
    return states[0]


def _reserve(path: Path, size: int) -> None:
    """A file of zeros, on a disk that has room for them: a mapped page that finds none would end the process."""
    with path.open("wb") as file:
        file.truncate(size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def _sum(row: NDArray[np.float32]) -> int:
    return zlib.crc32(np.ascontiguousarray(row).view(np.uint8).data)
