"""A sample of a text that grows by strata: the next documents are those that take most from the variance for their
tokens.

With n_h documents read of stratum h, of c_h tokens each, and a variance v_h that one document would leave in the
estimate, one more document takes v_h (1 / n_h - 1 / (n_h + 1)) = v_h / (n_h (n_h + 1)) from it. The documents go one by
one to the stratum where this is most for its c_h tokens, which ends at Neyman's allocation n_h ~ sqrt(v_h / c_h)
(Cochran 1977, section 5.5). Where the v_h are not known yet, the strata share the documents equally: that is the first
of two phases, and says what the v_h are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from layerwise.measure.stats.grid import Piece
from layerwise.measure.stats.strata import Strata


@dataclass
class StratifiedSample:
    """The pieces of each stratum in the order in which they are read, and how many of them were.

    >>> lengths = {("a", str(n), -1): 2 for n in range(20)} | {("b", str(n), -1): 6 for n in range(20)}
    >>> sample = StratifiedSample.of(lengths, lengths, Strata.of(lengths))
    >>> len(sample.first(8)), sample.taken
    (8, {'b': 4, 'a': 4})
    >>> len(sample.more(12, {"a": 1.0, "b": 1.0})), sample.taken, sample.tokens
    (4, {'b': 4, 'a': 8}, 40)
    """

    queues: Mapping[str, list[Piece]]
    lengths: Mapping[Piece, int]
    taken: dict[str, int] = field(default_factory=dict)
    tokens: int = 0

    @classmethod
    def of(cls, order: Iterable[Piece], lengths: Mapping[Piece, int], strata: Strata) -> StratifiedSample:
        """Nothing read yet of pieces that are to be read in `order`; the heaviest stratum comes first."""
        heaviest = sorted(strata.weight, key=lambda name: -strata.weight[name])
        queues: dict[str, list[Piece]] = {name: [] for name in heaviest}
        for piece in order:
            queues[strata.of_task[piece[0]]].append(piece)
        return cls(queues, lengths, dict.fromkeys(queues, 0))

    @property
    def documents(self) -> int:
        """How many pieces were read."""
        return sum(self.taken.values())

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing left to read."""
        return not self._open()

    def share(self, name: str) -> float:
        """The share of the pieces of a stratum that was read."""
        return self.taken[name] / len(self.queues[name])

    def first(self, count: int) -> list[Piece]:
        """The first `count` pieces, or all there are: in turn from every stratum."""
        added: list[Piece] = []
        while len(added) < count and (names := self._open()):
            added += [self._take(name) for name in names[: count - len(added)]]
        return added

    def more(self, tokens: int, variances: Mapping[str, float]) -> list[Piece]:
        """Further pieces of at most so many tokens together; `variances` are the v_h, in any unit."""
        cost = {name: sum(map(self.lengths.__getitem__, queue)) / len(queue) for name, queue in self.queues.items()}
        added: list[Piece] = []
        until = self.tokens + tokens
        while names := self._open():
            gains = {name: variances[name] / (self.taken[name] * (self.taken[name] + 1) * cost[name]) for name in names}
            name = max(names, key=gains.__getitem__)
            if self.tokens + self.lengths[self._next(name)] > until:
                break
            added.append(self._take(name))
        return added

    def _open(self) -> list[str]:
        return [name for name, queue in self.queues.items() if self.taken[name] < len(queue)]

    def _next(self, name: str) -> Piece:
        return self.queues[name][self.taken[name]]

    def _take(self, name: str) -> Piece:
        piece = self._next(name)
        self.taken[name] += 1
        self.tokens += self.lengths[piece]
        return piece
