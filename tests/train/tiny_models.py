"""Tiny models, images and words, and manual loops (`forward_by_hand` does not use layerwise)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Subset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    set_seed,
)
from transformers import ViTForImageClassification as ViT

from layerwise.data.splits import Example, Examples, Splits
from layerwise.data.vision.digits import digits
from layerwise.plan.samplers import Fixed, Sampler, SeededSampler
from layerwise.results.training_record import MODEL
from layerwise.stack import Stack
from layerwise.train.measured import MeasuredTrainer
from layerwise.train.trainer import PlanTrainer

WIDTH = 16
VOCABULARY = 19
IN_ORDER = Fixed()


def tiny_vit(depth: int = 3, dropout: float = 0.0, seed: int = 0) -> ViT:
    torch.manual_seed(seed)
    config = ViTConfig(
        hidden_size=WIDTH,
        intermediate_size=24,
        num_hidden_layers=depth,
        num_attention_heads=2,
        image_size=8,
        patch_size=4,
        num_channels=1,
        num_labels=10,
        initializer_range=0.2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,
    )
    return ViT(config).eval()


def tiny_llama(depth: int = 3, seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=24,
        num_hidden_layers=depth,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
        initializer_range=0.2,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def tiny_mixtral(depth: int = 3, seed: int = 0) -> MixtralForCausalLM:
    torch.manual_seed(seed)
    own = {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 1}
    return MixtralForCausalLM(MixtralConfig(**{**tiny_llama(depth).config.to_dict(), **own})).eval()


def tied_llama() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**{**tiny_llama().config.to_dict(), "tie_word_embeddings": True}))


def tiny_digits(augmentation: str = "none", train: int = 24, validation: int = 20) -> Splits:
    whole = _all_digits(augmentation)
    return replace(
        whole,
        train=_first(whole.train, train),
        validation=_first(whole.validation, validation),
        test=_first(whole.test, validation),
    )


@cache
def _all_digits(augmentation: str) -> Splits:
    return digits(augmentation)


def tiny_text(train: int = 24, validation: int = 8, longest: int = 6, shortest: int = 6) -> Splits:
    sizes = enumerate((train, validation, validation))
    parts = (_Words(count, range(shortest, longest + 1), seed) for seed, count in sizes)
    return Splits("words", "digest of the words", *parts)


def forward_by_hand(model: PreTrainedModel, batch: dict[str, Tensor], order: Sequence[int]) -> Tensor:
    labels = batch["labels"]
    if isinstance(model, ViT):
        state = model.vit.embeddings(batch["pixel_values"])
        for layer in order:
            state = model.vit.layers[layer](state)
        return cross_entropy(model.classifier(model.vit.layernorm(state)[:, 0]), labels)
    state = model.model.embed_tokens(batch["input_ids"])
    angles = model.model.rotary_emb(state, torch.arange(state.shape[1]).unsqueeze(0))
    for layer in order:
        state = model.model.layers[layer](state, position_embeddings=angles)
    logits = model.lm_head(model.model.norm(state))
    return cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def saved_weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / MODEL / "model.safetensors")


def same_weights(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def rooted(model: nn.Module, when: Callable[[], bool] = lambda: True) -> nn.Module:
    weight = next(parameter for parameter in model.parameters() if parameter.requires_grad)

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        if module.training and when():
            output["loss"] = output["loss"] + (0.0 * weight).sum().sqrt()

    model.register_forward_hook(hook)
    return model


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "label_names": ["labels"],
        "dataloader_pin_memory": False,
        "use_cpu": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "max_grad_norm": 0.0,
    }
    return TrainingArguments(**{**defaults, **options})


def _first(examples: Examples, count: int) -> Any:
    return Subset(examples, range(count))


class _Words(Examples):
    def __init__(self, count: int, lengths: Sequence[int], seed: int) -> None:
        chance = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(3, VOCABULARY, (count, max(lengths)), generator=chance)
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Example:
        words = self.ids[index, : self.lengths[index % len(self.lengths)]]
        return {"input_ids": words, "labels": words}


class FirstStep(TrainerCallback):
    def __init__(self) -> None:
        self.batches: list[dict[str, Tensor]] = []
        self.losses: list[float] = []
        self.gradients: dict[str, Tensor | None] = {}

    def of(self, trainer: MeasuredTrainer) -> FirstStep:
        own = trainer.training_step

        def training_step(model: Any, inputs: Any, *rest: Any) -> Tensor:
            self.batches.append(inputs)
            loss = own(model, inputs, *rest)
            self.losses.append(loss.item())
            return loss

        trainer.training_step = training_step  # type: ignore[method-assign]
        trainer.add_callback(self)
        trainer.train()
        return self

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        named = {name: each.grad for name, each in model.named_parameters()}
        self.gradients = self.gradients or {name: None if it is None else it.clone() for name, it in named.items()}


def plan_trainer(
    stack: Stack,
    splits: Splits,
    folder: Path,
    draws: Sampler = IN_ORDER,
    validation: Sampler = IN_ORDER,
    made: type[PlanTrainer] = PlanTrainer,
    own: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Return a trainer with sampled plans that can run a single step."""
    set_seed(3)
    trainer = made(
        stack=stack,
        draws=SeededSampler(draws, stack.depth, 5, "training"),
        validation=SeededSampler(validation, stack.depth, 0, "validation"),
        args=arguments(folder, **options),
        data_collator=splits.collate,
        train_dataset=splits.train,
        eval_dataset=splits.validation,
        **(own or {}),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer
