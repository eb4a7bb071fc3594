"""Run a sweep on Ray: every process opens the model, and computes plans batch by batch.

All processes use one thread and the same type of CPU, so that their rows are bit-identical to those of a single
process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

import layerwise.models  # noqa: F401  (registers its architectures with transformers)
from layerwise.errors import RunError
from layerwise.measure.interventions.sweep import FinalState, SweepShard, compute_shard
from layerwise.results import Manifest
from layerwise.results.manifest import HARDWARE, check_same_run
from layerwise.runner.arguments import ModelLike
from layerwise.runner.opening import open_stack, read_hardware, read_numerics
from layerwise.runner.reporter import Reporter, Silent
from layerwise.stack.load import weight_hash
from layerwise.swarm.cluster.connection import check_address, require_ray
from layerwise.swarm.cluster.tasks import RayTasks, count_cpus


@dataclass(frozen=True)
class SharedModel:
    """The model that every process of a sweep opens: its name and options, or a model that was opened in Python."""

    model: ModelLike
    options: Mapping[str, Any]
    manifest: Manifest


class SweepTasks:
    """The Ray tasks of a sweep. The first use connects to the cluster or starts one.

    Args:
        address: Address of the cluster, or local.
        workers: Maximum number of parallel tasks.
        shared: Model that every process opens.
        accelerators: True if each task needs an accelerator.
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
        return self._start().count

    def map(self, shards: Sequence[SweepShard]) -> Iterator[tuple[int, list[FinalState]]]:
        """Compute shards, and yield the index and the result of each shard when it is complete."""
        return self._start().map(open_model, self._shared, shards)

    def close(self) -> None:
        """Disconnect from the cluster, or stop it if this process started it."""
        if self._tasks is not None:
            self._tasks.close()
            self._tasks = None

    def _start(self) -> RayTasks:
        if self._tasks is None:
            where = "on this machine" if self.address == "local" else f"at {self.address}"
            self.reporter.log(f"computing on Ray {where}")
            self._tasks = RayTasks(self.address, self.workers, accelerators=self._accelerators)
        return self._tasks


@contextmanager
def use_one_thread(address: str) -> Iterator[None]:
    """Use a single thread inside the context, as every worker of the cluster does."""
    check_address(address)
    require_ray()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def count_planned_workers(address: str, workers: int | None) -> int | None:
    """Return the number of tasks that will run in parallel, or None if it depends on the cluster."""
    return workers or (count_cpus() if address == "local" else None)


def open_model(shared: SharedModel) -> Callable[[SweepShard], list[FinalState]]:
    """Open the model of a sweep in a worker process, and return a function that computes a shard."""
    stack, there = open_stack(shared.model, Silent(), **shared.options), shared.manifest
    here = replace(
        there,
        weight_hash=weight_hash(stack.model),
        numerics={**there.numerics, **read_numerics(stack.device, stack.model)},
        hardware=read_hardware(stack.device),
    )
    check_same_here(there, here)
    return partial(compute_shard, stack)


def check_same_here(expected: Manifest, here: Manifest) -> None:
    """Check that a worker has the same weights, text and type of machine as the process that started the run.

    The name of the model may differ.
    """
    try:
        check_same_run(expected, replace(here, model=expected.model, revision=expected.revision))
    except RunError as error:
        raise RunError(
            f"A worker differs from the run: {str(error).partition(': ')[2].partition('. ')[0]}. Use the same model, "
            "text and versions on every machine of the cluster."
        ) from error
    for name in HARDWARE:
        there, own = expected.hardware.get(name), here.hardware.get(name)
        if there != own:
            raise RunError(
                f"All machines must be of the same type, so that rows are bit-identical, got {name} {own} on a worker "
                f"and {there} where the run was started. Use machines of one type."
            )
