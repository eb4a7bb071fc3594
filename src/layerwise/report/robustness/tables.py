"""The tables of a robustness run, as rows of text: shared by the page, the Markdown and the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
from layerwise.report.page.plain_markdown import escaped
from layerwise.report.page.table import Table
from layerwise.report.quantity import ACCURACY, TOP_5, Quantity
from layerwise.report.robustness.findings import Survival, SurvivalCondition, sentence, summary, survival
from layerwise.report.robustness.lookup import CONDITIONS, RANDOM_ORDER, RULES, TRAINING, RobustnessScores
from layerwise.report.robustness.lookup import Rows as Scores
from layerwise.results.rows import Score

ABOVE = "above baseline"
MERGINGS = (
    *(f"{way} {condition}" for way in ("members", "best member", "ensemble") for condition in CONDITIONS),
    "merged own-depth",
    "merged random",
    *(f"{way} {condition}" for way in ("node lost", "node replaced") for condition in CONDITIONS),
)
FACTS = {"steps": "steps", "epochs": "epochs", "seconds": "seconds", "best_step": "best step", "examples": "examples"}
_STEP = re.compile(r"step (\d+)")


def robustness_lines(run: RobustnessScores) -> tuple[str, ...]:
    """Where each arm stands, as a plain table of at most 100 columns for the terminal; nothing for another run."""
    if not run.measures:
        return ()
    if run.only_trained:
        return (*arm_loss_rows(run).lines(), "What the arms survive is not measured yet: layerwise robustness RUN")
    rows = order_rows(run)
    chance = "" if run.reference is None else f"; chance {run.reference:.3g}"
    above = f"; {ABOVE}: random order, paired, {run.above.axis}" if ABOVE in rows.head else ""
    if rows.body:
        return (f"{run.quantity.axis}{chance}{above}", *rows.lines())
    merged = merging_rows(run)
    return Table(merged.head[:4], tuple(row[:4] for row in merged.body)).lines()


def order_rows(run: RobustnessScores) -> Table:
    """A row an arm: in order, in random order, and in random order against the baseline, where that was compared."""
    above = run.subjects("robustness", run.above.metric, RANDOM_ORDER)
    head = ("arm", *CONDITIONS.values(), *((ABOVE,) if above else ()))
    body = []
    for arm in run.arms:
        scores = [run.lead(arm, condition) for condition in CONDITIONS]
        if any(scores):
            points = (run.above.text(above.get(arm), signed=True),) if above else ()
            body.append((arm, *(run.quantity.text(score) for score in scores), *points))
    return Table(head, tuple(body))


def survival_rows(run: RobustnessScores, matrix: Survival) -> Table:
    """A row for each arm and condition: the run's own quantity, top-1, top-5, and the difference to the baseline."""
    wanted = dict.fromkeys((run.quantity, ACCURACY, TOP_5, run.above))
    shown = [quantity for quantity in wanted if run.arms_with("robustness", quantity.metric)]
    body = tuple(
        (arm, f"{condition.group}, {condition.name}", *(_shown(run, quantity, condition, arm) for quantity in shown))
        for arm, cells in matrix.cells.items()
        for condition in cells
    )
    return Table(("arm", "condition", *(quantity.name for quantity in shown)), body, numeric_from=2)


def matrix_rows(run: RobustnessScores) -> Table:
    """The matrix itself: a row an arm, a column a condition."""
    matrix = survival(run)
    head = ("arm", *(f"{condition.group}, {condition.name}" for condition in matrix.conditions))
    body = tuple(
        (
            arm,
            *(
                run.quantity.text(cells[condition].score if condition in cells else None)
                for condition in matrix.conditions
            ),
        )
        for arm, cells in matrix.cells.items()
    )
    return Table(head, body)


