"""Models with their cards, on disk and on the hub: those of a training, and a saved one.

What the hub would refuse is refused before training. Pushed models are noted, so that a repeated command pushes the
rest. A trained model's card is made of its training record, a saved one's of rows measured of its plan.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise.checkpoint import push as hub
from layerwise.checkpoint.card import (
    CARD,
    CardTable,
    card_path,
    escaped,
    file_table,
    listed_versions,
    markdown_table,
    write_card,
)
from layerwise.checkpoint.folder import FILE as ORIGIN
from layerwise.checkpoint.folder import Origin
from layerwise.checkpoint.push import check_push
from layerwise.data.model_location import is_gguf
from layerwise.errors import CheckpointError, RunError
from layerwise.plan import Plan
from layerwise.results import Manifest, Run, Score
from layerwise.results.identity import model_name
from layerwise.results.manifest import installed_versions
from layerwise.results.training_record import FILE, TrainingRecord
from layerwise.results.vocabulary import ABOVE_CHOSEN, AGAIN, BETTER, DELTA, EFFECT, GAP, SEARCH
from layerwise.runner.reporter import Reporter

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

_PUSHED = "pushed.txt"


@dataclass(frozen=True, slots=True)
class TrainedModels:
    """Models by the repository that each goes to; `base` is what they were trained from."""

    folders: Mapping[str, Path]
    base: str | None
    private: bool
    overwrite: bool

    @classmethod
    def to_push(cls, options: Mapping[str, Any], models: Mapping[str, Path]) -> TrainedModels | None:
        """Return the models that the options push to the hub, or None if there are none.

        Raises:
            CheckpointError: If the hub would refuse one of the models.
        """
        push, overwrite = options.get("push"), bool(options.get("overwrite"))
        if push is None:
            return None
        folders = {repository_of(push, label, len(models)): path for label, path in models.items()}
        made = cls(folders, options.get("model"), bool(options.get("private")), overwrite)
        for name in made.due():
            check_push(name, overwrite=overwrite)
        return made

    def due(self) -> tuple[str, ...]:
        return tuple(name for name, folder in self.folders.items() if self.overwrite or _pushed(folder) != name)

    def publish(self, reporter: Reporter) -> None:
        """Write and push the card and model of all not pushed yet; raises `CheckpointError` with the hub's reply."""
        for name in self.due():
            folder, title = self.folders[name], name.partition("/")[2]
            if not folder.is_dir():
                reporter.log(f"note: there is no {folder}, so nothing is pushed to {name}")
                continue
            if (folder / ORIGIN).is_file():
                write_card(folder, name=title, command=command_line(), versions=_versions())
            else:
                write_trained_card(folder, name=title, base=self.base, command=command_line(), versions=_versions())
            _push(folder, name, self.private, self.overwrite, reporter)
            (folder.parent / _PUSHED).write_text(name, encoding="utf-8")


def repository_of(name: str, label: str, count: int) -> str:
    """The repository of one of `count` models: `name` for one alone, else with what tells the models apart.

    >>> repository_of("org/shuffled", "layershuffle/0", 1), repository_of("org/shuffled", "stacking@2/1", 2)
    ('org/shuffled', 'org/shuffled-stacking-2-1')
    """
    return name if count == 1 else f"{name}-{re.sub(r'[^A-Za-z0-9._]+', '-', label).strip('-')}"


def _versions() -> dict[str, str]:
    return {each: version for each, version in installed_versions().items() if each != "numpy"}


def _push(folder: Path, name: str, private: bool, overwrite: bool, reporter: Reporter) -> None:
    reporter.log(f"pushing {folder} to {name}")
    address = hub.push(folder, name, private=private, overwrite=overwrite)
    reporter.result(f"{address}: pushed{', private' if private else ''}")


def _pushed(folder: Path) -> str | None:
    path = folder.parent / _PUSHED
    return path.read_text(encoding="utf-8") if path.is_file() else None


TEMPLATE = Path(__file__).with_name("trained_card.md")

_LOSSES = 10


