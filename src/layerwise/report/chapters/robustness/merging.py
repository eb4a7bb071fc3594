"""Models put together from the layers of several: is a merged model as good as those it was made of?"""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, note
from layerwise.report.chapters.robustness.absence import absent
from layerwise.report.data import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.levels import Level, levels
from layerwise.report.figures.strips import Strip, strips
from layerwise.report.markup import Safe, element, measured
from layerwise.report.picture import Choice, Picture
from layerwise.report.quantity import ACCURACY
from layerwise.report.robustness import ANY_ORDER, CONDITIONS, IN_ORDER, Robustness
from layerwise.report.standings import merging_rows
from layerwise.report.table import simple_table
from layerwise.results.rows import Score

ANCHOR, TITLE, SHORT = "merging", "Layers of several models", "Merging"
KINDS = {
    "arbitrary": ("any layer, anywhere", f"members {ANY_ORDER}", "the members in any order, mean"),
    "own-depth": ("each layer at its own depth", f"members {IN_ORDER}", "the members in order, mean"),
}
WAYS = {"members": "members, mean", "best member": "best member", "ensemble": "ensemble of their outputs"}
MERGED = {IN_ORDER: "own-depth", ANY_ORDER: "arbitrary"}


def merging(evidence: Evidence) -> Chapter:
    """The draws as swarms against their members; members, best member, merged and ensemble side by side."""
    found = evidence.robustness
    pictures = tuple(picture for picture in (_swarms(found), _ways(found)) if picture is not None)
    if not pictures:
        return absent(evidence, ANCHOR, TITLE, SHORT, "No models were merged in this run (merging).")
    numbers = merging_rows(found)
    body = (
        lead("A merged model takes each layer from one of several models of one arm; nothing is trained again."),
        *(
            element("div", picture.controls(), card(picture.alternative, picture.html()), class_="spaced")
            for picture in pictures
        ),
        *_own_depth(found),
        note(
            "Each dot is one merged model. At its own depth, layer 5 of one model may only stand in for layer 5 of"
            " another: the null for merging, since models of one origin may still fit together there. Anywhere, it may"
            " stand at any place."
        ),
        element(
            "details", element("summary", "Every number"), simple_table(numbers.head, numbers.body, numeric_from=2)
        ),
    )
    return Chapter(ANCHOR, TITLE, SHORT, body, pictures)


def _swarms(found: Robustness) -> Picture | None:
    kinds = [kind for kind in KINDS if found.arms_with("merges", f"accuracy.{kind}")]
    if not kinds:
        return None
    slots = arm_slots(found.arms)
    variants: dict[tuple[int, ...], Figure] = {}
    for at, kind in enumerate(kinds):
        _, members, name = KINDS[kind]
        rows = [
            Strip(arm, _draws(found, kind, arm), slots[arm], _member(found, arm, members))
            for arm in found.arms_with("merges", f"accuracy.{kind}")
        ]
        variants[at,] = strips(rows, across=ACCURACY.axis, reference=_chance(found), mark=name, span=ACCURACY.span)
    choice = (Choice("Merged from", tuple(KINDS[kind][0] for kind in kinds)),)
    return Picture("merging-draws", "Every merged model, against the models it was made of", variants, choice)


def _member(found: Robustness, arm: str, task: str) -> Score | None:
    score = found.score("merging", ACCURACY.metric, arm, task)
    return None if score is None else ACCURACY.shown(score)


def _draws(found: Robustness, kind: str, arm: str) -> dict[str, float]:
    return {
        plan: ACCURACY.scale * score.value
        for plan, score in found.conditions("merges", f"accuracy.{kind}", arm).items()
    }


def _chance(found: Robustness) -> float | None:
    return None if found.is_language else found.reference


def _ways(found: Robustness) -> Picture | None:
    """Members, best member, merged and ensemble, a row an arm; a choice of order."""
    quantity = found.quantity
    arms = found.arms_with("merging", quantity.metric)
    variants: dict[tuple[int, ...], Figure] = {}
    for at, condition in enumerate(CONDITIONS):
        tasks = {name: f"{way} {condition}" for way, name in WAYS.items()}
        tasks["merged"] = f"merged {MERGED[condition]}"
        marks = [
            Level(name, {arm: quantity.shown(score) for arm in arms if (score := _level(found, arm, task))}, slot)
            for slot, (name, task) in enumerate(tasks.items())
        ]
        shown = [mark for mark in marks if mark.rows]
        if shown:
            variants[at,] = levels(shown, across=quantity.axis, reference=found.reference, span=quantity.span)
    choice = (Choice("Layers run", tuple(CONDITIONS.values())),)
    name = "One model, a merged one, and all of them together"
    return Picture("merging-ways", name, variants, choice) if variants else None


def _level(found: Robustness, arm: str, task: str) -> Score | None:
    return found.score("merging", found.quantity.metric, arm, task)


def _own_depth(found: Robustness) -> tuple[Safe, ...]:
    """Whether the baseline, which never saw another order, is also good when merged at its own depth."""
    merged = _level(found, "baseline", "merged own-depth")
    members = _level(found, "baseline", f"members {IN_ORDER}")
    if merged is None or members is None:
        return ()
    told = element(
        "p",
        "Does a baseline merged at its own depth survive too? Merged it scores ",
        measured(found.quantity.told(merged)),
        ", its members in order ",
        measured(found.quantity.told(members)),
        ".",
        class_="answer",
    )
    return (told,)
