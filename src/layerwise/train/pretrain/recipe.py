"""Pretraining recipes: all settings of a pretraining run except text, tokenizer and seed.

The defaults are those of LTG-BERT and ELC-BERT: LAMB, warmup and cosine decay, gradient clipping at a norm of 2, span
masking, and short segments for the first 90 % of the steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from layerwise.data.text.span_masking import ALGORITHM as MASKING
from layerwise.errors import TrainError, near_matches
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.models.elc.configuration import check_initialization, find_variant
from layerwise.train.precision import Precision
from layerwise.train.pretrain.curriculum import CurriculumPhase
from layerwise.train.pretrain.lamb import ALGORITHM
from layerwise.train.recipe import check_positive


@dataclass(frozen=True, slots=True)
class PretrainingRecipe:
    """Recipe of a pretraining run; the defaults are those of the published small model.

    Args:
        initialization: Initialization of the layer weights (default: that of the architecture).
        batch_size: Number of short segments per step. A step with long segments reads a quarter as many.
        lengths: Maximum number of tokens in a short and in a long segment.
        short: Share of the steps that read short segments.
        floor: Final learning rate, relative to the peak (`learning_rate`).
        warmup: Share of steps in which the learning rate rises.
        stop: Probability that a masked span ends after each of its tokens.
        gradient_accumulation_steps: Number of equal parts of a batch that run one after the other.
        padding_free: Do not compute padding, except in attention.
        evals: Number of validations and checkpoints.
        validation: Number of segments for validation.
        seconds: Train for as many steps as fit in this time. It replaces `steps`.
        vocabulary: Size of the tokenizer to train (default: depends on the size of the text).
    """

    variant: str = "elc"
    size: str = "small"
    architecture: str = "elc"
    initialization: str | None = None
    frozen_layer_weights: bool = False
    steps: int = 31_250
    batch_size: int = 8_192
    lengths: tuple[int, int] = (128, 512)
    short: float = 0.9
    learning_rate: float = 5e-3
    floor: float = 0.1
    warmup: float = 0.016
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6
    weight_decay: float = 0.4
    max_grad_norm: float = 2.0
    mask_probability: float = 0.15
    stop: float = 1 / 3
    dropout: float = 0.1
    gradient_accumulation_steps: int = 1
    precision: Precision = "float32"
    compiled: bool = False
    padding_free: bool = False
    evals: int = 20
    validation: int = 2_048
    seconds: float | None = None
    vocabulary: int | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "learning_rate", "gradient_accumulation_steps", "evals", "validation"):
            check_positive(name, getattr(self, name))
        if self.batch_size % 4:
            raise TrainError(
                f"batch_size must be a multiple of 4 (long segments use a quarter of it), got {self.batch_size}."
            )
        if self.seconds is not None:
            check_positive("seconds", self.seconds)
        if self.vocabulary is not None:
            check_positive("vocabulary", self.vocabulary)

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON values, including the names of the optimizer and the masking algorithm."""
        content = {"extension": "plain", "optimizer": ALGORITHM, "masking": MASKING, "pretraining": asdict(self)}
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain

    @property
    def switch(self) -> int:
        """First step with long segments, counted from 0."""
        return round(self.short * self.steps)

    def phases(self, counts: Sequence[int]) -> tuple[CurriculumPhase, ...]:
        """Return the phases, given the number of short and of long segments (`counts`)."""
        edges = (0, self.switch, self.steps)
        sizes = zip(self.lengths, (self.batch_size, self.batch_size // 4), edges, edges[1:], counts, strict=False)
        return tuple(
            CurriculumPhase(length, batch, first, end, count)
            for length, batch, first, end, count in sizes
            if end > first
        )

    @property
    def examples(self) -> int:
        return self.switch * self.batch_size + (self.steps - self.switch) * (self.batch_size // 4)


PRESETS: Mapping[str, PretrainingRecipe] = {
    "tiny": PretrainingRecipe(
        size="tiny",
        steps=1_200,
        batch_size=16,
        lengths=(32, 128),
        learning_rate=4e-3,
        warmup=0.1,
        weight_decay=0.1,
        mask_probability=0.3,
        stop=0.9,
        dropout=0.0,
        evals=6,
        validation=256,
        vocabulary=2_048,
    ),
    "small": PretrainingRecipe(gradient_accumulation_steps=32),
    "base": PretrainingRecipe(
        size="base",
        steps=15_625,
        batch_size=32_768,
        learning_rate=1e-2,
        weight_decay=0.1,
        gradient_accumulation_steps=128,
    ),
}
"""Recipes by size: the published `small` and `base`, and `tiny`, which takes minutes on two cores.

On half a million tokens, the published recipe learns little more than word frequencies. `tiny` therefore masks more
tokens, mostly single ones, and uses small batches without dropout. The published recipes run 256 segments at a time; on
several processes, reduce `gradient_accumulation_steps` accordingly.
"""


def pretraining_recipe(
    size: str = "small", architecture: str = "elc", *, variant: str | None = None, **changes: Any
) -> PretrainingRecipe:
    """Return the recipe of a size (`tiny`, `small`, `base`) for an architecture; `changes` overrides its settings.

    Raises:
        TrainError: If the size is unknown.
        ModelError: If the architecture or initialization is unknown.

    Example:
    >>> pretraining_recipe("base", "ltg", steps=1_000).switch
    900
    """
    if size not in PRESETS:
        raise TrainError(f"unknown model size {size!r}; {near_matches(size, PRESETS)}")
    find_variant(architecture)
    recipe = replace(PRESETS[size], variant=variant or architecture, architecture=architecture, **changes)
    if recipe.initialization is not None:
        check_initialization(recipe.initialization)
    return recipe


def new_model(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> ElcForMaskedLM:
    config = ElcConfig.of_size(
        recipe.size,
        variant=recipe.architecture,
        vocab_size=len(tokenizer),
        initialization=recipe.initialization,
        max_position_embeddings=max(512, *recipe.lengths),
        pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=recipe.dropout,
        attention_probs_dropout_prob=recipe.dropout,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    model = ElcForMaskedLM(config)
    model.encoder.padding_free = recipe.padding_free
    if recipe.frozen_layer_weights:
        for name, parameter in model.named_parameters():
            if name.endswith(".scalars"):
                parameter.requires_grad_(False)
    return model
