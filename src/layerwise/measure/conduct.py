"""Carry out a study: one model, one text and some plans, measured into a run folder that outlives the process.

Each part asks the run what is there already and adds what is missing, so the same study on the same folder resumes
where a killed one stopped, and a study that is complete computes nothing. A plan whose numbers are not finite costs
itself alone: everything else is measured and stored before it is named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from layerwise.errors import MeasureError
from layerwise.measure.contrasts.contrast import MEASURE as CONTRAST
from layerwise.measure.contrasts.contrast import renewed
from layerwise.measure.contrasts.painters import CONTRASTED, painters_contrasts
from layerwise.measure.effects import MEASURE as EFFECT
from layerwise.measure.effects import effects
from layerwise.measure.provenance import provenance, task_digest
from layerwise.measure.reading import Reading
from layerwise.measure.similarity import similarity_sums
from layerwise.measure.study import Study
from layerwise.measure.sweep import Bill, Meter, bill, plan_records, runnable, sweep, with_identity
from layerwise.measure.tasks import Benchmarks, find_benchmarks, normalised
from layerwise.measure.tasks import tasks as ask_benchmarks
from layerwise.plan import Member, Plan
from layerwise.results import Manifest, Run
from layerwise.results.rows import Loss, Score
from layerwise.stack import Stack

NORMALISED = "normalised_"
LEFT_OUT = "plans"
"""What notes on plans that the model cannot run are called; they stand under the table of plans."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told how a study goes: `say` receives sentences, `progress` the meter of the sweep."""

    say: Callable[[str], None]
    progress: Callable[[Meter, Bill], None]


def manifest_of(stack: Stack, reading: Reading, study: Study, command: tuple[str, ...] = ()) -> Manifest:
    """The provenance of a study of `stack` on `reading`."""
    plans = tuple(f"plan:{text}" for text in study.plans)
    limit = (f"limit:{study.task_limit}",) if study.task_limit else ()
    families, tasks = (*study.families, *plans), (*study.tasks, *limit)
    settings: dict[str, object] = {"batch_tokens": study.batch_tokens}
    if study.tasks and study.task_folder is not None:
        settings["task_folder"] = task_digest(study.task_folder)
    return provenance(
        stack, reading, families=families, tasks=tasks, seed=study.seed, command=command, settings=settings
    )


def benchmarks_of(study: Study) -> Benchmarks | None:
    """The benchmarks of `study` with their questions, or `None` where it has none.

    Found before a run begins, so that a misspelt one costs nothing; raises `MeasureError` as `find_benchmarks` does.
    """
    return find_benchmarks(study.tasks, study.task_folder, seed=study.seed) if study.tasks else None


def conduct(
    stack: Stack, reading: Reading, study: Study, benchmarks: Benchmarks | None, run: Run, watcher: Watcher
) -> None:
    """Carry `study` out into `run`: losses, effects, similarity, benchmarks; what is there already is not computed
    again. `benchmarks` are those of `benchmarks_of(study)`.

    Raises `MeasureError` when some plans gave numbers that are not finite, after everything else has been measured and
    stored; at once when the model as trained does.
    """
    members, left_out = runnable(stack, study.members(stack.depth))
    plans = with_identity(stack, members)
    run.store.replace_notes(LEFT_OUT, left_out)
    run.store.add_plans(plan_records(members))
    due = bill(stack, plans, reading, run.store.finished)
    broken = _sweep(stack, reading, plans, due, run, watcher) if due.head_tokens else []
    if due.head_tokens or not run.store.scores(EFFECT):
        watcher.say("intervals: paired bootstrap")
        losses = _of_whole_plans(list(run.store.losses()), reading)
        found = effects(losses, str(plans[0]), seed=study.seed, answer_tasks=reading.scored_answer_tasks)
        _contrast_plans(run, losses, members, stack.depth, study)
        run.store.replace_scores(EFFECT, found)
    elif not run.store.scores(CONTRAST):  # a run from before there were any
        _contrast_plans(run, _of_whole_plans(list(run.store.losses()), reading), members, stack.depth, study)
    if study.with_similarity and not run.store.scores("similarity"):
        watcher.say("similarity of the hidden states")
        sums = similarity_sums(stack, reading.batches, seed=study.seed)
        _keep_contrasts(run, sums.contrasts(study.seed))
        run.store.replace_scores("similarity", sums.scores())
    if benchmarks is not None:
        broken += _ask_benchmarks(stack, plans, benchmarks, study, run, watcher)
    if broken:
        raise MeasureError("\n".join(broken))


