"""What the models know without being taught: minimal pairs, by phenomenon, with chance beside them."""

from __future__ import annotations

from layerwise.report.accounts import PARADIGM, PHENOMENON, suite_rows
from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, legend, missing, note
from layerwise.report.chapters.pretraining.outcome import chance
from layerwise.report.data import Evidence
from layerwise.report.figures.dots import Dots, dots
from layerwise.report.markup import Safe, element
from layerwise.report.notation import percent, tidy
from layerwise.report.picture import Picture
from layerwise.report.pretraining import ALL, Pretraining, suite_name
from layerwise.report.quantity import ACCURACY
from layerwise.report.table import simple_table
from layerwise.report.wording import label
from layerwise.results.rows import Score

ANCHOR, TITLE, SHORT = "pairs", "What the models know of language", "Minimal pairs"
WHOLE = "all paradigms"


def pairs(evidence: Evidence) -> Chapter:
    """A figure a suite, its coverage, and every paradigm in a table."""
    found = evidence.pretraining
    drawn = {suite: picture for suite in found.suites if (picture := _picture(found, suite)) is not None}
    if not drawn:
        text = "No minimal pairs were judged (pairs, blimp, supplement, ewok): layerwise evaluate RUN does."
        return Chapter(ANCHOR, TITLE, SHORT, (missing(text),))
    slots = {
        arm: slot for arm, slot in arm_slots(found.arms).items() if any(_all(found, suite, arm) for suite in drawn)
    }
    left_out = (note(said.text) for said in evidence.data.notes if said.measure in drawn and said.measure != ANCHOR)
    body = (
        lead("Of two sentences that differ in one point, the right one must be the likelier. Guessing is right half."),
        legend(slots, tuple(picture.name for picture in drawn.values())),
        *(part for suite, picture in drawn.items() for part in _section(found, suite, picture)),
        note(
            "An arm's interval is over its seeds where there are several, else over pairs drawn again within each"
            " paradigm; a paradigm alone has a Wilson interval. “All paradigms” weighs each alike. The dotted line is"
            " chance."
        ),
        *left_out,
    )
    return Chapter(ANCHOR, TITLE, SHORT, body, tuple(drawn.values()))


def _section(found: Pretraining, suite: str, picture: Picture) -> tuple[Safe, ...]:
    tables = [(prefix, suite_rows(found, suite, prefix)) for prefix in (PHENOMENON, PARADIGM)]
    return (
        element("h3", suite_name(suite), " ", element("small", _sizes(found, suite))),
        card(None, picture.html()),
        *(
            element(
                "details",
                element("summary", f"Every {prefix.removesuffix(':')} ({len(rows.body)})"),
                simple_table(rows.head, rows.body),
            )
            for prefix, rows in tables
            if rows.body
        ),
    )


def _sizes(found: Pretraining, suite: str) -> str:
    """How many pairs, how much of their words the models can know, at which temperature."""
    counts = [score.documents for score in found.subjects(suite, "accuracy").values() if score.documents]
    told = [f"{max(counts):,} pairs"] if counts else []
    for metric, words in (("coverage", "of the words without unknown pieces"), ("whole_words", "one token each")):
        shares = [score.value for score in found.subjects(suite, metric).values()]
        if shares:
            least, most = percent(min(shares)), percent(max(shares))
            told.append(f"{least if least == most else f'{least} to {most}'} {words}")
    temperatures = {score.value for score in found.subjects(suite, "temperature").values()}
    told += [f"temperature {tidy(value)}" for value in sorted(temperatures)]
    return ", ".join(told)


def _all(found: Pretraining, suite: str, arm: str) -> Score | None:
    return found.by_arm(suite, "accuracy").get(arm)


def _picture(found: Pretraining, suite: str) -> Picture | None:
    """Phenomena in rows, paradigms where there are no phenomena, the whole suite first."""
    tasks = found.tasks_of(suite, "accuracy")
    prefix = PHENOMENON if any(task.startswith(PHENOMENON) for task in tasks) else PARADIGM
    named = {task: label(task.removeprefix(prefix)) for task in tasks if task.startswith(prefix)}
    whole = {ALL: WHOLE} if ALL in tasks else {}
    slots = arm_slots(found.arms)
    scores = {task: found.by_arm(suite, "accuracy", task) for task in (*whole, *named)}
    shown = [
        Dots(arm, slots[arm], {words: ACCURACY.shown(scores[task][arm]) for task, words in rows.items()})
        for arm in found.arms
        if (rows := {task: words for task, words in (whole | named).items() if arm in scores[task]})
    ]
    if not shown:
        return None
    figure = dots(shown, across=ACCURACY.axis, reference=chance(found, suite))
    return Picture(f"suite-{found.suites.index(suite)}", f"{suite_name(suite)} by phenomenon", {(): figure})
