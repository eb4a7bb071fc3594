"""Options that say which machines compute."""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.experiments.option import option


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Workers on a Ray cluster, in place of this process."""

    ray: str | None = option(
        None, metavar="ADDRESS", rare=True,
    )  # fmt: skip
    workers: int | None = option(
        None, "Workers, each with one thread; by default as many as the cluster has processors.", metavar="N",
        least=1, most=10_000, rare=True, needs="ray",
    )  # fmt: skip
