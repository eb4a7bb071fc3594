"""A phase of a growth training: which layers learn for a share of the steps, at what rate, and what happens first.

Before its first step, in this order, weights are copied between layers, layers get new random weights, matrices are
multiplied by a factor, and the optimizer is reset. The layers below everything that learns are its `prefix`, without
gradients. A phase checks what holds for any model; its `GrowthSchedule` checks the layers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias, get_args

from layerwise.errors import PlanError, near_matches
from layerwise.plan.checks import shown

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
