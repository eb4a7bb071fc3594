"""A growth schedule: a training in phases, each on the layers that are thought to need it.

It has a name, the depth of its models, and phases that share the steps, but no data, seeds or absolute learning rates.
Steps are shared exactly (`bounds`), by the largest remainder. Errors that need no model are raised when the schedule is
made. `permuted` and `reversed` make controls, in which layers exchange roles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil
from typing import Any

from layerwise.errors import PlanError
from layerwise.plan.checks import check_depth, check_tuple, shown
from layerwise.plan.schedule.phase import Phase

SHARE_TOLERANCE = 1e-6
"""How far from 1 the shares of a schedule may sum: the rounding of shares that were written in decimals."""

TIE = Fraction(1, 10**9)
"""Remainders are compared in such parts of a step."""


@dataclass(frozen=True, slots=True)
class GrowthSchedule:
    """Phases, in order, of the training of a model of `depth` layers.

    Raises `PlanError`, with the name of the phase, for shares that do not sum to 1 (within `SHARE_TOLERANCE`), names
    that come twice, layers beyond the depth, weights copied from a layer that has not run before, and a last phase that
    does not run all layers.

    >>> schedule = GrowthSchedule("two", 4, (Phase("top", 0.3, (2, 3)), Phase("all", 0.7, (0, 1, 2, 3))))
    >>> schedule.bounds(steps=11)
    ((0, 3), (3, 11))
    >>> schedule.reversed().phases[0].trains
    (0, 1)
    """

    name: str
    depth: int
    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        if type(self.name) is not str or not self.name.strip():
            raise PlanError(f"a schedule has a name, such as published, not {shown(self.name)}")
        if set(self.name) & set("/\\") or self.name.startswith(".") or not self.name.isprintable():
            raise PlanError(
                f"the name of a schedule is that of a folder in the run, so it holds neither / nor \\, begins with no "
                f"full stop and is printable, unlike {shown(self.name)}"
            )
        check_depth(self.depth)
        check_tuple("a schedule's phases", self.phases, (Phase,))
        self._check_names()
        for phase in self.phases:
            self._check_range(phase)
        self._check_shares()
        self._check_growing()

    # -- time ---------------------------------------------------------------------------------------------------

    def bounds(self, steps: int) -> tuple[tuple[int, int], ...]:
        """Return the first step of every phase and the step before which it ends, in a training of `steps`.

        Phases follow one another, each within a step of its share (`apportion`). Raises `PlanError` for a phase without
        a step.
        """
        if type(steps) is not int or steps < 1:
            raise PlanError(f"a training has a whole number of steps, 1 or more, not {shown(steps)}")
        counts = apportion([phase.share for phase in self.phases], steps)
        for phase, count in zip(self.phases, counts, strict=True):
            if count == 0:
                phase.refuse(
                    f"its share of {phase.share:g} is less than one of {steps} steps; train for "
                    f"{ceil(1 / phase.share)} steps or more, or give it a larger share"
                )
        return tuple(pairwise(accumulate(counts, initial=0)))

    # -- the model ----------------------------------------------------------------------------------------------

    def check(self, depth: int) -> None:
        """Raise `PlanError` unless the schedule is for a model of `depth` layers."""
        check_depth(depth)
        if depth != self.depth:
            raise PlanError(
                f"the schedule {self.name} is for a model of {counted(self.depth, 'layer')}, and this one "
                f"has {depth}; write depth: {depth} and its layers anew, or take a preset, which fits any depth"
            )

    def warnings(self) -> tuple[str, ...]:
        """What is allowed and probably not meant: new random weights that are never trained.

        >>> half = (Phase("a", 0.5, (0,)), Phase("b", 0.5, (0,), redraw=(1,)))
        >>> GrowthSchedule("odd", 2, half).warnings()
        ('phase b gives layer 1 new random weights, and neither it nor a later phase trains that layer',)
        """
        return tuple(
            f"phase {phase.name} gives layer {layer} new random weights, and neither it nor a later phase trains that "
            "layer"
            for number, phase in enumerate(self.phases)
            for layer in phase.redraw
            if not any(layer in later.trains for later in self.phases[number:])
        )

    # -- controls -----------------------------------------------------------------------------------------------

    def permuted(self, order: Sequence[int]) -> GrowthSchedule:
        """Return the same phases with roles re-assigned: layer l plays what layer `order[l]` played.

        The probability of being dropped stays, since it goes by position. Raises `PlanError` for an `order` that is not
        a permutation, and for a schedule whose layers grow in (`present`, `copies`).
        """
        grown = [phase for phase in self.phases if phase.present is not None or phase.copies]
        if grown:
            grown[0].refuse(
                f"layers grow in, so the roles of the layers of {self.name} cannot be permuted; take a schedule in "
                "which all layers are present from the start"
            )
        if sorted(order) != list(range(self.depth)):
            raise PlanError(
                f"roles are permuted by an order of all layers 0 to {self.depth - 1}, each once; found {shown(order)}"
            )
        player = {role: layer for layer, role in enumerate(order)}
        return replace(self, phases=tuple(_recast(phase, player) for phase in self.phases))

    def reversed(self) -> GrowthSchedule:
        """The same phases upside down: the last layer plays what the first played."""
        return self.permuted(range(self.depth - 1, -1, -1))

    # -- text ---------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The schedule in plain values, as `serialization` defines them; defaults are left out."""
        from layerwise.plan.schedule import to_plain

        return to_plain(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> GrowthSchedule:
        """Return the schedule that plain values describe; `from_json(schedule.to_json()) == schedule`.

        Raises `PlanError` that names the phase and the key.
        """
        from layerwise.plan.schedule import from_plain

        return from_plain(content)

    # -- what is refused ----------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        names = [phase.name for phase in self.phases]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise PlanError(f"two phases are called {twice[0]}; rows and logs distinguish phases by name: rename one")

    def _check_range(self, phase: Phase) -> None:
        named = {
            "trains": phase.trains,
            "present": phase.present or (),
            "redraw": phase.redraw,
            "scale": [layer for layer, _ in phase.scale],
            "copies": [layer for pair in phase.copies for layer in pair],
        }
        for key, layers in named.items():
            beyond = [layer for layer in layers if layer >= self.depth]
            if beyond:
                use = f"0 to {self.depth - 1}" if self.depth > 1 else "0"
                phase.refuse(
                    f"{key} names layer {beyond[0]}, but the schedule is for {self.depth} "
                    f"layer{'s' * (self.depth != 1)}: use {use}"
                )

    def _check_shares(self) -> None:
        total = sum(phase.share for phase in self.phases)
        if abs(total - 1) > SHARE_TOLERANCE:
            shares = ", ".join(f"{phase.name} {phase.share:g}" for phase in self.phases)
            raise PlanError(f"the shares of the phases sum to {total:g} and must sum to 1: {shares}")

    def _check_growing(self) -> None:
        seen: set[int] = set()
        for phase in self.phases:
            for layer, source in phase.copies:
                if source not in seen:
                    phase.refuse(
                        f"layer {layer} takes the weights of layer {source}, which has not run in a phase before; copy "
                        "from a layer that has"
                    )
            seen.update(phase.running(self.depth))
        last = self.phases[-1]
        absent = sorted(set(range(self.depth)).difference(last.running(self.depth)))
        if absent:
            last.refuse(f"layer {absent[0]} does not run in the last phase; leave present out, so that all layers run")


def _recast(phase: Phase, player: Mapping[int, int]) -> Phase:
    return replace(
        phase,
        trains=tuple(sorted(player[layer] for layer in phase.trains)),
        redraw=tuple(sorted(player[layer] for layer in phase.redraw)),
        scale=tuple(sorted((player[layer], factor) for layer, factor in phase.scale)),
    )


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def apportion(shares: Sequence[float], steps: int) -> tuple[int, ...]:
    """So many of `steps` for each share: the whole part, and one more for those with the largest remainders.

    What is returned sums to `steps`, and none is a step or more from `share * steps / sum(shares)`. Of equal remainders
    the first is served, and remainders are equal that differ by no more than the rounding of shares in floating point
    (`TIE`): 8/35 and 19/35 of 1,000 steps both leave 4/7.

    >>> apportion([0.5, 0.3, 0.2], 7)
    (4, 2, 1)
    """
    total = sum(map(Fraction, shares))
    quotas = [Fraction(share) * steps / total for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda index: round((counts[index] - quotas[index]) / TIE))
    for index in by_remainder[: steps - sum(counts)]:
        counts[index] += 1
    return tuple(counts)
