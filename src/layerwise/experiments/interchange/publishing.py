"""A saved model with its card, on the disk and on the hub."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerwise.checkpoint import push as hub
from layerwise.checkpoint.card import CardTable, write_card
from layerwise.experiments.interchange.evidence import evidence
from layerwise.experiments.reporter import Reporter
from layerwise.plan import Plan
from layerwise.results.manifest import installed_versions


@dataclass(frozen=True, slots=True)
class Publication:
    """A card, and the repository of the hub that a model goes to with it, if it goes to one."""

    tables: tuple[CardTable, ...] = ()
    repository: str | None = None
    private: bool = False
    overwrite: bool = False

    @classmethod
    def of(
        cls, runs: Sequence[str], plan: Plan, models: Iterable[str], *, push: str | None, private: bool, overwrite: bool
    ) -> Publication:
        """A card of what `runs` measured of the plan, checked before anything is written.

        Raises `RunError` for a run that measured nothing of the plan, and `CheckpointError` where the hub would refuse.
        """
        tables = evidence_of(map(Path, runs), plan, models)
        if push is not None:
            hub.check_push(push, overwrite=overwrite)
        return cls(tables, push, private, overwrite)

    def publish(self, folder: Path, reporter: Reporter) -> None:
        """Write the card of the model in `folder`, and push the folder.

        Raises `CheckpointError` with what the hub refused; the folder stays.
        """
        name = folder.resolve().name if self.repository is None else self.repository.partition("/")[2]
        versions = {each: version for each, version in installed_versions().items() if each != "numpy"}
        write_card(folder, name=name, command=command_line(), versions=versions, tables=self.tables)
        reporter.result(f"{folder / 'README.md'}: the model's card")
        if self.repository is not None:
            reporter.log(f"pushing {folder} to {self.repository}")
            address = hub.push(folder, self.repository, private=self.private, overwrite=self.overwrite)
            reporter.result(f"{address}: pushed{', private' if self.private else ''}")


def evidence_of(runs: Iterable[Path], plan: Plan, models: Iterable[str]) -> tuple[CardTable, ...]:
    """What `runs` measured of a plan over `models`, as tables. Raises `RunError` for a run that says nothing of it."""
    locations = tuple(models)
    return tuple(evidence(run, plan, locations) for run in runs)


def command_line() -> str:
    """The command of this process, as it could be typed; in a notebook or a script it is what runs that."""
    program, *arguments = sys.argv or ["python"]
    return shlex.join([Path(program).name.replace("__main__.py", "layerwise"), *arguments])
