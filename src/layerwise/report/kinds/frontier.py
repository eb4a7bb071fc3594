"""A frontier: what a model loses for the milliseconds that it saves, and whether parallel layers are ever the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from layerwise.report.data import ReportData
from layerwise.report.derived.power import tokens_needed
from layerwise.report.kind import Column, Kind, Pivot, Says, Section
from layerwise.report.marks import Scatter, Style
from layerwise.report.show import ABSENT, DIFFERENCE, NUMBER, Show, adjusted_p, named
from layerwise.report.text.wording import counted
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

ARMS: Mapping[str, str] = {
    vocab.IDENTITY: "as trained",
    "skip": "layers skipped",
    vocab.PARALLEL: "parallel, in turn",
    vocab.FUSED: "parallel, fused",
    "looped": "looped",
    "healed": "pruned and healed",
}
"""The arms in reading order, as they are called."""

SLOTS = {vocab.IDENTITY: 5, "skip": 0, vocab.PARALLEL: 4, vocab.FUSED: 1, "looped": 2, "healed": 8}
VERDICTS = (vocab.BEST, vocab.BEATEN, vocab.UNRESOLVED)
MORE_ROUNDS = "more rounds would tell"
NOTHING_AS_QUICK = "nothing else that was timed is as quick"
QUICK = Show(decimals=2, bounds=False)


def settings(data: ReportData) -> tuple[str, ...]:
    """What everything was timed in, a token behind a cache before a prompt."""
    return tuple(reversed(data.rows.where(measure=vocab.TIME).axis("condition"))) if _points(data) else ()


def timed(data: ReportData) -> Iterator[Score]:
    """Of every point in every setting, the quickest first: its milliseconds, losses and verdict, with arm and kind."""
    sizes, run = _points(data), data.rows.where(measure=vocab.FRONTIER)
    for setting in settings(data):
        times = data.rows.where(measure=vocab.TIME, metric=vocab.MILLISECONDS, condition=setting).along("plan")
        for plan in sorted((name for name in sizes if name in times), key=lambda name: times[name].value):
            own = run.where(plan=plan)
            for row in (times[plan], *own.where(metric=vocab.DELTA), *own.where(condition=setting)):
                yield replace(row, arm=sizes[plan].arm, part=sizes[plan].part, condition=setting)


def drawn(data: ReportData) -> Iterator[Score]:
    """The milliseconds and the losses on fresh text, arm by arm."""
    rows = Rows(timed(data))
    for arm in ARMS:
        yield from rows.where(arm=arm, metric=vocab.MILLISECONDS)
        yield from rows.where(arm=arm, metric=vocab.DELTA, task=vocab.REPORT)


def headline(data: ReportData, setting: str) -> str:
    """The answer for a setting in one sentence: beaten everywhere, best at some points, or not to be resolved."""
    verdicts = [row.metric for row in _verdicts(data, setting)]
    best, beaten, unresolved = (verdicts.count(each) for each in VERDICTS)
    points = counted(len(verdicts), "point")
    if not verdicts:
        return f"{setting}: no parallel plan could be compared."
    if beaten == len(verdicts):
        return f"{setting}: no. Parallel layers are beaten at every one of {points}."
    if unresolved == len(verdicts):
        return f"{setting}: not resolvable at any of {points}."
    answer = f"{setting}: parallel layers are the best way at {best or 'none'} of {points}"
    rest = [f"beaten at {beaten}"] * bool(beaten) + [f"not resolvable at {unresolved}"] * bool(unresolved)
    return answer + (f"; {', '.join(rest)}." if rest else ".")


def findings(data: ReportData) -> Iterator[str]:
    """Of each setting the answer, every plan that is best, and what would resolve those that are not."""
    for setting in settings(data):
        yield headline(data, setting)
        verdicts = _verdicts(data, setting)
        yield from (f"{verdict_sentence(data, row)}." for row in verdicts.where(metric=vocab.BEST))
        texts = [_what_would_resolve(data, row) for row in verdicts.where(metric=vocab.UNRESOLVED)]
        rounds, others = (sum(words in text for text in texts) for words in (MORE_ROUNDS, NOTHING_AS_QUICK))
        counts = {
            "for want of rounds, or of a quieter machine": rounds,
            "for want of text": len(texts) - rounds - others,
            "for want of anything as quick beside them": others,
        }
        if texts:
            yield "not resolvable: " + ", ".join(f"{count} {why}" for why, count in counts.items() if count) + "."


def every_verdict(data: ReportData) -> Iterator[str]:
    """Every parallel plan beside its rival, setting by setting."""
    for setting in settings(data):
        for row in _verdicts(data, setting):
            yield f"{setting}: {verdict_sentence(data, row)}."


def verdict_sentence(data: ReportData, verdict: Score) -> str:
    """A parallel plan beside its rival, and where that is not resolvable what would resolve it."""
    rival, closest = _compared(data, verdict)
    if verdict.metric == vocab.BEATEN and rival is not None:
        return f"{verdict.plan}: beaten by {_beside(data, rival)}"
    if verdict.metric == vocab.BEST and closest is not None:
        return f"{verdict.plan}: best; the closest that is as quick is {_beside(data, closest)}"
    return f"{verdict.plan}: not resolvable; {_what_would_resolve(data, verdict)}"


def _points(data: ReportData) -> dict[str, Score]:
    """The size row of every point that was measured on fresh text."""
    run = data.rows.where(measure=vocab.FRONTIER)
    measured = run.where(metric=vocab.DELTA, task=vocab.REPORT).axis("plan")
    return run.where(metric="size", plan=measured).along("plan")


def _verdicts(data: ReportData, setting: str) -> Rows:
    return data.rows.where(measure=vocab.FRONTIER, metric=VERDICTS, condition=setting, plan=tuple(_points(data)))


def _compared(data: ReportData, verdict: Score) -> tuple[Score | None, Score | None]:
    """What the plan loses above its two rivals."""
    own = data.rows.where(measure=vocab.FRONTIER, plan=verdict.plan, condition=verdict.condition)
    return own.one(metric=vocab.ABOVE_RIVAL), own.one(metric=vocab.ABOVE_CLOSEST)


def _what_would_resolve(data: ReportData, verdict: Score) -> str:
    rival, closest = _compared(data, verdict)
    if closest is None:
        return f"{NOTHING_AS_QUICK}: time plans that leave out more layers (--sizes)"
    if rival is None or (closest.low or 0.0) > 0:
        more = "loses less" if closest.value > 0 else "loses more"
        return (
            f"{closest.against} {more}, and its time cannot be told from this one's: {MORE_ROUNDS}, or a quieter "
            "machine"
        )
    nearest = min((rival, closest), key=lambda row: row.p if row.p is not None else 1.0)
    text = f"beside {_beside(data, nearest)}"
    needed = tokens_needed(nearest)
    return text if needed is None else f"{text}; a difference of this size would show in about {needed:,} tokens"


def _beside(data: ReportData, score: Score) -> str:
    """The rival, its time, and what the plan loses above it."""
    times = data.rows.where(measure=vocab.TIME, metric=vocab.MILLISECONDS, condition=score.condition).along("plan")
    rival, own = times.get(score.against), times.get(score.plan)
    time = "" if rival is None or own is None else f" ({QUICK.text(rival)} ms, here {QUICK.text(own)})"
    return f"{score.against}{time}: {DIFFERENCE.text(score)} nats above it, corrected p {adjusted_p(score)}"


def _verdict_cell(rows: Rows) -> str:
    """What became of a parallel plan, and beside which rival."""
    verdict = next((name for name in VERDICTS if rows.where(metric=name)), "")
    row = rows.one(metric=vocab.ABOVE_CLOSEST if verdict == vocab.BEST else vocab.ABOVE_RIVAL)
    if verdict == vocab.BEST:
        return "best" if row is None else f"best, next {row.against}"
    if verdict == vocab.BEATEN:
        return "beaten" if row is None else f"beaten by {row.against}"
    return "not resolvable" if verdict else ABSENT


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    points = _points(data)
    yield f"{len(points):,}", "points"
    yield f"{len({row.arm for row in points.values()}):,}", "arms"


def _following(data: ReportData) -> Iterator[str]:
    """More rounds, where these would resolve something."""
    if any(MORE_ROUNDS in text for text in every_verdict(data)):
        yield "The same command with more --rounds adds them to this run."


FRONTIER_KIND = Kind(
    name=vocab.FRONTIER,
    measures=(vocab.FRONTIER,),
    answer=lambda data: " ".join(headline(data, setting) for setting in settings(data)),
    tiles=_tiles,
    counts=("documents", "tokens"),
    following=_following,
    sections=(
        Section(
            anchor=vocab.FRONTIER,
            needs=lambda data: bool(_points(data)),
            parts=(
                Scatter(
                    name=vocab.FRONTIER,
                    derive=drawn,
                    point="plan",
                    across={"metric": vocab.MILLISECONDS},
                    upwards={"metric": vocab.DELTA},
                    series="arm",
                    words=named(ARMS),
                    at="{}",
                    slots=SLOTS,
                    legend="Arms",
                    choices={"Phase": "condition"},
                    show_across=NUMBER.but(axis="milliseconds of a pass"),
                    show=DIFFERENCE,
                    height=520,
                    rooted=True,
                    bent=True,
                    styles={arm: Style(front=True, size=12 if arm == vocab.IDENTITY else 9) for arm in ARMS},
                ),
                Says(findings),
                Says(every_verdict, name="every-parallel-plan-beside", terminal=False, folded=True),
                Pivot(
                    derive=timed,
                    split="condition",
                    rows={"arm": "arm", "kind": "part", "plan": "plan"},
                    words=named(ARMS),
                    columns=(
                        Column("ms", vocab.MILLISECONDS),
                        Column("nats per token", vocab.DELTA, DIFFERENCE, {"task": vocab.REPORT}),
                        Column("verdict", text=_verdict_cell),
                        Column("nats where chosen", vocab.DELTA, DIFFERENCE.but(bounds=False), {"task": vocab.CHOOSE}),
                    ),
                ),
            ),
        ),
    ),
)
