"""Whether a layer can tell where it stands: the accuracy of the predicted position, by position."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, legend, note
from layerwise.report.chapters.robustness.absence import absent
from layerwise.report.data import Evidence
from layerwise.report.figures.lines import lined, telling
from layerwise.report.markup import Safe, element
from layerwise.report.notation import fixed
from layerwise.report.picture import Picture
from layerwise.report.quantity import ACCURACY
from layerwise.report.robustness import WHOLE, Robustness, Rows
from layerwise.report.series import Band, Line
from layerwise.results.rows import Score

ANCHOR, TITLE, SHORT = "position", "Does a layer know where it stands?", "Position"
METRIC = "accuracy"


def position(evidence: Evidence) -> Chapter:
    """The accuracy over all positions in large, and position by position as a line for each seed."""
    found = evidence.robustness
    runs = {name: rows for arm in found.arms for name, rows in found.seeded("position", METRIC, arm).items()}
    if not runs:
        what = "No layer was asked for its position in this run (only layershuffle-predict learns to tell it)."
        return absent(evidence, ANCHOR, TITLE, SHORT, what)
    slots = dict(zip(runs, arm_slots(runs).values(), strict=True))
    picture = _by_position(found, runs, slots)
    body = (
        lead("Every layer reads its own output and says at which position it runs, in orders drawn at random."),
        _facts(found, runs),
        element("div", legend(slots, (picture.name,)) if len(runs) > 1 else Safe(""), class_="spaced"),
        card("Accuracy of the predicted position, by the true one", picture.html()),
        note("The dashed line is chance: every position is as likely as any other."),
    )
    return Chapter(ANCHOR, TITLE, SHORT, body, (picture,))


def _facts(found: Robustness, runs: dict[str, Rows]) -> Safe:
    facts = [
        element("div", element("dd", _percent(rows[WHOLE])), element("dt", name))
        for name, rows in runs.items()
        if WHOLE in rows
    ]
    chance = next((_chance(found, name) for name in runs if _chance(found, name)), {}).get(WHOLE)
    if chance is not None:
        facts.append(element("div", element("dd", _percent(chance)), element("dt", "chance")))
    return element("dl", *facts, class_="facts")


def _percent(score: Score) -> str:
    """Two decimals: near-perfect accuracies are told apart by them."""
    return f"{fixed(ACCURACY.scale * score.value, 2)} %"


def _by_position(found: Robustness, runs: dict[str, Rows], slots: dict[str, int]) -> Picture:
    lines = [Line(name, _places(rows), slots[name]) for name, rows in runs.items()]
    chance = _places(next((_chance(found, name) for name in runs if _chance(found, name)), {}))
    figure = lined(
        lines,
        [Band("chance", chance)] if chance else [],
        across="position",
        upwards=ACCURACY.axis,
        tell=telling("position {}", "%", found.level),
        span=ACCURACY.span,
    )
    return Picture("position", "Accuracy of the predicted position", {(): figure})


def _chance(found: Robustness, name: str) -> Rows:
    return found.conditions("position", f"{METRIC}@chance", name)


def _places(rows: Rows) -> dict[int, Score]:
    return {int(place): ACCURACY.shown(score) for place, score in rows.items() if place.isdecimal()}
