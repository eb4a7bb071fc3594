"""Racing: stop spending text on layers whose verdict is settled.

"Which layers can go?" needs few documents for a layer that is worth a nat, and many for one that is worth nothing. The
race looks at the documents in stages, each twice as many as before, and after every look drops the layers whose
simultaneous interval settles the question (`Effect.decide`). With L layers and K possible looks every interval is taken
at `1 - alpha / (L * K)`, so the chance of any wrong decision at any look stays below `alpha`, whenever the race stops
(Bonferroni over looks and layers; Maron and Moore 1994, Hoeffding races, with Student's intervals in the place of
Hoeffding's).

Every look has documents of every task, and an effect keeps the mix of the whole text (`layerwise.measure.strata`): an
interval from a few short answers says nothing of prose. The documents are split first: the race runs on one half, and
what it finds harmful is confirmed on the other, which it has not seen. The verdicts and their words are those of
`layerwise.measure.verdicts`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from layerwise.measure.ablation import refuse_shallow, skip_keys, skips
from layerwise.measure.grid import FEWEST_UNITS, Grid, arrange
from layerwise.measure.interventions import Ledger, intervention_losses
from layerwise.measure.reading import Piece, Reading, pieces, portion, shuffled
from layerwise.measure.rule import Decision, Rule
from layerwise.measure.strata import Effect, Strata, stratified
from layerwise.measure.verdicts import confirmed, limit, refuse_too_little
from layerwise.plan import Plan
from layerwise.results.rows import Loss, Score
from layerwise.stack import Stack

MEASURE = "racing"
RACE = "race"

Measure = Callable[[Collection[int], Sequence[Piece]], list[Loss]]
"""The losses of the untouched model and of skipping each of these layers, on these pieces of text."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Where one layer left the race: the decision, the effect it rests on, and the text that was spent on it.

    `limit` is the X of "no effect above X nats".
    """

    decision: Decision
    effect: Effect
    limit: float
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Result:
    """How every layer finished, after how many looks, and what that took.

    `spent` and `full` count layer evaluations times tokens: of the race, confirmation included, and of skipping every
    layer on all of the text.
    """

    finishes: Mapping[int, Finish]
    looks: int
    spent: int
    full: int


def racing(
    stack: Stack,
    reading: Reading,
    *,
    budget: int | None = None,
    seed: int = 0,
    rule: Rule | None = None,
    ledger: Ledger | None = None,
) -> list[Score]:
    """Race the layers of `stack` on `reading`; at most `budget` scored tokens are spent on any of them, or one look.

    Rows: for every layer its decision (`matters`, `no_effect`, `harmful`) with the effect, its simultaneous interval,
    the X of "no effect above X nats" as `resolution`, and the documents and tokens spent; for the subject `race` the
    metrics `evaluations` and `evaluations_full` (layer evaluations times tokens, of the race and of skipping every
    layer on every document), `share` and `looks`.

    Raises `MeasureError` for fewer than 4 layers, and for too little text.
    """
    refuse_shallow(stack)
    ledger = ledger or Ledger()
    candidates = skips(stack.depth)

    def measure(layers: Collection[int], text: Sequence[Piece]) -> list[Loss]:
        return intervention_losses(stack, [candidates[layer] for layer in layers], portion(reading, text), ledger)

    return rows(race(measure, stack.depth, pieces(reading), budget=budget, seed=seed, rule=rule))


def race(
    measure: Measure,
    depth: int,
    lengths: Mapping[Piece, int],
    *,
    budget: int | None = None,
    seed: int = 0,
    rule: Rule | None = None,
) -> Result:
    """Race `depth` layers over pieces of text, each with its length in scored tokens; `measure` does the work.

    Each look asks only for the text it adds, and only for the layers that are still in.
    """
    order = shuffled(lengths, seed)
    runners, fresh = order[::2], order[1::2]
    running = _Race(measure, depth, lengths, rule or Rule())
    looks = _looks(runners, lengths, running.strata, budget)
    for number, added in enumerate(looks, start=1):
        running.look(added, number, len(looks))
        if not running.left:
            break
    running.confirm(fresh)
    full = sum(lengths.values()) * _evaluations(range(depth), depth)
    return Result(running.finishes, running.looks, running.spent, full)


def rows(result: Result) -> list[Score]:
    """A race as rows; `racing` says which."""
    scores = [
        Score(
            MEASURE, str(layer), "all", finish.decision, finish.effect.value, finish.effect.low, finish.effect.high,
            resolution=finish.limit, documents=finish.documents, tokens=finish.tokens,
        )
        for layer, finish in sorted(result.finishes.items())
    ]  # fmt: skip
    figures = {
        "evaluations": result.spent,
        "evaluations_full": result.full,
        "share": result.spent / result.full,
        "looks": result.looks,
    }
    return [*scores, *(Score(MEASURE, RACE, "all", name, float(value)) for name, value in figures.items())]


@dataclass
class _Race:
    """A race under way: the losses so far, and how the layers that have left it finished."""

    measure: Measure
    depth: int
    lengths: Mapping[Piece, int]
    rule: Rule
    losses: list[Loss] = field(default_factory=list)
    finishes: dict[int, Finish] = field(default_factory=dict)
    looks: int = 0
    spent: int = 0

    def __post_init__(self) -> None:
        self.strata = Strata.of(self.lengths)
        self.keys = skip_keys(self.depth)
        self.baseline = str(Plan.identity(self.depth))

    @property
    def left(self) -> list[int]:
        """The layers still in the race."""
        return [layer for layer in self.keys if layer not in self.finishes]

    def look(self, added: Sequence[Piece], number: int, last: int) -> None:
        """Read more text for the layers still in, and let go those that it settles; the last look settles all."""
        running = {layer: self.keys[layer] for layer in self.left}
        grid = self._read(running, added, self.losses)
        refuse_too_little(grid)
        level = 1 - self.rule.alpha / (self.depth * last)
        found = stratified(grid, self.baseline, list(running.values()), self.strata, level)
        for layer, effect in zip(running, found, strict=True):
            decision = self.rule.concludes(effect) if number == last else self.rule.settles(effect)
            if decision is not None:
                above = limit(effect, decision, self.depth * last, self.rule)
                self.finishes[layer] = Finish(decision, effect, above, grid.documents(), int(grid.tokens.sum()))
        self.looks = number

    def confirm(self, fresh: Sequence[Piece]) -> None:
        """Take back every `harmful` that fresh text does not confirm."""
        suspects = {layer: self.keys[layer] for layer, end in self.finishes.items() if end.decision == "harmful"}
        if not suspects:
            return
        held = confirmed(self._read(suspects, fresh, []), self.baseline, suspects, self.strata, self.rule)
        for layer in suspects.keys() - set(held):
            self.finishes[layer] = replace(self.finishes[layer], decision="no_effect")

    def _read(self, keys: Mapping[int, str], added: Sequence[Piece], losses: list[Loss]) -> Grid:
        """Measure `keys` on more text, add that to `losses`, and arrange what there is of them."""
        losses += self.measure(list(keys), added)
        self.spent += sum(self.lengths[piece] for piece in added) * _evaluations(keys, self.depth)
        wanted = {self.baseline, *keys.values()}
        return arrange(row for row in losses if row.plan in wanted)


def _looks(
    runners: Sequence[Piece], lengths: Mapping[Piece, int], strata: Strata, budget: int | None
) -> list[list[Piece]]:
    """The text that each look adds: of every stratum the fewest that give an interval, then as many again, and so on.

    The first look is always made; a further one only where the budget, in scored tokens, pays for all of it.
    """
    queues: dict[str, list[Piece]] = {name: [] for name in strata.weight}
    for piece in runners:
        queues[strata.of_task[piece[0]]].append(piece)
    looks: list[list[Piece]] = []
    seen, spent = 0, 0
    while seen < max(map(len, queues.values())):
        until = max(FEWEST_UNITS, 2 * seen)
        added = [piece for queue in queues.values() for piece in queue[seen:until]]
        spent += sum(lengths[piece] for piece in added)
        if looks and budget is not None and spent > budget:
            break
        looks.append(added)
        seen = until
    return looks


def _evaluations(layers: Collection[int], depth: int) -> int:
    """Layer evaluations of the clean model and of skipping each of `layers`, with the shared beginnings shared."""
    return depth + sum(depth - layer - 1 for layer in layers)
