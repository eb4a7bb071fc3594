"""What a run measured of a plan, as the tables of a model's card: every line is a row of the run, or there is none."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from layerwise.checkpoint.card import CardTable
from layerwise.errors import RunError
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.identity import model_name
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ABOVE_CHOSEN, AGAIN, BETTER, DELTA, EFFECT, GAP, SEARCH

CONTROLS = 20
"""Plans of a sweep with as many layer evaluations that stand beside the plan: the first ones by their effects."""

COLUMNS = ("what", "text", "quantity", "value", "95% interval", "adjusted p", "smallest detectable", "documents")

CHOSEN_THERE = (
    "A plan that was chosen for its value among those that stand here looks better than it is: only text that chose "
    "nothing says what it loses."
)
"""The winner's curse, which a search measures and a sweep does not."""

QUANTITIES = {
    DELTA: "nats per token above the model as trained",
    AGAIN: "the same, with the interval for another text",
    GAP: "nats per token above what the search saw",
    ABOVE_CHOSEN: "nats per token above this model",
    BETTER: "share of the random sets that lose less",
}
"""What the metrics of a row are called in a card; rows of other metrics are left to the run's report."""


def evidence(folder: Path, plan: Plan, models: Iterable[str]) -> CardTable:
    """What the run in `folder`, a search or a sweep, measured of `plan`, with its controls beside it.

    Raises `RunError` for a run about none of `models`, and for one that has no row of the plan: a card says nothing
    that was not measured.
    """
    with Run.open(folder) as run:
        manifest, scores = run.manifest, run.store.scores()
    locations = {_resolved(model): model for model in models}
    if _resolved(manifest.model) not in locations:
        raise RunError(
            f"the run {folder} is about {manifest.model}, and the plan about {', '.join(locations.values())}: give a "
            "run of the model that is saved"
        )
    rows = [score for score in scores if score.measure == SEARCH] or [
        score for score in scores if score.measure == EFFECT
    ]
    own = [score for score in rows if _about(score) == str(plan) and score.metric in QUANTITIES]
    if not own:
        measured = sorted({_about(score) for score in rows if score.metric == DELTA})
        of = f"it measured {', '.join(measured[:3])}{', ...' * (len(measured) > 3)}" if measured else "it has no rows"
        raise RunError(
            f"the run {folder} says nothing of the plan {plan}: {of}; give the run of a search or a sweep that has it"
        )
    chosen_there = () if own[0].measure == SEARCH else (CHOSEN_THERE,)
    return CardTable(
        f"Measured by layerwise {manifest.experiment.get('experiment', 'sweep')}",
        (*_sentences(manifest), *chosen_there),
        COLUMNS,
        tuple(_line(score, plan) for score in (*own, *_controls(rows, plan))),
    )


def _resolved(model: str) -> str:
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def _controls(rows: Sequence[Score], plan: Plan) -> Iterator[Score]:
    """Rows of other subjects: the arms and random sets of a search, or the plans of a sweep that cost as much."""
    others = [score for score in rows if _about(score) != str(plan)]
    if others and others[0].measure == SEARCH:
        yield from (score for score in others if score.metric in (ABOVE_CHOSEN, BETTER))
        return
    same = [
        score
        for score in others
        if score.metric == DELTA and score.task == "all" and Plan.parse(_about(score)).evaluations == plan.evaluations
    ]
    yield from sorted(same, key=lambda score: score.value)[:CONTROLS]


def _about(score: Score) -> str:
    """The plan or the arm of a row."""
    return score.plan or score.arm or ""


def _sentences(manifest: Manifest) -> Iterator[str]:
    yield (
        f"Model: {model_name(manifest.model)}; its weights and configuration have SHA-256 {manifest.weight_hash[:16]}. "
        f"Text: {manifest.corpus}; {manifest.documents:,} documents of {manifest.tokens:,} scored tokens, in windows "
        f"of at most {manifest.window}; seed {manifest.seed}; {manifest.dtype} on {manifest.device}."
    )
    yield "Differences are paired by document, and p is adjusted over what was compared."
    if manifest.command:
        program, *arguments = manifest.command
        yield f"Command: `{shlex.join([Path(program).name, *arguments])}`."


def _line(score: Score, plan: Plan) -> tuple[str, ...]:
    subject = "this plan" if _about(score) == str(plan) else f"`{_about(score)}`"
    interval = "" if score.low is None or score.high is None else f"{score.low:.4f} to {score.high:.4f}"
    p = score.p_adjusted if score.p_adjusted is not None else score.p
    return (
        subject,
        score.task,
        QUANTITIES[score.metric],
        f"{score.value:.4f}",
        interval,
        "" if p is None else f"{p:.2g}",
        "" if score.mde is None else f"{score.mde:.4f}",
        "" if score.documents is None else f"{score.documents:,}",
    )
