"""Configuration of LTG-BERT and ELC-BERT models.

In LTG-BERT, each layer reads the previous hidden state. In ELC-BERT (Charpentier & Samuel, 2023, "Not all layers are
equally as important: Every Layer Counts BERT"), it reads a learned mixture of all earlier states. `VARIANTS` has the
equation of the paper, its four published model files, and `denseformer` (Pagliardini et al., 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from layerwise.errors import ModelError, near_matches
from layerwise.stack.history import MISSING, Missing

Mixture = Literal["none", "softmax", "free"]
Block = Literal["residual", "mixture", "attention"]

INITIALIZATIONS = ("biased", "zero", "identity")
"""Named initial layer weights. Any other value must be a number; see `first_values`."""

# Softmax weight of the previous state under "identity", which cannot be exactly 1.
IDENTITY_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class ElcVariant:
    """Describes how the layers of a model read earlier states.

    Attributes:
        name: Name of the variant.
        mixture: Weights of earlier states in a layer's input: `softmax`, `free`, or `none` (only the previous state).
        block: Which sum the feed-forward sublayer reads and is added to; see the equations of `VARIANTS`.
        initialization: Initial layer weights.
        normalized: Whether a LayerNorm is applied to the output of each layer.
        mixes_output: Whether the output of the model is a mixture of all states.
    """

    name: str
    mixture: Mixture = "softmax"
    block: Block = "mixture"
    initialization: str = "zero"
    normalized: bool = False
    mixes_output: bool = False

    @property
    def mixes(self) -> bool:
        return self.mixture != "none"


VARIANTS = {
    variant.name: variant
    for variant in (
        ElcVariant("ltg", mixture="none", block="residual"),
        ElcVariant("elc", initialization="biased"),
        ElcVariant("elc-base", block="attention", initialization="biased"),
        ElcVariant("zero"),
        ElcVariant("normalized", normalized=True),
        ElcVariant("weighted-output", mixes_output=True),
        ElcVariant("denseformer", mixture="free", block="residual", initialization="identity", mixes_output=True),
    )
}
"""The variants by name. Layer n has the input x_n and the output h_n, and a is `attention(x_n)`:

