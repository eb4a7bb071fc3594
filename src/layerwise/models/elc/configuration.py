"""The configuration of an LTG-BERT or ELC-BERT model: its shape, and the way its layers read each other.

The two sizes that were published are `small` (24M parameters, trained on 10M words) and `base` (98M, on 100M words);
`tiny` is ours, and trains in minutes on a laptop.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from layerwise.errors import ModelError, near_matches
from layerwise.models.elc.variants import ElcVariant, check_initialisation, find_variant
from layerwise.stack.history.depth_history import MISSING, Missing

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
    before; by default weights of a softmax are renormalised and free ones inherited. In evaluation, states whose
    weights for all layers to come are at most `negligible` are let go; 0 lets go what is not read at all.

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
    negligible: float = 0.0
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        self._check()
        super().__post_init__(**kwargs)

    @classmethod
    def of_size(cls, size: str, *, variant: str = "elc", vocab_size: int | None = None, **changes: Any) -> ElcConfig:
        """The configuration of a published size (`small`, `base`) or of ours (`tiny`).

        `vocab_size` is by default the one published with the size; `changes` replace any other setting.
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