def _contrast_plans(run: Run, losses: Sequence[Loss], members: Sequence[Member], depth: int, study: Study) -> None:
    """Store the contrasts that decide claims about plans, where the study has a family that any claim is about."""
    if CONTRASTED.intersection(study.families):
        _keep_contrasts(run, painters_contrasts(losses, plan_records(members), depth, seed=study.seed))


def _keep_contrasts(run: Run, found: Sequence[Score]) -> None:
    """Store the contrasts of some claims beside those of others."""
    claims = {score.subject for score in found}
    run.store.replace_scores(CONTRAST, renewed(run.store.scores(CONTRAST), found, claims))


def _sweep(stack: Stack, reading: Reading, plans: tuple[Plan, ...], due: Bill, run: Run, watcher: Watcher) -> list[str]:
    """Sweep what is missing and note what it cost; hands back the sentences on plans without finite losses."""
    spent = Meter()

    def progress(meter: Meter, due: Bill) -> None:
        nonlocal spent
        spent = meter
        watcher.progress(meter, due)

    broken = []
    start = time.perf_counter()
    try:
        sweep(stack, plans, reading, sink=run.store.add_losses, finished=run.store.finished, progress=progress)
    except MeasureError as error:
        if not _measured(plans[0], run, reading):
            raise
        broken = [str(error)]
    _note_cost(run, bill(stack, plans, reading), due, spent, time.perf_counter() - start)
    return broken


def _note_cost(run: Run, whole: Bill, due: Bill, spent: Meter, seconds: float) -> None:
    """Store what the sweep was to cost and what it did, as scores of measure `run`.

    Of a sweep in several sittings nobody knows the time: a killed one could not write down its own.
    """
    figures: dict[str, float] = {
        "plans": whole.plans,
        "evaluations_naive": whole.naive,
        "evaluations_bound": whole.evaluations,
        "evaluations_ratio": spent.layer_tokens / due.layer_tokens,
        "states_live": spent.most_live,
    }
    if due == whole:
        figures |= {
            "seconds": seconds,
            "seconds_in_layers": spent.layer_seconds,
            "seconds_in_heads": spent.head_seconds,
        }
    scores = [Score("run", "sweep", "all", name, float(value)) for name, value in figures.items()]
    run.store.replace_scores("run", scores)


def _measured(plan: Plan, run: Run, reading: Reading) -> bool:
    """Whether `plan` has rows on every window."""
    windows = [window for batch in reading.batches for window in batch.windows]
    return all(str(plan) in run.store.finished(each.task, each.document, each.index) for each in windows)


def _of_whole_plans(losses: list[Loss], reading: Reading) -> list[Loss]:
    """The rows of the plans that were measured on every window: one whose loss was not finite somewhere is left out."""
    measured = Counter(row.plan for row in losses)
    windows = sum(len(batch.windows) for batch in reading.batches)
    return [row for row in losses if measured[row.plan] == windows]


def _ask_benchmarks(
    stack: Stack, plans: tuple[Plan, ...], benchmarks: Benchmarks, study: Study, run: Run, watcher: Watcher
) -> list[str]:
    """Ask the benchmarks of plan after plan; a plan whose scores are there is not asked again.

    Hands back the sentences on plans whose logits were not finite; the model as trained must be, or nothing compares.
    """
    raw = [score for score in run.store.scores("benchmark") if not score.metric.startswith(NORMALISED)]
    done = {score.subject for score in raw}
    broken = []
    for number, plan in enumerate(plans, start=1):
        if str(plan) in done:
            continue
        watcher.say(f"benchmarks under plan {number} of {len(plans)}: {plan}")
        try:
            raw += ask_benchmarks(stack, [plan], benchmarks, limit=study.task_limit, seed=study.seed)
        except MeasureError as error:
            if plan == plans[0]:
                raise
            broken.append(str(error))
        run.store.replace_scores("benchmark", raw + normalised(raw, str(plans[0])))
    return broken
