"""A model with a new classification head: the layers as they were, the last matrix drawn anew for other classes.

What is the head, and what the body? `head_parameters` decides for fine-tuning that trains the head alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from transformers import PreTrainedModel

from layerwise.data.auto_classes import from_pretrained
from layerwise.errors import CheckpointError
from layerwise.stack import Stack, load
from layerwise.stack.checks.completeness import check_complete


def with_new_head(
    location: str, classes: tuple[str, ...], *, device: str = "auto", revision: str | None = None
) -> Stack:
    """The image classifier on the checkpoint at `location` (a folder or a hub id) with a random head for `classes`.

    The head is drawn from torch's global generator, so that it follows the seed of a training. Raises
    `CheckpointError` when the checkpoint is not one of an image model.
    """
    names: dict[str, Any] = {
        "num_labels": len(classes),
        "id2label": dict(enumerate(classes)),
        "label2id": {name: label for label, name in enumerate(classes)},
    }
    try:
        model, report = from_pretrained(
            "AutoModelForImageClassification", location, ignore_mismatched_sizes=True, use_safetensors=True,
            dtype="float32", revision=revision, output_loading_info=True, **names,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{location} cannot be given a head for {len(classes)} classes: {error}\n"
            "a new head needs the checkpoint of an image model, as a folder or a hub id"
        ) from error
    check_complete(location, model, report, new_head=True)
    return load(model, device=device)


def head_parameters(model: PreTrainedModel, drawn: Collection[str]) -> frozenset[str]:
    """The names of the parameters of a model's head: those outside its base model, and those that were `drawn` because
    the checkpoint has none.

    Of BERT that is the classifier alone where the checkpoint has a pooler, as in the published frozen runs
    ("Transformer Layers as Painters", appendix A.9); a pooler that had to be drawn anew is learned with it. Raises
    `CheckpointError` for a model without a head.
    """
    base = set() if model.base_model is model else {id(weight) for weight in model.base_model.parameters()}
    head = frozenset(
        name for name, weight in model.named_parameters() if name in drawn or (base and id(weight) not in base)
    )
    if not head:
        raise CheckpointError(
            f"{type(model).__name__} has no head of its own: every weight is in the checkpoint and in its base model; "
            "give a checkpoint without a head for classification"
        )
    return head