| variant | x_n | h_n | first weights |
|---|---|---|---|
| `ltg` | h_{n-1} | y + ffn(y), y = x_n + a | none |
| `elc` | softmax mixture | a + ffn(x_n + a) | biased |
| `elc-base` | softmax mixture | a + ffn(a) | biased |
| `zero` | softmax mixture | a + ffn(x_n + a) | zero |
| `normalized` | softmax mixture | norm(a + ffn(x_n + a)) | zero |
| `weighted-output` | softmax mixture, and one for the output | a + ffn(x_n + a) | zero |
| `denseformer` | free mixture, and one for the output | y + ffn(y), y = x_n + a | identity |
"""


def find_variant(name: str) -> ElcVariant:
    if name not in VARIANTS:
        raise ModelError(f"unknown ELC-BERT variant {name!r}; {near_matches(name, VARIANTS)}")
    return VARIANTS[name]


def check_initialization(initialization: str) -> None:
    """Check that the value is one of `INITIALIZATIONS` or a number; otherwise raise `ModelError`.

    >>> check_initialization("identity"), check_initialization("0.5")
    (None, None)
    """
    if initialization in INITIALIZATIONS:
        return
    try:
        number = float(initialization)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ModelError(
            f"unknown initialization {initialization!r}; {near_matches(initialization, INITIALIZATIONS)}, or write a "
            "number for the previous layer, such as 2"
        )


def first_values(initialization: str, sources: int, *, softmax: bool) -> list[float]:
    """Return the initial scalars (with `softmax`) or weights of a layer that reads `sources` earlier states.

    All scalars are 0, except that of the previous state, which is 0 for `zero`, 1 for `biased` (as in the paper), or
    the given number. For `identity`, the previous state has `IDENTITY_SHARE` of the weight, or all of it without
    softmax. A scalar b gives the previous state the weight e^b / (e^b + sources - 1).

    >>> first_values("biased", 3, softmax=True), first_values("identity", 3, softmax=False)
    ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0])
    """
    check_initialization(initialization)
    others = [0.0] * (sources - 1)
    if initialization == "identity":
        if not softmax:
            return [*others, 1.0]
        return [*others, math.log(IDENTITY_SHARE / (1 - IDENTITY_SHARE) * len(others)) if others else 0.0]
    values = {"zero": 0.0, "biased": 1.0}
    scalars = [*others, values[initialization] if initialization in values else float(initialization)]
    total = sum(map(math.exp, scalars))
    return scalars if softmax else [math.exp(scalar) / total for scalar in scalars]


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"num_hidden_layers": 6, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 344},
    "small": {"num_hidden_layers": 12, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1024},
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 2048},
}
_VOCABULARY = {"tiny": 4096, "small": 6144, "base": 16384}


@strict
class ElcConfig(PreTrainedConfig):
    """Configuration of an ELC-BERT model.

    Attributes:
        variant: One of `VARIANTS`.
        initialization: Initial layer weights: `biased`, `zero`, `identity`, or a number for the scalar of the previous
            layer (default: that of the variant).
        position_buckets: Number C of buckets of token distances. Distances up to C/2 have a bucket each. Larger ones
            share buckets on a logarithmic scale up to `max_position_embeddings`.
        missing_sources: What happens to the weights of skipped layers: `renormalize` rescales the other weights, `keep`
            does not change them, and `inherit` adds the weight to that of the previous state (default: `inherit` for
            `free` mixtures, otherwise `renormalize`).

    >>> config = ElcConfig.of_size("small", variant="zero")
    >>> config.hidden_size, config.num_hidden_layers, config.layer_norm_eps
    (384, 12, 1e-07)
    """

    model_type: ClassVar[str] = "layerwise-elc"

    variant: str = "elc"
    initialization: str | None = None
    vocab_size: int = 6144
    hidden_size: int = 384
    num_hidden_layers: int = 12
    num_attention_heads: int = 6
    intermediate_size: int = 1024
    position_buckets: int = 32
    max_position_embeddings: int = 512
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float = 0.2
    layer_norm_eps: float = 1e-7
    missing_sources: str | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        self._check()
        super().__post_init__(**kwargs)

    @classmethod
    def of_size(cls, size: str, *, variant: str = "elc", vocab_size: int | None = None, **changes: Any) -> ElcConfig:
        """Return the configuration of a published size (`small`, `base`) or the bundled `tiny`, with `changes`."""
        if size not in SIZES:
            raise ModelError(f"unknown ELC-BERT size {size!r}; {near_matches(size, SIZES)}")
        settings: dict[str, Any] = {**SIZES[size], "vocab_size": vocab_size or _VOCABULARY[size], **changes}
        return cls(variant=variant, **settings)

    @property
    def reading(self) -> ElcVariant:
        return find_variant(self.variant)

    @property
    def missing(self) -> Missing:
        default = "inherit" if self.reading.mixture == "free" else "renormalize"
        return cast(Missing, self.missing_sources or default)

    def _check(self) -> None:
        find_variant(self.variant)
        if self.initialization is not None:
            check_initialization(self.initialization)
        if self.missing_sources is not None and self.missing_sources not in MISSING:
            fix = near_matches(self.missing_sources, MISSING)
            raise ModelError(f"unknown missing_sources {self.missing_sources!r}; {fix}")
        if self.hidden_size % self.num_attention_heads:
            raise ModelError(
                f"hidden_size ({self.hidden_size}) must be divisible by num_attention_heads "
                f"({self.num_attention_heads})"
            )
        if self.position_buckets % 2 or self.position_buckets < 4:
            raise ModelError(f"position_buckets must be even and at least 4, got {self.position_buckets}")
