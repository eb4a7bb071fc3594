"""The card of a trained model: the `README.md` that the hub shows, made of the training record beside its weights.

What it was trained from and on, by which recipe, for how long, the losses on the validation split, the command and the
versions, and the hash of every file of weights. It claims nothing else: what was measured after a training stands in
the run's report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from layerwise.checkpoint.base_models import CARD
from layerwise.checkpoint.card import escaped, file_section, markdown_table
from layerwise.errors import CheckpointError
from layerwise.results.training_record import FILE, TrainingRecord

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
