"""Growth training in the Hugging Face Trainer: apply a schedule of phases.

When a phase starts, weights are copied, reinitialized and scaled, and their optimizer state is reset. Before every
step, weights that are not trained are frozen; the optimizer skips them, so they have no weight decay either.

Embeddings and head are found by their gradients, not by name. The embeddings are the weights that the inputs of the
layers depend on; the head is the weights that map the last hidden state to the output. A weight that is both is tied.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import TrainerCallback

from layerwise.data.splits import Splits
from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.plan.samplers import Fixed, SeededSampler
from layerwise.plan.schedule import Phase
from layerwise.plan.schedule.cost import ModelCost, flops_per_token
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.checks.forward_trace import tensors
from layerwise.stack.inputs import evaluating, main_tensor
from layerwise.stack.weights import make_random_init
from layerwise.train.phases.step_schedule import StepSchedule
from layerwise.train.recipe import GrowthExtension
from layerwise.train.sharding import assign, reshard
from layerwise.train.trainer import PlanTrainer
from layerwise.train.training_log import median_step_seconds

Weights = tuple[nn.Parameter, ...]


@dataclass(frozen=True, slots=True)
class EmbeddingsAndHead:
    """Parameters before the layers and after them (`behind`), and the names of those that are both (`tied`).

    Unused parameters, such as a pooler, count as `behind`.
    """

    before: tuple[nn.Parameter, ...]
    behind: tuple[nn.Parameter, ...]
    tied: tuple[str, ...]


def find_embeddings_and_head(stack: Stack, inputs: Mapping[str, Any]) -> EmbeddingsAndHead:
    inside = {id(parameter) for parameter in block_list(stack.model, stack.path).parameters()}
    named = [(name, each) for name, each in stack.model.named_parameters() if id(each) not in inside]
    names, outside = [name for name, _ in named], [each for _, each in named]
    with evaluating(stack.model), torch.enable_grad():
        captured = stack.capture(**inputs)
        handed = [captured.state, *tensors([[call.args, call.kwargs] for call in captured.calls])]
        before = _reached(handed, outside)
        state = stack.changed(captured.state, lambda state: state.detach().requires_grad_())
        behind = _reached([main_tensor(stack.finish(state, captured.inputs))], outside)
    return EmbeddingsAndHead(
        before=tuple(each for each, is_reached in zip(outside, before, strict=True) if is_reached),
        behind=tuple(each for each, early, late in zip(outside, before, behind, strict=True) if late or not early),
        tied=tuple(name for name, early, late in zip(names, before, behind, strict=True) if early and late),
    )


def _reached(outputs: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> list[bool]:
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    roots = [output.sum() for output in outputs if output.requires_grad]
    if not (learning and roots):
        return [False] * len(parameters)
    gradients = torch.autograd.grad(roots, learning, allow_unused=True)
    reached = {id(each) for each, gradient in zip(learning, gradients, strict=True) if gradient is not None}
    return [id(parameter) in reached for parameter in parameters]


class GrowthRunner(TrainerCallback):
    """Trainer callback that applies a growth schedule to `stack` and returns the plan of each forward pass."""

    def __init__(self, stack: Stack, step_schedule: StepSchedule, cost: ModelCost, around: EmbeddingsAndHead) -> None:
        self.stack = stack
        self.step_schedule = step_schedule
        self.cost = cost
        # By name, because sharding replaces parameters.
        self._names = {id(weight): name for name, weight in stack.model.named_parameters() if weight.requires_grad}
        self._before, self._behind = self._named(around.before), self._named(around.behind)
        self._layers = [self._named(stack.block(layer).parameters()) for layer in range(stack.depth)]
        self.running = step_schedule.phase(0)

    def _named(self, weights: Iterable[nn.Parameter]) -> tuple[str, ...]:
        return tuple(self._names[id(weight)] for weight in weights if id(weight) in self._names)

    def _weights(self, names: Iterable[str]) -> Weights:
        return tuple(self.stack.model.get_parameter(name) for name in names)

    @property
    def before(self) -> Weights:
        return self._weights(self._before)

    @property
    def behind(self) -> Weights:
        return self._weights(self._behind)

    @property
    def layers(self) -> list[Weights]:
        return [self._weights(names) for names in self._layers]

    def at(self, step: int, number_of_pass: int = 0) -> Plan:
        self.running = self.step_schedule.resolve(step, number_of_pass)
        return Plan.of(self.running.running(self.stack.depth))

    def flops(self, inputs: Mapping[str, Any]) -> float:
        first = next(iter(inputs.values()))
        units = inputs["input_ids"].numel() if "input_ids" in inputs else len(first)
        return flops_per_token(self.running, self.cost) * units

    def on_step_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        reshard(self.stack.model)
        step = state.global_step
        phase = self.step_schedule.phase(step)
        if self.step_schedule.begins(step):
            self._enter(phase, optimizer)
        learning = self.step_schedule.learning(step)
        for layer, weights in enumerate(self.layers):
            _set_trainable(weights, layer in learning)
        _set_trainable(self.before, phase.embedding)
        _set_trainable(self.behind, phase.head)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.step_schedule.ends(state.global_step - 1):
            control.should_log = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step:
            entry = state.log_history[-1]
            entry["phase"] = self.step_schedule.phase(state.global_step - 1).name
            entry["flops"] = float(state.total_flos)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        reshard(self.stack.model)
        for weights in (self.before, self.behind, *self.layers):
            _set_trainable(weights, True)

    @torch.no_grad()
    def _enter(self, phase: Phase, optimizer: Any) -> None:
        block = self.stack.block
        sources = {source: [weight.clone() for weight in block(source).parameters()] for _, source in phase.copies}
        for layer, source in phase.copies:
            _assign(block(layer), sources[source])
        if phase.redraw:
            fresh = make_random_init(self.stack, seed_of(self.step_schedule.seed, phase))
            for layer in phase.redraw:
                _assign(block(layer), fresh.block(layer).parameters())
        for layer, factor in phase.scale:
            for weight in block(layer).parameters():
                if weight.ndim > 1:
                    weight.mul_(factor)
        forgotten = [*phase.redraw, *(layer for layer, _ in phase.copies)]
        layers = self.layers
        groups = [layers[layer] for layer in forgotten]
        if phase.optimizer == "drop":
            groups += [layers[layer] for layer in phase.trains]
            groups += [self.before] * phase.embedding + [self.behind] * phase.head
        for weights in groups:
            for weight in weights:
                optimizer.state.pop(weight, None)


class GrowthTrainer(PlanTrainer):
    optimizer: Any
    lr_scheduler: Any

    def __init__(self, *, runner: GrowthRunner, **options: Any) -> None:
        super().__init__(draws=runner, validation=SeededSampler(Fixed(), runner.stack.depth, 0), **options)
        if self.is_deepspeed_enabled:
            raise TrainError(
                "growth schedules do not support DeepSpeed. Train on one process, with DistributedDataParallel "
                "(torchrun), or with --set fsdp=true."
            )
        self.runner = runner
        self.add_callback(runner)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        if self.lr_scheduler is None:
            created = super().create_scheduler(num_training_steps, optimizer)
            if not isinstance(created, LambdaLR):
                raise TrainError(
                    "the learning rate schedule must be linear, cosine or constant if there are phases, got "
                    f"{self.args.lr_scheduler_type}. Change lr_scheduler_type."
                )
            factors = [self._factor(curve) for curve in created.lr_lambdas]
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, factors)
        scheduler: LRScheduler = self.lr_scheduler
        return scheduler

    def _factor(self, curve: Any) -> Any:
        return lambda step: self.runner.step_schedule.factor(step, curve)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        plan = self.runner.step_schedule.whole(max(0, self.state.global_step - 1))
        self.validation = SeededSampler(Fixed(plan), self.stack.depth, 0)
        return super().evaluate(*args, **kwargs)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Return the operations of the last pass; the Trainer sums them over passes and processes."""
        return round(self.runner.flops(inputs))

    def figures(self) -> dict[str, float]:
        state, step_schedule = self.state, self.runner.step_schedule
        figures = {
            "flops": float(state.total_flos),
            "parameters": float(sum(parameter.numel() for parameter in self.stack.model.parameters())),
            **super().figures(),
        }
        if getattr(self.stack.model, "main_input_name", None) == "input_ids":
            figures["tokens"] = float(state.num_input_tokens_seen)
        for phase, (first, end) in zip(step_schedule.schedule.phases, step_schedule.bounds, strict=True):
            seconds = median_step_seconds(state.log_history, first, end)
            if seconds is not None:
                figures[f"step_seconds {phase.name}"] = seconds
        return figures


