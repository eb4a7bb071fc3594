"""Options of runs: the folder and the seed of every one, and of some the cluster, the stopwatch, the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerwise.experiments.option import option

SEEDS = 2**32
"""Seeds are below this, as numpy's are."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where the rows go, and what the random draws start from."""

    run: Path | None = option(None, "Run folder; by default one named by what is computed.", metavar="PATH")
    overwrite: bool = option(False)
    seed: int = option(0, "Seed of every random draw.", metavar="N", least=0, most=SEEDS - 1)


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


@dataclass(frozen=True, kw_only=True)
class TimingOptions:
    """What a pass is given when it is timed, and how."""

    batch: int = option(1, "Texts at once when timed.", metavar="N", least=1, rare=True)
    context: int = option(128, metavar="N", least=1, rare=True)
    graphs: bool = option(True, "On CUDA, replay every pass as a CUDA graph.", setting=True)


@dataclass(frozen=True, kw_only=True)
class PublishingOptions:
    """The repository that finished models are uploaded to."""

    push: str | None = option(
        None, metavar="ORG/NAME", rare=True,
    )  # fmt: skip
    private: bool = option(False, "Make that a private repository.", rare=True, needs="push")

    def check_repository(self) -> None:
        """Raise `CheckpointError` for a name that no repository can have."""
        if self.push is not None:
            from layerwise.checkpoint.push import check_repository

            check_repository(self.push)
