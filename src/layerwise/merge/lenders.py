"""The models that lend layers: found in folders and runs, grouped by their training, named, checked for one base.

Layers of two models fit together when both were refined from one base (Freiberger et al. 2024, section 4.4): refinement
moves weights a little, and what the layers say to each other stays the same language. Layers of strangers compute
noise. What a model was refined from stands in its pedigree; a model without one is taken at its word, with a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from layerwise.errors import ModelError, RunError
from layerwise.results.pedigree import Pedigree, refined_at, trained_models
from layerwise.results.run import MANIFEST

UNTRAINED = "models"
"""The arm of models that have no pedigree: nobody knows how they were trained."""


@dataclass(frozen=True, slots=True)
class Lender:
    """A model that lends layers: the arm it was trained in, its folder or hub id, and its pedigree if it has one."""

    arm: str
    place: str
    pedigree: Pedigree | None

    @property
    def added(self) -> str | None:
        """What of its own model its layers were trained with and cannot take elsewhere; `None` for plain layers."""
        variant = None if self.pedigree is None else self.pedigree.recipe.get("variant")
        return {"position": "a position encoding", "wiring": "learned layer weights"}.get(str(variant))


def lenders(places: Sequence[str]) -> tuple[Lender, ...]:
    """The models at `places`, in that order: each a model, or a run of trainings, of which every finished model counts.

    Raises `RunError` for a run without a finished model, `ModelError` for a model that is named twice.
    """
    found = tuple(lender for place in places for lender in _at(place))
    for number, lender in enumerate(found):
        if lender.place in {earlier.place for earlier in found[:number]}:
            raise ModelError(f"{lender.place} is named twice; a model lends its layers once")
    return found


def by_arm(found: Sequence[Lender]) -> dict[str, dict[str, Lender]]:
    """The lenders of each arm by the names a, b, c, ... that plans know them by."""
    arms: dict[str, list[Lender]] = {}
    for lender in found:
        arms.setdefault(lender.arm, []).append(lender)
    return {arm: named(members) for arm, members in arms.items()}


def named(found: Sequence[Lender]) -> dict[str, Lender]:
    """The lenders by the names a to z, then a1 to z1, and so on.

    >>> list(named([Lender("arm", str(number), None) for number in range(28)]))[24:]
    ['y', 'z', 'a1', 'b1']
    """
    letters = len(ascii_lowercase)
    return {
        f"{ascii_lowercase[number % letters]}{number // letters or ''}": lender for number, lender in enumerate(found)
    }


def check_one_base(found: Mapping[str, Lender]) -> tuple[str, ...]:
    """What a reader must know about the bases of models that are to be merged; `ModelError` if they have several."""
    bases: dict[str, str] = {}
    for name, lender in found.items():
        if lender.pedigree is not None:
            bases.setdefault(lender.pedigree.base, name)
    if len(bases) > 1:
        (first, one), (second, other), *_ = bases.items()
        raise ModelError(
            f"{one} ({found[one].place}) and {other} ({found[other].place}) are of different base: they were refined "
            f"from models with weights {first[:12]} and {second[:12]}, whose layers do not fit together; merge models "
            "of one base"
        )
    unknown = [name for name, lender in found.items() if lender.pedigree is None]
    if not unknown or len(found) < 2:
        return ()
    said = f"nothing says what {', '.join(unknown)} {'was' if len(unknown) == 1 else 'were'} refined from"
    return (f"{said}: models of different bases do not fit together",)


def _at(place: str) -> Iterator[Lender]:
    folder = Path(place).expanduser()
    if (folder / MANIFEST).is_file():
        trained = trained_models(folder)
        if not trained:
            raise RunError(f"{place} holds no finished model yet: run its `layerwise train` again to go on")
        for model in trained:
            lender = _lender(str(model), Pedigree.read(model))
            if refined_at(lender.arm) is None:
                yield lender
    else:
        yield _lender(place, Pedigree.read(folder))


def _lender(place: str, pedigree: Pedigree | None) -> Lender:
    return Lender(UNTRAINED if pedigree is None else pedigree.arm, place, pedigree)
