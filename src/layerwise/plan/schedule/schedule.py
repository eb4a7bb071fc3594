"""Growth schedules: training runs in phases, each of which trains some of the layers.

A schedule does not depend on the data, the seed or the learning rate.
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
from layerwise.plan.checks import check_depth, check_tuple, describe_value

SHARE_TOLERANCE = 1e-6
"""Maximum difference of the sum of all shares from 1, since shares are often rounded."""

TIE = Fraction(1, 10**9)
"""Remainders that differ by less than this are equal."""


@dataclass(frozen=True, slots=True)
class GrowthSchedule:
    """Phases of a training run of a model with `depth` layers.

    Raises `PlanError` if the shares do not sum to 1 (within `SHARE_TOLERANCE`), phases have the same name, layers are
    out of range, weights are copied from a layer that has not run, or the last phase does not run all layers.

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
            raise PlanError(f"the name of a schedule must be text such as published, got {describe_value(self.name)}")
        if set(self.name) & set("/\\") or self.name.startswith(".") or not self.name.isprintable():
            raise PlanError(
                "the name of a schedule must be a valid folder name without / or \\ or a leading period, got "
                f"{describe_value(self.name)}"
            )
        check_depth(self.depth)
        check_tuple("a schedule's phases", self.phases, (Phase,))
        self._check_names()
        for phase in self.phases:
            self._check_range(phase)
        self._check_shares()
        self._check_growing()

    def bounds(self, steps: int) -> tuple[tuple[int, int], ...]:
        """Return the half-open range of steps of every phase. Raise `PlanError` if a phase would have no step."""
        if type(steps) is not int or steps < 1:
            raise PlanError(f"steps must be an integer of at least 1, got {describe_value(steps)}")
        counts = apportion([phase.share for phase in self.phases], steps)
        for phase, count in zip(self.phases, counts, strict=True):
            if count == 0:
                phase.refuse(
                    f"a share of {phase.share:g} is less than one of {steps} steps; train for at least "
                    f"{ceil(1 / phase.share)} steps, or increase its share"
                )
        return tuple(pairwise(accumulate(counts, initial=0)))

    def check(self, depth: int) -> None:
        check_depth(depth)
        if depth != self.depth:
            raise PlanError(
                f"the schedule {self.name} is for a model of {counted(self.depth, 'layer')}, but this one has {depth}; "
                f"write a schedule with depth: {depth}, or use a preset, which fits any depth"
            )

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about reinitialized layers that are never trained.

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

    def permuted(self, order: Sequence[int]) -> GrowthSchedule:
        """Return a schedule that treats layer l as this one treats layer `order[l]`, except for drop probabilities.

        Raises `PlanError` unless `order` is a permutation and all layers are present from the start.
        """
        grown = [phase for phase in self.phases if phase.present is not None or phase.copies]
        if grown:
            grown[0].refuse(
                f"the phase adds layers, so the layers of {self.name} cannot exchange roles; use a schedule with all "
                "layers from the start"
            )
        if sorted(order) != list(range(self.depth)):
            raise PlanError(
                f"order must be a permutation of the layers 0 to {self.depth - 1}, got {describe_value(order)}"
            )
        player = {role: layer for layer, role in enumerate(order)}
        return replace(self, phases=tuple(_reassign(phase, player) for phase in self.phases))

    def reversed(self) -> GrowthSchedule:
        """Return a schedule that treats the last layer as this schedule treats the first, and so on."""
        return self.permuted(range(self.depth - 1, -1, -1))

    def to_json(self) -> dict[str, Any]:
        from layerwise.plan.schedule import to_plain

        return to_plain(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> GrowthSchedule:
        """Create a schedule from the result of `to_json`."""
        from layerwise.plan.schedule import from_plain

        return from_plain(content)

    # -- what is refused ----------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        names = [phase.name for phase in self.phases]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise PlanError(f"phase names must be unique, got {twice[0]} twice; rename one")

    def _check_range(self, phase: Phase) -> None:
        fields = {
            "trains": phase.trains,
            "present": phase.present or (),
            "redraw": phase.redraw,
            "scale": [layer for layer, _ in phase.scale],
            "copies": [layer for pair in phase.copies for layer in pair],
        }
        for key, layers in fields.items():
            beyond = [layer for layer in layers if layer >= self.depth]
            if beyond:
                use = f"0 to {self.depth - 1}" if self.depth > 1 else "0"
                phase.refuse(
                    f"{key} lists layer {beyond[0]}, but the schedule is for {counted(self.depth, 'layer')}; use {use}"
                )

    def _check_shares(self) -> None:
        total = sum(phase.share for phase in self.phases)
        if abs(total - 1) > SHARE_TOLERANCE:
            shares = ", ".join(f"{phase.name} {phase.share:g}" for phase in self.phases)
            raise PlanError(f"the shares of the phases must sum to 1, got {total:g}: {shares}")

    def _check_growing(self) -> None:
        seen: set[int] = set()
        for phase in self.phases:
            for layer, source in phase.copies:
                if source not in seen:
                    phase.refuse(
                        f"layer {layer} copies layer {source}, which has not run in an earlier phase; copy a layer "
                        "that has"
                    )
            seen.update(phase.running(self.depth))
        last = self.phases[-1]
        absent = sorted(set(range(self.depth)).difference(last.running(self.depth)))
        if absent:
            last.refuse(f"layer {absent[0]} does not run in the last phase; omit present, so that all layers run")


def _reassign(phase: Phase, player: Mapping[int, int]) -> Phase:
    return replace(
        phase,
        trains=tuple(sorted(player[layer] for layer in phase.trains)),
        redraw=tuple(sorted(player[layer] for layer in phase.redraw)),
        scale=tuple(sorted((player[layer], factor) for layer, factor in phase.scale)),
    )


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def apportion(shares: Sequence[float], steps: int) -> tuple[int, ...]:
    """Divide `steps` in proportion to `shares` by the largest remainder method.

    If remainders are equal up to rounding (`TIE`), the first one gets the step.

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
    """Part of a growth schedule, with its trained layers and settings.

    Before the first step of a phase, weights are copied between layers, layers are reinitialized, matrices are scaled,
    and the optimizer is reset, in this order. Layers are numbered from 0 and listed in ascending order.

    Attributes:
        name: Name in rows, logs and errors.
        share: Share of the training steps, in (0, 1].
        trains: Layers that are trained.
        embedding: Train everything before the layers.
        head: Train everything after the layers.
        present: Layers that run (default: all).
        rate: Factor on the learning rate.
        shape: Learning rate: that of the training run (`run`), `constant`, or `linear` or `cosine` decay to 0.
        warmup: Fraction of the phase in which the learning rate rises from 0. With the shape `run`, it must be 0.
        optimizer: Keep the optimizer state when the phase begins (`keep`), or reset it (`drop`).
        redraw: Layers that are reinitialized with new random weights.
        scale: (layer, factor) pairs: all matrices of the layer are multiplied by the factor.
        copies: (layer, source) pairs: the weights of `source` are copied into `layer`.
        sample: Number of layers of `trains` that are trained at a time, drawn at random (default: all).
        every: Number of steps after which the layers of `sample` are drawn again.
        drop: Probabilities of skipping the last layer, at the beginning and end of the phase; see `dropped`.

    >>> Phase("core", share=0.25, trains=(4, 5), embedding=False).prefix(depth=12)
    (0, 1, 2, 3)
    """

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
                "the name of a phase must be at most 40 letters, digits, spaces and hyphens, such as maturation, got "
                f"{describe_value(self.name)}"
            )
        self._check_rate()
        self._check_layers()
        self._check_chance()

    def running(self, depth: int) -> tuple[int, ...]:
        return tuple(range(depth)) if self.present is None else self.present

    def prefix(self, depth: int) -> tuple[int, ...]:
        """Return the layers below everything that is trained. They run, but need no gradients.

        >>> Phase("head", share=1, trains=(), embedding=False).prefix(depth=3)
        (0, 1, 2)
        """
        if self.embedding:
            return ()
        return tuple(layer for layer in self.running(depth) if not self.trains or layer < self.trains[0])

    def dropped(self, progress: float, depth: int) -> tuple[float, ...]:
        """Return the probability of skipping each running layer at `progress` (0 to 1) of the phase.

        Layer l of L (counted from 0) is skipped with probability p (l + 1) / L, where p grows linearly from `drop[0]`
        to `drop[1]` (Zhang and He, 2020, arXiv 2010.13369).

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
            self.refuse(f"share must be in (0, 1], got {describe_value(self.share)}")
        if not _is_number(self.rate) or self.rate <= 0:
            self.refuse(
                f"rate must be a positive factor of the learning rate, got {describe_value(self.rate)}; to freeze a "
                "layer, omit it from trains"
            )
        self._check_word("shape", self.shape, get_args(Shape))
        self._check_word("optimizer", self.optimizer, get_args(Optimizer))
        for name in ("embedding", "head"):
            if type(getattr(self, name)) is not bool:
                self.refuse(f"{name} must be true or false, got {describe_value(getattr(self, name))}")
        if not _is_number(self.warmup) or not 0 <= self.warmup < 1:
            self.refuse(f"warmup must be in [0, 1), a share of the phase's steps, got {describe_value(self.warmup)}")
        if self.warmup and self.shape == "run":
            self.refuse(
                "warmup must be 0 with shape: run, which has the warm-up of the training run; omit warmup, or write "
                "shape: constant, linear or cosine"
            )

    def _check_word(self, what: str, word: object, choices: Sequence[str]) -> None:
        if word not in choices:
            self.refuse(f"unknown {what} {describe_value(word)}; {near_matches(str(word), choices)}")

    def _check_layers(self) -> None:
        self._check_ascending("trains", self.trains)
        self._check_ascending("redraw", self.redraw)
        self._check_pairs("scale", self.scale, "(7, 0.9)")
        self._check_pairs("copies", self.copies, "(4, 0)")
        for layer, factor in self.scale:
            if not _is_number(factor):
                self.refuse(f"the scale of layer {layer} must be a finite number, got {describe_value(factor)}")
        targets = self._check_copies()
        if not (self.trains or self.embedding or self.head):
            self.refuse("a phase must train something; list layers under trains, or train the embedding or the head")
        if self.present is None:
            return
        self._check_ascending("present", self.present)
        if not self.present:
            self.refuse("present must not be empty; omit it to run all layers")
        scaled = tuple(layer for layer, _ in self.scale)
        for name, layers in {"trains": self.trains, "redraw": self.redraw, "scale": scaled, "copies": targets}.items():
            absent = [layer for layer in layers if layer not in self.present]
            if absent:
                self.refuse(f"{name} lists layer {absent[0]}, which does not run in this phase; add it to present")

    def _check_copies(self) -> tuple[int, ...]:
        for layer, source in self.copies:
            if type(source) is not int or source < 0 or source == layer:
                self.refuse(f"layer {layer} must copy another layer, got {describe_value(source)}")
        targets = tuple(layer for layer, _ in self.copies)
        twice = [layer for layer in targets if layer in self.redraw]
        if twice:
            self.refuse(f"layer {twice[0]} is both copied into and redrawn; list it under copies or redraw, not both")
        return targets

    def _check_pairs(self, what: str, pairs: object, example: str) -> None:
        if type(pairs) is not tuple or any(type(pair) is not tuple or len(pair) != 2 for pair in pairs):
            self.refuse(f"{what} must be a tuple of pairs such as {example}, got {describe_value(pairs)}")
        self._check_ascending(what, tuple(layer for layer, _ in pairs))

    def _check_ascending(self, what: str, layers: object) -> None:
        if type(layers) is not tuple or any(type(layer) is not int or layer < 0 for layer in layers):
            self.refuse(f"{what} must be a tuple of layer numbers such as (4, 5), got {describe_value(layers)}")
        if list(layers) != sorted(set(layers)):
            self.refuse(f"{what} must be ascending without duplicates, got {describe_value(layers)}")

    def _check_chance(self) -> None:
        if self.sample is not None and (type(self.sample) is not int or not 1 <= self.sample <= len(self.trains)):
            self.refuse(
                f"sample must be from 1 to {len(self.trains)}, the number of layers under trains, got "
                f"{describe_value(self.sample)}"
            )
        if type(self.every) is not int or self.every < 1:
            self.refuse(f"every must be a number of steps of at least 1, got {describe_value(self.every)}")
        if self.every > 1 and self.sample is None:
            self.refuse("every requires sample; write sample too, or omit every")
        pair = type(self.drop) is tuple and len(self.drop) == 2
        if not pair or not all(_is_number(chance) and 0 <= chance < 1 for chance in self.drop):
            self.refuse(
                "drop must be two probabilities in [0, 1), for the first and last step, such as (0.0, 0.5), got "
                f"{describe_value(self.drop)}"
            )


def _is_number(value: object) -> bool:
    limit = sys.float_info.max  # an int may be larger, and then does not convert to a float
    return type(value) in (int, float) and -limit <= value <= limit  # type: ignore[operator]
