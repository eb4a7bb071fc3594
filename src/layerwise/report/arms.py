"""The arms of a robustness run: ways of training one model, in reading order, each with the colour it keeps.

An arm that is not in the list (a single model, under its own name) comes after the known ones and takes a colour that
none of them has. Nothing else about an arm is known here: what it survives is in the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """A way of training: its colour among the series, and what it is, for the glossary."""

    slot: int
    meaning: str


ARMS: dict[str, ArmStyle] = {
    "baseline": ArmStyle(5, "trained further in order, as any model is"),
    "sequential": ArmStyle(6, "the same training as the other arms, every batch in order"),
    "layershuffle": ArmStyle(0, "every batch sees its layers in a new random order"),
    "layershuffle-position": ArmStyle(2, "the same, and each layer has its position as input"),
    "layershuffle-predict": ArmStyle(3, "the same as layershuffle, and each layer has to predict its position"),
    "layershuffle-layerdrop": ArmStyle(
        8, "a new random order for every batch, from which layers are left out at random"
    ),
    "layerdrop": ArmStyle(1, "layers are left out at random, the others stay in order"),
    "layerdrop-scratch": ArmStyle(7, "the same from the first step, not only in the refinement"),
    "draft": ArmStyle(4, "every step teaches a plan of some of the layers to predict what the whole model does"),
    "ltg": ArmStyle(5, "the backbone: every layer reads the state before it, with a plain residual stream"),
    "elc": ArmStyle(0, "every layer reads a learned mix of all states before it, by the paper's equation"),
    "elc-base": ArmStyle(6, "the same as the published file has it: the mix reaches the attention's norm alone"),
    "zero": ArmStyle(2, "the learned mix, with equal weights at first"),
    "normalized": ArmStyle(3, "the same, every layer's output normalised before anyone reads it"),
    "weighted-output": ArmStyle(4, "the same, and what follows the last layer reads a mix too"),
    "denseformer": ArmStyle(1, "learned weights of any sign after every layer, at first the identity"),
    "uniform": ArmStyle(
        5, "every layer learns at every step, the rate of learning decayed to zero: what others must beat"
    ),
    "published": ArmStyle(1, "the six phases of the founding paper, scaled to the depth"),
    "importance": ArmStyle(0, "phases given to layers by what a diagnosis of a pilot found them to be worth"),
    "permuted": ArmStyle(2, "the phases of importance, the roles of its layers given to others at random: a control"),
    "reversed": ArmStyle(3, "the phases of importance, the roles of its layers from last to first: a control"),
    "random": ArmStyle(4, "as many layers learn in every phase, drawn at random, at equal FLOPs: a control"),
    "stacking": ArmStyle(8, "a third of the layers first, then copies of them on top"),
    "ramp": ArmStyle(7, "layers are dropped at random, more of them later and deeper"),
    "freezing": ArmStyle(6, "layers are frozen one after another from the front"),
    "lisa": ArmStyle(3, "few layers, drawn anew every so many steps, learn at a time"),
    "retrained": ArmStyle(4, "for each number of layers a model of its own, refined with exactly those layers"),
}
SPARE = (10, 9, 11)  # colours that no known arm has


def in_reading_order(arms: Iterable[str]) -> tuple[str, ...]:
    """Each arm once: the known ones as listed here, then the others as first met.

    >>> in_reading_order(["mine", "layerdrop", "baseline", "mine"])
    ('baseline', 'layerdrop', 'mine')
    """
    present = dict.fromkeys(arms)
    return (*(arm for arm in ARMS if arm in present), *(arm for arm in present if arm not in ARMS))


def arm_slots(arms: Iterable[str]) -> dict[str, int]:
    """The colour of each arm among the series.

    >>> arm_slots(["baseline", "mine"])
    {'baseline': 5, 'mine': 10}
    """
    slots: dict[str, int] = {}
    others = 0
    for arm in dict.fromkeys(arms):
        known = ARMS.get(arm)
        slots[arm] = SPARE[others % len(SPARE)] if known is None else known.slot
        others += known is None
    return slots
