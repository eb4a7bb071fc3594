"""The Hugging Face Trainer, in phases: a `PlanTrainer` whose plans, rates and costs are those of a growth schedule.

What a phase does to weights is done by `GrowthRunner`, a callback; here is what the Trainer itself needs: the
learning rate of every step, the plan of every validation and the operations of every pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from layerwise.errors import TrainError
from layerwise.plan.samplers import Fixed, SeededSampler
from layerwise.train.phases.runner import GrowthRunner
from layerwise.train.trainer import PlanTrainer
from layerwise.train.training_log import seconds_a_step


class GrowthTrainer(PlanTrainer):
    """A `PlanTrainer` whose plans, rates and floating-point operations are those of `runner`."""

    optimizer: Any
    lr_scheduler: Any

    def __init__(self, *, runner: GrowthRunner, **options: Any) -> None:
        super().__init__(draws=runner, validation=SeededSampler(Fixed(), runner.stack.depth, 0), **options)
        if self.is_deepspeed_enabled:
            raise TrainError(
                "phases freeze and replace whole weights, which DeepSpeed takes apart; train on one process or with "
                "DistributedDataParallel, which torchrun does, or shard the model with --set fsdp=true"
            )
        self.runner = runner
        self.add_callback(runner)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        if self.lr_scheduler is None:
            own = super().create_scheduler(num_training_steps, optimizer)
            if not isinstance(own, LambdaLR):
                raise TrainError(
                    f"phases multiply a curve over the steps, and {self.args.lr_scheduler_type} is none; write linear, "
                    "cosine or constant"
                )
            factors = [self._factor(curve) for curve in own.lr_lambdas]
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, factors)
        scheduler: LRScheduler = self.lr_scheduler
        return scheduler

    def _factor(self, curve: Any) -> Any:
        return lambda step: self.runner.step_schedule.factor(step, curve)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The parent's validation, of all layers that the phase of the last step has."""
        plan = self.runner.step_schedule.whole(max(0, self.state.global_step - 1))
        self.validation = SeededSampler(Fixed(plan), self.stack.depth, 0)
        return super().evaluate(*args, **kwargs)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """The operations of the pass that has just run; the parent sums them, over processes and sessions."""
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
            seconds = seconds_a_step(state.log_history, first, end)
            if seconds is not None:
                figures[f"step_seconds {phase.name}"] = seconds
        return figures
