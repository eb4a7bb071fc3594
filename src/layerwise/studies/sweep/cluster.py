"""A sweep on Ray: every process opens the model, and computes plans batch by batch.

A process with other weights, CPU or threads is refused. All compute with one thread, so the rows have the bits of a
single process with one thread, which may resume the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

import layerwise.models  # noqa: F401  (its architectures become known to transformers)
from layerwise.errors import RunError
from layerwise.measure.interventions.sweep import FinalState, SweepShard, compute_shard
from layerwise.results import Manifest
from layerwise.results.manifest import HARDWARE, check_same_run
from layerwise.runner.arguments import ModelLike
from layerwise.runner.opening import open_stack, read_hardware, read_numerics
from layerwise.runner.reporter import Reporter, Silent
from layerwise.stack.load import weight_hash
from layerwise.swarm.cluster.connection import check_address, require_ray
from layerwise.swarm.cluster.tasks import RayTasks, available_processors


@dataclass(frozen=True)
class SharedModel:
    """The model that every process of a sweep opens, by name with these options, or as it was opened in Python."""

    model: ModelLike
    options: Mapping[str, Any]
    manifest: Manifest


class SweepTasks:
    """The Ray tasks of a sweep; the cluster is looked for, or started, when they are first needed.

    Args:
        address: Address of the cluster, or local.
        workers: Maximum number of tasks at a time.
        shared: The model that every process opens.
        accelerators: Whether each task needs an accelerator.
        reporter: Where progress goes.
    """

    def __init__(
        self,
        address: str,
        workers: int | None,
        shared: SharedModel,
        accelerators: bool,
        reporter: Reporter,
    ) -> None:
        self.address, self.workers, self.reporter = address, workers, reporter
        self._shared, self._accelerators = shared, accelerators
        self._tasks: RayTasks | None = None

    @property
    def count(self) -> int:
        """Return the number of tasks at a time."""
        return self._started().count

    def map(self, pieces: Sequence[SweepShard]) -> Iterator[tuple[int, list[FinalState]]]:
        """Compute pieces, and yield each with its number as it is done."""
        return self._started().map(open_model, self._shared, pieces)

    def close(self) -> None:
        """Leave the cluster, or end it if it was started here."""
        if self._tasks is not None:
            self._tasks.close()
            self._tasks = None

    def _started(self) -> RayTasks:
        if self._tasks is None:
            where = "on this machine" if self.address == "local" else f"at {self.address}"
            self.reporter.log(f"computing on Ray {where}")
            self._tasks = RayTasks(self.address, self.workers, accelerators=self._accelerators)
        return self._tasks


@contextmanager
def one_thread(address: str) -> Iterator[None]:
    """Compute with one thread within the context, as every worker of the cluster does.

    Raises:
        SwarmError: Without Ray, and for an invalid address.
    """
    check_address(address)
    require_ray()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def planned_workers(address: str, workers: int | None) -> int | None:
    """Return how many pieces are computed at a time; None if only the cluster knows."""
    return workers or (available_processors() if address == "local" else None)


def open_model(shared: SharedModel) -> Callable[[SweepShard], list[FinalState]]:
    """Open the model of a sweep in another process, and return the function of a piece.

    Raises:
        RunError: If the model or the machine is not the same here.
    """
    stack, there = open_stack(shared.model, Silent(), **shared.options), shared.manifest
    here = replace(
        there,
        weight_hash=weight_hash(stack.model),
        numerics={**there.numerics, **read_numerics(stack.device, stack.model)},
        hardware=read_hardware(stack.device),
    )
    check_same_here(there, here)
    return partial(compute_shard, stack)


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