def kept_rows(run: RobustnessScores, rule: str, condition: str) -> Table:
    """A row an arm, a column for each number of layers kept, from all of them down."""
    kept = {arm: rows for arm in run.arms if (rows := run.kept(arm, rule, condition))}
    counts = sorted({count for rows in kept.values() for count in rows}, reverse=True)
    body = tuple(
        (arm, *(run.quantity.bare(rows[count]) if count in rows else "–" for count in counts))
        for arm, rows in kept.items()
    )
    return Table(("layers kept", *map(str, counts)), body)


def merging_rows(run: RobustnessScores) -> Table:
    """A row for each arm and way of joining models: the value, its spread over the draws, and top-5."""
    quantity, tops = run.quantity, bool(run.arms_with("merging", TOP_5.metric))
    body = []
    for arm in run.arms_with("merging", quantity.metric):
        for task in MERGINGS:
            score = run.score("merging", quantity.metric, arm, task)
            if score is not None:
                spread = run.score("merging", f"{quantity.metric}@spread", arm, task)
                top = (TOP_5.text(run.score("merging", TOP_5.metric, arm, task)),) if tops else ()
                body.append((arm, task, quantity.text(score), _spread(quantity, spread), *top))
    head = ("arm", "models", quantity.name, "spread of the draws", *((TOP_5.name,) if tops else ()))
    return Table(head, tuple(body), numeric_from=2)


def training_rows(run: RobustnessScores) -> Table:
    """A row a training: what it took."""
    names = [name for arm in run.arms for name in run.seeded(TRAINING, "steps", arm)]
    scores = {name: [run.score(TRAINING, metric, name) for metric in FACTS] for name in names}
    body = tuple((name, *("–" if score is None else tidy(score.value) for score in of)) for name, of in scores.items())
    return Table(("training", *FACTS.values()), body)


def arm_loss_rows(run: RobustnessScores) -> Table:
    """A row an arm that was trained: its seeds, its last step, and the best validation loss of any seed."""
    body = []
    for arm in run.arms:
        runs = run.seeded(TRAINING, "train_loss", arm)
        losses = run.seeded(TRAINING, "validation_loss", arm)
        steps = [step for rows in runs.values() for step in by_step(rows)]
        best = [loss for rows in losses.values() for loss in by_step(rows).values()]
        shown = (tidy(min(best)) if best else "–", f"{max(steps):,}" if steps else "–")
        body.append((arm, str(max(len(runs), len(losses))), shown[1], shown[0]))
    return Table(("arm", "seeds", "last step", "best validation loss"), tuple(body))


def by_step(rows: Scores) -> dict[int, float]:
    """The losses of one training by step; rows about all of it are left out.

    >>> by_step({"step 20": Score("training", "a/0", "step 20", "train_loss", 1.5)})
    {20: 1.5}
    """
    return {int(match[1]): score.value for task, score in rows.items() if (match := _STEP.fullmatch(task))}


def _shown(run: RobustnessScores, quantity: Quantity, condition: SurvivalCondition, arm: str) -> str:
    return quantity.text(
        run.score(condition.measure, quantity.metric, arm, condition.task), signed=quantity is run.above
    )


def _spread(quantity: Quantity, score: Score | None) -> str:
    return "–" if score is None else f"± {quantity.bare(score)}"


def robustness_markdown(evidence: Evidence) -> Iterator[str]:
    """What each arm survives, in sentences and tables, and what the trainings took."""
    run = evidence.robustness
    matrix = survival(run)
    yield matrix_rows(run).section("Who survives what")
    if matrix.cells:
        yield escaped(summary(matrix))
        yield "\n".join(f"- **{escaped(arm)}** {escaped(''.join(sentence(run, matrix, arm)))}" for arm in matrix.cells)
    yield order_rows(run).section("Order")
    for rule, words in RULES.items():
        for condition, name in CONDITIONS.items():
            yield kept_rows(run, rule, condition).section(f"Layers kept, {words}, {name}")
    yield merging_rows(run).section("Merging")
    yield training_rows(run).section("Training")
