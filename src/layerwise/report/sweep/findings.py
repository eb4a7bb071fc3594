"""From rows to sentences: what a run found, said only as far as its numbers carry.

Each finding answers one question. It is `resolved` when its interval (corrected where one pick was made among many)
leaves out zero, `unresolved` when the run was too small to decide, `described` when its rows carry no interval: then
nothing is concluded, and the answer says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise

from layerwise.report.evidence import Evidence
from layerwise.report.finding import Finding, Number, State
from layerwise.report.page.number_format import between, is_resolved, percent, tidy
from layerwise.report.page.wording import counted, label, listed
from layerwise.report.sweep import similarity
from layerwise.report.sweep.contrast import Documents, EffectDifference, by_document, contrast, independent
from layerwise.report.sweep.curves import Point
from layerwise.report.sweep.fragile import fragile_benchmark
from layerwise.report.sweep.layers import single_skips
from layerwise.report.sweep.loops import loop_finding
from layerwise.report.sweep.window import half_window, on_tasks, order_strategy, ranked
from layerwise.report.sweep.zones import zones_finding
from layerwise.results.rows import Score
from layerwise.results.vocabulary import FEWEST_UNITS

ABSENCE = "skip"
BARE = (
    f"Nothing is concluded: these rows carry no intervals, which take {FEWEST_UNITS} documents or windows on which all"
    " plans were measured."
)
SURVIVES, FADES = 0.75, 0.25  # shares of the contrast that is left without the sink token


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """Every finding that the rows support, in reading order; none at all for an empty run."""
    losses = by_document(evidence.data.losses)
    answers = (
        _ranking(evidence, losses),
        _order_by_task(evidence),
        _order_or_absence(evidence, losses),
        fragile_benchmark(evidence),
        loop_finding(evidence),
        _layers(evidence),
        zones_finding(evidence),
        _zones(evidence),
    )
    return tuple(finding for finding in answers if finding is not None)


def _ranking(evidence: Evidence, losses: Mapping[tuple[str, str], Documents]) -> Finding | None:
    window, task = half_window(evidence), evidence.main_task
    if window is None or task is None:
        return None
    rows = ranked(evidence, window, task)
    if len(rows) < 2:
        return None
    question = "Which change hurts least?"
    if not _bounded(point for _, point in rows):
        return Finding(question, (BARE,), "described")
    chain = label(rows[0][0])
    apart = 0
    for (_, milder), (strategy, harsher) in pairwise(rows):
        step = contrast(harsher, milder, task, losses, evidence.data.level)
        resolved = step is not None and step.resolved
        apart += resolved
        chain += f" {'<' if resolved else '≈'} {label(strategy)}"
    answer = (
        f"With {window.affected} of {evidence.depth} layers affected, {label(rows[0][0])} costs least, ",
        Number(_shown(rows[0][1])),
        f" nats per token, and {label(rows[-1][0])} most, ",
        Number(_shown(rows[-1][1])),
        f". In order of harm: {chain}. {apart} of {counted(len(rows) - 1, 'step')} are distinguished (<); where they"
        " are not (≈), the order is not resolvable.",
    )
    return Finding(question, answer, "resolved" if apart else "unresolved")


def _order_by_task(evidence: Evidence) -> Finding | None:
    window = half_window(evidence)
    strategy = order_strategy(evidence, window) if window else None
    points = on_tasks(evidence, window, strategy) if window and strategy else {}
    if window is None or strategy is None or len(points) < 2:
        return None
    least, most = (chosen(points, key=lambda task: points[task].value) for chosen in (min, max))
    pairs = math.comb(len(points), 2)
    gap = independent(points[most], points[least], pairs=pairs, level=evidence.data.level)
    numbers = (
        f"With {window.affected} layers under {label(strategy)}, {most} loses ",
        Number(_shown(points[most])),
        f" nats per token and {least} ",
        Number(_shown(points[least])),
    )
    question = "Does order matter more for some tasks than for others?"
    if gap is None:
        return Finding(question, (BARE,), "described")
    words = "Yes. " if gap.resolved else "Not resolvable. "
    corrected = f" (corrected for picking the extreme pair of {pairs})." if pairs > 1 else "."
    answer = (words, *numbers, "; they differ by ", Number(_shown(gap)), corrected)
    return Finding(question, answer, "resolved" if gap.resolved else "unresolved")


def _order_or_absence(evidence: Evidence, losses: Mapping[tuple[str, str], Documents]) -> Finding | None:
    """Per task: is a wrong order worse than no layers? The intervals are corrected over the tasks (Bonferroni)."""
    window = half_window(evidence)
    strategy = order_strategy(evidence, window) if window else None
    if window is None or strategy is None:
        return None
    shuffled, skipped = (on_tasks(evidence, window, name) for name in (strategy, ABSENCE))
    shared = [task for task in shuffled if task in skipped]
    level = evidence.data.level / max(1, len(shared))
    gaps = {task: contrast(shuffled[task], skipped[task], task, losses, level) for task in shared}
    judged = {task: gap for task, gap in gaps.items() if gap is not None}
    if not judged:
        return None
    groups = (
        ("costs more on ", {task: gap for task, gap in judged.items() if gap.low > 0.0}),
        ("costs less on ", {task: gap for task, gap in judged.items() if gap.high < 0.0}),
        ("makes no resolvable difference on ", {task: gap for task, gap in judged.items() if not gap.resolved}),
    )
    pieces: list[str] = [f"Running {window.affected} layers under {label(strategy)} instead of skipping them "]
    for words, members in groups:
        if members:
            pieces += ["" if len(pieces) == 1 else "; it ", words, *_spread(members, len(judged))]
    how = "compared document by document" if all(gap.paired for gap in judged.values()) else "joined as if unpaired"
    pieces.append(f" nats per token. Intervals are {how} and corrected over the tasks.")
    resolved = any(gap.resolved for gap in judged.values())
    return Finding("Is a wrong order worse than no layers?", tuple(pieces), "resolved" if resolved else "unresolved")


def _spread(gaps: Mapping[str, EffectDifference], total: int) -> list[str]:
    """Each task with its difference; of more than two, how many they are and the two ends."""
    if len(gaps) > 2:
        ends = [pick(gaps, key=lambda task: gaps[task].value) for pick in (min, max)]
        first, last = ([f"{task} ", Number(_shown(gaps[task]))] for task in ends)
        every = "all " if len(gaps) == total else ""
        return [f"{every}{len(gaps)} tasks, from ", *first, " to ", *last]
    pieces: list[str] = []
    for task, gap in gaps.items():
        pieces += [" and " if pieces else "", f"{task} ", Number(_shown(gap))]
    return pieces


def _layers(evidence: Evidence) -> Finding | None:
    task = evidence.main_task
    if task is None:
        return None
    effects = {layer: evidence.effect(plan, task) for layer, plan in single_skips(evidence).items()}
    scores = {layer: score for layer, score in effects.items() if score is not None and math.isfinite(score.value)}
    if len(scores) < 2:
        return None
    question = "Which layer matters most, and which least?"
    if not _bounded(scores.values()):
        return Finding(question, (BARE,), "described")
    level = evidence.data.level
    most = max(scores, key=lambda layer: scores[layer].value)
    least = min(scores, key=lambda layer: abs(scores[layer].value))
    helped = [layer for layer in sorted(scores) if is_resolved(scores[layer], level) and scores[layer].value < 0]
    whole = len(scores) == evidence.depth
    few = (
        "" if whole else f"Not resolvable: {len(scores)} of {counted(evidence.depth, 'layer')} were left out. Of these "
    )
    pieces: list[str] = [
        f"{few}{'layer' if few else 'Layer'} {most}: dropping it costs ",
        Number(_shown(scores[most])),
        f" nats per token; layer {least} moves the loss least, ",
        Number(_shown(scores[least])),
        ". ",
        _silence({layer: scores[layer] for layer in sorted(scores)}, level),
    ]
    if helped:
        pieces.append(f" Dropping layer {listed([str(layer) for layer in helped])} lowers the loss.")
    state: State = "resolved" if whole and is_resolved(scores[most], level) else "unresolved"
    return Finding(question, tuple(pieces), state)


def _bounded(rows: Iterable[Point | Score]) -> bool:
    """Whether every row has an interval: without one there is no ranking."""
    return all(row.low is not None and row.high is not None for row in rows)


def _silence(scores: Mapping[int, Score], level: float) -> str:
    """Which layers are not distinguished from zero: those whose interval holds zero, and those that lose to the
    correction over layers an effect that their own interval shows.
    """
    silent = {layer: score for layer, score in scores.items() if not is_resolved(score, level)}
    if not silent:
        return f"All {counted(len(scores), 'layer')} are distinguished from zero after correction."
    clear = [layer for layer, score in silent.items() if _is_clear(score)]
    within = [layer for layer in silent if layer not in clear]
    limits = [score.mde for layer in within if (score := silent[layer]).mde is not None]
    above = f" above {tidy(max(limits))} nats" if limits else ""
    sentences = []
    if clear:
        sentences.append(
            f"For {_of_all(clear, len(scores))} the interval leaves out zero, and the correction over"
            f" {counted(len(scores), 'layer')} leaves none: the documents or windows are too few."
        )
    if within:
        sentences.append(f"For {_of_all(within, len(scores))} no effect is detectable{above}.")
    return " ".join(sentences)


def _is_clear(score: Score) -> bool:
    return (score.low is not None and score.low > 0.0) or (score.high is not None and score.high < 0.0)


def _of_all(layers: list[int], total: int) -> str:
    """Some of the layers that were left out, by number, or that they are all of them."""
    if len(layers) == total:
        return f"all {counted(total, 'layer')}"
    return f"{len(layers)} of {counted(total, 'layer')} ({listed([str(layer) for layer in layers])})"


def _zones(evidence: Evidence) -> Finding | None:
    """Does the clearest zone keep its contrast without the sink tokens? Judged by the share that is left.

    A zone that is no clearer than the same run of states is between tokens of different documents is no finding.
    """
    with_sink, without = (similarity.matrix(evidence, name) for name in ("cosine", "cosine_no_sink"))
    zone = similarity.clearest_zone(with_sink) if with_sink else None
    if zone is None or without is None or zone.contrast <= 0.0:
        return None
    question = "Do the similarity zones survive without the sink token?"
    left = similarity.contrast(without, zone.first, zone.last)
    whole_bounds, left_bounds = (_contrast_bounds(evidence, name, zone) for name in ("cosine", "cosine_no_sink"))
    if whole_bounds is None or left_bounds is None:
        return Finding(question, (BARE,), "described")
    null = similarity.matrix(evidence, "cosine_null")
    apart = similarity.contrast(null, zone.first, zone.last) if null else 0.0
    if whole_bounds[0] <= apart:
        return None
    share = left / zone.contrast
    state, words = _survival(share, whole_bounds, left_bounds)
    answer = (
        f"{words}. Of hidden states 1–{len(without) - 1} the run {zone.first}–{zone.last} is the clearest zone; its"
        " cosine contrast with the others is ",
        Number(between(zone.contrast, *whole_bounds)),
        " with the sink token and ",
        Number(between(left, *left_bounds)),
        " without, ",
        Number(percent(share)),
        " of it",
        *(("; between tokens of different documents it is ", Number(tidy(apart))) if null else ()),
        ". The sink token is one, mostly the first, whose state is huge and the same in all layers.",
    )
    return Finding(question, answer, state)


def _contrast_bounds(evidence: Evidence, metric: str, zone: similarity.Zone) -> tuple[float, float] | None:
    lows, highs = (similarity.matrix(evidence, metric, bound) for bound in ("low", "high"))
    return similarity.contrast_bounds(lows, highs, zone.first, zone.last) if lows and highs else None


def _survival(share: float, whole: tuple[float, float], left: tuple[float, float]) -> tuple[State, str]:
    """What becomes of a zone that keeps this share of its contrast; resolved when both ends of the share agree."""
    words = _survives(share)
    if whole[0] <= 0.0:
        return "unresolved", "Not resolvable"
    ends = {_survives(left[0] / whole[1]), _survives(left[1] / whole[0])}
    return ("resolved", words) if ends == {words} else ("unresolved", "Not resolvable")


def _survives(share: float) -> str:
    return "They survive" if share >= SURVIVES else "They fade" if share >= FADES else "They mostly vanish"


def _shown(measured: Point | EffectDifference | Score) -> str:
    return between(measured.value, measured.low, measured.high, signed=True)
