"""Trainer for healing: it trains some weights under a plan, on labels or on the original model's predictions.

The teacher runs before the student, with the identity plan and without gradients. If the head treats every position
independently (`layerwise.measure.language.loss`), teacher and student skip it, and their logits are computed in chunks
afterwards. Checkpoints contain only the trained weights. Checkpoints are selected by the loss on the labels, whatever
the training loss is.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.utils import SAFE_WEIGHTS_NAME

from layerwise.data.batches import IGNORED
from layerwise.errors import TrainError
from layerwise.measure.language.evaluation_data import find_objective
from layerwise.measure.language.loss import find_head
from layerwise.plan import Plan
from layerwise.stack.executors.capture import returned_state
from layerwise.stack.inputs import accepted, evaluating, main_tensor
from layerwise.train.distillation import CHUNK, divergence, in_chunks, state_distance
from layerwise.train.heal.learning import Learning
from layerwise.train.heal.options import HealingOptions
from layerwise.train.trainer import PlanTrainer


@dataclass(slots=True)
class HealingPass:
    """Hidden states before the head, or the logits (`predicted`), and the hidden states after each layer (`states`)."""

    predicted: Tensor
    output: Any = None
    states: dict[int, Tensor] = field(default_factory=dict)


class HealingTrainer(PlanTrainer):
    """Trainer that heals a model. It runs on one process or with DDP, and refuses FSDP and DeepSpeed."""

    def __init__(self, *, options: HealingOptions, **others: Any) -> None:
        stack = others["stack"]
        self.options = options
        self.learns_text = getattr(stack.model, "main_input_name", None) == "input_ids"
        self._shifts = self.learns_text and find_objective(stack) == "next_token"
        self.head = find_head(stack) if self.learns_text and options.teacher == "self" else None
        self.learning = Learning(stack, options)
        if not self.learns_text:
            others["args"].include_num_input_tokens_seen = "no"
        super().__init__(**others)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise TrainError(
                "healing does not support sharded weights, got FSDP or DeepSpeed. Train on one process, or with "
                "DistributedDataParallel (torchrun)."
            )
        self._teacher: HealingPass | None = None

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        if self.options.teacher == "self":
            inputs = self._prepare_inputs(inputs)
            with torch.no_grad(), evaluating(self.stack.model), self.learning.original():
                self._teacher = self._forward(self.stack.model, inputs)
        try:
            return super().training_step(model, inputs, num_items_in_batch)
        finally:
            self._teacher = None

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        teacher = self._teacher
        if teacher is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        student = self._forward(model, inputs)
        mask = self._find_scored(inputs["labels"])
        loss = self._divergence(student, teacher, inputs, mask)
        if self.options.hidden != "none":
            layers = sorted(teacher.states)
            reached, target = ([each.states[layer] for layer in layers] for each in (student, teacher))
            distance = state_distance(reached, target, mask if mask.ndim == 2 else None, self.options.hidden)
            loss = loss + mask.sum().clamp(min=1) * (self.options.hidden_weight * distance)
        if self.model_accepts_loss_kwargs and num_items_in_batch is not None:
            processes = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
            return loss * processes / num_items_in_batch
        return loss / mask.sum().clamp(min=1)

    def _find_scored(self, labels: Tensor) -> Tensor:
        if self._shifts:
            labels = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        return labels != IGNORED

    def _forward(self, model: nn.Module, inputs: Mapping[str, Any]) -> HealingPass:
        result = HealingPass(torch.empty(0, device="cpu"))
        given = {name: value for name, value in accepted(self.stack.model, inputs).items() if name != "labels"}
        if self.head is not None and "logits_to_keep" in inspect.signature(self.stack.model.forward).parameters:
            given["logits_to_keep"] = 1
        with self._record_states(result):
            output = model(**given)
        if self.head is None:
            result.predicted = main_tensor(output)
        return result

    @contextmanager
    def _record_states(self, result: HealingPass) -> Iterator[None]:
        handles = []

        def note(layer: int, module: nn.Module, args: Any, output: Any) -> None:
            result.states[layer] = returned_state(output)

        def note_body(module: nn.Module, args: Any, output: Any) -> None:
            result.predicted, result.output = main_tensor(output), output

        if self.head is not None:
            handles.append(self.head.body.register_forward_hook(note_body))
        if self.options.hidden != "none":
            for layer in set(Plan.parse(self.options.plan).layers()):
                handles.append(self.stack.block(layer).register_forward_hook(partial(note, layer)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _divergence(
        self, student: HealingPass, teacher: HealingPass, inputs: Mapping[str, Any], mask: Tensor
    ) -> Tensor:
        predicted, expected = student.predicted[mask], teacher.predicted[mask]
        head = self.head
        if head is None:
            rows = max(1, CHUNK // predicted.shape[-1])
            return in_chunks(predicted, lambda some, piece: divergence(some, expected[piece]), rows, ())
        ids = inputs["input_ids"][mask]

        def compute_divergence(some: Tensor, piece: slice) -> Tensor:
            with torch.no_grad(), self.learning.original():
                logits = head.logits(expected[piece], teacher.output, ids[piece])
            return divergence(head.logits(some, student.output, ids[piece]), logits)

        inside = f"{self.stack.path}."
        weights = [weight for name, weight in self.learning.weights().items() if not name.startswith(inside)]
        rows = max(1, CHUNK // int(self.stack.text_config.vocab_size))
        return in_chunks(predicted, compute_divergence, rows, weights)

    def figures(self) -> dict[str, float]:
        learning = sum(weight.numel() for weight in self.learning.weights().values())
        tokens = {"tokens": float(self.state.num_input_tokens_seen)} if self.learns_text else {}
        return {"learning_weights": float(learning), **tokens, **super().figures()}

    def write(self, folder: Path) -> None:
        if self.is_world_process_zero():
            self.learning.write(folder)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Do not warn about frozen weights, which checkpoints do not contain."""

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.learning.tensors(), folder / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
