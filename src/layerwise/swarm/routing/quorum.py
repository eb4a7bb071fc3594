"""The quorum: how much of a model must be left for it to answer, in layers or in the nats that the others cost.

    8 layers      at least 8 layers of the plan are live
    0.5 nats      what is missing costs at most 0.5 nats per token, by the upper end of its interval

Where nobody knows what the missing layers cost, a quorum in nats is not met.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from layerwise.errors import SwarmError
from layerwise.plan.plan import Plan
from layerwise.swarm.answer import Expected


@dataclass(frozen=True, slots=True)
class Quorum:
    """The fewest `layers`, or the most `nats`, with which a request is answered: one of the two."""

    layers: int | None = None
    nats: float | None = None

    def __post_init__(self) -> None:
        if (self.layers is None) == (self.nats is None):
            raise SwarmError("a quorum is in layers or in nats, one of the two: write 8 or 0.5 nats")
        if self.layers is not None and (type(self.layers) is not int or self.layers < 1):
            raise SwarmError(f"a quorum is a whole number of layers from 1, not {self.layers!r}")
        if self.nats is not None and not 0 <= self.nats < float("inf"):
            raise SwarmError(f"a quorum is a number of nats from 0, not {self.nats!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a quorum as a user writes it.

        >>> Quorum.parse("8"), str(Quorum.parse("1 layer")), str(Quorum.parse("0.5 nats"))
        (Quorum(layers=8, nats=None), '1 layer', '0.5 nats')
        """
        match = re.fullmatch(r"\s*(?:(\d+)\s*(?:layers?)?|(\d+(?:\.\d*)?|\.\d+)\s*nats?)\s*", text, re.ASCII)
        if match is None:
            raise SwarmError(f"a quorum is a number of layers, such as 8, or of nats, such as 0.5 nats, not {text!r}")
        return cls(layers=int(match[1])) if match[1] is not None else cls(nats=float(match[2]))

    def __str__(self) -> str:
        if self.layers is not None:
            return f"{self.layers} layer{'s' * (self.layers != 1)}"
        return f"{self.nats:g} nats"

    def check(self, depth: int) -> None:
        """Raise `SwarmError` if a model of so many layers never meets it."""
        if self.layers is not None and self.layers > depth:
            raise SwarmError(f"the model has {depth} layers, so that it never meets a quorum of {self}: write {depth}")

    def verdict(self, live: Collection[int], missing: Collection[int], expected: Expected) -> str | None:
        """Why a request is refused with these layers left and these missing; `None` if the quorum is met."""
        if self.layers is not None:
            if len(live) >= self.layers:
                return None
            total = len(live) + len(missing)
            are = "is" if len(live) == 1 else "are"
            return f"{len(live)} of {total} layers {are} live and the quorum is {self}{_named(missing)}"
        assert self.nats is not None, "a quorum is in layers or in nats"
        if not live:
            return f"no layer is live and the quorum is {self}"
        if expected.high is None:
            return f"nobody knows what the missing layers cost and the quorum is {self}{_named(missing)}"
        if expected.high <= self.nats:
            return None
        return (
            f"the missing layers are expected to cost {expected.nats:.3g} nats per token, at most {expected.high:.3g}, "
            f"and the quorum is {self}{_named(missing)}"
        )


def _named(missing: Collection[int]) -> str:
    return f"; missing: {Plan.of(sorted(missing))}" if missing else ""