def growth_runner(stack: Stack, growth: GrowthExtension, splits: Splits, seed: int) -> GrowthRunner:
    """Create the callback that applies `growth` to `stack`.

    Raises:
        PlanError: If the model does not have as many layers as the schedule, or if a layer cannot copy another because
            their shapes differ.
        TrainError: If the embedding and the head share a weight, and a phase trains only one of them.
    """
    growth.schedule.check(stack.depth)
    batch = {key: value.to(stack.device) for key, value in splits.collate([splits.train[0]]).items()}
    around = find_embeddings_and_head(stack, batch)
    step_schedule = StepSchedule(growth.schedule, growth.steps, seed)
    for phase in growth.schedule.phases:
        if around.tied and phase.embedding != phase.head:
            learns, rests = ("embedding", "head") if phase.embedding else ("head", "embedding")
            raise TrainError(
                f"phase {phase.name} trains the {learns} and freezes the {rests}, but in {stack.source.name} they "
                f"share {around.tied[0]}. Train both or neither."
            )
        for layer, source in phase.copies:
            if _shapes(stack, layer) != _shapes(stack, source):
                phase.refuse(f"layer {layer} cannot copy layer {source}: their shapes differ")
    if any(phase.redraw for phase in growth.schedule.phases):
        make_random_init(stack, step_schedule.seed)  # raises now rather than when the phase starts
    return GrowthRunner(stack, step_schedule, growth.cost, around)


def seed_of(seed: int, phase: Phase) -> int:
    return random.Random(f"{seed}/{phase.name}/weights").getrandbits(32)


def _set_trainable(weights: Weights, learns: bool) -> None:
    for weight in weights:
        weight.requires_grad_(learns)


def _assign(block: nn.Module, values: Iterable[Tensor]) -> None:
    for weight, value in zip(block.parameters(), values, strict=True):
        assign(weight, value)


def _shapes(stack: Stack, layer: int) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(weight.shape)) for name, weight in stack.block(layer).named_parameters()]
