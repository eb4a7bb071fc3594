"""The finished models of a training on the hub, each with its card: asked for before it begins, pushed at its end.

A model that was pushed is noted beside it, so that the same command, run again, pushes what is left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from layerwise.checkpoint.card import write_card
from layerwise.checkpoint.origin import FILE as ORIGIN
from layerwise.checkpoint.push import check_push, push
from layerwise.experiments.engines.steps import Outline
from layerwise.experiments.experiment import Experiment
from layerwise.experiments.interchange.publishing import command_line
from layerwise.experiments.interchange.trained_card import write_trained_card
from layerwise.experiments.options.run import PublishingOptions
from layerwise.experiments.reporter import Reporter
from layerwise.results.manifest import installed_versions

_PUSHED = "pushed.txt"
"""The file beside the folder of a model with the repository that it is in."""


@dataclass(frozen=True, slots=True)
class TrainedModels:
    """Models by the repository that each goes to; `base` is what they were trained from."""

    folders: Mapping[str, Path]
    base: str | None
    private: bool
    overwrite: bool

    @classmethod
    def of(cls, config: Experiment, outline: Outline, folder: Path) -> TrainedModels | None:
        """What the options ask for, checked before anything is trained; `None` where they ask for nothing.

        Raises `CheckpointError` where the hub would refuse one of the models that will be in the run `folder`.
        """
        if not isinstance(config, PublishingOptions) or config.push is None:
            return None
        models = outline.models(folder)
        folders = {repository_of(config.push, label, len(models)): path for label, path in models.items()}
        made = cls(folders, getattr(config, "model", None), config.private, config.overwrite)
        for name in made.due():
            check_push(name, overwrite=config.overwrite)
        return made

    def due(self) -> tuple[str, ...]:
        """The repositories of the models that are not pushed yet, of all where the run starts again."""
        return tuple(name for name, folder in self.folders.items() if self.overwrite or _pushed(folder) != name)

    def publish(self, reporter: Reporter) -> None:
        """Write the card of every model that is not pushed yet, and push it.

        Raises `CheckpointError` with what the hub refused; the models stay, and the same command pushes the rest.
        """
        versions = {each: version for each, version in installed_versions().items() if each != "numpy"}
        for name in self.due():
            folder, title = self.folders[name], name.partition("/")[2]
            if not folder.is_dir():
                reporter.log(f"note: there is no {folder}, so nothing is pushed to {name}")
                continue
            reporter.log(f"pushing {folder} to {name}")
            if (folder / ORIGIN).is_file():
                write_card(folder, name=title, command=command_line(), versions=versions)
            else:
                write_trained_card(folder, name=title, base=self.base, command=command_line(), versions=versions)
            address = push(folder, name, private=self.private, overwrite=self.overwrite)
            (folder.parent / _PUSHED).write_text(name, encoding="utf-8")
            reporter.result(f"{address}: pushed{', private' if self.private else ''}")


def repository_of(name: str, label: str, count: int) -> str:
    """The repository of one of `count` models: `name` for one alone, else with what tells the models apart.

    >>> repository_of("org/shuffled", "layershuffle/0", 1), repository_of("org/shuffled", "stacking@2/1", 2)
    ('org/shuffled', 'org/shuffled-stacking-2-1')
    """
    return name if count == 1 else f"{name}-{re.sub(r'[^A-Za-z0-9._]+', '-', label).strip('-')}"


def _pushed(folder: Path) -> str | None:
    path = folder.parent / _PUSHED
    return path.read_text(encoding="utf-8") if path.is_file() else None
