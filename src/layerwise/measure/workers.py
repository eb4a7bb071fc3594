"""Workers: what carries the pieces of a work out, in this process or in others.

A piece is a plain value that says what is to be done, such as the number of a batch and the texts of plans. A worker is
told which function opens what the pieces are about (a model, a text), and calls what that returns with one piece after
the other. A piece emits its partial results while it is at work, so that nothing finished is lost with a worker.

Here is the protocol, and the workers that are none: this process itself. Those on other machines are
`layerwise.swarm.cluster.workers.RayWorkers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

Plain: TypeAlias = Any
"""None, a truth value, a number, a text, bytes, or a list, tuple or dict of these: what may travel."""

Emit = Callable[[Plain], None]
"""Takes a partial result of a piece."""

PieceFunction = Callable[[Plain, Emit], Plain]
"""Carries one piece out; returns its result."""

OnPartial = Callable[[int, Plain], None]
"""Takes the number of a piece and a partial result of it."""


class Workers(Protocol):
    """Carries pieces out, each once to its end; `count` of them at a time."""

    @property
    def count(self) -> int:
        """How many pieces are carried out at the same time, at most."""
        ...

    def map(
        self,
        opens: str,
        shared: Mapping[str, Plain],
        pieces: Sequence[Plain],
        *,
        here: PieceFunction,
        on_partial: OnPartial | None = None,
        rest: Callable[[Plain], Plain] | None = None,
    ) -> Iterator[tuple[int, Plain]]:
        """The number and the result of every piece, as they are done.

        `opens` names, as `layerwise.module:function`, what each worker calls once with `shared` to get a
        `PieceFunction`; `here` is that function in this process. `on_partial` is called in this process with what
        pieces emit, in their order. `rest` is asked what is left of a piece, just before it is begun: a piece whose
        worker died is begun again by another one.

        A `LayerwiseError` of a piece is raised, as it would be in this process. Raises `SwarmError`, once every other
        piece is done, for pieces whose workers died again and again.
        """
        ...

    def close(self) -> None:
        """Let every worker go. Closing twice does nothing."""
        ...


class ThisProcess:
    """The workers of a work that is not spread: one piece after the other, in this process, by `here`.

    >>> def double(piece, emit):
    ...     emit("begun")
    ...     return 2 * piece
    >>> list(ThisProcess().map("layerwise.module:function", {}, [1, 2], here=double))
    [(0, 2), (1, 4)]
    """

    count = 1

    def map(
        self,
        opens: str,
        shared: Mapping[str, Plain],
        pieces: Sequence[Plain],
        *,
        here: PieceFunction,
        on_partial: OnPartial | None = None,
        rest: Callable[[Plain], Plain] | None = None,
    ) -> Iterator[tuple[int, Plain]]:
        """The number and the result of every piece, in their order."""
        for number, piece in enumerate(pieces):
            emit = partial(on_partial, number) if on_partial is not None else _unheard
            yield number, here(piece if rest is None else rest(piece), emit)

    def close(self) -> None:
        """Nothing was started."""


@dataclass(frozen=True)
class Spread:
    """Workers, and how they open what their pieces are about: the first two arguments of `Workers.map`."""

    workers: Workers = field(default_factory=ThisProcess)
    opens: str = ""
    shared: Mapping[str, Plain] = field(default_factory=dict)

    @property
    def is_here(self) -> bool:
        """Whether everything is carried out in this process."""
        return isinstance(self.workers, ThisProcess)

    def map(
        self,
        pieces: Sequence[Plain],
        here: PieceFunction,
        *,
        on_partial: OnPartial | None = None,
        rest: Callable[[Plain], Plain] | None = None,
    ) -> Iterator[tuple[int, Plain]]:
        """The number and the result of every piece, as they are done; see `Workers.map`."""
        return self.workers.map(self.opens, self.shared, pieces, here=here, on_partial=on_partial, rest=rest)


def _unheard(news: Plain) -> None:
    """What nobody listens to."""
