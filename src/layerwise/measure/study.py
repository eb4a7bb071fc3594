"""A study: one model, one text and some plans, measured into a run folder that outlives the process.

`Study` is everything that fixes the numbers, as a frozen value; `conduct` carries it out. Each part asks the run what
is there already and adds what is missing, so the same study on the same folder resumes where a killed one stopped.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from layerwise.errors import MeasureError
from layerwise.measure.effects import effects
from layerwise.measure.reading import BATCH_TOKENS, Reading
from layerwise.measure.similarity import similarity
from layerwise.measure.sweep import Bill, Meter, bill, plan_records, sweep, with_identity
from layerwise.measure.tasks import Benchmarks, find_benchmarks, normalised
from layerwise.measure.tasks import tasks as ask_benchmarks
from layerwise.plan import Member, Plan
from layerwise.plan.families import family
from layerwise.results import Manifest, Run
from layerwise.results.rows import Loss, Score
from layerwise.stack import Stack, weight_hash

NORMALISED = "normalised_"
DEFAULT_FAMILIES = ("painters", "leave_one_out", "swap_adjacent")


@dataclass(frozen=True, slots=True)
class Study:
    """What is measured, and how: the plans, the text's windows, the benchmarks, the seed.

    `families` are named in `layerwise.plan.families`; `plans` are plan texts of the user's own. `tokens` bounds the
    scored tokens; `length` is the longest window. `tasks` are lm-eval benchmarks, run on every plan, on `task_limit`
    examples each where that is set, with definitions from `task_folder` where that is given.
    """

    families: tuple[str, ...] = DEFAULT_FAMILIES
    plans: tuple[str, ...] = ()
    length: int | None = None
    tokens: int | None = None
    batch_tokens: int = BATCH_TOKENS
    seed: int = 0
    tasks: tuple[str, ...] = ()
    task_folder: Path | None = None
    task_limit: int | None = None
    with_similarity: bool = True

    def members(self, depth: int) -> tuple[Member, ...]:
        """The plans of the study for a model of `depth` layers, each with the family it is there for."""
        found = [Member(Plan.identity(depth), "identity", "identity", 0)]
        for name in self.families:
            found.extend(family(name, depth))
        for text in self.plans:
            plan = Plan.parse(text)
            plan.check(depth)
            found.append(Member(plan, "given", "given", len(plan.steps())))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told how a study goes: `say` receives sentences, `progress` the meter of the sweep."""

    say: Callable[[str], None]
    progress: Callable[[Meter, Bill], None]


def manifest_of(stack: Stack, reading: Reading, study: Study, command: tuple[str, ...] = ()) -> Manifest:
    """The provenance of a study of `stack` on `reading`."""
    plans = tuple(f"plan:{text}" for text in study.plans)
    limit = (f"limit:{study.task_limit}",) if study.task_limit else ()
    return Manifest(
        model=stack.source.name, revision=stack.source.revision, weight_hash=weight_hash(stack.model),
        dtype=str(stack.dtype).removeprefix("torch."), device=str(stack.device.type), corpus=reading.name,
        corpus_hash=reading.digest, documents=reading.documents, tokens=reading.tokens, window=reading.length,
        families=(*study.families, *plans), tasks=(*study.tasks, *limit), seed=study.seed, command=command,
    )  # fmt: skip


def folder_of(manifest: Manifest, root: Path = Path("runs")) -> Path:
    """The folder of a study that was given none: named by what it measures, so that the same command resumes it."""
    digest = hashlib.sha256(json.dumps(manifest.identity(), sort_keys=True, default=str).encode()).hexdigest()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(manifest.model).name) or "model"
    return root / f"{name}-{digest[:8]}"


def conduct(stack: Stack, reading: Reading, study: Study, run: Run, watcher: Watcher) -> None:
    """Carry `study` out into `run`: losses, effects, similarity, benchmarks; what is there already is not computed
    again.

    Raises `MeasureError` when some plans gave non-finite losses, after everything else has been measured and stored.
    """
    # Found before the long sweep, so that a misspelt benchmark costs nothing.
    benchmarks = find_benchmarks(study.tasks, study.task_folder) if study.tasks else None
    members = study.members(stack.depth)
    plans = with_identity(stack, members)
    run.store.add_plans(plan_records(members))
    broken = _sweep(stack, reading, plans, run, watcher)
    identity = Plan.identity(stack.depth)
    watcher.say("intervals: paired bootstrap over documents")
    losses = _of_whole_plans(list(run.store.losses()))
    run.store.replace_scores(
        "effect", effects(losses, str(identity), seed=study.seed, answer_tasks=reading.answer_tasks)
    )
    if study.with_similarity and not run.store.scores("similarity"):
        watcher.say("similarity of the hidden states")
        run.store.replace_scores("similarity", similarity(stack, reading.batches, seed=study.seed))
    if benchmarks is not None:
        _ask_benchmarks(stack, plans, benchmarks, study, run, watcher)
    if broken is not None:
        raise broken


def _sweep(stack: Stack, reading: Reading, plans: tuple[Plan, ...], run: Run, watcher: Watcher) -> MeasureError | None:
    """Sweep what is missing and note what it cost; hands back the error that names plans without finite losses."""
    meters: list[Meter] = []

    def progress(meter: Meter, expected: Bill) -> None:
        meters[:] = [meter]
        watcher.progress(meter, expected)

    start = time.perf_counter()
    broken = None
    try:
        sweep(stack, plans, reading, sink=run.store.add_losses, finished=run.store.finished, progress=progress)
    except MeasureError as error:
        broken = error
    expected = bill(stack, plans, reading)
    if meters[-1].head_tokens:
        spent = {"seconds": time.perf_counter() - start, "states_live": float(meters[-1].most_live)}
        figures = {
            "plans": float(expected.plans), "evaluations_naive": float(expected.naive),
            "evaluations_bound": float(expected.evaluations), **spent,
        }  # fmt: skip
        run.store.replace_scores("run", [Score("run", "sweep", "all", name, value) for name, value in figures.items()])
    return broken


def _of_whole_plans(losses: list[Loss]) -> list[Loss]:
    """The rows of the plans that were measured on every window: one whose loss was not finite somewhere is left out."""
    windows = Counter(row.plan for row in losses)
    most = max(windows.values())
    return [row for row in losses if windows[row.plan] == most]


def _ask_benchmarks(
    stack: Stack, plans: tuple[Plan, ...], benchmarks: Benchmarks, study: Study, run: Run, watcher: Watcher
) -> None:
    """Ask the benchmarks of plan after plan; a plan whose scores are there is not asked again."""
    raw = [score for score in run.store.scores("benchmark") if not score.metric.startswith(NORMALISED)]
    done = {score.subject for score in raw}
    for number, plan in enumerate(plans, start=1):
        if str(plan) not in done:
            watcher.say(f"benchmarks under plan {number} of {len(plans)}: {plan}")
            raw += ask_benchmarks(stack, [plan], benchmarks, limit=study.task_limit, seed=study.seed)
            run.store.replace_scores("benchmark", raw + normalised(raw, str(plans[0])))
