"""Learned layer weights: every layer reads a weighted sum of all previous states instead of only the last one.

    x_n = sum_{i<=n} alpha[n, i] h_i          h_0 the embedding output, h_{i+1} the output of layer i
    softmax    alpha = softmax(a): rows sum to one (ELC-BERT, Charpentier and Samuel 2023)
    free       alpha = a, of any sign, initially the identity (DenseFormer, Pagliardini et al. 2024)

If a plan skips a layer, the weight of its output is divided among the other states of the row in proportion to their
weights (softmax), or added to the weight of the latest state before it (free). `attach` adds the module to a model.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softmax

from layerwise.errors import PlanError, TrainError
from layerwise.plan import LayerWeights, Plan
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.capture import read_state, returned_state, with_returned_state, with_state
from layerwise.stack.history import DepthHistory
from layerwise.train.methods import LayerMixingOptions
from layerwise.train.position import position_of

NAME = str(LayerMixingOptions.MODULE)
"""Name of the submodule, and prefix of its parameters."""


class LayerMixing(nn.Module):
    """Layer weights alpha of a model with `depth` layers.

    `raw` has the learned scalars, and `kept` is false for removed weights. Both have the shape `(rows, depth + 1)`.
    There is one row per layer; kind `free` has another row for the output of the model.
    """

    raw: nn.Parameter
    kept: Tensor

    def __init__(self, depth: int, options: LayerMixingOptions) -> None:
        super().__init__()
        self.depth = depth
        self.options = options
        readers = depth + (options.kind == "free")
        eye = torch.eye(depth + 1)[:readers]
        self.raw = nn.Parameter(torch.zeros_like(eye) if options.initialization == "zero" else eye)
        self.register_buffer("kept", torch.ones_like(eye, dtype=torch.bool).tril())

    @property
    def renormalizes(self) -> bool:
        return self.options.kind == "softmax"

    def layer_weights(self) -> Tensor:
        """Return alpha `(rows, depth + 1)`, which is lower triangular and differentiable."""
        if self.options.kind == "free":
            return self.raw * self.kept
        return softmax(self.raw.masked_fill(~self.kept, -torch.inf), dim=-1)

    def edges(self) -> LayerWeights:
        return LayerWeights.of(self.layer_weights().tolist(), self.depth)

    @torch.no_grad()
    def set_edges(self, edges: LayerWeights) -> None:
        """Set the layer weights to `edges`, and remove all weights that are not in `edges`.

        Raises:
            PlanError: If `edges` has another shape, or its rows cannot be the result of a softmax.
        """
        if (edges.depth, len(edges.rows)) != (self.depth, len(self.raw)):
            raise PlanError(
                f"edges must have {self.depth} layers and {len(self.raw)} rows, got {edges.depth} and "
                f"{len(edges.rows)}."
            )
        matrix = torch.tensor(edges.matrix(), dtype=torch.float64, device="cpu")
        kept = torch.zeros(matrix.shape, dtype=torch.bool, device="cpu")
        for edge in edges:
            kept[edge] = True
        if self.options.kind == "softmax":
            if (matrix[kept] <= 0).any() or ((matrix.sum(dim=1) - 1).abs() > 1e-3).any():
                raise PlanError("softmax layer weights must be positive, and each row must sum to 1. Rescale the rows.")
            matrix = matrix.log()
        elif matrix[0, 0] != 1:
            raise PlanError(f"layer 0 must read the embedding with weight 1, got {matrix[0, 0]:g}.")
        self.raw.copy_(matrix.masked_fill(~kept, 0.0))
        self.kept.copy_(kept)

    def read(self, alpha: Tensor, reader: int, record: DepthHistory) -> Tensor:
        if reader == 0:
            return record.states[0]
        weights = alpha[reader, : reader + 1].to(record.states[0].dtype)
        present = [source for source in record.sources if source <= reader]
        return record.read(weights, "inherit" if self._inherits(reader, present) else "renormalize")

    def _inherits(self, reader: int, present: list[int]) -> bool:
        return self.options.kind == "free" or not bool(self.kept[reader, present].any())


class _Pass(threading.local):
    def __init__(self, stack: Stack, wiring: LayerMixing) -> None:
        self.stack = stack
        self.wiring = wiring
        self.alpha: Tensor | None = None
        self.record: DepthHistory | None = None
        self.needed: tuple[int | None, ...] | None = None

    def begin(self, *_: Any) -> None:
        plan = self.stack.running
        if plan is not None:
            refuse_groups(plan, self.stack)
        self.alpha, self.record = self.wiring.layer_weights(), None
        in_order = plan is None or plan == Plan.identity(self.stack.depth)
        self.needed = self.wiring.edges().last_readers() if in_order and not torch.is_grad_enabled() else None

    def end(self, *_: Any) -> None:
        self.alpha = self.record = None

    def before(self, layer: int, handed: Tensor) -> Tensor:
        if self.alpha is None:
            raise TrainError(
                f"layer {layer} of {self.stack.source.name} has learned layer weights, so it cannot run on its own. "
                "Use `stack.under(plan)`."
            )
        if self.record is None:
            self.record = DepthHistory.of(handed)
        return self.wiring.read(self.alpha, layer, self.record)

    def after(self, layer: int, block: nn.Module, returned: Tensor) -> Tensor:
        if self.alpha is None or self.record is None:  # `before` raised an error
            return returned
        self.record = self._still_needed(self.record.then(layer, returned), layer)
        last = position_of(self.stack, block) == len(block_list(self.stack.model, self.stack.path)) - 1
        if not last or len(self.alpha) == self.stack.depth:
            return returned
        return self.wiring.read(self.alpha, self.stack.depth, self.record)

    def _still_needed(self, record: DepthHistory, layer: int) -> DepthHistory:
        if self.needed is None:
            return record
        return record.select([source for source in record.sources if (self.needed[source] or 0) > layer])


def attach(stack: Stack, options: LayerMixingOptions) -> LayerMixing:
    """Add newly initialized layer weights to the model of `stack`.

    After that, the model can only be run as a whole, with `stack.under`. Plans with parallel groups or sublayers raise
    `TrainError`.
    """
    wiring = LayerMixing(stack.depth, options).to(stack.device, stack.dtype)
    stack.model.add_module(NAME, wiring)
    flight = _Pass(stack, wiring)
    owner = stack.model.get_submodule(stack.path.rpartition(".")[0])
    owner.register_forward_pre_hook(flight.begin)
    owner.register_forward_hook(flight.end, always_call=True)
    for layer, block in enumerate(block_list(stack.model, stack.path)):
        _rewire(stack, flight, layer, block)
    return wiring


def of(model: nn.Module) -> LayerMixing | None:
    result = getattr(model, NAME, None)
    return result if isinstance(result, LayerMixing) else None


def refuse_groups(plan: Plan, stack: Stack) -> None:
    if plan.has_sublayers() or any(step.opens for step in plan.steps()):
        raise TrainError(
            f"{stack.source.name} has learned layer weights, so its plans must have no groups or sublayers, got "
            f'{plan}. Pass, for example, "0-3 6-11".'
        )


def _rewire(stack: Stack, flight: _Pass, layer: int, block: nn.Module) -> None:
    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if position_of(stack, module) is None:
            raise TrainError(
                f"layer {layer} of {stack.source.name} was trained with layer weights, so it cannot be merged into "
                "another model. Merge a model without them."
            )
        return with_state(args, kwargs, flight.before(layer, read_state(args, kwargs)))

    def after(module: nn.Module, args: Any, output: Any) -> Any:
        return with_returned_state(output, flight.after(layer, module, returned_state(output)))

    block.register_forward_pre_hook(before, with_kwargs=True)
    block.register_forward_hook(after)
