"""What the models know without being taught: minimal pairs, by phenomenon, with chance beside them."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import percent, tidy
from layerwise.report.page.wording import label
from layerwise.report.pretraining.chapters.outcome import chance
from layerwise.report.pretraining.lookup import ALL, PretrainingScores, suite_name
from layerwise.report.pretraining.tables import PARADIGM, PHENOMENON, suite_rows
from layerwise.report.quantity import ACCURACY
from layerwise.results.rows import Score

HEADING = Heading("pairs", "What the models know of language", "Minimal pairs")
WHOLE = "all paradigms"


def pairs(evidence: Evidence) -> Chapter:
    """A figure a suite, its coverage, and every paradigm in a table."""
    run = evidence.pretraining
    drawn = {suite: picture for suite in run.suites if (picture := _picture(run, suite)) is not None}
    if not drawn:
        return HEADING.missing(
            "No minimal pairs were evaluated (pairs, blimp, supplement, ewok): layerwise evaluate RUN does."
        )
    slots = {arm: slot for arm, slot in arm_slots(run.arms).items() if any(_all(run, suite, arm) for suite in drawn)}
    notes = (each for each in evidence.data.notes if each.measure in drawn and each.measure != HEADING.anchor)
    body = (
        lead("Of two sentences that differ in one point, the right one must be the likelier. Guessing is right half."),
        legend(slots, tuple(picture.name for picture in drawn.values())),
        *(part for suite, picture in drawn.items() for part in _section(run, suite, picture)),
        note(
            "An arm's interval is over its seeds where there are several, else over pairs drawn again within each"
            " paradigm; a paradigm alone has a Wilson interval. “All paradigms” weighs each alike. The dotted line is"
            " chance."
        ),
        *(note(each.text) for each in notes),
    )
    return HEADING.chapter(body, tuple(drawn.values()))


def _section(run: PretrainingScores, suite: str, picture: Picture) -> tuple[Safe, ...]:
    tables = [(prefix, suite_rows(run, suite, prefix)) for prefix in (PHENOMENON, PARADIGM)]
    return (
        element("h3", suite_name(suite), " ", element("small", _sizes(run, suite))),
        card(None, picture.html()),
        *(
            element(
                "details",
                element("summary", f"Every {prefix.removesuffix(':')} ({len(rows.body)})"),
                rows.html(),
            )
            for prefix, rows in tables
            if rows.body
        ),
    )


def _sizes(run: PretrainingScores, suite: str) -> str:
    """How many pairs, how much of their words the models can know, at which temperature."""
    counts = [score.documents for score in run.subjects(suite, "accuracy").values() if score.documents]
    parts = [f"{max(counts):,} pairs"] if counts else []
    for metric, words in (("coverage", "of the words without unknown pieces"), ("whole_words", "one token each")):
        shares = [score.value for score in run.subjects(suite, metric).values()]
        if shares:
            least, most = percent(min(shares)), percent(max(shares))
            parts.append(f"{least if least == most else f'{least} to {most}'} {words}")
    temperatures = {score.value for score in run.subjects(suite, "temperature").values()}
    parts += [f"temperature {tidy(value)}" for value in sorted(temperatures)]
    return ", ".join(parts)


def _all(run: PretrainingScores, suite: str, arm: str) -> Score | None:
    return run.by_arm(suite, "accuracy").get(arm)


def _picture(run: PretrainingScores, suite: str) -> Picture | None:
    """Phenomena in rows, paradigms where there are no phenomena, the whole suite first."""
    tasks = run.tasks_of(suite, "accuracy")
    prefix = PHENOMENON if any(task.startswith(PHENOMENON) for task in tasks) else PARADIGM
    named = {task: label(task.removeprefix(prefix)) for task in tasks if task.startswith(prefix)}
    whole = {ALL: WHOLE} if ALL in tasks else {}
    slots = arm_slots(run.arms)
    scores = {task: run.by_arm(suite, "accuracy", task) for task in (*whole, *named)}
    shown = [
        DotArm(arm, slots[arm], {words: ACCURACY.shown(scores[task][arm]) for task, words in rows.items()})
        for arm in run.arms
        if (rows := {task: words for task, words in (whole | named).items() if arm in scores[task]})
    ]
    if not shown:
        return None
    figure = dots(shown, across=ACCURACY.axis, reference=chance(run, suite))
    return Picture(f"suite-{run.suites.index(suite)}", f"{suite_name(suite)} by phenomenon", {(): figure})
