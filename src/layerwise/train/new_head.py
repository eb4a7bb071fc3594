"""Load a model with a new classification head."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from transformers import PreTrainedModel

import layerwise.models  # noqa: F401  (registers its architectures)
from layerwise.data.auto_classes import from_pretrained
from layerwise.errors import CheckpointError
from layerwise.stack import Stack, load
from layerwise.stack.checks.checkpoint_files import check_complete
from layerwise.stack.load import resolve_device


def classifier(auto: str, location: str, labels: Sequence[str], needed: str, **options: Any) -> tuple[Any, set[str]]:
    """Load a checkpoint with a new classification head, initialized with torch's global generator.

    `auto` is the name of an auto class in transformers. `needed` ends the error message and states what is required.

    Returns:
        The model, and the names of the newly initialized parameters.

    Raises:
        CheckpointError: If the model cannot have a classification head.
    """
    names: dict[str, Any] = {
        "num_labels": len(labels),
        "id2label": dict(enumerate(labels)),
        "label2id": {name: label for label, name in enumerate(labels)},
    }
    try:
        model, report = from_pretrained(
            auto,
            location,
            ignore_mismatched_sizes=True,
            use_safetensors=True,
            dtype="float32",
            output_loading_info=True,
            **names,
            **options,
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{location} cannot be loaded with a head for {len(labels)} class{'es' * (len(labels) != 1)}: "
            f"{str(error).strip().splitlines()[0]}\n{needed}"
        ) from error
    check_complete(location, model, report, new_head=True)
    return model, {*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])}


def with_new_head(
    location: str, classes: tuple[str, ...], *, device: str = "auto", revision: str | None = None
) -> Stack:
    model, _ = classifier(
        "AutoModelForImageClassification",
        location,
        classes,
        "--new-head requires the checkpoint of an image model (folder or hub id)",
        revision=revision,
    )
    return load(model.to(resolve_device(device)))


def head_parameters(model: PreTrainedModel, drawn: Collection[str]) -> frozenset[str]:
    """Return the names of the head's parameters: those outside the base model, and the newly initialized (`drawn`).

    For BERT this is the classifier, and the pooler if the checkpoint has none. "Transformer Layers as Painters"
    (appendix A.9) trains only these in its frozen runs.

    Raises:
        CheckpointError: If the model has no head.
    """
    base = set() if model.base_model is model else {id(weight) for weight in model.base_model.parameters()}
    head = frozenset(
        name for name, weight in model.named_parameters() if name in drawn or (base and id(weight) not in base)
    )
    if not head:
        raise CheckpointError(
            f"{type(model).__name__} must have a head outside its base model. Pass a checkpoint without a "
            "classification head, so that a new one is added."
        )
    return head
