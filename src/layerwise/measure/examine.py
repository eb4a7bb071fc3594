"""Carry out an examination: one model, one text, every part into a run folder that outlives the process.

Each part is a function of the model, the text and the rows of earlier parts; this module decides what each is given and
keeps what it returns. A part that is there is not computed again, and inside the long ones nothing finished is: losses
go to the run as they are made. A part that cannot be had of this model (layers of unlike shapes, no random twin, too
little text) says why, in a note that the report prints, and the other parts go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from layerwise.errors import LayerwiseError, MeasureError, RunError
from layerwise.measure import ablation, racing, verdicts
from layerwise.measure.activations import activations
from layerwise.measure.agreement import agreement
from layerwise.measure.contrasts import agreement as metrics
from layerwise.measure.contrasts import importance_range, joint_collapse, redundant_sets, scaling
from layerwise.measure.contrasts.contrast import MEASURE as CONTRAST
from layerwise.measure.contrasts.contrast import renewed
from layerwise.measure.contrasts.layers import CORE, core
from layerwise.measure.contrasts.order import ORDER, order_by_task
from layerwise.measure.contrasts.states import MIDDLE, middle
from layerwise.measure.deltas import deltas
from layerwise.measure.effects import effects
from layerwise.measure.examination import Examination
from layerwise.measure.interventions import Ledger
from layerwise.measure.manipulation import manipulation
from layerwise.measure.order import members as reordered
from layerwise.measure.predictability import predictability
from layerwise.measure.provenance import provenance
from layerwise.measure.proxies import cost_ratio, proxies
from layerwise.measure.pruning import pruning
from layerwise.measure.rankings import rankings
from layerwise.measure.reading import Reading, sample, split, too_little
from layerwise.measure.recovery import DEFAULT_TREATMENTS, TREATMENTS, RecoveryLedger, recovery
from layerwise.measure.spectra import spectra
from layerwise.measure.sweep import plan_records, sweep
from layerwise.measure.use_cost import joint_sets
from layerwise.plan import Plan
from layerwise.results import Manifest, Run, Score
from layerwise.results.rows import Loss
from layerwise.stack import Stack

RECOVERY_RUNS = "recovery_run"

DONE = "done"
"""The metric of measure `examination` that says the part it is about is complete."""

COST_TOKENS = 500
"""Scored tokens on which the price of the proxies is measured: two passes are timed in turns, four times each."""

TIMES = "run"
"""The measure of rows that are times: the only ones that differ from run to run."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told how an examination goes: `say` receives sentences, `progress` a part and the share of it done."""

    say: Callable[[str], None] = lambda text: None
    progress: Callable[[str, float], None] = lambda part, share: None


def manifest_of(stack: Stack, reading: Reading, asked: Examination, command: tuple[str, ...] = ()) -> Manifest:
    """The provenance of an examination of `stack` on `reading`."""
    return provenance(
        stack, reading, families=asked.settings(), seed=asked.seed, command=command,
        settings={"batch_tokens": asked.batch_tokens},
    )  # fmt: skip


def examine(stack: Stack, reading: Reading, asked: Examination, run: Run, watcher: Watcher | None = None) -> None:
    """Carry `asked` out into `run`; what is there already is not computed again.

    Raises `MeasureError` for a model with fewer than 4 layers, of which nothing here can be asked, and for one whose
    own losses are not finite. A full disk, or any other `RunError`, ends the examination; every other refusal ends its
    part alone.
    """
    ablation.refuse_shallow(stack)
    watcher = watcher or Watcher()
    work = _Work(stack, reading, asked, run, watcher)
    for number, part in enumerate(asked.parts, start=1):
        if part in work.finished:
            continue
        watcher.say(f"{part} ({number} of {len(asked.parts)})")
        notes: list[str] = []
        start = time.perf_counter()
        try:
            PARTS[part](work, notes.append)
        except RunError:
            raise
        except LayerwiseError as refusal:
            notes.append(str(refusal))
        run.store.replace_notes(part, notes)
        for text in notes:
            watcher.say(f"{part}: {text}")
        work.note_time(Score(TIMES, part, "all", "seconds", time.perf_counter() - start))
        work.finish(part)
    if all(score.measure in (TIMES, "examination") for score in run.store.scores()):
        raise MeasureError("; ".join(note.text for note in run.store.notes()) or "nothing could be measured")


