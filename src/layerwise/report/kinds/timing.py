"""What is timed: passes of every plan, its ratio to the first; and drafts, what one was expected to gain and gained."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.data import ReportData
from layerwise.report.kind import Column, Kind, Pivot, Says, Section
from layerwise.report.marks import Dots
from layerwise.report.show import COUNT, PERCENT, Show
from layerwise.report.text.wording import STOPPED
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

TIMES = Show(axis="milliseconds of a pass", decimals=3)
RATIOS = Show(axis="x the first", decimals=3)


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield f"{max(row.documents or 0 for row in data.rows.where(measure=vocab.TIME)):,}", "rounds"


def _answer(data: ReportData) -> str:
    """The plan with the least ratio to the first, in each setting."""
    ratios = data.rows.where(measure=vocab.TIME, metric=vocab.RATIO)
    sentences = []
    for setting, rows in ratios.by("condition").items():
        first, *others = rows
        if others:
            best = min(others, key=lambda row: row.value)
            resolved = best.high is not None and best.high < 1.0
            verdict = "is the quickest" if resolved else "is not quicker than the first beyond the noise"
            sentences.append(f"{setting}: {best.plan} {verdict}, {RATIOS.text(best)} x {first.plan}.")
    return " ".join(sentences)


TIMING = Kind(
    name="timing",
    measures=(vocab.TIME,),
    answer=_answer,
    tiles=_tiles,
    sections=(
        Section(
            anchor=vocab.TIME, parts=(
                Dots(
                    name="times", y="plan", show=TIMES, where={"measure": vocab.TIME, "metric": vocab.MILLISECONDS},
                    choices={"Setting": "condition"}, words=str,
                ),
                Pivot(
                    rows={"plan": "plan"}, where={"measure": vocab.TIME}, split="condition",
                    columns=(Column("ms", vocab.MILLISECONDS, TIMES), Column("x the first", vocab.RATIO, RATIOS)),
                ),
            ),
        ),
    ),
)  # fmt: skip


SHARE = PERCENT.but(decimals=1)
GAIN = Show(decimals=2)
RATE = Show(axis="tokens per second", decimals=1, bounds=False)


def findings(data: ReportData) -> Iterator[str]:
    """What was counted and timed with the chosen draft, and what was expected of it."""
    drafts, run = data.rows.where(measure=vocab.SPECULATION_DRAFT), data.rows.where(measure=vocab.SPECULATION)
    (draft,) = drafts.where(metric=vocab.CHOSEN).axis("plan")
    if run:
        yield from _generated(run, draft)
    expected = drafts.where(plan=draft)
    agreement, length, rate = (expected.value(metric=name) for name in ("agreement", "length", vocab.TOKENS_PER_SECOND))
    yield (
        f"draft {draft}: the whole model's arg-max at {SHARE.number(agreement)} of the tokens; expected: drafts of "
        f"{COUNT.number(length)}, {GAIN.number(expected.value(metric='bound'))} x in layer passes, "
        f"{RATE.number(rate)} tokens/s, plain decoding {RATE.number(drafts.value(condition=vocab.PLAIN))}."
    )


def _generated(run: Rows, draft: str) -> Iterator[str]:
    for way, ratio in run.where(metric="ratio").along("condition").items():
        yield f"{vocab.DRAFTED} with {draft} is {GAIN.text(ratio)} x as fast as {way}{_verdict(ratio)}."
    bound, kept = (run.one(metric=name) for name in ("bound", "acceptance"))
    if bound is not None:
        layers = COUNT.number(run.value(metric="layer_passes"))
        yield f"layer passes: {layers}, {GAIN.text(bound)} x fewer than plain decoding."
    rates = run.where(metric=vocab.TOKENS_PER_SECOND).along("condition")
    yield "tokens/s: " + ", ".join(f"{RATE.text(row)} {way}" for way, row in rates.items()) + "."
    tokens, rounds, passes = (COUNT.number(run.value(metric=name)) for name in ("tokens", "rounds", "draft_passes"))
    yield (
        f"generated: {tokens} tokens behind the first ones, in {rounds} rounds with {passes} draft passes"
        + ("." if kept is None else f", of which {SHARE.text(kept)} were kept.")
    )
    equal, tie, other = (run.value(metric=name) or 0.0 for name in ("equal", "tie", "other"))
    yield f"equal to generate: {equal:g} of {equal + tie + other:g} texts, {tie:g} up to a tie."


def _verdict(ratio: Score) -> str:
    """Whether drafting is faster, where the interval says so."""
    if ratio.low is None or ratio.high is None:
        return ""
    return ": faster" if ratio.low > 1.0 else ": slower" if ratio.high < 1.0 else ": no difference is resolvable"


def _speculation_tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    bound = data.rows.one(measure=vocab.SPECULATION, metric="bound")
    if bound is not None:
        yield f"{GAIN.text(bound)} x", "fewer layer passes"


def _drafts(data: ReportData) -> Rows:
    return data.rows.where(measure=vocab.SPECULATION_DRAFT, plan=PRESENT)


def _following(data: ReportData) -> Iterator[str]:
    """Another draft is searched for where this one is not faster."""
    ratio = data.rows.one(measure=vocab.SPECULATION, metric="ratio", condition=vocab.PLAIN)
    if ratio is not None and (ratio.low is None or ratio.low <= 1.0) and len(_drafts(data).axis("plan")) == 1:
        yield f"Search for a better draft: layerwise time speculation {data.manifest.get('model', 'MODEL')} --search"


SPECULATION_KIND = Kind(
    name=vocab.SPECULATION,
    measures=(vocab.SPECULATION_DRAFT,),
    answer=lambda data: next(findings(data), ""),
    tiles=_speculation_tiles,
    unfinished=lambda data: (
        None if data.rows.where(measure=vocab.SPECULATION) else f"Nothing was generated yet: {STOPPED}"
    ),
    following=_following,
    sections=(
        Section(
            anchor=vocab.SPECULATION, needs={"measure": vocab.SPECULATION_DRAFT}, parts=(
                Dots(
                    name="speculation-rates", y="condition", show=RATE, from_zero=True,
                    where={"measure": vocab.SPECULATION, "metric": vocab.TOKENS_PER_SECOND}, words=str,
                ),
                Says(findings),
                Pivot(
                    name="drafts-that-were-compared", derive=_drafts, rows={"draft": "plan"}, folded=True,
                    terminal=False, columns=(
                        Column("agreement", "agreement", SHARE), Column("tokens of a draft", "length", COUNT),
                        Column("x in layer passes", "bound", GAIN), Column("tokens/s", vocab.TOKENS_PER_SECOND, RATE),
                    ),
                ),
            ),
        ),
    ),
)  # fmt: skip
