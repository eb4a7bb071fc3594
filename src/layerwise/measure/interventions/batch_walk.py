"""One batch on its way through a graph whose nodes interventions change; its states may wait on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.activations.padding import captured_batch, counted_tokens
from layerwise.plan import Sublayer
from layerwise.stack import Capture, Stack
from layerwise.stack.executors.graph import Apply as Node
from layerwise.stack.executors.graph import Graph, GraphExecutor


@dataclass(frozen=True)
class CleanBatch:
    """One batch in the original model: the state before the layer, and which tokens count.

    `half` (batch,) is the half of the text of each window. Halves share no document (no window if documents are few),
    so replacements are learned on other text than they are evaluated on.
    """

    state: Tensor
    captured: Capture
    counted: Tensor
    half: Tensor


Apply = Callable[[CleanBatch], Tensor]
"""The state after a layer that does something else, from a batch before it."""


class BatchWalk:
    """One batch on its way through the graph; between its turns its states are in a `folder`, if there is one."""

    def __init__(
        self, stack: Stack, batch: AnyBatch, graph: Graph, half: frozenset[Window], folder: Path | None
    ) -> None:
        self.stack = stack
        self.batch = batch
        self.folder = folder
        captured = captured_batch(stack, batch)
        self._kept: Capture | None = captured
        self.half = torch.tensor([window in half for window in batch.windows], device=captured.state.device)
        self.counted = counted_tokens(captured.inputs, captured.state)
        self.clean = graph.untouched()
        self.apply: Apply | None = None
        self.walk = GraphExecutor(graph, self._layer, captured.state, change=self._change, watch=self._check)
        self.away: dict[int, Path] = {}
        if folder is not None:
            folder.mkdir()
        for _ in self.walk.walk((0,)):
            pass
        self._put_away()

    @property
    def captured(self) -> Capture:
        if self._kept is None:
            self._kept = captured_batch(self.stack, self.batch)
        return self._kept

    def states(self, step: Sequence[int], absent: set[int], apply: Apply | None) -> Iterator[tuple[int, Tensor]]:
        """Compute a step but what is `absent`, a changed node by `apply`; yields the node and state of every end."""
        self.apply = apply
        self.walk.live_states |= {index: self._state(index) for index in self.away}
        self.walk.leave_out(index for index in step if index in absent)
        yield from self.walk.walk(index for index in step if index not in absent)
        self._put_away()

    def at(self, node: int) -> CleanBatch:
        captured = self.captured
        if self.folder is not None:
            self._kept = None  # it takes more than the state, and whoever looks at all batches looks at one at a time
        return CleanBatch(self._state(node), captured, self.counted, self.half)

    def _state(self, node: int) -> Tensor:
        if node not in self.away:
            return self.walk.live_states[node]
        return load_file(self.away[node])["state"].to(self.counted.device)

    def _put_away(self) -> None:
        if self.folder is None:
            return
        for index in self.away.keys() - self.walk.live_states.keys():
            self.away.pop(index).unlink()
        for index in self.walk.live_states.keys() - self.away.keys():
            self.away[index] = self.folder / str(index)
            save_file({"state": self.walk.live_states[index].contiguous().cpu()}, self.away[index])
        self.walk.live_states.clear()
        self._kept = None
        self.walk.root = torch.empty(0, device="cpu")

    def _layer(self, layer: int, state: Tensor, part: Sublayer | None, source: str | None) -> Tensor:
        return self.stack.apply(layer, state, self.captured, part, source)

    def _change(self, node: Node, state: Tensor) -> Tensor:
        assert self.apply is not None, "a changed node begins a step, and is prepared for it"
        after = self.apply(CleanBatch(state, self.captured, self.counted, self.half))
        return after if after is state else self.stack.note(node.layer, state, after)

    def _check(self, index: int, state: Tensor) -> None:
        node = self.walk.graph.nodes[index]
        if index not in self.clean or not isinstance(node, Node):
            return
        finite = state.reshape(*state.shape[:2], -1).isfinite().all(dim=2) | ~self.counted
        if not finite.all():
            document = self.batch.windows[int((~finite).any(dim=1).nonzero()[0])].document
            raise MeasureError(
                f"the model's own state after layer {node.layer} is not finite on document {document!r}; "
                "check the checkpoint, or use --dtype float32"
            )


@dataclass(frozen=True)
class CleanBatches(Sequence[CleanBatch]):
    walks: Sequence[BatchWalk]
    node: int

    def __len__(self) -> int:
        return len(self.walks)

    def __getitem__(self, number: Any) -> Any:
        return self.walks[number].at(self.node)
