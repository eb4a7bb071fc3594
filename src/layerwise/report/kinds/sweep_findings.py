"""From rows to sentences: what a sweep found, said only as far as its numbers carry.

Each finding answers one question. It is `resolved` when its interval (corrected where one pick was made among many)
leaves out zero, `unresolved` when the run was too small to decide, `described` when its rows carry no interval: then
nothing is concluded, and the answer says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from layerwise.report.claims.claim import Position, span
from layerwise.report.claims.contrasts import ALIKE, OF_COSTS, Fact
from layerwise.report.claims.painters import FASTER
from layerwise.report.data import ReportData
from layerwise.report.derived.changes import single
from layerwise.report.derived.contrast import Losses, by_document, contrast, independent
from layerwise.report.derived.curves import at_half, order_strategy
from layerwise.report.derived.loops import by_window, over_windows
from layerwise.report.derived.similarity import Contrasts, Zone, contrast_bounds, matrix
from layerwise.report.derived.zones import trained_zones
from layerwise.report.finding import Finding, Number, State
from layerwise.report.page.number_format import between, is_resolved, percent, tidy
from layerwise.report.page.wording import counted, label, listed
from layerwise.report.show import NUMBER
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import CONTRAST, FEWEST_UNITS, LOG_RATIO

ABSENCE = "skip"
BARE = (
    f"Nothing is concluded: these rows carry no intervals, which take {FEWEST_UNITS} documents or windows on which all"
    " plans were measured."
)
SURVIVES, FADES = 0.75, 0.25  # shares of the contrast that is left without the sink token
SIGNED = NUMBER.but(signed=True)


def findings(data: ReportData) -> tuple[Finding, ...]:
    """Every finding that the rows support, in reading order; none at all for an empty run."""
    losses, rows = by_document(data.losses), at_half(data)
    order = order_strategy(data)
    answers = (
        _layers(data), _ranking(data, rows, losses), _order_by_task(data, rows, order),
        _order_or_absence(data, rows, order, losses), _fragile(data), _loops(data), _zones(data), _sink(data),
    )  # fmt: skip
    return tuple(finding for finding in answers if finding is not None)


def ranked(rows: Rows, task: str | None) -> list[Score]:
    """Every strategy at the window of half the depth on a task, from least to most harmful."""
    return sorted(rows.where(task=task, seed=None), key=lambda row: row.value)


def _shown(row: Score) -> Number:
    return Number(SIGNED.text(row))


def _clear(row: Score) -> bool:
    """Whether the interval leaves out zero."""
    return (row.low is not None and row.low > 0.0) or (row.high is not None and row.high < 0.0)


def _bounded(rows: Iterable[Score]) -> bool:
    """Whether every row has an interval: without one there is no ranking."""
    return all(row.low is not None and row.high is not None for row in rows)


def _layers(data: ReportData) -> Finding | None:
    """Which layer matters most, of those that were left out on the whole text?"""
    rows = [row for row in single(data).where(task=data.tasks[:1]) if math.isfinite(row.value)]
    if len(rows) < 2:
        return None
    question = "Which layer matters most, and which least?"
    if not _bounded(rows):
        return Finding(question, (BARE,), "described")
    most, least = max(rows, key=lambda row: row.value), min(rows, key=lambda row: abs(row.value))
    helped = [row for row in rows if is_resolved(row, data.level) and row.value < 0]
    whole = len(rows) == data.depth
    few = "" if whole else f"Not resolvable: {len(rows)} of {counted(data.depth, 'layer')} were left out. Of these "
    pieces = [
        f"{few}{'layer' if few else 'Layer'} {most.layer}: dropping it costs ", _shown(most),
        f" nats per token; layer {least.layer} moves the loss least, ", _shown(least), ". ", _silence(rows, data.level),
    ]  # fmt: skip
    if helped:
        pieces.append(f" Dropping layer {_named(helped)} lowers the loss.")
    return Finding(question, tuple(pieces), "resolved" if whole and is_resolved(most, data.level) else "unresolved")


def _named(rows: Iterable[Score]) -> str:
    return listed([str(row.layer) for row in rows])


def _silence(rows: Sequence[Score], level: float) -> str:
    """Which layers are not distinguished from zero: those whose interval holds zero, and those that lose to the
    correction over layers an effect that their own interval shows.
    """
    silent = [row for row in rows if not is_resolved(row, level)]
    if not silent:
        return f"All {counted(len(rows), 'layer')} are distinguished from zero after correction."
    clear, within = [row for row in silent if _clear(row)], [row for row in silent if not _clear(row)]
    limits = [row.mde for row in within if row.mde is not None]
    sentences = []
    if clear:
        sentences.append(
            f"For {_of_all(clear, len(rows))} the interval leaves out zero, and the correction over"
            f" {counted(len(rows), 'layer')} leaves none: the documents or windows are too few."
        )
    if within:
        above = f" above {tidy(max(limits))} nats" if limits else ""
        sentences.append(f"For {_of_all(within, len(rows))} no effect is detectable{above}.")
    return " ".join(sentences)


def _of_all(rows: Sequence[Score], total: int) -> str:
    """Some of the layers that were left out, by number, or that they are all of them."""
    if len(rows) == total:
        return f"all {counted(total, 'layer')}"
    return f"{len(rows)} of {counted(total, 'layer')} ({_named(rows)})"


def _ranking(data: ReportData, rows: Rows, losses: Losses) -> Finding | None:
    """Which change of half the depth hurts least? Steps from one to the next are compared pair by pair."""
    main = rows.where(task=data.tasks[:1])
    order = ranked(main, next(iter(data.tasks), None))
    if len(order) < 2:
        return None
    question = "Which change hurts least?"
    if not _bounded(order):
        return Finding(question, (BARE,), "described")
    own = [main.where(condition=row.condition) for row in order]
    steps = [contrast(harsher, milder, losses, data.level) for milder, harsher in pairwise(own)]
    apart = [step is not None and _clear(step) for step in steps]
    least, *others = (label(str(row.condition)) for row in order)
    chain = least + "".join(f" {'<' if clear else '≈'} {name}" for clear, name in zip(apart, others, strict=True))
    answer = (
        f"With {order[0].amount:g} of {data.depth} layers affected, {least} costs least, ", _shown(order[0]),
        f" nats per token, and {others[-1]} most, ", _shown(order[-1]),
        f". In order of harm: {chain}. {sum(apart)} of {counted(len(steps), 'step')} are distinguished (<); where they"
        " are not (≈), the order is not resolvable.",
    )  # fmt: skip
    return Finding(question, answer, "resolved" if any(apart) else "unresolved")


def _on_tasks(data: ReportData, rows: Rows, strategy: str) -> dict[str, Rows]:
    """One strategy at the window on every task where it was measured."""
    by_task = {task: rows.where(task=task, condition=strategy) for task in data.named_tasks}
    return {task: own for task, own in by_task.items() if own}


def _order_by_task(data: ReportData, rows: Rows, strategy: str | None) -> Finding | None:
    """Does order matter more for some tasks? The two that differ most, corrected for the choice."""
    tasks = _on_tasks(data, rows, strategy) if strategy else {}
    means = [mean for own in tasks.values() if (mean := own.one(seed=None)) is not None]
    if len(means) < 2 or strategy is None:
        return None
    least, most = min(means, key=lambda row: row.value), max(means, key=lambda row: row.value)
    pairs = math.comb(len(means), 2)
    gap = independent(most, least, pairs=pairs, level=data.level)
    question = "Does order matter more for some tasks than for others?"
    if gap is None:
        return Finding(question, (BARE,), "described")
    corrected = f" (corrected for picking the extreme pair of {pairs})." if pairs > 1 else "."
    answer = (
        f"{'Yes' if _clear(gap) else 'Not resolvable'}. With {most.amount:g} layers under {label(strategy)},"
        f" {most.task} loses ", _shown(most), f" nats per token and {least.task} ", _shown(least),
        "; they differ by ", _shown(gap), corrected,
    )  # fmt: skip
    return Finding(question, answer, "resolved" if _clear(gap) else "unresolved")


def _order_or_absence(data: ReportData, rows: Rows, strategy: str | None, losses: Losses) -> Finding | None:
    """Per task: is a wrong order worse than no layers? The intervals are corrected over the tasks (Bonferroni)."""
    if strategy is None:
        return None
    shuffled, skipped = (_on_tasks(data, rows, name) for name in (strategy, ABSENCE))
    shared = [task for task in shuffled if task in skipped]
    level = data.level / max(1, len(shared))
    gaps = {task: contrast(shuffled[task], skipped[task], losses, level) for task in shared}
    judged = {task: gap for task, gap in gaps.items() if gap is not None}
    if not judged:
        return None
    groups = {
        "costs more on ": {task: gap for task, gap in judged.items() if _clear(gap) and gap.value > 0.0},
        "costs less on ": {task: gap for task, gap in judged.items() if _clear(gap) and gap.value < 0.0},
        "makes no resolvable difference on ": {task: gap for task, gap in judged.items() if not _clear(gap)},
    }
    affected = next(iter(rows)).amount
    pieces: list[str] = [f"Running {affected:g} layers under {label(strategy)} instead of skipping them "]
    for words, members in groups.items():
        if members:
            pieces += ["" if len(pieces) == 1 else "; it ", words, *_spread(members, len(judged))]
    paired = all(gap.documents is not None for gap in judged.values())
    how = "compared document by document" if paired else "joined as if unpaired"
    pieces.append(f" nats per token. Intervals are {how} and corrected over the tasks.")
    resolved = any(_clear(gap) for gap in judged.values())
    return Finding("Is a wrong order worse than no layers?", tuple(pieces), "resolved" if resolved else "unresolved")


def _spread(gaps: Mapping[str, Score], total: int) -> Iterator[str]:
    """Each task with its difference; of more than two, how many they are and the two ends."""
    shown = list(gaps)
    if len(gaps) > 2:
        shown = [pick(gaps, key=lambda task: gaps[task].value) for pick in (min, max)]
        yield f"{'all ' if len(gaps) == total else ''}{len(gaps)} tasks, from "
    between_tasks = " to " if len(gaps) > 2 else " and "
    for at, task in enumerate(shown):
        yield from ([between_tasks] if at else [])
        yield from (f"{task} ", _shown(gaps[task]))


def fragility(data: ReportData, strategy: str | None = None) -> dict[str, Fact]:
    """By benchmark, the logarithm of its fall over the mean fall of the others, under a strategy or under all."""
    rows = data.rows.where(measure=CONTRAST, metric=LOG_RATIO, condition=strategy, claim="fragile")
    return {row.task: Fact(row, FASTER) for row in rows}


def fragile(data: ReportData, strategy: str | None = None) -> list[str]:
    """The benchmarks that are shown to fall faster than the others do on average, and not by less than a quarter."""
    return [name for name, fact in fragility(data, strategy).items() if fact.position == "above"]


def _fragile(data: ReportData) -> Finding | None:
    """On the scale from chance to the model as trained, whose score falls faster with every layer affected?"""
    facts = fragility(data)
    if len(facts) < 2:
        return None
    fallen, alike = fragile(data), {fact.position for fact in facts.values()} == {"within"}
    found = f"{listed(fallen)}. " if fallen else "Not resolvable. "
    pieces = ["None: each falls as the others do, within a quarter. " if alike else found]
    pieces.append("Over all windows and strategies, in times the mean fall of the others: ")
    for at, (name, fact) in enumerate(facts.items()):
        pieces += [", " if at else "", f"{name} ", Number(f"{fact:factor}")]
    under = {strategy: fragile(data, strategy) for strategy in data.strategies}
    phrases = [f"{label(strategy)} ({listed(names)})" for strategy, names in under.items() if names]
    alone = f" Under one strategy alone, corrected over them as well: {listed(phrases)}." if phrases else ""
    pieces.append(f" (corrected over {len(facts)} benchmarks).{alone}")
    state: State = "resolved" if fallen or alike else "unresolved"
    return Finding("Which benchmark falls faster than the others?", tuple(pieces), state)


def _loops(data: ReportData) -> Finding | None:
    """Is a loop more than a gain, on text that chose neither?"""
    slope, relative, nats = (over_windows(data, metric) for metric in ("slope", "gain:loops", "gain-loops"))
    if slope is None or relative is None or nats is None:
        return None
    bounds = span(relative)
    position: Position = "open" if bounds is None else bounds.position(ALIKE)
    windows = counted(len(by_window(data, "gain-loops")), "window")
    answer = (
        f"{_LOOPS[position]} Over {windows}, on the half of the text that did not choose them, the best gain in one"
        " pass costs ", _shown(nats), " nats per token more than the best number of loops, ", _shown(relative),
        f" {OF_COSTS}. A layer more in parallel takes ", _shown(slope), " loops more.",
    )  # fmt: skip
    state: State = "described" if bounds is None else "unresolved" if position == "open" else "resolved"
    return Finding("Is a loop of parallel layers more than a gain?", answer, state)


_LOOPS: dict[Position, str] = {
    "above": "Yes.", "within": "No: a gain does as well.", "below": "No: a gain does better.",
    "open": "Not resolvable.",
}  # fmt: skip


def _zones(data: ReportData) -> Finding | None:
    """Into how many zones does the depth of the model as trained fall?"""
    own = trained_zones(data)
    if own is None:
        return None
    question = "Into how many zones does the depth fall?"
    by_margin = f" {own.by_margin}" if own.by_margin else ""
    if len(own.ranges) == 1:
        why = by_margin or " No border is clearer than a walk gives."
        answer = (f"One: hidden states 1–{own.states} are less alike the farther apart they are.{why}",)
        return Finding(question, answer, "unresolved")
    pieces = (
        f"{counted(len(own.ranges), 'zone')}: states {own.in_words}. At equal distance the states across"
        f" the {'border' if len(own.contrasts) == 1 else 'borders'} are",
        " less alike than those inside by ", Number(own.borders_in_words), f" of cosine.{by_margin}",
    )  # fmt: skip
    clear = all(score.low is not None and score.low > 0.0 for score in own.contrasts)
    return Finding(question, pieces, "resolved" if clear else "unresolved")


def _sink(data: ReportData) -> Finding | None:
    """Does the clearest zone keep its contrast without the sink tokens? Judged by the share that is left.

    A zone that is no clearer than the same run of states is between tokens of different documents is no finding.
    """
    with_sink, without, null = (matrix(data, name) for name in ("cosine", "cosine_no_sink", "cosine_null"))
    zone = Contrasts(with_sink).clearest() if with_sink else None
    if zone is None or without is None or zone.contrast <= 0.0:
        return None
    question = "Do the similarity zones survive without the sink token?"
    whole_bounds, left_bounds = (_contrast_bounds(data, name, zone) for name in ("cosine", "cosine_no_sink"))
    if whole_bounds is None or left_bounds is None:
        return Finding(question, (BARE,), "described")
    left = Contrasts(without).of(zone.first, zone.last)
    apart = Contrasts(null).of(zone.first, zone.last) if null else 0.0
    if whole_bounds[0] <= apart:
        return None
    share = left / zone.contrast
    state, words = _survival(share, whole_bounds, left_bounds)
    beside = ("; between tokens of different documents it is ", Number(tidy(apart))) if null else ()
    answer = (
        f"{words}. Of hidden states 1–{len(without) - 1} the run {zone.first}–{zone.last} is the clearest zone; its"
        " cosine contrast with the others is ", Number(between(zone.contrast, *whole_bounds)),
        " with the sink token and ", Number(between(left, *left_bounds)), " without, ", Number(percent(share)),
        " of it", *beside,
        ". The sink token is one, mostly the first, whose state is huge and the same in all layers.",
    )  # fmt: skip
    return Finding(question, answer, state)


def _contrast_bounds(data: ReportData, metric: str, zone: Zone) -> tuple[float, float] | None:
    lows, highs = matrix(data, metric, "low"), matrix(data, metric, "high")
    return contrast_bounds(lows, highs, zone.first, zone.last) if lows and highs else None


def _survival(share: float, whole: tuple[float, float], left: tuple[float, float]) -> tuple[State, str]:
    """What becomes of a zone that keeps this share of its contrast; resolved when both ends of the share agree."""
    words = _survives(share)
    if whole[0] <= 0.0:
        return "unresolved", "Not resolvable"
    ends = {_survives(left[0] / whole[1]), _survives(left[1] / whole[0])}
    return ("resolved", words) if ends == {words} else ("unresolved", "Not resolvable")


def _survives(share: float) -> str:
    return "They survive" if share >= SURVIVES else "They fade" if share >= FADES else "They mostly vanish"
