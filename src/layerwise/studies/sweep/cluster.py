"""A sweep on Ray: every process opens the sweep from the same options, and computes plans batch by batch.

A process with other weights, text, CPU or threads is refused. All compute with one thread, so the rows have the bits of
a single process with one thread, which may resume the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

import layerwise.models  # noqa: F401  (its architectures become known to transformers)
from layerwise.data.text.corpus import Corpus
from layerwise.errors import RunError
from layerwise.measure.interventions.sweep import TEXT
from layerwise.measure.interventions.sweep_pieces import Plain, piece_function
from layerwise.results import Manifest
from layerwise.results.identity import HARDWARE, check_same_run
from layerwise.runner.opening import quiet_transformers
from layerwise.runner.reporter import Reporter
from layerwise.runner.study import describe_call
from layerwise.runner.verb import current_call
from layerwise.stack import Stack
from layerwise.studies.sweep.benchmarks import BENCHMARKS, BenchmarksTask
from layerwise.studies.sweep.tasks import LossesTask
from layerwise.swarm.cluster.connection import check_address, require_ray
from layerwise.swarm.cluster.tasks import RayTasks, available_processors

OPENS = "layerwise.studies.sweep.cluster:open_piece_function"

_LOCAL = ("ray", "workers", "run", "overwrite")
"""Options that only the process that stores the rows needs."""


class SweepTasks:
    """The Ray tasks of a sweep; the cluster is looked for, or started, when they are first needed.

    Args:
        address: Address of the cluster, or local.
        workers: Maximum number of tasks at a time.
        shared: What every process opens the sweep from.
        accelerators: Whether each task needs an accelerator.
        reporter: Where progress goes.
    """

    def __init__(
        self,
        address: str,
        workers: int | None,
        shared: Callable[[], Mapping[str, Plain]],
        accelerators: bool,
        reporter: Reporter,
    ) -> None:
        self.address, self.workers, self.reporter = address, workers, reporter
        self._share, self._accelerators = shared, accelerators
        self._tasks: RayTasks | None = None
        self._shared: Mapping[str, Plain] = {}

    @property
    def count(self) -> int:
        """Return the number of tasks at a time."""
        return self._started().count

    def map(self, pieces: Sequence[Plain]) -> Iterator[tuple[int, Plain]]:
        """Compute shards, and yield each with its number as it is done."""
        return self._started().map(OPENS, self._shared, pieces)

    def close(self) -> None:
        """Leave the cluster, or end it if it was started here."""
        if self._tasks is not None:
            self._tasks.close()
            self._tasks = None

    def _started(self) -> RayTasks:
        if self._tasks is None:
            where = "on this machine" if self.address == "local" else f"at {self.address}"
            self.reporter.log(f"computing on Ray {where}")
            self._shared = self._share()
            self._tasks = RayTasks(self.address, self.workers, accelerators=self._accelerators)
        return self._tasks


@contextmanager
def workers_on(
    address: str | None,
    workers: int | None,
    shared: Callable[[], Mapping[str, Plain]],
    accelerators: bool,
    reporter: Reporter,
) -> Iterator[SweepTasks | None]:
    """Compute on a cluster within the context; without an address in this process."""
    tasks = None if address is None else SweepTasks(address, workers, shared, accelerators, reporter)
    try:
        yield tasks
    finally:
        if tasks is not None:
            tasks.close()


@contextmanager
def one_thread(address: str | None) -> Iterator[None]:
    """Compute with one thread within the context if there is a cluster.

    Raises:
        SwarmError: Without Ray, and for an invalid address.
    """
    if address is None:
        yield
        return
    check_address(address)
    require_ray()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def planned_workers(address: str | None, workers: int | None) -> int | None:
    """Return how many shards are computed at a time; None if only a cluster knows."""
    if address is None:
        return None
    return workers or (available_processors() if address == "local" else None)


def describe_shared(
    model: object, text: object, stack: Stack, corpus: Corpus | None, manifest: Manifest, batch_tokens: int
) -> dict[str, Plain]:
    """Return what every process opens the sweep of the current call from."""
    call = current_call()
    options = {name: value for name, value in call.verb.given(call.options).items() if name not in _LOCAL}
    options["batch_tokens"] = batch_tokens
    is_named = isinstance(text, str | Path)
    if is_named and call.options.get("tokens") is None:
        options["tokens"] = "all"
    return {
        "options": options,
        "manifest": manifest.to_json(),
        "model": None if isinstance(model, str | Path) else stack,
        "corpus": None if is_named or text is None else corpus,
    }


def open_piece_function(shared: Mapping[str, Plain]) -> Callable[[Plain], Plain]:
    """Open a sweep in another process, and return the function of a shard.

    Raises:
        RunError: If the sweep is not the same here.
    """
    from layerwise.studies.sweep.verb import sweep

    options = dict(shared["options"])
    model, text = options.pop("model", None), options.pop("text", None)
    quiet_transformers()
    description = describe_call(sweep, shared["model"] or model, shared["corpus"] or text, **options)
    check_same_here(Manifest.from_json(shared["manifest"]), description.manifest)
    texts = {}
    for task in description.tasks:
        if isinstance(task, LossesTask):
            losses = task
            texts[TEXT] = task.text
        elif isinstance(task, BenchmarksTask) and task.requests.likelihoods is not None:
            texts[BENCHMARKS] = task.requests.likelihoods
    return piece_function(losses.stack, texts)


def check_same_here(wanted: Manifest, here: Manifest) -> None:
    """Raise `RunError` if a worker opened something else than the run or would compute other bits.

    The model's name is not compared, since a model opened in Python has another one; its weights are.
    """
    try:
        check_same_run(wanted, replace(here, model=wanted.model, revision=wanted.revision))
    except RunError as error:
        raise RunError(
            f"a worker does not have what the run is of: {str(error).partition(': ')[2].partition('. ')[0]}. Give "
            "every machine of the cluster the same model, text and versions"
        ) from error
    for name in HARDWARE:
        there, own = wanted.hardware.get(name), here.hardware.get(name)
        if there != own:
            raise RunError(
                f"a worker computes on another kind of machine than the one that started the run ({name}: {own}, not "
                f"{there}), so its rows would differ in their last bits; use machines of one kind"
            )
