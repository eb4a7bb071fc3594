"""Damage a layer, fine-tune the model on one text, and evaluate its loss on another."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import EvalData, minibatches, sample, split
from layerwise.measure.language.loss import window_losses
from layerwise.measure.recovery.loss_curve import LossCurve
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.stack import Capture, Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.inputs import main_tensor
from layerwise.stack.quantization import refuse_quantized

Scope = Literal["layer", "model"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

MAX_BATCH_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class RecoveryRecipe:
    """Hyperparameters of fine-tuning (AdamW) and of evaluation. Tolerances are in nats/token."""

    steps: int = 16
    every: int = 4
    """Steps between evaluations; the last step is always evaluated."""
    layer_rate: float = 5e-4
    model_rate: float = 5e-5
    """Learning rate if the full model is trained. It is too small to harm an undamaged model."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    batch_tokens: int = 192
    evaluation_tokens: int = 600
    tolerance: float = 0.05
    """A model has recovered once its loss is at most this far above the control; half of `equal_damage`."""
    equal_damage: float = 0.1
    """Loss increase, within `equal_tolerance`, that the damage of the same name causes before fine-tuning."""
    equal_tolerance: float = 0.005

    def __post_init__(self) -> None:
        for name in ("steps", "every", "batch_tokens", "evaluation_tokens"):
            if getattr(self, name) < 1:
                raise MeasureError(f"{name} must be at least 1, got {getattr(self, name)}.")

    @property
    def evaluations(self) -> tuple[int, ...]:
        """The steps at which the loss is evaluated, including 0 and the last step.

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
    """Fine-tune a damaged model reproducibly, and evaluate it on other documents.

    A float32 copy is trained without dropout. Runs with the same seed see the same batches and differ only in the
    initial weights. If only one layer is trained, the hidden states before it are computed once for all its runs.
    """

    def __init__(self, stack: Stack, data: EvalData, recipe: RecoveryRecipe, seed: int) -> None:
        recovery, evaluation = split(data, seed)
        self.recipe = recipe
        self.evaluation = sample(evaluation, recipe.evaluation_tokens, seed)
        self._training = minibatches(recovery, recipe.batch_tokens)
        self._scored_per_batch = recovery.tokens / len(self._training)
        self._evaluation = minibatches(self.evaluation, MAX_BATCH_TOKENS)
        self._original = stack.model
        self._copy = _working_copy(stack)
        self._layer = 0
        self._points: _Points | None = None
        with torch.no_grad():
            # Verifies the copy while it has the original weights.
            self._run_to(self._training[:1], 0)

    def trajectory(self, layer: int, scope: Scope, weights: Mapping[str, Tensor], seed: Sequence[int]) -> LossCurve:
        """Load `weights` into the layer, fine-tune, and return the losses at each evaluation.

        Empty `weights` give the undamaged control. The scope `layer` trains only this layer, `model` the full model. A
        run ends at the first non-finite loss.
        """
        self._load_weights(layer, weights)
        trained = self._select_trained(layer, scope)
        recipe = self.recipe
        rate = recipe.model_rate if scope == "model" else recipe.layer_rate
        optimizer = torch.optim.AdamW(trained, lr=rate, betas=recipe.betas, weight_decay=recipe.weight_decay)
        order = _order(len(self._training), recipe.steps, seed)
        losses: list[float] = []
        for step in range(recipe.steps + 1):
            if step in recipe.evaluations:
                nll = self._evaluate(layer, scope)
                if not math.isfinite(nll):
                    break
                losses.append(nll)
            if step < recipe.steps:
                self._step(layer, scope, order[step], optimizer, trained)
        return LossCurve(recipe.evaluations, tuple(losses))

    def loss(self, layer: int, weights: Mapping[str, Tensor]) -> float:
        """Return the NLL in nats/token on the evaluation text before fine-tuning, with `weights` in the layer."""
        self._load_weights(layer, weights)
        return self._nll(self._states_before(layer).evaluation, layer)

    def _load_weights(self, layer: int, weights: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for parameter, original in zip(self._copy.model.parameters(), self._original.parameters(), strict=True):
                parameter.copy_(original)
            block = dict(self._block(layer).named_parameters())
            for name, value in weights.items():
                block[name].copy_(value)

    def _select_trained(self, layer: int, scope: Scope) -> list[nn.Parameter]:
        self._copy.model.requires_grad_(scope == "model")
        module = self._copy.model if scope == "model" else self._block(layer).requires_grad_(True)
        return list(module.parameters())

    def _step(
        self, layer: int, scope: Scope, index: int, optimizer: torch.optim.Optimizer, trained: list[nn.Parameter]
    ) -> None:
        optimizer.zero_grad()
        if scope == "model":
            (point,), start = self._run_to((self._training[index],), 0), 0
        else:
            point, start = self._states_before(layer).training[index], layer
        logits = main_tensor(self._copy.finish(self._run_from(point, start), point.captured.inputs))
        targets = point.batch.targets.to(logits.device)
        # Not the mean over the batch, so that a batch of short answers has less weight than one of running text.
        loss = functional.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), reduction="sum")
        loss = loss / self._scored_per_batch
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained, self.recipe.max_grad_norm)
        optimizer.step()

    def _evaluate(self, layer: int, scope: Scope) -> float:
        if scope == "layer":
            return self._nll(self._states_before(layer).evaluation, layer)
        with torch.no_grad():
            return self._nll(self._run_to(self._evaluation, 0), 0)

    @torch.no_grad()
    def _nll(self, points: Sequence[_Point], start: int) -> float:
        losses = [
            loss for point in points for loss in window_losses(self._copy, self._run_from(point, start), point.batch)
        ]
        return math.fsum(loss.nll for loss in losses) / sum(loss.tokens for loss in losses)

    def _run_from(self, point: _Point, start: int) -> Tensor:
        state = point.state
        for layer in range(start, self._copy.depth):
            state = self._copy.apply(layer, state, point.captured)
        return state

    def _states_before(self, layer: int) -> _Points:
        if self._points is None or self._layer != layer:
            with torch.no_grad():
                self._points = _Points(
                    tuple(self._run_to(self._training, layer)),
                    tuple(self._run_to(self._evaluation, layer)),
                )
            self._layer = layer
        return self._points

    def _run_to(self, batches: Sequence[AnyBatch], layer: int) -> list[_Point]:
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
    draw = seeded_generator(*seed)
    order: list[int] = []
    while len(order) < steps:
        order += torch.randperm(count, generator=draw, device="cpu").tolist()
    return order[:steps]


def _working_copy(stack: Stack) -> Stack:
    refuse_quantized(stack.model, "train a copy")
    model = copy.deepcopy(stack.model).float().eval()
    return Stack(model, stack.path, tokenizer=stack.tokenizer, source=stack.source)


Damage = Literal["noise_50", "equal_damage", "reinitialize"]
DAMAGES: tuple[Damage, ...] = get_args(Damage)

PUBLISHED_SCALE = 0.5
"""Scale of the noise in `noise_50`, in standard deviations of the weights."""

MAX_SCALE = 64.0
MIN_SCALE = 2.0**-12
"""Bounds of the scale that `find_equal_scale` searches for."""

MAX_BISECTIONS = 24
"""Maximum number of bisections, which find the scale to a relative error of 1e-7."""


def seeded_generator(*seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1))


def noise_direction(weights: Mapping[str, Tensor], seed: Sequence[int]) -> dict[str, Tensor]:
    """Draw noise N(0, std(W)^2) in float32 for every tensor W, where std is over all entries of W.

    The noise depends on `seed`, the names and the shapes. Raises `MeasureError` if a tensor is not finite.
    """
    draw = seeded_generator(*seed)
    direction = {}
    for name, tensor in sorted(weights.items()):
        spread = to_float64_cpu(tensor).std(correction=0)
        if not spread.isfinite():
            raise MeasureError(f"{name} must be finite, got NaN or infinity. Check the checkpoint.")
        drawn = torch.randn(tensor.shape, generator=draw, dtype=torch.float32, device="cpu")
        direction[name] = (drawn * spread.float()).to(tensor.device)
    return direction


def add_noise(weights: Mapping[str, Tensor], direction: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    return {name: tensor.float() + scale * direction[name] for name, tensor in weights.items()}


def find_equal_scale(damage_at: Callable[[float], float], target: float, tolerance: float) -> float | None:
    """Find a scale at which `damage_at(scale)` is within `tolerance` of `target`, or return None.

    The scale is doubled or halved from 0.5, then bisected geometrically. Non-finite damage counts as too large.

    >>> round(find_equal_scale(lambda scale: scale**2, target=9.0, tolerance=0.01), 3)
    3.0
    """

    def too_much(scale: float) -> tuple[bool, bool]:
        damage = damage_at(scale)
        return not damage < target, math.isfinite(damage) and abs(damage - target) <= tolerance

    scale = PUBLISHED_SCALE
    above, hit = too_much(scale)
    factor = 0.5 if above else 2.0
    beyond = above
    while not hit and beyond == above:
        scale *= factor
        if not MIN_SCALE <= scale <= MAX_SCALE:
            return None
        beyond, hit = too_much(scale)
    low, high = sorted((scale, scale / factor))
    for _ in range(MAX_BISECTIONS):
        if hit:
            return scale
        scale = math.sqrt(low * high)
        above, hit = too_much(scale)
        low, high = (low, scale) if above else (scale, high)
    return scale if hit else None
