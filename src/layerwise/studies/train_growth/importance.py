"""Growth schedules from the importance of layers, for `train schedule` and the schedule `importance`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from layerwise.errors import MeasureError, PlanError, RunError
from layerwise.measure.interventions.importance import SOURCES, find_source, read_importance
from layerwise.plan.schedule import GrowthSchedule
from layerwise.plan.schedule.allocation import (
    MIN_EFFECT,
    PHASES,
    Allocation,
    allocation,
    explain_allocation,
)
from layerwise.plan.schedule.serialization import chart
from layerwise.results import Run
from layerwise.results.training_record import find_trained_models
from layerwise.runner.arguments import Metavar, Range
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.verb import verb

_OF_A_DIAGNOSIS = "curve_tokens:"

_MIN_EFFECT = "min_effect:"


@verb("train schedule", group="Training", examples=("runs/demo-1a2b3c4d --output growth.yaml",))
def schedule(
    diagnosis: Annotated[str | Path, Metavar("RUN")],
    *,
    output: Annotated[str | Path, Metavar("FILE")],
    phases: Annotated[int, Range(least=1, most=1_000)] = PHASES,
    min_effect: Annotated[float | None, Range(above=0), Metavar("NATS")] = None,
    reporter: Reporter | None = None,
) -> GrowthSchedule:
    """Write a growth schedule that trains each layer according to its importance in a diagnosis.

    Importance is the loss increase when a layer is skipped. Pass the file to `layerwise train growth --schedules`.

    Args:
        diagnosis: Run directory of a diagnosis.
        output: File to write.
        phases: Number of equal parts of the training.
        min_effect: Smallest effect that counts, in nats/token.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The schedule.

    Raises:
        PlanError: If the file exists, or no layer has an effect.
        RunError: If the diagnosis does not include the part `ablation`.
    """
    path = Path(output)
    if path.exists():
        raise PlanError(f"{path} already exists. Pass another file with --output, or remove it.")
    if not path.absolute().parent.is_dir():
        raise PlanError(f"{path.parent} is not a directory. Create it first.")
    allocated, source = read_allocation(Path(diagnosis), phases=phases, min_effect=min_effect)
    allocated_schedule = allocated.schedule()
    from layerwise.studies.train_growth.schedule_file import write_schedule

    write_schedule(allocated_schedule, path)
    reporter = reporter or Silent()
    reporter.result(explain_allocation(allocated))
    reporter.result(f"effects: {SOURCES[source]}")
    reporter.result(chart(allocated_schedule))
    reporter.result(f"schedule: {path}")
    return allocated_schedule


def read_allocation(folder: Path, *, phases: int = PHASES, min_effect: float | None = None) -> tuple[Allocation, str]:
    """Allocate training to layers by the importance in the diagnosis `folder`.

    Layers with an effect below `min_effect` nats/token (default: that of the diagnosis) count as unimportant.

    Returns:
        The allocation, and the source of the importance (one of `SOURCES`).
    """
    with Run.open(folder) as run:
        scores = run.store.scores()
        source = find_source(scores)
        if source is None:
            raise RunError(_describe_lack(run))
        try:
            importance = read_importance(scores)
        except MeasureError as refusal:
            raise RunError(f"{folder}: {refusal}") from None
        smallest = min_effect if min_effect is not None else _read_min_effect(run)
    return allocation(importance, min_effect=smallest, phases=phases), source


def _read_min_effect(run: Run) -> float:
    given = [setting.removeprefix(_MIN_EFFECT) for setting in run.manifest.families if setting.startswith(_MIN_EFFECT)]
    return float(given[0]) if given else MIN_EFFECT


def _describe_lack(run: Run) -> str:
    models = find_trained_models(run.folder)
    settings = run.manifest.families
    if models:
        return (
            f"{run.folder} must be a diagnosis, got a run of layerwise train. Run layerwise diagnose {models[0]} "
            "--text PATH, and pass that run."
        )
    if not any(setting.startswith(_OF_A_DIAGNOSIS) for setting in settings):
        return (
            f"{run.folder} must be a diagnosis, got another run ({', '.join(settings[:3])}). Run layerwise diagnose "
            "MODEL --text PATH, and pass that run."
        )
    notes = [note.text for note in run.store.notes("ablation")]
    why = notes[0] if notes else "the part was not requested or is not complete"
    return (
        f"{run.folder} must include the part ablation, but {why}. Run layerwise diagnose {run.manifest.model} --text "
        "PATH --parts ablation, and pass that run."
    )
