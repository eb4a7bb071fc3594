"""The card of a saved model, with what runs measured of its plan, and its repository on the hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.checkpoint import push as hub
from layerwise.checkpoint.card import CardTable, card_path, write_card
from layerwise.checkpoint.folder import Origin
from layerwise.data.model_location import is_gguf
from layerwise.errors import RunError
from layerwise.plan import Plan
from layerwise.results import Manifest, Run, Score
from layerwise.results.identity import model_name
from layerwise.results.vocabulary import ABOVE_CHOSEN, AGAIN, BETTER, DELTA, EFFECT, GAP, SEARCH
from layerwise.runner.reporter import Reporter
from layerwise.runner.trained_models import command_line, push_folder

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

MAX_CONTROLS = 20
"""Other plans of a sweep in a card: those with as many layer evaluations and the smallest effects."""

COLUMNS = ("what", "text", "quantity", "value", "95% interval", "adjusted p")
QUANTITIES = {
    DELTA: "nats/token above the original model",
    AGAIN: "the same, with the interval for another text",
    GAP: "nats/token above the loss on the search text",
    ABOVE_CHOSEN: "nats/token above this model",
    BETTER: "share of the random sets that lose less",
}
"""The metrics of a card; rows of other metrics are left to the run's report."""

NOT_HELD_OUT = "A plan that was chosen for its value in this table looks better than it is."


@dataclass(frozen=True, slots=True)
class Publication:
    """A card, and the repository of the hub that a model goes to with it, if it goes to one."""

    tables: tuple[CardTable, ...] = ()
    repository: str | None = None
    private: bool = False
    overwrite: bool = False

    @classmethod
    def of(
        cls, runs: Sequence[str], plan: Plan, models: Iterable[str], *, push: str | None, private: bool, overwrite: bool
    ) -> Publication:
        """Return a checked card of what `runs` measured of the plan.

        Raises `RunError` for a run without a row of it, and `CheckpointError` if the hub would refuse it.
        """
        locations = tuple(models)
        tables = tuple(collect_evidence(Path(run), plan, locations) for run in runs)
        if push is not None:
            hub.check_push(push, overwrite=overwrite)
        return cls(tables, push, private, overwrite)

    def publish(self, folder: Path, reporter: Reporter, origin: Origin | None = None) -> None:
        """Write the card of the model in `folder`, or of the GGUF file of `origin`, and push it.

        Raises `CheckpointError` with the hub's reply; the folder stays.
        """
        name = card_path(folder.resolve()).stem if is_gguf(folder) else folder.resolve().name
        name = name if self.repository is None else self.repository.partition("/")[2]
        write_card(folder, name=name, command=command_line(), tables=self.tables, origin=origin)
        reporter.result(f"{card_path(folder)}: the model's card")
        if self.repository is not None:
            push_folder(folder, self.repository, self.private, self.overwrite, reporter)


def collect_evidence(folder: Path, plan: Plan, models: Sequence[str]) -> CardTable:
    """Return what the search or sweep in `folder` measured of `plan`, with its controls.

    Raises `RunError` for a run about none of `models`, and for one without a row of the plan.
    """
    with Run.open(folder) as run:
        manifest, scores = run.manifest, run.store.scores()
    if _resolve(manifest.model) not in map(_resolve, models):
        raise RunError(
            f"the run {folder} is about {manifest.model}, not {', '.join(models)}. Pass a run of the saved model."
        )
    measures = {score.measure for score in scores}
    rows = [score for score in scores if score.measure == (SEARCH if SEARCH in measures else EFFECT)]
    own = [score for score in rows if score.plan == str(plan) and score.metric in QUANTITIES]
    if not own:
        measured = sorted({str(score.plan) for score in rows if score.metric == DELTA})[:3]
        raise RunError(
            f"the run {folder} did not measure the plan {plan} (it measured {', '.join(measured) or 'none'}). Pass a "
            "search or sweep of this plan."
        )
    warning = () if SEARCH in measures else (NOT_HELD_OUT,)
    return CardTable(
        f"Measured by layerwise {manifest.experiment.get('experiment', 'sweep')}",
        (
            f"Model: {model_name(manifest.model)}. Text: {manifest.corpus}, {manifest.documents:,} documents of "
            f"{manifest.tokens:,} scored tokens; seed {manifest.seed}; {manifest.dtype} on {manifest.device}. "
            "Differences are paired by document.",
            *warning,
        ),
        COLUMNS,
        tuple(_line(score, plan) for score in (*own, *_controls(rows, plan))),
        tuple(_result(score, manifest) for score in own),
    )


def _resolve(model: str) -> str:
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def _controls(rows: Sequence[Score], plan: Plan) -> Iterator[Score]:
    others = [score for score in rows if score.plan != str(plan)]
    if others and others[0].measure == SEARCH:
        yield from (score for score in others if score.metric in (ABOVE_CHOSEN, BETTER))
        return
    same = [
        score
        for score in others
        if (score.metric, score.task) == (DELTA, "all") and Plan.parse(str(score.plan)).evaluations == plan.evaluations
    ]
    yield from sorted(same, key=lambda score: score.value)[:MAX_CONTROLS]


def _line(score: Score, plan: Plan) -> tuple[str, ...]:
    p = score.p if score.p_adjusted is None else score.p_adjusted
    return (
        "this plan" if score.plan == str(plan) else f"`{score.plan or score.arm}`",
        score.task,
        QUANTITIES[score.metric],
        f"{score.value:.4f}",
        "" if score.low is None or score.high is None else f"{score.low:.4f} to {score.high:.4f}",
        "" if p is None else f"{p:.2g}",
    )


def _result(score: Score, manifest: Manifest) -> EvalResult:
    from huggingface_hub import EvalResult

    bounds = None if score.low is None or score.high is None else [score.low, score.high]
    p = score.p if score.p_adjusted is None else score.p_adjusted
    return EvalResult(
        task_type="text-generation",
        dataset_type=manifest.corpus,
        dataset_name=f"{manifest.corpus}, {score.task}",
        metric_type=score.metric,
        metric_name=QUANTITIES[score.metric],
        metric_value=score.value,
        metric_args={"confidence_interval_95": bounds, "adjusted_p": p, "documents": score.documents},
    )