@dataclass
class _Work:
    """An examination under way: what it is of, what it asks, and where its rows go."""

    stack: Stack
    reading: Reading
    asked: Examination
    run: Run
    watcher: Watcher
    finished: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.finished = {score.subject for score in self.run.store.scores("examination", metric=DONE)}

    @property
    def seed(self) -> int:
        return self.asked.seed

    @property
    def baseline(self) -> str:
        return str(Plan.identity(self.stack.depth))

    @cached_property
    def short(self) -> Reading:
        """The text of curves and sets."""
        return sample(self.reading, self.asked.curve_tokens, self.seed)

    @cached_property
    def ablated(self) -> Reading:
        """The text of the interventions."""
        budget = self.asked.budget
        return self.reading if budget is None else sample(self.reading, budget, self.seed)

    def scores(self, *measures: str) -> list[Score]:
        return [score for measure in measures for score in self.run.store.scores(measure)]

    def ledger(self, part: str, say: Callable[[str], None]) -> Ledger:
        """Everything the run holds, and a place for more."""
        return Ledger(
            known=tuple(self.run.store.losses()),
            sink=self.run.store.add_losses,
            progress=lambda share: self.watcher.progress(part, share),
            say=say,
        )

    def keep(self, measure: str, rows: Iterable[Score]) -> None:
        self.run.store.replace_scores(measure, rows)

    def losses(self) -> list[Loss]:
        """Every loss that the run holds."""
        return list(self.run.store.losses())

    def decide(self, claim: str, rows: Iterable[Score]) -> None:
        """Keep the contrasts of one claim."""
        self.keep(CONTRAST, renewed(self.scores(CONTRAST), list(rows), (claim,)))

    def note_time(self, row: Score) -> None:
        others = [each for each in self.scores(TIMES) if (each.subject, each.metric) != (row.subject, row.metric)]
        self.keep(TIMES, [*others, row])

    def finish(self, part: str) -> None:
        self.finished.add(part)
        done = [Score("examination", name, "all", DONE, 1.0) for name in sorted(self.finished)]
        self.keep("examination", done)


Say = Callable[[str], None]


def _say_too_little(reading: Reading, say: Say, parts: int = 1) -> None:
    """Say what a text lacks for intervals; `reading` is one of so many `parts` of it."""
    lacking = too_little(reading, parts)
    if lacking is not None:
        say(lacking)


def _proxies(work: _Work, say: Say) -> None:
    _say_too_little(work.reading, say)
    work.keep("proxies", proxies(work.stack, work.reading, seed=work.seed))
    work.decide(MIDDLE, middle(work.stack, work.reading, work.short, seed=work.seed))
    price = cost_ratio(work.stack, sample(work.reading, COST_TOKENS, work.seed))
    work.note_time(replace(price, measure=TIMES, subject="proxies"))


def _structure(work: _Work, say: Say) -> None:
    """Of the weights and of the activations; either may be had without the other."""
    _say_too_little(work.reading, say)
    sides: tuple[Callable[[], list[Score]], ...] = (
        partial(spectra, work.stack, seed=work.seed),
        partial(activations, work.stack, work.reading, seed=work.seed),
    )
    rows: list[Score] = []
    for measure in sides:
        try:
            rows += measure()
        except MeasureError as refusal:
            say(str(refusal))
    work.keep("structure", rows)


def _deltas(work: _Work, say: Say) -> None:
    work.keep("deltas", deltas(work.stack, seed=work.seed))


def _predictability(work: _Work, say: Say) -> None:
    _say_too_little(work.short, say)
    ledger = work.ledger("predictability", say)
    work.keep("predictability", predictability(work.stack, work.short, seed=work.seed, ledger=ledger))
    subject, layers = list(joint_sets(work.stack.depth).items())[-1]
    decided = joint_collapse.joint_collapse(work.losses(), work.baseline, subject, layers, seed=work.seed)
    work.decide(joint_collapse.CLAIM, decided)


def _ablation(work: _Work, say: Say) -> None:
    losses = ablation.ablation_losses(work.stack, work.ablated, seed=work.seed, ledger=work.ledger("ablation", say))
    work.keep("ablation", ablation.ablation_of(work.stack, losses, seed=work.seed))
    work.decide(CORE, _core(work, losses))
    skips = list(ablation.skip_keys(work.stack.depth).values())
    decided = importance_range.importance_range(losses, work.baseline, skips, seed=work.seed)
    work.decide(importance_range.CLAIM, decided)
    if work.asked.budget is None:
        keys = ablation.skip_keys(work.stack.depth)
        found = verdicts.verdicts(losses, work.baseline, keys, seed=work.seed, rule=work.asked.rule)
        work.keep(verdicts.MEASURE, [*found, _margin(work)])


def _core(work: _Work, losses: Sequence[Loss]) -> list[Score]:
    measured = {row.plan for row in losses}
    skip, average, random = (
        {layer: key for layer, key in ablation.intervention_keys(work.stack.depth, name).items() if key in measured}
        for name in ("skip", "neighbour_average", "random")
    )
    return core(losses, work.baseline, skip, average, random, margin=work.asked.margin, seed=work.seed)


