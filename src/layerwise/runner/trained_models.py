"""Push trained models to the hub, each with a model card that is written from its training record.

Repositories are checked before training starts. Models that were pushed are recorded, so that repeating a command only
pushes the others.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from layerwise import __version__
from layerwise.checkpoint import push as hub
from layerwise.checkpoint.card import CARD, escape, is_hub_id, markdown_table, write_card
from layerwise.checkpoint.folder import FILE as ORIGIN
from layerwise.errors import CheckpointError
from layerwise.results.training_record import FILE, TrainingRecord
from layerwise.runner.reporter import Reporter

TEMPLATE = Path(__file__).with_name("trained_card.md")
MAX_LOSSES = 10

_PUSHED = "pushed.txt"


@dataclass(frozen=True, slots=True)
class TrainedModels:
    """Models to push: `folders` maps hub repo ids to their folders. They were trained from the model `base`."""

    folders: Mapping[str, Path]
    base: str | None
    private: bool
    overwrite: bool

    @classmethod
    def to_push(cls, options: Mapping[str, Any], models: Mapping[str, Path]) -> TrainedModels:
        """Return the models to push, as given by the options of a command (push, model, private, overwrite)."""
        overwrite = bool(options.get("overwrite"))
        folders = {name_repository(options["push"], label, len(models)): path for label, path in models.items()}
        result = cls(folders, options.get("model"), bool(options.get("private")), overwrite)
        for name in result.due():
            hub.check_push(name, overwrite=overwrite)
        return result

    def due(self) -> tuple[str, ...]:
        return tuple(name for name, folder in self.folders.items() if self.overwrite or _pushed_to(folder) != name)

    def publish(self, reporter: Reporter) -> None:
        for name in self.due():
            folder, title = self.folders[name], name.partition("/")[2]
            if not folder.is_dir():
                reporter.log(f"note: {folder} does not exist, so {name} is not pushed")
                continue
            if (folder / ORIGIN).is_file():
                write_card(folder, name=title, command=format_command())
            else:
                write_trained_card(folder, name=title, base=self.base)
            push_folder(folder, name, self.private, self.overwrite, reporter)
            (folder.parent / _PUSHED).write_text(name, encoding="utf-8")


def name_repository(name: str, label: str, count: int) -> str:
    """Return the repo id of a model. If `count` models are pushed, the id contains the label of the model.

    >>> name_repository("org/shuffled", "layershuffle/0", 1), name_repository("org/shuffled", "stacking@2/1", 2)
    ('org/shuffled', 'org/shuffled-stacking-2-1')
    """
    return name if count == 1 else f"{name}-{re.sub(r'[^A-Za-z0-9._]+', '-', label).strip('-')}"


def push_folder(folder: Path, name: str, private: bool, overwrite: bool, reporter: Reporter) -> None:
    reporter.log(f"pushing {folder} to {name}")
    address = hub.push(folder, name, private=private, overwrite=overwrite)
    reporter.result(f"{address}: pushed{', private' if private else ''}")


def _pushed_to(folder: Path) -> str | None:
    path = folder.parent / _PUSHED
    return path.read_text(encoding="utf-8") if path.is_file() else None


def write_trained_card(folder: Path, *, name: str, base: str | None) -> str:
    """Write the model card of a trained model, and return its text. `base` is None if it began with random weights."""
    from huggingface_hub import ModelCard, ModelCardData

    record = TrainingRecord.read(folder)
    if record is None:
        raise CheckpointError(f"{folder} has no {FILE}. Pass the model of a finished training run.")
    losses = [(f"{entry.step:,}", f"{entry.loss:.4f}") for entry in record.history if entry.kind == "validation"]
    on_hub = [base] if base is not None and is_hub_id(base) else None
    card = ModelCard.from_template(
        ModelCardData(library_name="transformers", tags=["layerwise"], base_model=on_hub),
        template_path=str(TEMPLATE),
        name=name,
        origin="random weights" if base is None else escape(base),
        record={key: escape(value) if isinstance(value, str) else value for key, value in asdict(record).items()},
        losses=markdown_table(("step", "loss"), losses[-MAX_LOSSES:]) if losses else "",
        command=format_command(),
        version=__version__,
        recipe=json.dumps(record.recipe, indent=1),
    )
    (folder / CARD).write_text(f"{card}\n", encoding="utf-8")
    return f"{card}\n"


def format_command() -> str:
    """Return the command line of this process, quoted for a shell."""
    program, *arguments = sys.argv or ["python"]
    return shlex.join([Path(program).name.replace("__main__.py", "layerwise"), *arguments])
