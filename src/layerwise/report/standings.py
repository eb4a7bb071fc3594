"""The tables of a robustness run, as rows of text: shared by the page, the Markdown and the terminal."""

from __future__ import annotations

import re

from layerwise.report.notation import tidy
from layerwise.report.quantity import ACCURACY, TOP_5, Quantity
from layerwise.report.robustness import ANY_ORDER, CONDITIONS, TRAINING, Robustness
from layerwise.report.robustness import Rows as Scores
from layerwise.report.survival import Survival, Trial, survival
from layerwise.report.tasks import Rows
from layerwise.results.rows import Score

WIDEST = 24  # characters of an arm's name in the terminal
GAP = "  "
ABOVE = "above baseline"
MERGINGS = (
    *(f"{way} {condition}" for way in ("members", "best member", "ensemble") for condition in CONDITIONS),
    "merged own-depth",
    "merged arbitrary",
)
FACTS = {"steps": "steps", "epochs": "epochs", "seconds": "seconds", "best_step": "best step", "examples": "examples"}
_STEP = re.compile(r"step (\d+)")


def standing_lines(found: Robustness) -> tuple[str, ...]:
    """Where each arm stands, as a plain table of at most 100 columns for the terminal; nothing for another run."""
    if not found.measures:
        return ()
    if found.only_trained:
        return (*aligned(course_rows(found)), "What the arms survive is not measured yet: layerwise robustness RUN")
    rows = order_rows(found)
    chance = "" if found.reference is None else f"; chance {found.reference:.3g}"
    above = f"; {ABOVE}: any order, paired, {found.above.axis}" if ABOVE in rows.head else ""
    if rows.body:
        return (f"{found.quantity.axis}{chance}{above}", *aligned(rows))
    merged = merging_rows(found)
    return aligned(Rows(merged.head[:4], tuple(row[:4] for row in merged.body))) if merged.body else ()


def order_rows(found: Robustness) -> Rows:
    """A row an arm: in order, in any order, and in any order against the baseline, where that was compared."""
    above = found.subjects("robustness", found.above.metric, ANY_ORDER)
    head = ("arm", *CONDITIONS.values(), *((ABOVE,) if above else ()))
    body = []
    for arm in found.arms:
        scores = [found.lead(arm, condition) for condition in CONDITIONS]
        if any(scores):
            points = (found.above.told(above.get(arm), signed=True),) if above else ()
            body.append((arm, *(found.quantity.told(score) for score in scores), *points))
    return Rows(head, tuple(body))


def survival_rows(found: Robustness, matrix: Survival) -> Rows:
    """A row for each arm and trial: the run's own quantity, top-1, top-5, and the difference to the baseline."""
    wanted = dict.fromkeys((found.quantity, ACCURACY, TOP_5, found.above))
    shown = [quantity for quantity in wanted if found.arms_with("robustness", quantity.metric)]
    body = tuple(
        (arm, f"{trial.group}, {trial.name}", *(_shown(found, quantity, trial, arm) for quantity in shown))
        for arm, cells in matrix.cells.items()
        for trial in cells
    )
    return Rows(("arm", "trial", *(quantity.name for quantity in shown)), body)


def matrix_rows(found: Robustness) -> Rows:
    """The matrix itself: a row an arm, a column a trial."""
    matrix = survival(found)
    head = ("arm", *(f"{trial.group}, {trial.name}" for trial in matrix.trials))
    body = tuple(
        (arm, *(found.quantity.told(cells[trial].score if trial in cells else None) for trial in matrix.trials))
        for arm, cells in matrix.cells.items()
    )
    return Rows(head, body)


def kept_rows(found: Robustness, rule: str, condition: str) -> Rows:
    """A row an arm, a column for each number of layers kept, from all of them down."""
    kept = {arm: rows for arm in found.arms if (rows := found.kept(arm, rule, condition))}
    counts = sorted({count for rows in kept.values() for count in rows}, reverse=True)
    body = tuple(
        (arm, *(found.quantity.bare(rows[count]) if count in rows else "–" for count in counts))
        for arm, rows in kept.items()
    )
    return Rows(("layers kept", *map(str, counts)), body)


def merging_rows(found: Robustness) -> Rows:
    """A row for each arm and way of joining models: the value, its spread over the draws, and top-5."""
    quantity, tops = found.quantity, bool(found.arms_with("merging", TOP_5.metric))
    body = []
    for arm in found.arms_with("merging", quantity.metric):
        for task in MERGINGS:
            score = found.score("merging", quantity.metric, arm, task)
            if score is not None:
                spread = found.score("merging", f"{quantity.metric}@spread", arm, task)
                top = (TOP_5.told(found.score("merging", TOP_5.metric, arm, task)),) if tops else ()
                body.append((arm, task, quantity.told(score), _spread(quantity, spread), *top))
    head = ("arm", "models", quantity.name, "spread of the draws", *((TOP_5.name,) if tops else ()))
    return Rows(head, tuple(body))


def training_rows(found: Robustness) -> Rows:
    """A row a training: what it took."""
    names = [name for arm in found.arms for name in found.seeded(TRAINING, "steps", arm)]
    scores = {name: [found.score(TRAINING, metric, name) for metric in FACTS] for name in names}
    body = tuple((name, *("–" if score is None else tidy(score.value) for score in of)) for name, of in scores.items())
    return Rows(("training", *FACTS.values()), body)


def course_rows(found: Robustness) -> Rows:
    """A row an arm that was trained: its seeds, its last step, and the best validation loss of any seed."""
    body = []
    for arm in found.arms:
        runs = found.seeded(TRAINING, "train_loss", arm)
        losses = found.seeded(TRAINING, "validation_loss", arm)
        steps = [step for rows in runs.values() for step in by_step(rows)]
        best = [loss for rows in losses.values() for loss in by_step(rows).values()]
        shown = (tidy(min(best)) if best else "–", f"{max(steps):,}" if steps else "–")
        body.append((arm, str(max(len(runs), len(losses))), shown[1], shown[0]))
    return Rows(("arm", "seeds", "last step", "best validation loss"), tuple(body))


def by_step(rows: Scores) -> dict[int, float]:
    """The losses of one training by step; rows about all of it are left out.

    >>> by_step({"step 20": Score("training", "a/0", "step 20", "train_loss", 1.5)})
    {20: 1.5}
    """
    return {int(match[1]): score.value for task, score in rows.items() if (match := _STEP.fullmatch(task))}


def _shown(found: Robustness, quantity: Quantity, trial: Trial, arm: str) -> str:
    return quantity.told(found.score(trial.measure, quantity.metric, arm, trial.task), signed=quantity is found.above)


def _spread(quantity: Quantity, score: Score | None) -> str:
    return "–" if score is None else f"± {quantity.bare(score)}"


def aligned(rows: Rows) -> tuple[str, ...]:
    """The rows as lines of text: the first column to the left, every other one as wide as it needs."""
    table = [[_shortened(row[0]), *row[1:]] for row in (rows.head, *rows.body)]
    widths = [max(len(row[column]) for row in table) for column in range(len(rows.head))]
    return tuple(GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)


def _shortened(name: str) -> str:
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 1]}…"
