"""Models put together from the layers of several: is a merged model as good as those it was made of?"""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.levels import Level, levels
from layerwise.report.figures.strip_plot import Strip, strips
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, note, spaced
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import Safe, element, measured
from layerwise.report.page.table import Table
from layerwise.report.quantity import ACCURACY, NATS_ABOVE, POINTS
from layerwise.report.robustness.chapters.absence import absent
from layerwise.report.robustness.lookup import CONDITIONS, IN_ORDER, RANDOM_ORDER, RobustnessScores
from layerwise.report.robustness.tables import merging_rows
from layerwise.results.rows import Score

HEADING = Heading("merging", "Layers of several models", "Merging")
KINDS = {
    "random": ("any layer, anywhere", f"members {RANDOM_ORDER}", "the members in random order, mean"),
    "own-depth": ("each layer at its own depth", f"members {IN_ORDER}", "the members in order, mean"),
}
WAYS = {"members": "members, mean", "best member": "best member", "ensemble": "ensemble of their outputs"}
MERGED = {IN_ORDER: "own-depth", RANDOM_ORDER: "random"}


def merging(evidence: Evidence) -> Chapter:
    """The draws as swarms against their members; members, best member, merged and ensemble side by side."""
    run = evidence.robustness
    pictures = tuple(picture for picture in (_swarms(run), _ways(run)) if picture is not None)
    if not pictures:
        return absent(evidence, HEADING, "No models were merged in this run (merging).")
    numbers = merging_rows(run)
    body = (
        lead("A merged model takes each layer from one of several models of one arm; nothing is trained again."),
        *(spaced(picture.controls(), card(picture.alternative, picture.html())) for picture in pictures),
        *_own_depth(run),
        *_replaced(run),
        note(
            "Each dot is one merged model. At its own depth, layer 5 of one model may only stand in for layer 5 of"
            " another: the null for merging, since models of one origin may still fit together there. Anywhere, it may"
            " stand at any position."
        ),
        folded("Every number", numbers.html()),
    )
    return HEADING.chapter(body, pictures)


def _replaced(run: RobustnessScores) -> tuple[Safe, ...]:
    """Whether another model's layers are better than none, where a node is lost: a row for each arm and order."""
    metric = "nll" if run.is_language else "accuracy"
    above = NATS_ABOVE if run.is_language else POINTS
    body = []
    for arm in run.arms_with("merging", f"{metric}_above@node lost"):
        for condition, words in CONDITIONS.items():
            tasks = (f"node lost {condition}", f"node replaced {condition}")
            lost, replaced = (run.score("merging", run.quantity.metric, arm, task) for task in tasks)
            gap = run.score("merging", f"{metric}_above@node lost", arm, tasks[1])
            if gap is not None:
                shown = (run.quantity.text(lost), run.quantity.text(replaced), above.text(gap, signed=True))
                body.append((arm, words, *shown))
    if not body:
        return ()
    table = Table(("arm", "order", "node left out", "node of another model", "difference"), tuple(body), numeric_from=2)
    return (
        spaced(table.html()),
        note(
            "A node is lost, one of four: its layers are left out, or the same layers of another model stand in for"
            " them. Every node of every model is lost once; intervals are over these."
        ),
    )


def _swarms(run: RobustnessScores) -> Picture | None:
    kinds = [kind for kind in KINDS if run.arms_with("merges", f"accuracy.{kind}")]
    if not kinds:
        return None
    slots = arm_slots(run.arms)
    variants: dict[tuple[int, ...], Figure] = {}
    for at, kind in enumerate(kinds):
        _, members, name = KINDS[kind]
        rows = [
            Strip(arm, _draws(run, kind, arm), slots[arm], _member(run, arm, members))
            for arm in run.arms_with("merges", f"accuracy.{kind}")
        ]
        variants[at,] = strips(rows, across=ACCURACY.axis, reference=_chance(run), mark=name, span=ACCURACY.span)
    choice = (Choice("Merged from", tuple(KINDS[kind][0] for kind in kinds)),)
    return Picture("merging-draws", "Every merged model, against the models it was made of", variants, choice)


def _member(run: RobustnessScores, arm: str, task: str) -> Score | None:
    score = run.score("merging", ACCURACY.metric, arm, task)
    return None if score is None else ACCURACY.shown(score)


def _draws(run: RobustnessScores, kind: str, arm: str) -> dict[str, float]:
    return {
        plan: ACCURACY.scale * score.value for plan, score in run.conditions("merges", f"accuracy.{kind}", arm).items()
    }


def _chance(run: RobustnessScores) -> float | None:
    return None if run.is_language else run.reference


def _ways(run: RobustnessScores) -> Picture | None:
    """Members, best member, merged and ensemble, a row an arm; a choice of order."""
    quantity = run.quantity
    arms = run.arms_with("merging", quantity.metric)
    variants: dict[tuple[int, ...], Figure] = {}
    for at, condition in enumerate(CONDITIONS):
        tasks = {name: f"{way} {condition}" for way, name in WAYS.items()}
        tasks["merged"] = f"merged {MERGED[condition]}"
        marks = [
            Level(name, {arm: quantity.shown(score) for arm in arms if (score := _level(run, arm, task))}, slot)
            for slot, (name, task) in enumerate(tasks.items())
        ]
        shown = [mark for mark in marks if mark.rows]
        if shown:
            variants[at,] = levels(shown, across=quantity.axis, reference=run.reference, span=quantity.span)
    choice = (Choice("Layers run", tuple(CONDITIONS.values())),)
    name = "One model, a merged one, and all of them together"
    return Picture("merging-ways", name, variants, choice) if variants else None


def _level(run: RobustnessScores, arm: str, task: str) -> Score | None:
    return run.score("merging", run.quantity.metric, arm, task)


def _own_depth(run: RobustnessScores) -> tuple[Safe, ...]:
    """Whether the baseline, which never saw another order, is also good when merged at its own depth."""
    merged = _level(run, "baseline", "merged own-depth")
    members = _level(run, "baseline", f"members {IN_ORDER}")
    if merged is None or members is None:
        return ()
    sentence = element(
        "p",
        "Does a baseline merged at its own depth survive too? Merged it scores ",
        measured(run.quantity.text(merged)),
        ", its members in order ",
        measured(run.quantity.text(members)),
        ".",
        class_="answer",
    )
    return (sentence,)
