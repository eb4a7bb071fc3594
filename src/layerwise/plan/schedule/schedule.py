"""A growth schedule: a training in phases, each on the layers that are thought to need it.

It has a name, the depth of its models, and phases that share the steps, but no data, seeds or absolute learning rates.
Steps are shared exactly (`bounds`), by the largest remainder. Errors that need no model are raised when the schedule is
made. `permuted` and `reversed` make controls, in which layers exchange roles.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from layerwise.errors import PlanError, near_matches
from layerwise.plan.checks import check_depth, check_tuple, shown

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


Shape: TypeAlias = Literal["run", "constant", "linear", "cosine"]
Optimizer: TypeAlias = Literal["keep", "drop"]

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9 _.-]{0,38}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Phase:
    """A share of the steps of a training, and all that is particular to it. Layers are ascending and count from 0.

    | field | meaning |
    |---|---|
    | `name` | what rows, logs and errors call it |
    | `share` | of the steps of the training, above 0 and up to 1 |
    | `trains` | the layers whose weights learn; none only where the embedding or the head learns |
    | `embedding`, `head` | whether everything before the layers, and everything behind them, learns |
    | `present` | the layers that run; `None` for all |
    | `rate` | times the learning rate of the training |
    | `shape` | `run`: the training's own curve over all steps; `constant`, `linear` and `cosine`: a curve over this phase, the last two down to 0 at its end |
    | `warmup` | the share of this phase's steps over which a curve of its own rises from 0 |
    | `optimizer` | whether the moments of what learns are kept or dropped when the phase begins; layers that are copied into or redrawn have none left in any case |
    | `redraw` | layers given new random weights when the phase begins |
    | `scale` | (layer, factor): all matrices of the layer, times the factor, when the phase begins |
    | `copies` | (layer, from): `from`'s weights, as they were before the phase, copied into `layer` when it begins |
    | `sample` | of `trains`, so many learn at a time, drawn anew every `every` steps; the others rest |
    | `drop` | stochastic depth: see `dropped` |

    Raises `PlanError`, with the phase's name, for what cannot be true of any model.

    >>> Phase("core", share=0.25, trains=(4, 5), embedding=False).prefix(depth=12)
    (0, 1, 2, 3)
    """  # noqa: E501  (a table's row is one line)

    name: str
    share: float
    trains: tuple[int, ...]
    embedding: bool = True
    head: bool = True
    present: tuple[int, ...] | None = None
    rate: float = 1.0
    shape: Shape = "run"
    warmup: float = 0.0
    optimizer: Optimizer = "keep"
    redraw: tuple[int, ...] = ()
    scale: tuple[tuple[int, float], ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    sample: int | None = None
    every: int = 1
    drop: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if type(self.name) is not str or not _NAME.fullmatch(self.name):
            raise PlanError(
                "a phase has a name of at most 40 letters, digits, spaces and hyphens, such as maturation, not "
                f"{shown(self.name)}"
            )
        self._check_rate()
        self._check_layers()
        self._check_chance()

    def running(self, depth: int) -> tuple[int, ...]:
        """The layers that run, of a model of `depth` layers, in order."""
        return tuple(range(depth)) if self.present is None else self.present

    def prefix(self, depth: int) -> tuple[int, ...]:
        """The running layers below everything that learns; none where the embedding learns.

        >>> Phase("head", share=1, trains=(), embedding=False).prefix(depth=3)
        (0, 1, 2)
        """
        if self.embedding:
            return ()
        return tuple(layer for layer in self.running(depth) if not self.trains or layer < self.trains[0])

    def dropped(self, progress: float, depth: int) -> tuple[float, ...]:
        """The probability that each running layer is left out of a pass, `progress` being 0 at the phase's first step
        and 1 at its last.

        The probability goes in a line from `drop[0]` to `drop[1]`, and the l-th (from 0) of L running layers has it
        times (l + 1) / L: progressive layer dropping (Zhang and He 2020, arXiv 2010.13369).

        >>> Phase("late", share=1, trains=(0, 1), drop=(0.0, 0.5)).dropped(1.0, depth=2)
        (0.25, 0.5)
        """
        first, last = self.drop
        count = len(self.running(depth))
        return tuple((first + (last - first) * progress) * (index + 1) / count for index in range(count))

    # -- what is refused ----------------------------------------------------------------------------------------

    def refuse(self, message: str) -> NoReturn:
        raise PlanError(f"phase {self.name}: {message}")

    def _check_rate(self) -> None:
        if not _is_number(self.share) or not 0 < self.share <= 1:
            self.refuse(f"its share of the steps is a number above 0 and up to 1, not {shown(self.share)}")
        if not _is_number(self.rate) or self.rate <= 0:
            self.refuse(
                f"rate multiplies the learning rate and is above 0, not {shown(self.rate)}; what should not learn is "
                "left out of trains"
            )
        self._check_word("shape", self.shape, get_args(Shape))
        self._check_word("optimizer", self.optimizer, get_args(Optimizer))
        for name in ("embedding", "head"):
            if type(getattr(self, name)) is not bool:
                self.refuse(f"{name} is true or false, not {shown(getattr(self, name))}")
        if not _is_number(self.warmup) or not 0 <= self.warmup < 1:
            self.refuse(f"warmup is a share of the phase's steps, from 0 and below 1, not {shown(self.warmup)}")
        if self.warmup and self.shape == "run":
            self.refuse(
                "with the shape run the rate follows the training's own curve, which has a warm-up of its own; leave "
                "warmup out, or write shape: constant, linear or cosine"
            )

    def _check_word(self, what: str, word: object, known: Sequence[str]) -> None:
        if word not in known:
            self.refuse(f"there is no {what} {shown(word)}; {near_matches(str(word), known)}")

    def _check_layers(self) -> None:
        self._check_ascending("trains", self.trains)
        self._check_ascending("redraw", self.redraw)
        self._check_pairs("scale", self.scale, "(7, 0.9)")
        self._check_pairs("copies", self.copies, "(4, 0)")
        for layer, factor in self.scale:
            if not _is_number(factor):
                self.refuse(f"layer {layer} is scaled by a finite number, not {shown(factor)}")
        targets = self._check_copies()
        if not (self.trains or self.embedding or self.head):
            self.refuse("it trains nothing; name layers under trains, or let the embedding or the head learn")
        if self.present is None:
            return
        self._check_ascending("present", self.present)
        if not self.present:
            self.refuse("no layer is present; leave present out for all of them")
        scaled = tuple(layer for layer, _ in self.scale)
        for name, layers in {"trains": self.trains, "redraw": self.redraw, "scale": scaled, "copies": targets}.items():
            absent = [layer for layer in layers if layer not in self.present]
            if absent:
                self.refuse(f"{name} names layer {absent[0]}, which does not run in it; add it to present")

    def _check_copies(self) -> tuple[int, ...]:
        for layer, source in self.copies:
            if type(source) is not int or source < 0 or source == layer:
                self.refuse(f"layer {layer} takes the weights of another layer, not of {shown(source)}")
        targets = tuple(layer for layer, _ in self.copies)
        twice = [layer for layer in targets if layer in self.redraw]
        if twice:
            self.refuse(f"layer {twice[0]} is copied into and redrawn; name it under copies or under redraw")
        return targets

    def _check_pairs(self, what: str, pairs: object, example: str) -> None:
        if type(pairs) is not tuple or any(type(pair) is not tuple or len(pair) != 2 for pair in pairs):
            self.refuse(f"{what} is a tuple of pairs such as {example}, not {shown(pairs)}")
        self._check_ascending(what, tuple(layer for layer, _ in pairs))

    def _check_ascending(self, what: str, layers: object) -> None:
        if type(layers) is not tuple or any(type(layer) is not int or layer < 0 for layer in layers):
            self.refuse(f"{what} names layers, whole numbers from 0 up, as in (4, 5); found {shown(layers)}")
        if list(layers) != sorted(set(layers)):
            self.refuse(f"{what} names layers once each and in ascending order; found {shown(layers)}")

    def _check_chance(self) -> None:
        if self.sample is not None and (type(self.sample) is not int or not 1 <= self.sample <= len(self.trains)):
            self.refuse(
                f"sample is how many of its {len(self.trains)} layers under trains learn at a time, from 1 up to all, "
                f"not {shown(self.sample)}"
            )
        if type(self.every) is not int or self.every < 1:
            self.refuse(f"every is a number of steps, 1 or more, not {shown(self.every)}")
        if self.every > 1 and self.sample is None:
            self.refuse("every says how often the layers of sample are drawn; write sample too, or leave every out")
        wrong = (
            "drop is two probabilities from 0 and below 1, at its first and its last step, as in (0.0, 0.5), not "
            f"{shown(self.drop)}"
        )
        if type(self.drop) is not tuple or len(self.drop) != 2:
            self.refuse(wrong)
        if not all(_is_number(chance) and 0 <= chance < 1 for chance in self.drop):
            self.refuse(wrong)


def _is_number(value: object) -> bool:
    most = sys.float_info.max  # a whole number may be larger, and then nothing can be computed with it
    return type(value) in (int, float) and -most <= value <= most  # type: ignore[operator]
