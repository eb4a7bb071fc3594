"""A search as tables and as sentences: what the chosen plan loses, what stands beside it, and the front."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import between, is_resolved, probability, tidy
from layerwise.report.page.plain_markdown import bullets
from layerwise.report.page.table import Table
from layerwise.report.search.lookup import ARMS, RANDOM, TEXTS, SearchScores
from layerwise.results.rows import Score

MEGABYTE = 1e6


def confirmed_table(run: SearchScores, level: float) -> Table:
    """The chosen plan, then every arm, on every text that chose nothing."""
    texts = run.texts
    head: tuple[str, ...] = ("", "plan", "search text")
    for text in texts:
        name = TEXTS[text]
        head += (name, f"{name}: above the chosen", "adjusted p", "verdict")
    chosen = run.chosen or ""
    body = [("chosen", chosen, _loss(run, chosen, "search"), *_of_chosen(run, chosen))]
    for name, plan in run.arms.items():
        cells = [ARMS[name], plan, _loss(run, plan, "search")]
        for text in texts:
            cells += [_loss(run, plan, text), *_above(run, name, plan == chosen, text, level)]
        body.append(tuple(cells))
    if any(subject == RANDOM for subject, _, _ in run.rows):
        cells = [ARMS[RANDOM], "mean of 20" if len(_random(run)) == 20 else f"mean of {len(_random(run))}", "–"]
        for text in texts:
            cells += ["–", *_above(run, RANDOM, False, text, level)]
        body.append(tuple(cells))
    return Table(head, tuple(body), numeric_from=2)


def front_table(run: SearchScores, unit: str) -> Table:
    """The front of a unit: plans, prices, and losses where they were searched for and on fresh text."""
    head = ("plan", *run.units, "search text", *(TEXTS[text] for text in run.texts), "another text of this size")
    body = tuple(
        (
            plan, *(price(run, plan, each) for each in run.units), _loss(run, plan, "search"),
            *(_loss(run, plan, text) for text in run.texts), _range(run.score(plan, "report", "again")),
        )
        for plan in run.front(unit)
    )  # fmt: skip
    return Table(head, body)


def price(run: SearchScores, plan: str, unit: str) -> str:
    """What a plan costs, with its unit."""
    value = run.value(plan, unit, "price")
    if value is None:
        return "–"
    return (
        f"{value:g}" if unit == "layers" else f"{value / MEGABYTE:,.2f} MB" if unit == "bytes" else f"{value:,.2f} ms"
    )


def search_lines(run: SearchScores, level: float) -> list[str]:
    """The results in sentences, one a line, and the plans of the front."""
    if run.chosen is None:
        return []
    return [*sentences(run, level), *front_table(run, main_unit(run)).lines()]


def search_markdown(evidence: Evidence) -> Iterator[str]:
    """The results in sentences, the chosen plan beside its controls, and the front."""
    run, level = SearchScores.of(evidence.data.scores), evidence.data.level
    if run.chosen is not None:
        yield bullets(sentences(run, level))
        yield confirmed_table(run, level).section("Beside what costs no search")
        yield front_table(run, main_unit(run)).section("The front")


def main_unit(run: SearchScores) -> str:
    """The unit of the budget, where plans have a price in it."""
    unit = run.budget.partition("=")[0]
    return unit if unit in run.units else "layers"


def sentences(run: SearchScores, level: float) -> Iterator[str]:
    """What was chosen and what it loses, the winner's curse, and each arm beside it."""
    chosen = run.chosen
    assert chosen is not None, "the caller has seen that a plan was chosen"
    prices = ", ".join(f"{price(run, chosen, unit)}{' layers' * (unit == 'layers')}" for unit in run.units)
    yield f"Chosen within {run.budget}: {chosen} ({prices})"
    for text in run.texts:
        fresh, again = run.score(chosen, text, "delta_nll"), run.score(chosen, text, "again")
        if fresh is not None:
            yield (
                f"On the {TEXTS[text]} it loses {_interval(fresh)} nats per token against the model as trained"
                + (f"; another text of this size would say {_range(again)}" if again is not None else "")
            )
    searched, gap = run.value(chosen, "search", "delta_nll"), run.score(chosen, "report", "gap")
    if searched is not None and gap is not None:
        curse = "the search flattered it" if (gap.low or 0.0) > 0 else "no winner's curse is resolvable"
        yield f"Where it was searched for it lost {tidy(searched, signed=True)}: a gap of {_interval(gap)}, {curse}"
    for text in run.texts:
        for name in (*run.arms, RANDOM):
            line = _against(run, name, text, level)
            if line is not None:
                yield line
    yield from _times(run)


def _against(run: SearchScores, name: str, text: str, level: float) -> str | None:
    """One arm beside the chosen plan, on one text."""
    if run.arms.get(name) == run.chosen:
        return f"{ARMS[name]}: the same plan" if text == "report" else None
    score = run.score(name, text, "above_chosen")
    if score is None:
        return None
    words = f"{ARMS[name]}, {TEXTS[text]}: {_interval(score)} above the chosen plan, {_verdict(score, level)}"
    better = run.value(RANDOM, text, "better") if name == RANDOM else None
    return words if better is None else f"{words}; {100 * better:.0f} % of the sets lose less"


def _times(run: SearchScores) -> Iterator[str]:
    chosen = run.chosen or ""
    predicted, measured = (run.times.get((chosen, f"plan_{name}")) for name in ("predicted", "measured"))
    if predicted is not None and measured is not None:
        off = measured.value / predicted.value - 1
        yield (
            f"Milliseconds ({measured.task}): {predicted.value:.2f} predicted, {measured.value:.2f} measured "
            f"({100 * off:+.1f} %)"
        )


def _verdict(score: Score, level: float) -> str:
    """Whether an arm can be distinguished from the chosen plan, in words."""
    p = f"corrected p {probability(score.p_adjusted)}"
    if is_resolved(score, level):
        return f"{'worse' if score.value > 0 else 'better'} ({p})"
    above = "" if score.mde is None else f" below {tidy(score.mde)} nats"
    return f"not resolvable{above} ({p})"


def _random(run: SearchScores) -> list[str]:
    return [subject for subject, task, metric in run.rows if (task, metric) == (RANDOM, "arm")]


def _of_chosen(run: SearchScores, chosen: str) -> list[str]:
    cells: list[str] = []
    for text in run.texts:
        gap = run.score(chosen, text, "gap")
        cells += [_loss(run, chosen, text), "–", "–", "" if gap is None else f"gap {_interval(gap)}"]
    return cells


def _above(run: SearchScores, name: str, same: bool, text: str, level: float) -> list[str]:
    score = run.score(name, text, "above_chosen")
    if same or score is None:
        return ["–", "–", "the same plan" if same else "not measured"]
    return [_interval(score), probability(score.p_adjusted), _verdict(score, level).partition(" (")[0]]


def _loss(run: SearchScores, plan: str, text: str) -> str:
    score = run.score(plan, text, "delta_nll")
    return "–" if score is None else _interval(score)


def _interval(score: Score) -> str:
    return between(score.value, score.low, score.high, signed=True)


def _range(score: Score | None) -> str:
    return "–" if score is None else _interval(score).partition(" ")[2]
