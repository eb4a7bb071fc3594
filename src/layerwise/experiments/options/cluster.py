"""Options that say which machines compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from layerwise.experiments.experiment import Reads
from layerwise.experiments.option import option


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Workers on a Ray cluster, in place of this process."""

    ray: str | None = option(
        None, "Compute on a Ray cluster: local (on this machine), auto, or HOST:PORT; needs layerwise[ray].",
        metavar="ADDRESS",
    )  # fmt: skip
    workers: int | None = option(
        None, "Workers, each with one thread; by default as many as the cluster has processors.", metavar="N",
        least=1, most=10_000,
    )  # fmt: skip

    READ_BY_CLUSTER: ClassVar = Reads(
        ("workers",), lambda config: config.ray is not None, "the cluster of --ray reads it, and there is none"
    )
