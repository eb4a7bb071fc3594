"""The tables of pre-trained models, as rows of text: shared by the page, the Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.page.number_format import between, fixed, probability, tidy
from layerwise.report.page.table import Table
from layerwise.report.pretraining.lookup import COSTS, HELD_OUT, STUDY, TRAINING, PretrainingScores, suite_name
from layerwise.report.quantity import ACCURACY, PERCENT, scaled
from layerwise.results.rows import Score

TEST, OURS = "test", "msgs-ours"
PHENOMENON, PARADIGM = "phenomenon:", "paradigm:"
CHANCE = "@chance"
BASES = {"tokens": "at equal tokens", "seconds": "at equal seconds"}
MEBIBYTES = ("peak_bytes", "weight_bytes", "state_bytes", "activation_bytes", "allocated_bytes")
SCALES = {**dict.fromkeys(MEBIBYTES, 1 / 2**20), "latency_seconds": 1000.0}


def outcome_rows(run: PretrainingScores) -> Table:
    """A row an arm: seeds, held-out loss, and the accuracy on every suite of minimal pairs."""
    losses = run.by_arm(HELD_OUT, "nll", TEST)
    suites = {suite: run.by_arm(suite, "accuracy") for suite in run.suites}
    shown = [arm for arm in run.arms if arm in losses or any(arm in of for of in suites.values())]
    head = ("arm", "seeds", *(("held-out loss (nats)",) if losses else ()), *(suite_name(suite) for suite in suites))
    body = []
    for arm in shown:
        loss = (in_nats(losses.get(arm)),) if losses else ()
        body.append((arm, _seeds(run, arm), *loss, *(ACCURACY.text(of.get(arm)) for of in suites.values())))
    return Table(head, tuple(body))


def cost_rows(run: PretrainingScores) -> Table:
    """A row an arm: what its training and its use took, the mean over seeds, and in brackets as a multiple of the
    backbone where that was trained."""
    costs = {metric: run.by_arm(TRAINING, metric) for metric in COSTS}
    measured = {metric: of for metric, of in costs.items() if of}
    arms = [arm for arm in run.arms if any(arm in of for of in measured.values())]
    body = tuple((arm, *(_cost(run, metric, of, arm) for metric, of in measured.items())) for arm in arms)
    return Table(("arm", *(COSTS[metric] for metric in measured)), body)


def suite_rows(run: PretrainingScores, suite: str, prefix: str) -> Table:
    """A row for each phenomenon (or paradigm) of a suite: its pairs, and the accuracy of each arm."""
    tasks = [task for task in run.tasks_of(suite, "accuracy") if task.startswith(prefix)]
    arms = list(run.by_arm(suite, "accuracy"))
    body = []
    for task in tasks:
        of = run.by_arm(suite, "accuracy", task)
        pairs = max((score.documents or 0 for score in of.values()), default=0)
        body.append(
            (task.removeprefix(prefix), f"{pairs:,}" if pairs else "–", *(ACCURACY.text(of.get(arm)) for arm in arms))
        )
    return Table((prefix.removesuffix(":"), "pairs", *arms), tuple(body))


def benchmark_rows(run: PretrainingScores, suite: str) -> Table:
    """A row for each task and metric of a suite: chance, and each arm."""
    keys = task_metrics(run, suite)
    arms = [arm for arm in run.arms if any(arm in run.by_arm(suite, metric, task) for task, metric in keys)]
    body = []
    for task, metric in keys:
        of = run.by_arm(suite, metric, task)
        chance = chance_of(run, suite, task, metric)
        body.append((task, metric, "–" if chance is None else fixed(chance, 3), *(_shown(of.get(arm)) for arm in arms)))
    return Table(("task", "metric", "chance", *arms), tuple(body), numeric_from=2)


def task_metrics(run: PretrainingScores, suite: str) -> list[tuple[str, str]]:
    """Every task of a fine-tuned suite with each of its metrics; chance is no metric of its own."""
    return [
        (task, metric)
        for task in run.tasks_of(suite)
        for metric in run.metrics_of(suite, task)
        if not metric.endswith(CHANCE)
    ]


def chance_of(run: PretrainingScores, suite: str, task: str, metric: str) -> float | None:
    """What always giving the commonest label scores, where that was reckoned."""
    rows = run.subjects(suite, metric + CHANCE, task)
    return next((score.value for score in rows.values()), None)


def study_rows(run: PretrainingScores) -> Table:
    """A row for each difference of two arms: on what, on which terms, with interval and p."""
    body = []
    for task in run.tasks_of(STUDY):
        for metric in run.metrics_of(STUDY, task):
            for subject, score in run.subjects(STUDY, metric, task).items():
                what, basis = studied(task)
                body.append((subject, what, basis, difference(task, metric, score), probability(score.p)))
    return Table(("arms", "what", "terms", "difference", "p"), tuple(body), numeric_from=3)


MADE_FROM = {"ltg-rewired": "ltg", "elc-kept": "elc"}
"""Arms of a study that differ in fine-tuning alone, and the arm whose pretrained model they are fine-tuned from."""


def arm_rows(run: PretrainingScores) -> Table:
    """A row for each arm of a study: held-out loss, minimal pairs, and what it makes of mixed signals.

    An arm that is another one until it is fine-tuned has that one's name where it was not asked by itself.
    """
    losses, pairs = run.by_arm(HELD_OUT, "nll", TEST), run.by_arm("pairs", "accuracy")
    kinds = {
        kind: [task for task in run.tasks_of(OURS, "mcc") if task.startswith(kind)] for kind in ("control", "ambiguous")
    }
    body = []
    for arm in run.arms:
        tuned = [_mean_of(run, arm, tasks) for tasks in kinds.values()]
        if "-share-" in arm or not (arm in losses or any(cell != "–" for cell in tuned)):
            continue
        other = f"as {MADE_FROM[arm]}" if arm in MADE_FROM else "–"
        loss = in_nats(losses[arm]) if arm in losses else other
        body.append((arm, loss, ACCURACY.text(pairs[arm]) if arm in pairs else other, *tuned))
    head = ("arm", "held-out loss (nats)", "minimal pairs", "control tasks", "linguistic generalisation")
    return Table(head, tuple(body))


def _mean_of(run: PretrainingScores, arm: str, tasks: list[str]) -> str:
    """The mean correlation of an arm over tasks; of one task with its interval."""
    scores = [score for task in tasks if (score := run.by_arm(OURS, "mcc", task).get(arm)) is not None]
    if len(scores) == 1:
        return _shown(scores[0])
    return fixed(sum(score.value for score in scores) / len(scores), 3) if scores else "–"


def studied(task: str) -> tuple[str, str]:
    """What was compared, and on which terms.

    >>> studied("masked_lm tokens"), studied("time")
    (('held-out loss', 'at equal tokens'), ('time', ''))
    """
    what, _, basis = task.rpartition(" ")
    if basis not in BASES:
        what, basis = task, ""
    return "held-out loss" if what == HELD_OUT else suite_name(what), BASES.get(basis, "")


def difference(task: str, metric: str, score: Score) -> str:
    """A row of the study with its unit: a ratio, nats per token, or points of accuracy."""
    if metric == "ratio":
        return f"×{between(score.value, score.low, score.high)}"
    if task.startswith(HELD_OUT):
        return f"{between(score.value, score.low, score.high, signed=True)} nats per token"
    points = scaled(score, PERCENT)
    return f"{between(points.value, points.low, points.high, signed=True)} points"


def _cost(run: PretrainingScores, metric: str, of: Mapping[str, Score], arm: str) -> str:
    if arm not in of:
        return "–"
    value = tidy(SCALES.get(metric, 1.0) * of[arm].value)
    backbone = of.get(run.reference or "")
    if backbone is None or arm == run.reference or backbone.value <= 0.0 or metric == "tokens":
        return value
    return f"{value} [×{fixed(of[arm].value / backbone.value, 2)}]"


def _seeds(run: PretrainingScores, arm: str) -> str:
    return str(len(run.seeds[arm])) if run.seeds.get(arm) else "–"


def in_nats(score: Score | None) -> str:
    """A loss with three decimals: what arms differ by is in the second and the third.

    >>> in_nats(Score("masked_lm", "elc", "test", "nll", 4.0891, 4.08, 4.0982))
    '4.089 [4.080, 4.098]'
    """
    if score is None:
        return "–"
    interval = "" if score.low is None or score.high is None else f" [{fixed(score.low, 3)}, {fixed(score.high, 3)}]"
    return f"{fixed(score.value, 3)}{interval}"


def _shown(score: Score | None) -> str:
    return "–" if score is None else between(score.value, score.low, score.high)
