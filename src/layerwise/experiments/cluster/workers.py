"""The cluster of an experiment: workers that are started when the first piece is handed out, and not before.

Every worker opens the experiment as this process did (`layerwise.experiments.cluster.shared`), and computes with one
thread, as this process then does too. So the rows have the bits that one process with one thread gives on such a
machine, and that process may resume the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from layerwise.errors import SwarmError
from layerwise.experiments.cluster.shared import OPENS, shared_by
from layerwise.experiments.engines.steps import Outline
from layerwise.experiments.experiment import Experiment, Inputs
from layerwise.experiments.options.run import ClusterOptions
from layerwise.experiments.reporter import Reporter
from layerwise.measure.workers import OnPartial, PieceFunction, Plain, Spread

if TYPE_CHECKING:
    from layerwise.swarm.cluster.workers import RayWorkers

THREADS = 1
"""Threads of torch, here as in every worker: a sum that is divided among threads has other last bits."""


@dataclass
class Cluster:
    """Workers on the Ray cluster that the options name; they are started when they are first needed."""

    config: ClusterOptions
    reporter: Reporter
    accelerators: bool = False
    _workers: RayWorkers | None = field(default=None, init=False)

    @property
    def count(self) -> int:
        """How many pieces are carried out at the same time."""
        return self._started().count

    def map(
        self,
        opens: str,
        shared: Mapping[str, Plain],
        pieces: Sequence[Plain],
        *,
        here: PieceFunction,
        on_partial: OnPartial | None = None,
        rest: Callable[[Plain], Plain] | None = None,
    ) -> Iterator[tuple[int, Plain]]:
        """The number and the result of every piece, as they are done; see `Workers.map`."""
        return self._started().map(opens, shared, pieces, here=here, on_partial=on_partial, rest=rest)

    def close(self) -> None:
        """End the workers, and the cluster that was started here."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def _started(self) -> RayWorkers:
        if self._workers is None:
            from layerwise.swarm.cluster.workers import RayWorkers

            assert self.config.ray is not None, "without an address there is no cluster"
            where = "on this machine" if self.config.ray == "local" else f"at {self.config.ray}"
            self.reporter.log(f"starting workers on Ray {where}")
            self._workers = RayWorkers(
                self.config.ray, self.config.workers, accelerators=self.accelerators, log=self.reporter.log
            )
            count = self._workers.count
            self.reporter.log(f"{count} worker{'s' * (count != 1)}, each with {THREADS} thread")
        return self._workers


def is_spread(config: Experiment) -> bool:
    """Whether an experiment is to be computed on a cluster."""
    return isinstance(config, ClusterOptions) and config.ray is not None


@contextmanager
def as_workers_compute(config: Experiment) -> Iterator[None]:
    """Compute here as the workers of the experiment do, with one thread; nothing is changed where it has none.

    Raises `SwarmError` where Ray is not installed, for an address of another form, and under torchrun.
    """
    if not is_spread(config):
        yield
        return
    assert isinstance(config, ClusterOptions)
    assert config.ray is not None
    from layerwise.swarm.cluster.connection import check_address, require_ray

    check_address(config.ray)
    require_ray()
    import torch

    from layerwise.train.processes import is_alone

    if not is_alone():
        raise SwarmError("--ray hands the work out to processes of its own; start the command without torchrun")
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def spread_over(config: Experiment, outline: Outline, inputs: Inputs, reporter: Reporter) -> Iterator[Spread]:
    """The workers that the options of an experiment name, which are ended in every case; else this process."""
    if not is_spread(config):
        yield Spread()
        return
    assert isinstance(config, ClusterOptions)
    cluster = Cluster(config, reporter, accelerators=outline.manifest.device == "cuda")
    try:
        yield Spread(cluster, OPENS, shared_by(config, outline, inputs))
    finally:
        cluster.close()


def planned_workers(config: ClusterOptions) -> int | None:
    """How many workers there will be, without asking a cluster; `None` where only it knows."""
    from layerwise.swarm.cluster.workers import available_processors

    return config.workers or (available_processors() if config.ray == "local" else None)