def write_trained_card(folder: Path, *, name: str, base: str | None, command: str, versions: Mapping[str, str]) -> str:
    """Write the card of the trained model in `folder`, headed `name`, and return its text.

    `base` is the model that it was trained from, None for random weights. Raises `CheckpointError` for a folder without
    a training record.
    """
    from huggingface_hub import ModelCard, ModelCardData

    record = TrainingRecord.read(folder)
    if record is None:
        raise CheckpointError(f"{folder} holds no {FILE}, so nothing says how it was trained; push a finished training")
    on_hub = [base] if base is not None and base.count("/") == 1 and not Path(base).exists() else None
    card = ModelCard.from_template(
        ModelCardData(library_name="transformers", tags=["layerwise"], base_model=on_hub),
        template_path=str(TEMPLATE),
        name=name,
        origin="random weights" if base is None else escaped(base),
        method=escaped(record.arm),
        seed=record.seed,
        training=markdown_table(("what", "value"), _training(record)),
        losses=_losses(record),
        command=command,
        versions=listed_versions(versions),
        recipe=json.dumps(record.recipe, indent=1),
        files=file_table(folder),
    )
    (folder / CARD).write_text(f"{card}\n", encoding="utf-8")
    return f"{card}\n"


def _training(record: TrainingRecord) -> list[tuple[str, str]]:
    return [
        ("text or images", escaped(record.data_name)),
        ("hash of them", f"`{record.data}`"),
        ("hash of what it began from", f"`{record.base}`"),
        ("optimizer steps", f"{record.steps:,}"),
        ("examples read", f"{record.examples:,} ({record.epochs:.2f} times all)"),
        ("seconds", f"{record.seconds:,.0f}"),
        ("step that was kept", f"{record.best_step:,}"),
        *((name.replace("_", " "), f"{value:,.6g}") for name, value in record.figures.items()),
    ]


def _losses(record: TrainingRecord) -> str:
    rows = [(f"{entry.step:,}", f"{entry.loss:.4f}") for entry in record.history if entry.kind == "validation"]
    return markdown_table(("step", "loss"), rows[-_LOSSES:]) if rows else ""


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
        tables = tuple(evidence(Path(run), plan, locations) for run in runs)
        if push is not None:
            hub.check_push(push, overwrite=overwrite)
        return cls(tables, push, private, overwrite)

    def publish(self, folder: Path, reporter: Reporter, origin: Origin | None = None) -> None:
        """Write the card of the model in `folder`, or of the GGUF file of `origin`, and push it.

        Raises `CheckpointError` with the hub's reply; the folder stays.
        """
        name = card_path(folder.resolve()).stem if is_gguf(folder) else folder.resolve().name
        name = name if self.repository is None else self.repository.partition("/")[2]
        write_card(folder, name=name, command=command_line(), versions=_versions(), tables=self.tables, origin=origin)
        reporter.result(f"{card_path(folder)}: the model's card")
        if self.repository is not None:
            _push(folder, self.repository, self.private, self.overwrite, reporter)


def command_line() -> str:
    """The command of this process, as it could be typed; in a notebook or a script it is what runs that."""
    program, *arguments = sys.argv or ["python"]
    return shlex.join([Path(program).name.replace("__main__.py", "layerwise"), *arguments])


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
    """Return what the search or sweep in `folder` measured of `plan`, with its controls.

    Raises `RunError` for a run about none of `models`, and for one without a row of the plan.
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
        tuple(_result(score, manifest) for score in own),
    )


def _result(score: Score, manifest: Manifest) -> EvalResult:
    from huggingface_hub import EvalResult

    bounds = None if score.low is None or score.high is None else [score.low, score.high]
    p = score.p_adjusted if score.p_adjusted is not None else score.p
    return EvalResult(
        task_type="text-generation",
        dataset_type=manifest.corpus,
        dataset_name=f"{manifest.corpus}, {score.task}",
        metric_type=score.metric,
        metric_name=QUANTITIES[score.metric],
        metric_value=score.value,
        metric_args={"confidence_interval_95": bounds, "adjusted_p": p, "documents": score.documents},
    )


def _resolved(model: str) -> str:
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def _controls(rows: Sequence[Score], plan: Plan) -> Iterator[Score]:
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
