"""From rows to sentences: what a run found, said only as far as its numbers carry.

Each finding answers one question. It is `resolved` when its interval (corrected where one pick was made among many)
leaves out zero, `unresolved` when the run was too small to tell, `described` when its rows carry no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from layerwise.report import similarity
from layerwise.report.contrast import Contrast, Documents, by_document, contrast, independent
from layerwise.report.curves import Point
from layerwise.report.data import Evidence
from layerwise.report.layers import single_skips
from layerwise.report.notation import between, is_resolved, percent, tidy
from layerwise.report.window import half_window, on_tasks, order_strategy, ranked
from layerwise.report.wording import counted, label, listed
from layerwise.results.rows import Score

State = Literal["resolved", "unresolved", "described"]
ABSENCE = "skip"
SURVIVES, FADES = 0.75, 0.25  # shares of the contrast that is left without the sink token


class Number(str):
    """A number inside a sentence, set apart when it is shown."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, its answer in pieces (numbers marked as `Number`), and how firm the answer is."""

    question: str
    answer: tuple[str, ...]
    state: State

    @property
    def text(self) -> str:
        """The answer as plain text."""
        return "".join(self.answer)


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """Every finding that the rows support, in reading order; none at all for an empty run."""
    losses = by_document(evidence.data.losses)
    found = (
        _ranking(evidence, losses),
        _order_by_task(evidence),
        _order_or_absence(evidence, losses),
        _layers(evidence),
        _zones(evidence),
    )
    return tuple(finding for finding in found if finding is not None)


def _ranking(evidence: Evidence, losses: Mapping[tuple[str, str], Documents]) -> Finding | None:
    window, task = half_window(evidence), evidence.main_task
    if window is None or task is None:
        return None
    rows = ranked(evidence, window, task)
    if len(rows) < 2:
        return None
    pieces = [f"With {window.affected} of {evidence.depth} layers affected, the loss rises by "]
    told_apart = 0
    for index, (strategy, point) in enumerate(rows):
        pieces += [Number(_shown(point)), f" under {label(strategy)}"]
        if index + 1 < len(rows):
            step = contrast(rows[index + 1][1], point, task, losses, evidence.data.level)
            told_apart += step is not None and step.resolved
            pieces.append(" < " if step is not None and step.resolved else " ≈ ")
    pieces.append(f" (nats per token). {told_apart} of {len(rows) - 1} steps are resolved (<); ≈ is not resolvable.")
    return Finding("Which change hurts least?", tuple(pieces), "resolved" if told_apart else "unresolved")


def _order_by_task(evidence: Evidence) -> Finding | None:
    window = half_window(evidence)
    strategy = order_strategy(evidence, window) if window else None
    points = on_tasks(evidence, window, strategy) if window and strategy else {}
    if window is None or strategy is None or len(points) < 2:
        return None
    least, most = (chosen(points, key=lambda task: points[task].value) for chosen in (min, max))
    pairs = math.comb(len(points), 2)
    gap = independent(points[most], points[least], pairs=pairs, level=evidence.data.level)
    told = (
        f"Under {label(strategy)} of {window.affected} layers, {most} loses ",
        Number(_shown(points[most])),
        f" and {least} ",
        Number(_shown(points[least])),
        " nats per token",
    )
    question = "Does order matter more for some tasks than for others?"
    if gap is None:
        return Finding(question, (*told, "; the rows carry no intervals to compare them by."), "described")
    words = "Yes. " if gap.resolved else "Not resolvable. "
    corrected = f" (corrected for picking the extreme pair of {pairs})." if pairs > 1 else "."
    answer = (words, *told, "; they differ by ", Number(_shown(gap)), corrected)
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
        ("costs more than its absence on ", [(t, g) for t, g in judged.items() if g.low > 0.0]),
        ("costs less on ", [(t, g) for t, g in judged.items() if g.high < 0.0]),
        ("is not told apart from absence on ", [(t, g) for t, g in judged.items() if not g.resolved]),
    )
    pieces: list[str] = [f"The wrong order ({label(strategy)} against skip, {window.affected} layers) "]
    for words, members in groups:
        if members:
            pieces += ["" if len(pieces) == 1 else "; ", words, *_gap_list(members)]
    paired = all(gap.paired for gap in judged.values())
    pieces.append(
        " nats per token, document by document." if paired else " nats per token, intervals joined as if unpaired."
    )
    resolved = any(gap.resolved for gap in judged.values())
    return Finding("Is a wrong order worse than no layers?", tuple(pieces), "resolved" if resolved else "unresolved")


def _gap_list(members: list[tuple[str, Contrast]]) -> list[str]:
    pieces: list[str] = []
    for index, (task, gap) in enumerate(members):
        pieces += [", " if index else "", f"{task} ", Number(_shown(gap))]
    return pieces


def _layers(evidence: Evidence) -> Finding | None:
    task = evidence.main_task
    if task is None:
        return None
    found = {layer: evidence.effect(plan, task) for layer, plan in single_skips(evidence).items()}
    scores = {layer: score for layer, score in found.items() if score is not None and math.isfinite(score.value)}
    if len(scores) < 2:
        return None
    level = evidence.data.level
    most = max(scores, key=lambda layer: scores[layer].value)
    least = min(scores, key=lambda layer: abs(scores[layer].value))
    silent = [layer for layer in sorted(scores) if not is_resolved(scores[layer], level)]
    helped = [layer for layer in sorted(scores) if is_resolved(scores[layer], level) and scores[layer].value < 0]
    pieces: list[str] = [
        f"Layer {most}: dropping it costs ",
        Number(_shown(scores[most])),
        f" nats per token; layer {least} moves the loss least, ",
        Number(_shown(scores[least])),
        ". ",
        _silence(silent, [scores[layer] for layer in silent], len(scores)),
    ]
    if helped:
        pieces.append(f" Dropping layer {listed([str(layer) for layer in helped])} lowers the loss.")
    state: State = "resolved" if is_resolved(scores[most], level) else "unresolved"
    return Finding("Which layer matters most, and which least?", tuple(pieces), state)


def _silence(silent: list[int], scores: list[Score], total: int) -> str:
    if not silent:
        return f"All {counted(total, 'layer')} are told apart from zero after correction."
    limits = [score.resolution for score in scores if score.resolution is not None]
    above = f" above {tidy(max(limits))} nats" if limits else ""
    names = listed([str(layer) for layer in silent])
    return f"For {len(silent)} of {counted(total, 'layer')} ({names}) no effect is detectable{above}."


def _zones(evidence: Evidence) -> Finding | None:
    with_sink, without = (similarity.matrix(evidence, name) for name in ("cosine", "cosine_no_sink"))
    zone = similarity.clearest_zone(with_sink) if with_sink else None
    if zone is None or without is None or zone.contrast <= 0.0:
        return None
    left = similarity.contrast(without, zone.first, zone.last)
    share = left / zone.contrast
    verdict = "They survive" if share >= SURVIVES else "They fade" if share >= FADES else "They mostly vanish"
    answer = (
        f"{verdict}. Hidden states {zone.first}–{zone.last} form the clearest zone; its cosine contrast is ",
        Number(tidy(zone.contrast)),
        " with the sink token and ",
        Number(tidy(left)),
        " without, ",
        Number(percent(share)),
        " of it. Cosines are means over tokens and carry no interval.",
    )
    return Finding("Do the similarity zones survive without the sink token?", answer, "described")


def _shown(measured: Point | Contrast | Score) -> str:
    return between(measured.value, measured.low, measured.high, signed=True)
