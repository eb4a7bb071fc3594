"""Fine-tune a damaged model on one text and evaluate its loss on another, reproducibly.

Training happens in a float32 working copy without dropout; runs of one seed differ only in their initial weights.
If only one layer is trained, the states before it are computed once for all runs of that layer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import EvalData, minibatches, sample, split
from layerwise.measure.language.loss import window_losses
from layerwise.measure.recovery.damage import generator
from layerwise.measure.recovery.loss_curve import LossCurve
from layerwise.stack import Capture, Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.inputs import main_tensor
from layerwise.stack.quantization import refuse_quantized

Scope = Literal["layer", "model"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

LARGEST_BATCH = 1024


@dataclass(frozen=True, slots=True)
class RecoveryRecipe:
    """How a damaged model is fine-tuned and judged. Rates and norms are AdamW's; tolerances are in nats a token."""

    steps: int = 16
    every: int = 4
    """Steps between evaluations; the last step is always evaluated."""
    layer_rate: float = 5e-4
    model_rate: float = 5e-5
    """The learning rate where everything is: small enough not to harm a twin that has nothing to recover from."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    batch_tokens: int = 192
    evaluation_tokens: int = 600
    tolerance: float = 0.05
    """Nats/token above its twin at which a model has recovered: half of the initial damage of `equal_damage`."""
    equal_damage: float = 0.1
    """What `equal_damage` costs on the evaluation text before fine-tuning, met within `equal_tolerance`."""
    equal_tolerance: float = 0.005

    def __post_init__(self) -> None:
        for name in ("steps", "every", "batch_tokens", "evaluation_tokens"):
            if getattr(self, name) < 1:
                raise MeasureError(
                    f"a recovery recipe with {name}={getattr(self, name)} measures nothing: use 1 or more"
                )

    @property
    def evaluations(self) -> tuple[int, ...]:
        """The steps at which the loss is evaluated, 0 and the last among them.

        >>> RecoveryRecipe(steps=10, every=4).evaluations
        (0, 4, 8, 10)
        """
        return (*range(0, self.steps, self.every), self.steps)


@dataclass(frozen=True, slots=True)
class _Point:
    batch: AnyBatch
    captured: Capture
    state: Tensor


@dataclass(frozen=True, slots=True)
class _Points:
    training: tuple[_Point, ...]
    evaluation: tuple[_Point, ...]


class RecoveryTraining:
    """A working copy of a model with its recovery text and, from other documents, its evaluation text."""

    def __init__(self, stack: Stack, data: EvalData, recipe: RecoveryRecipe, seed: int) -> None:
        recovery, evaluation = split(data, seed)
        self.recipe = recipe
        self.evaluation = sample(evaluation, recipe.evaluation_tokens, seed)
        self._training = minibatches(recovery, recipe.batch_tokens)
        self._scored_per_batch = recovery.tokens / len(self._training)
        self._evaluation = minibatches(self.evaluation, LARGEST_BATCH)
        self._original = stack.model
        self._copy = _working_copy(stack)
        self._layer = 0
        self._points: _Points | None = None
        with torch.no_grad():
            # The copy is proved to be a stack now, while its weights are the model's own.
            self._reached(self._training[:1], 0)

    def trajectory(self, layer: int, scope: Scope, weights: Mapping[str, Tensor], seed: Sequence[int]) -> LossCurve:
        """Fine-tune with `weights` in place of the layer's own (none: the undamaged twin); return the evaluated losses.

        Scope `layer` trains only that layer, `model` everything. A run ends early at the first non-finite loss.
        """
        self._begin(layer, weights)
        trained = self._trained(layer, scope)
        recipe = self.recipe
        rate = recipe.model_rate if scope == "model" else recipe.layer_rate
        optimiser = torch.optim.AdamW(trained, lr=rate, betas=recipe.betas, weight_decay=recipe.weight_decay)
        order = _order(len(self._training), recipe.steps, seed)
        losses: list[float] = []
        for step in range(recipe.steps + 1):
            if step in recipe.evaluations:
                nll = self._evaluated(layer, scope)
                if not math.isfinite(nll):
                    break
                losses.append(nll)
            if step < recipe.steps:
                self._step(layer, scope, order[step], optimiser, trained)
        return LossCurve(recipe.evaluations, tuple(losses))

    def loss(self, layer: int, weights: Mapping[str, Tensor]) -> float:
        """NLL in nats a token on the evaluation text before any step, with `weights` in the layer's place."""
        self._begin(layer, weights)
        return self._nll(self._before(layer).evaluation, layer)

    def _begin(self, layer: int, weights: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for mine, own in zip(self._copy.model.parameters(), self._original.parameters(), strict=True):
                mine.copy_(own)
            block = dict(self._block(layer).named_parameters())
            for name, value in weights.items():
                block[name].copy_(value)

    def _trained(self, layer: int, scope: Scope) -> list[nn.Parameter]:
        self._copy.model.requires_grad_(scope == "model")
        module = self._copy.model if scope == "model" else self._block(layer).requires_grad_(True)
        return list(module.parameters())

    def _step(
        self, layer: int, scope: Scope, index: int, optimiser: torch.optim.Optimizer, trained: list[nn.Parameter]
    ) -> None:
        optimiser.zero_grad()
        if scope == "model":
            (point,), start = self._reached((self._training[index],), 0), 0
        else:
            point, start = self._before(layer).training[index], layer
        logits = main_tensor(self._copy.finish(self._arrived(point, start), point.captured.inputs))
        targets = point.batch.targets.to(logits.device)
        # Not the mean of the batch: a batch of short answers must not pull as hard as one of running text.
        loss = functional.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), reduction="sum")
        loss = loss / self._scored_per_batch
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained, self.recipe.max_grad_norm)
        optimiser.step()

    def _evaluated(self, layer: int, scope: Scope) -> float:
        if scope == "layer":
            return self._nll(self._before(layer).evaluation, layer)
        with torch.no_grad():
            return self._nll(self._reached(self._evaluation, 0), 0)

    @torch.no_grad()
    def _nll(self, points: Sequence[_Point], start: int) -> float:
        losses = [
            loss for point in points for loss in window_losses(self._copy, self._arrived(point, start), point.batch)
        ]
        return math.fsum(loss.nll for loss in losses) / sum(loss.tokens for loss in losses)

    def _arrived(self, point: _Point, start: int) -> Tensor:
        state = point.state
        for layer in range(start, self._copy.depth):
            state = self._copy.apply(layer, state, point.captured)
        return state

    def _before(self, layer: int) -> _Points:
        if self._points is None or self._layer != layer:
            with torch.no_grad():
                self._points = _Points(
                    tuple(self._reached(self._training, layer)),
                    tuple(self._reached(self._evaluation, layer)),
                )
            self._layer = layer
        return self._points

    def _reached(self, batches: Sequence[AnyBatch], layer: int) -> list[_Point]:
        points = []
        for batch in batches:
            captured = self._copy.capture(**batch.inputs)
            state = captured.state
            for earlier in range(layer):
                state = self._copy.apply(earlier, state, captured)
            points.append(_Point(batch, captured, state))
        return points

    def _block(self, layer: int) -> nn.Module:
        return block_list(self._copy.model, self._copy.path)[layer]


def _order(count: int, steps: int, seed: Sequence[int]) -> list[int]:
    draw = generator(*seed)
    order: list[int] = []
    while len(order) < steps:
        order += torch.randperm(count, generator=draw, device="cpu").tolist()
    return order[:steps]


def _working_copy(stack: Stack) -> Stack:
    refuse_quantized(stack.model, "train a copy")
    model = copy.deepcopy(stack.model).float().eval()
    return Stack(model, stack.path, tokenizer=stack.tokenizer, source=stack.source)
