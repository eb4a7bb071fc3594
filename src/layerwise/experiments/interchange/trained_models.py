"""The finished models of a training on the hub, each with its card: asked for before it begins, pushed at its end.

A model that was pushed is noted beside it, so that the same command, run again, pushes what is left.

The card is made of the training record beside the weights: what the model was trained from and on, by which recipe, for
how long, the losses on the validation split, the command and the versions, and the hash of every file of weights. It
claims nothing else: what was measured after a training stands in the run's report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from layerwise.checkpoint.base_models import CARD
from layerwise.checkpoint.card import escaped, file_section, markdown_table, write_card
from layerwise.checkpoint.origin import FILE as ORIGIN
from layerwise.checkpoint.push import check_push, push
from layerwise.errors import CheckpointError
from layerwise.experiments.engines.steps import Outline
from layerwise.experiments.experiment import Experiment
from layerwise.experiments.interchange.publishing import command_line
from layerwise.experiments.options.run import PublishingOptions
from layerwise.experiments.reporter import Reporter
from layerwise.results.manifest import installed_versions
from layerwise.results.training_record import FILE, TrainingRecord

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


_LOSSES = 10
"""Validations that a card shows, the last ones."""


def write_trained_card(
    folder: Path, *, name: str, base: str | None, command: str, versions: Mapping[str, str]
) -> str:  # fmt: skip
    """Write the card of the trained model in `folder`, and return its text.

    `name` heads it; `base` is the model that it was trained from, as the command names it, and `None` for random
    weights. Raises `CheckpointError` for a folder without a training record.
    """
    from huggingface_hub import ModelCardData

    record = TrainingRecord.read(folder)
    if record is None:
        raise CheckpointError(f"{folder} holds no {FILE}, so nothing says how it was trained; push a finished training")
    on_hub = [base] if base is not None and base.count("/") == 1 and not Path(base).exists() else None
    metadata = ModelCardData(library_name="transformers", tags=["layerwise"], base_model=on_hub).to_yaml()
    body = [f"# {name}", *_training(record, base), *_losses(record), *_making(record, command, versions)]
    text = f"---\n{metadata}\n---\n\n" + "\n\n".join([*body, *file_section(folder)]) + "\n"
    (folder / CARD).write_text(text, encoding="utf-8")
    return text


def _training(record: TrainingRecord, base: str | None) -> Iterator[str]:
    origin = "random weights" if base is None else escaped(base)
    yield f"Trained by layerwise from {origin}, by the method {escaped(record.arm)} with the seed {record.seed}."
    yield "## Training"
    rows = [
        ("text or images", escaped(record.data_name)),
        ("hash of them", f"`{record.data}`"),
        ("hash of what it began from", f"`{record.base}`"),
        ("optimizer steps", f"{record.steps:,}"),
        ("examples read", f"{record.examples:,} ({record.epochs:.2f} times all)"),
        ("seconds", f"{record.seconds:,.0f}"),
        ("step that was kept", f"{record.best_step:,}"),
        *((name.replace("_", " "), f"{value:,.6g}") for name, value in record.figures.items()),
    ]
    yield markdown_table(("what", "value"), rows)


def _losses(record: TrainingRecord) -> Iterator[str]:
    rows = [(f"{entry.step:,}", f"{entry.loss:.4f}") for entry in record.history if entry.kind == "validation"]
    if rows:
        yield "## Validation"
        yield "The loss in nats on the validation split, which also chose the step. It is no test of the model."
        yield markdown_table(("step", "loss"), rows[-_LOSSES:])


def _making(record: TrainingRecord, command: str, versions: Mapping[str, str]) -> Iterator[str]:
    yield "## How it was made"
    yield f"```sh\n{command}\n```"
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + "."
    yield f"```json\n{json.dumps(record.recipe, indent=1)}\n```"