def _margin(work: _Work) -> Score:
    """What counts as an effect in this run."""
    return Score(verdicts.MEASURE, "all", "all", verdicts.MARGIN, work.asked.margin)


def _racing(work: _Work, say: Say) -> None:
    """With a budget the race is run and gives the verdicts; without one it tells what it would have saved."""
    rows = racing.racing(
        work.stack, work.reading, budget=work.asked.budget, seed=work.seed, rule=work.asked.rule,
        ledger=work.ledger("racing", say),
    )  # fmt: skip
    work.keep(racing.MEASURE, rows)
    if work.asked.budget is not None:
        found = [replace(row, measure=verdicts.MEASURE) for row in rows if row.subject != racing.RACE]
        work.keep(verdicts.MEASURE, [*found, _margin(work)])


def _order(work: _Work, say: Say) -> None:
    _say_too_little(work.reading, say)
    chosen = reordered(work.stack.depth)
    store = work.run.store
    sweep(work.stack, chosen, work.reading, sink=store.add_losses, finished=store.finished)
    wanted = {work.baseline, *(str(member.plan) for member in chosen)}
    # Other parts read shorter windows, of which the model as trained has losses too.
    cells = work.reading.cells
    losses = [row for row in store.losses() if row.plan in wanted and (row.task, row.document, row.window) in cells]
    store.add_plans(plan_records(chosen))
    found = effects(losses, work.baseline, seed=work.seed, answer_tasks=work.reading.scored_answer_tasks)
    work.keep("effect", found)
    absent = next((str(member.plan) for member in chosen if member.strategy == "skip"), None)
    moved = [str(member.plan) for member in chosen if member.strategy != "skip"]
    answers = work.reading.scored_answer_tasks
    work.decide(ORDER, order_by_task(losses, work.baseline, moved, absent, answers, seed=work.seed))


def _manipulation(work: _Work, say: Say) -> None:
    _say_too_little(work.short, say)
    ledger = work.ledger("manipulation", say)
    work.keep("manipulation", manipulation(work.stack, work.short, seed=work.seed, ledger=ledger))
    work.decide(scaling.CLAIM, scaling.scaling(work.losses(), work.baseline, seed=work.seed))


def _recovery(work: _Work, say: Say) -> None:
    runs = work.scores(RECOVERY_RUNS)

    def sink(rows: Sequence[Score]) -> None:
        runs.extend(rows)
        work.keep(RECOVERY_RUNS, runs)

    ledger = RecoveryLedger(
        known=tuple(runs), sink=sink, progress=lambda share: work.watcher.progress("recovery", share), say=say
    )
    thorough = work.asked.thorough
    rows = recovery(
        work.stack, work.reading, layers=range(work.stack.depth) if thorough else None,
        treatments=TREATMENTS if thorough else DEFAULT_TREATMENTS, seed=work.seed, effects=work.scores("ablation"),
        ledger=ledger,
    )  # fmt: skip
    work.keep("recovery", rows)


def _agreement(work: _Work, say: Say) -> None:
    known = work.ledger("agreement", say)
    losses = ablation.ablation_losses(work.stack, work.ablated, seed=work.seed, ledger=known)
    work.keep("agreement", agreement(work.scores("ablation", "proxies", "recovery"), seed=work.seed, losses=losses))
    scores = work.scores("predictability", "ablation", "recovery", "manipulation", "proxies")
    work.decide(metrics.CLAIM, metrics.agreement(metrics.published_metrics(scores), seed=work.seed))


def _pruning(work: _Work, say: Say) -> None:
    """Sets are chosen by scores of one half of the text and judged on the other."""
    first, second = split(work.ablated, work.seed)
    ledger = work.ledger("pruning", say)
    scores = [
        *ablation.ablation(work.stack, first, seed=work.seed, ledger=ledger),
        *proxies(work.stack, first, seed=work.seed),
    ]
    fresh = sample(second, work.asked.curve_tokens, work.seed)
    _say_too_little(fresh, say, parts=2)
    rows, records = pruning(work.stack, fresh, scores, seed=work.seed, ledger=ledger)
    work.run.store.add_plans(records)
    work.keep("pruning", rows)
    ranking = rankings(scores).get("skip", {})
    decided = redundant_sets.redundant_sets(work.losses(), work.baseline, records, ranking, seed=work.seed)
    work.decide(redundant_sets.CLAIM, decided)


PARTS: dict[str, Callable[[_Work, Say], None]] = {
    "proxies": _proxies,
    "structure": _structure,
    "deltas": _deltas,
    "predictability": _predictability,
    "ablation": _ablation,
    "racing": _racing,
    "order": _order,
    "manipulation": _manipulation,
    "recovery": _recovery,
    "agreement": _agreement,
    "pruning": _pruning,
}
"""What carries out each part of an examination."""
