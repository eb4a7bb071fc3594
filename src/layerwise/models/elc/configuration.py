"""The configuration of an LTG-BERT or ELC-BERT model: its shape, and the way its layers read each other.

In LTG-BERT a layer reads the state before it; in ELC-BERT (Charpentier & Samuel, 2023, "Not all layers are equally as
important: Every Layer Counts BERT") a learned mixture of everything so far. `VARIANTS` are the paper's equation, its
four published model files, and `denseformer` (Pagliardini et al., 2024).
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

INITIALISATIONS = ("biased", "zero", "identity")
"""The beginnings that have a name; any other is a number, see `first_values`."""

# Softmax weights cannot be 1 and 0: "identity" gives the previous source this share of them, and the rest the others.
NEARLY_ALL = 0.99


@dataclass(frozen=True, slots=True)
class ElcVariant:
    """One way to read the layers below.

    `mixture` builds a layer's input from the states so far (`none`: the last). `block` is what the feed-forward half
    reads: the `residual` sum, which it also returns to, `mixture` plus attention, or `attention` alone. With
    `normalised` outputs pass a LayerNorm; with `mixes_output` the model's output is a mixture.
    """

    name: str
    mixture: Mixture = "softmax"
    block: Block = "mixture"
    initialisation: str = "zero"
    normalised: bool = False
    mixes_output: bool = False

    @property
    def mixes(self) -> bool:
        return self.mixture != "none"


VARIANTS = {
    variant.name: variant
    for variant in (
        ElcVariant("ltg", mixture="none", block="residual"),
        ElcVariant("elc", initialisation="biased"),
        ElcVariant("elc-base", block="attention", initialisation="biased"),
        ElcVariant("zero"),
        ElcVariant("normalized", normalised=True),
        ElcVariant("weighted-output", mixes_output=True),
        ElcVariant("denseformer", mixture="free", block="residual", initialisation="identity", mixes_output=True),
    )
}
"""The variants by name. With x_n the input of layer n, `a = attention(x_n)`, and h_n its output:

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
    """The variant called `name`; `ModelError` with the near spellings when there is none.

    >>> find_variant("elc-base").block
    'attention'
    """
    if name not in VARIANTS:
        raise ModelError(f"there is no variant {name!r} of ELC-BERT; {near_matches(name, VARIANTS)}")
    return VARIANTS[name]


def check_initialisation(initialisation: str) -> None:
    """Raise `ModelError` for a text that is neither one of `INITIALISATIONS` nor a number.

    >>> check_initialisation("identity"), check_initialisation("0.5")
    (None, None)
    """
    if initialisation in INITIALISATIONS:
        return
    try:
        number = float(initialisation)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        known = near_matches(initialisation, INITIALISATIONS)
        raise ModelError(
            f"layer weights cannot begin as {initialisation!r}; {known}, or write the scalar of the previous layer as "
            "a number, such as 2"
        )


def first_values(initialisation: str, sources: int, *, softmax: bool) -> list[float]:
    """What a reader of `sources` states begins with: its scalars before a softmax, or its weights where it has none.

    All scalars are 0 but that of the previous source: `zero` is 0 there too, `biased`, the paper's, is 1, a number is
    itself, and `identity` gives that source `NEARLY_ALL` of the weight, without a softmax all of it. With a bias of b
    the previous source has the weight e^b / (e^b + sources - 1), which for the paper's 1 is mild in deep layers. Raises
    `ModelError` for any other text.

    >>> first_values("biased", 3, softmax=True), first_values("identity", 3, softmax=False)
    ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0])
    """
    check_initialisation(initialisation)
    others = [0.0] * (sources - 1)
    if initialisation == "identity":
        if not softmax:
            return [*others, 1.0]
        return [*others, math.log(NEARLY_ALL / (1 - NEARLY_ALL) * len(others)) if others else 0.0]
    named = {"zero": 0.0, "biased": 1.0}
    scalars = [*others, named[initialisation] if initialisation in named else float(initialisation)]
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
    """The shape of an ELC-BERT model, and the variant of its layers' reading.

    `variant` is one of `VARIANTS`; `initialisation` (`biased`, `zero`, `identity`, or the scalar of the previous layer
    as a number) replaces the one with which the variant's layer weights begin. `position_buckets` is C: distances up to
    C/2 have a bucket each, further ones share buckets on a logarithmic scale that ends at `max_position_embeddings`,
    the longest sequence the model takes.
    `missing_sources` says what a layer does about the states of layers that a plan leaves out: `renormalise` spreads
    their weight over those present, `keep` leaves the others' weights as they are, `inherit` gives it to the state
    before; by default weights of a softmax are renormalised and free ones inherited.

    Raises `ModelError` for an unknown variant or initialisation, and for shapes that do not divide.

    >>> config = ElcConfig.of_size("small", variant="zero")
    >>> config.hidden_size, config.num_hidden_layers, config.layer_norm_eps
    (384, 12, 1e-07)
    """

    model_type: ClassVar[str] = "layerwise-elc"

    variant: str = "elc"
    initialisation: str | None = None
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
        """Return the configuration of a published size (`small`, `base`) or of ours (`tiny`).

        `vocab_size` defaults to the one published with the size; `changes` replace any other setting.
        """
        if size not in SIZES:
            raise ModelError(f"there is no size {size!r} of ELC-BERT; {near_matches(size, SIZES)}")
        settings: dict[str, Any] = {**SIZES[size], "vocab_size": vocab_size or _VOCABULARY[size], **changes}
        return cls(variant=variant, **settings)

    @property
    def reading(self) -> ElcVariant:
        """The variant by name, looked up."""
        return find_variant(self.variant)

    @property
    def missing(self) -> Missing:
        """What is done about states that are not there."""
        default = "inherit" if self.reading.mixture == "free" else "renormalise"
        return cast(Missing, self.missing_sources or default)

    def _check(self) -> None:
        find_variant(self.variant)
        if self.initialisation is not None:
            check_initialisation(self.initialisation)
        if self.missing_sources is not None and self.missing_sources not in MISSING:
            known = near_matches(self.missing_sources, MISSING)
            raise ModelError(f"missing_sources cannot be {self.missing_sources!r}; {known}")
        if self.hidden_size % self.num_attention_heads:
            raise ModelError(
                f"a width of {self.hidden_size} does not divide among {self.num_attention_heads} heads; "
                "choose hidden_size as a multiple of num_attention_heads"
            )
        if self.position_buckets % 2 or self.position_buckets < 4:
            raise ModelError(f"position_buckets must be even and at least 4; it is {self.position_buckets}")
