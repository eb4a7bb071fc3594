"""A frontier as sentences and as a table: whether parallel layers are ever the best way, and what would tell."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.frontier.lookup import (
    ABOVE_CLOSEST,
    ABOVE_RIVAL,
    ARMS,
    BEATEN,
    BEST,
    UNRESOLVED,
    FrontierScores,
    TimedPoint,
)
from layerwise.report.page.number_format import between, fixed, probability, tidy
from layerwise.report.page.plain_markdown import bullets
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted
from layerwise.results.rows import Score

MORE_ROUNDS = "more rounds would tell"
NOTHING_AS_QUICK = "nothing else that was timed is as quick"
WORDS = {BEST: "best", BEATEN: "beaten", UNRESOLVED: "not resolvable"}


def frontier_table(run: FrontierScores, setting: str) -> Table:
    """Everything that was timed in a setting, the quickest first."""
    head = ("arm", "plan", "ms", "nats per token", "verdict", "nats where chosen")
    body = [
        (
            f"{ARMS[point.arm]}: {point.kind}",
            point.name,
            between(ms.value, ms.low, ms.high),
            between(point.loss.value, point.loss.low, point.loss.high, signed=True),
            _verdict(run, point.name, setting),
            tidy(run.chosen_on.get(point.name, 0.0), signed=True),
        )
        for point, ms in run.timed(setting)
    ]
    return Table(head, tuple(body), numeric_from=2)


def headline(run: FrontierScores, setting: str) -> str:
    """The answer for a setting in one sentence.

    Beaten everywhere, best at some points, or not to be resolved.
    """
    verdicts = [verdict for point in run.points if (verdict := run.verdict(point.name, setting)) is not None]
    counts = {each: verdicts.count(each) for each in (BEST, BEATEN, UNRESOLVED)}
    total = len(verdicts)
    if not total:
        return f"{setting}: no parallel plan could be compared"
    if counts[BEST]:
        answer = f"parallel layers are the best way at {counts[BEST]} of {counted(total, 'point')}"
    elif counts[BEATEN] == total:
        return f"{setting}: no. Parallel layers are beaten at every one of {counted(total, 'point')}"
    elif counts[BEATEN]:
        answer = f"parallel layers are the best way at none of {counted(total, 'point')}"
    else:
        answer = f"not resolvable at any of {counted(total, 'point')}"
    rest = [f"beaten at {counts[BEATEN]}"] * bool(counts[BEATEN])
    rest += [f"not resolvable at {counts[UNRESOLVED]}"] * bool(counts[UNRESOLVED] and counts[UNRESOLVED] < total)
    return f"{setting}: {answer}" + (f"; {', '.join(rest)}" if rest else "")


def verdict_sentences(run: FrontierScores, setting: str) -> Iterator[str]:
    """Each parallel plan beside its rival, and for what is not resolvable what would resolve it."""
    for point in run.points:
        if run.verdict(point.name, setting) is not None:
            yield _sentence(run, point, setting)


def _sentence(run: FrontierScores, point: TimedPoint, setting: str) -> str:
    verdict = run.verdict(point.name, setting)
    rival, closest = (run.above(point.name, setting, metric) for metric in (ABOVE_RIVAL, ABOVE_CLOSEST))
    if verdict == BEATEN and rival is not None:
        return f"{point.name}: beaten by {_beside(run, *rival, setting)}"
    if verdict == BEST and closest is not None:
        return f"{point.name}: best; the closest that is as quick is {_beside(run, *closest, setting)}"
    return f"{point.name}: not resolvable; {_what_would_resolve(run, point, setting)}"


def _unresolved(run: FrontierScores, setting: str) -> Iterator[str]:
    """What would resolve the plans that are not, counted: more rounds, more text, or quicker plans beside them."""
    points = [point for point in run.points if run.verdict(point.name, setting) == UNRESOLVED]
    texts = [_what_would_resolve(run, point, setting) for point in points]
    rounds, others = (sum(words in text for text in texts) for words in (MORE_ROUNDS, NOTHING_AS_QUICK))
    by_text = len(texts) - rounds - others
    counts = {
        "for want of rounds, or of a quieter machine": rounds, "for want of text": by_text,
        "for want of anything as quick beside them": others,
    }  # fmt: skip
    parts = [f"{count} {why}" for why, count in counts.items() if count]
    if parts:
        yield f"not resolvable: {', '.join(parts)}"


def frontier_lines(run: FrontierScores) -> list[str]:
    """The answers and the table of every setting, for a terminal, with a sentence for every plan that is best."""
    lines = []
    for setting in run.settings:
        lines.append(headline(run, setting))
        best = (point for point in run.points if run.verdict(point.name, setting) == BEST)
        lines += [f"- {_sentence(run, point, setting)}" for point in best]
        lines += [f"- {text}" for text in _unresolved(run, setting)]
        lines += frontier_table(run, setting).lines()
    return lines


def frontier_markdown(evidence: Evidence) -> Iterator[str]:
    """The answer and the table of every setting."""
    run = FrontierScores.of(evidence.data.scores)
    yield bullets(headline(run, setting) for setting in run.settings)
    for setting in run.settings:
        yield frontier_table(run, setting).section(f"Frontier, {setting}")


def _what_would_resolve(run: FrontierScores, point: TimedPoint, setting: str) -> str:
    rival, closest = (run.above(point.name, setting, metric) for metric in (ABOVE_RIVAL, ABOVE_CLOSEST))
    if closest is None:
        return f"{NOTHING_AS_QUICK}: time plans that leave out more layers (--sizes)"
    if rival is None or (closest[1].low or 0.0) > 0:
        more = "loses less" if closest[1].value > 0 else "loses more"
        return f"{closest[0]} {more}, and its time cannot be told from this one's: {MORE_ROUNDS}, or a quieter machine"
    name, score = min((rival, closest), key=lambda each: each[1].p if each[1].p is not None else 1.0)
    text = f"beside {_beside(run, name, score, setting)}"
    needed = _tokens_needed(score)
    return text if needed is None else f"{text}; a difference of this size would show in about {needed:,} tokens"


def _tokens_needed(score: Score) -> int | None:
    """How many tokens would resolve a difference as large as the one that was seen: errors fall with their root.

    >>> _tokens_needed(Score("frontier", "p", "s; r", "above_rival", 0.01, mde=0.02, tokens=1000))
    4000
    """
    if not score.value or score.mde is None or score.tokens is None:
        return None
    needed = round(score.tokens * (score.mde / score.value) ** 2, -2)
    return int(needed) if needed > score.tokens else None


def _beside(run: FrontierScores, rival: str, score: Score, setting: str) -> str:
    """The rival, its time, and what the plan loses above it."""
    ratio = run.times.score(setting, rival, "ms")
    own = run.times.score(setting, score.subject, "ms")
    time = "" if ratio is None or own is None else f" ({fixed(ratio.value, 2)} ms, here {fixed(own.value, 2)})"
    difference = between(score.value, score.low, score.high, signed=True)
    return f"{rival}{time}: {difference} nats above it, corrected p {probability(score.p_adjusted)}"


def _verdict(run: FrontierScores, name: str, setting: str) -> str:
    verdict = run.verdict(name, setting)
    if verdict is None:
        return "–"
    row = run.above(name, setting, ABOVE_CLOSEST if verdict == BEST else ABOVE_RIVAL)
    if row is None or verdict == UNRESOLVED:
        return WORDS[verdict]
    return f"beaten by {row[0]}" if verdict == BEATEN else f"best, next {row[0]}"
