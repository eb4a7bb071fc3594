"""An examination as a value: what `layerwise diagnose` asks of one model on one text, before either is loaded.

It is checked when it is made, so that a misspelt part costs nothing; `layerwise.measure.examine` carries it out. This
module needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.errors import MeasureError, near_matches
from layerwise.measure.rule import Rule
from layerwise.measure.study import BATCH_TOKENS, check_counts, check_seed

PARTS = (
    "proxies", "structure", "deltas", "predictability", "ablation", "racing", "order", "manipulation", "recovery",
    "agreement", "pruning",
)  # fmt: skip
"""The parts of an examination, in the order in which they are carried out: the later ones read the earlier ones."""

DESCRIBED = ("structure", "deltas")
"""The parts from which nothing is concluded about the model on its text: they tell of its weights, or describe."""

NEEDS = {"agreement": ("proxies", "ablation"), "pruning": ("proxies", "ablation")}
"""The parts whose rows another one reads, and cannot do without."""

CURVE_TOKENS = 1_000
"""Scored tokens of the parts that measure curves and sets, hundreds of variants of one model."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What is asked, and how: the parts, the text's windows, the smallest effect that counts, the seed.

    `tokens` bounds the scored tokens of all parts, `curve_tokens` those of curves and sets of layers (predicted
    weights, manipulation, pruning), which read the beginnings of windows where whole ones would be fewer than 8. With a
    `budget`, verdicts come from a race that spends at most so many tokens on any layer, and the other interventions of
    the ablation read a sample of that size. `margin` is the smallest effect, in nats per token, that counts as one.
    `thorough` lets every layer recover, trained alone and with the whole model, instead of a few trained alone.

    Raises `MeasureError` for an unknown part, for one whose needs are not asked for, and for a seed or a count that
    cannot be.
    """

    parts: tuple[str, ...] = PARTS
    length: int | None = None
    tokens: int | None = None
    batch_tokens: int = BATCH_TOKENS
    curve_tokens: int = CURVE_TOKENS
    budget: int | None = None
    margin: float = 0.01
    thorough: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_counts(
            length=self.length, tokens=self.tokens, batch_tokens=self.batch_tokens, curve_tokens=self.curve_tokens,
            budget=self.budget,
        )  # fmt: skip
        for name in self.parts:
            if name not in PARTS:
                raise MeasureError(f"unknown part {name!r}; {near_matches(name, PARTS)}")
        for name in self.parts:
            lacking = [need for need in NEEDS.get(name, ()) if need not in self.parts]
            if lacking:
                raise MeasureError(f"{name} compares the scores of other parts: add {' and '.join(lacking)} to --parts")
        Rule(margin=self.margin)
        # Whatever order they are named in, later parts read earlier ones.
        object.__setattr__(self, "parts", tuple(name for name in PARTS if name in self.parts))

    @property
    def rule(self) -> Rule:
        """What counts as an effect."""
        return Rule(margin=self.margin)

    def settings(self) -> tuple[str, ...]:
        """What, besides the text and the seed, decides what a row means; for the manifest."""
        chosen = (*self.parts, f"curve_tokens:{self.curve_tokens}", f"margin:{self.margin:g}")
        budget = (f"budget:{self.budget}",) if self.budget is not None else ()
        return (*chosen, *budget, *(("thorough",) if self.thorough else ()))
