"""The chapter of speculative decoding: tokens per second of every way, what was counted, and the candidates."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.group import ChapterGroup
from layerwise.report.page.markup import element
from layerwise.report.page.number_format import fixed, percent
from layerwise.report.page.plain_markdown import bullets
from layerwise.report.page.table import Table
from layerwise.report.speculation.lookup import ALL, DRAFTED, PLAIN, RATE, SPECULATION, SpeculationScores
from layerwise.results.rows import Score

HEADING = Heading(SPECULATION, "What drafts gain", "Drafts")


def speculation(evidence: Evidence) -> Chapter:
    """Tokens per second, the count of layer passes, and what was expected of the drafts."""
    run = SpeculationScores.of(evidence.data.scores)
    if run.chosen is None:
        return HEADING.missing("No draft was tried: layerwise speculate does.")
    candidates = folded("Drafts that were compared", candidate_table(run).html())
    if not run.rows:
        return HEADING.chapter((note("Nothing was generated yet."), candidates), ())
    rates = {way: run.rows[way, RATE] for way in run.ways}
    picture = Picture(
        "speculation-rates", "Tokens per second",
        {(): dots([DotArm(RATE, 0, rates)], across="tokens per second", from_zero=True)},
    )  # fmt: skip
    body = (
        lead(
            "A plan of the model's own layers drafts tokens, and the model verifies them in one pass: the text is that "
            "of plain generation."
        ),
        card(picture.alternative, picture.html(), wide=True),
        element("ul", *(element("li", line) for line in speculation_lines(run)), class_="fates"),
        note("Sums over all prompts, with Student's intervals over prompts, in greedy decoding. Ways take turns."),
        candidates,
    )
    return HEADING.chapter(body, (picture,))


def candidate_table(run: SpeculationScores) -> Table:
    """What was expected of every draft that was compared."""
    body = [
        (
            plan, percent(run.expected("agreement", plan)), f"{run.expected('length', plan):.0f}",
            fixed(run.expected("bound", plan), 2), fixed(run.expected(RATE, plan), 1),
        )
        for plan in run.candidates
    ]  # fmt: skip
    return Table(("draft", "agreement", "tokens of a draft", "x in layer passes", "tokens/s"), tuple(body))


def speculation_lines(run: SpeculationScores) -> Iterator[str]:
    """What was expected and what was found, in sentences."""
    yield (
        f"draft {run.chosen}: the whole model's arg-max at {percent(run.expected('agreement'))} of the tokens; "
        f"expected: drafts of {run.expected('length'):.0f}, {fixed(run.expected('bound'), 2)} x in layer passes, "
        f"{fixed(run.expected(RATE), 1)} tokens/s, plain decoding {fixed(run.expected(RATE, PLAIN), 1)}"
    )
    if not run.rows:
        return
    kept, bound = (run.rows.get((ALL, metric)) for metric in ("acceptance", "bound"))
    yield (
        f"generated: {run.count('tokens'):,} tokens behind the first ones, in {run.count('rounds'):,} rounds with "
        f"{run.count('draft_passes'):,} draft passes" + (f", of which {_share(kept)} were kept" if kept else "")
    )
    if bound is not None:
        yield f"layer passes: {run.count('layer_passes'):,}, {_times(bound)} fewer than plain decoding"
    yield "tokens/s: " + ", ".join(f"{fixed(run.rows[way, RATE].value, 1)} {way}" for way in run.ways)
    ratios = [f"{_times(run.rows[way, 'ratio'])} {way}" for way in run.ways if way != DRAFTED]
    yield f"{DRAFTED} is {', '.join(ratios)}"
    texts = sum(map(run.count, ("equal", "tie", "other")))
    yield f"equal to generate: {run.count('equal')} of {texts} texts, {run.count('tie')} up to a tie"


def speculation_markdown(evidence: Evidence) -> Iterator[str]:
    """The sentences, and what was expected of every draft."""
    run = SpeculationScores.of(evidence.data.scores)
    yield bullets(speculation_lines(run))
    yield candidate_table(run).section("Drafts that were compared")


def _times(score: Score) -> str:
    if score.low is None or score.high is None:
        return f"{fixed(score.value, 2)} x"
    return f"{fixed(score.value, 2)} [{fixed(score.low, 2)}, {fixed(score.high, 2)}] x"


def _share(score: Score) -> str:
    if score.low is None or score.high is None:
        return percent(score.value)
    return f"{percent(score.value)} [{fixed(100 * score.low, 1)}, {fixed(100 * score.high, 1)}]"


SPECULATED = ChapterGroup(
    SPECULATION,
    (speculation,),
    (speculation_markdown,),
    present=lambda evidence: SpeculationScores.of(evidence.data.scores).chosen is not None,
    tiles=lambda evidence: _tiles(SpeculationScores.of(evidence.data.scores)),
)


def _tiles(run: SpeculationScores) -> tuple[tuple[str, str], ...]:
    bound = run.rows.get((ALL, "bound"))
    return ((_times(bound), "fewer layer passes"),) if bound else ()
