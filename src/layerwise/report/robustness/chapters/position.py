"""Whether a layer can predict its position: the accuracy of the predicted position, by position."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Band, Line
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note, spaced
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import fixed
from layerwise.report.quantity import ACCURACY
from layerwise.report.robustness.chapters.absence import absent
from layerwise.report.robustness.lookup import WHOLE, RobustnessScores, Rows
from layerwise.results.rows import Score

HEADING = Heading("position", "Does a layer know where it stands?", "Position")
METRIC = "accuracy"


def position(evidence: Evidence) -> Chapter:
    """The accuracy over all positions in large, and position by position as a line for each seed."""
    run = evidence.robustness
    runs = {name: rows for arm in run.arms for name, rows in run.seeded("position", METRIC, arm).items()}
    if not runs:
        return absent(
            evidence,
            HEADING,
            "No layer predicts its position in this run (only layershuffle-predict learns to).",
        )
    slots = dict(zip(runs, arm_slots(runs).values(), strict=True))
    picture = _by_position(run, runs, slots)
    body = (
        lead("Every layer reads its own output and says at which position it runs, in orders drawn at random."),
        _facts(run, runs),
        spaced(legend(slots, (picture.name,)) if len(runs) > 1 else Safe("")),
        card("Accuracy of the predicted position, by the true one", picture.html()),
        note("The dashed line is chance: every position is as likely as any other."),
    )
    return HEADING.chapter(body, (picture,))


def _facts(run: RobustnessScores, runs: dict[str, Rows]) -> Safe:
    facts = [
        element("div", element("dd", _percent(rows[WHOLE])), element("dt", name))
        for name, rows in runs.items()
        if WHOLE in rows
    ]
    chance = next((_chance(run, name) for name in runs if _chance(run, name)), {}).get(WHOLE)
    if chance is not None:
        facts.append(element("div", element("dd", _percent(chance)), element("dt", "chance")))
    return element("dl", *facts, class_="facts")


def _percent(score: Score) -> str:
    """Two decimals: near-perfect accuracies are distinguished by them."""
    return f"{fixed(ACCURACY.scale * score.value, 2)} %"


def _by_position(run: RobustnessScores, runs: dict[str, Rows], slots: dict[str, int]) -> Picture:
    lines = [Line(name, _as_positions(rows), slots[name]) for name, rows in runs.items()]
    chance = _as_positions(next((_chance(run, name) for name in runs if _chance(run, name)), {}))
    figure = lined(
        lines,
        [Band("chance", chance)] if chance else [],
        across="position",
        upwards=ACCURACY.axis,
        describe=hover_text("position {}", "%", run.level),
        span=ACCURACY.span,
    )
    return Picture("position", "Accuracy of the predicted position", {(): figure})


def _chance(run: RobustnessScores, name: str) -> Rows:
    return run.conditions("position", f"{METRIC}@chance", name)


def _as_positions(rows: Rows) -> dict[int, Score]:
    return {int(position): ACCURACY.shown(score) for position, score in rows.items() if position.isdecimal()}
