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
    """Load the checkpoint at `location` (folder or hub id) with the class `auto` and a random head for `labels`.

    The head is drawn from torch's global generator, so it depends on the seed of a training run.

    Returns:
        The model, and the names of the randomly initialized parameters.

    Raises:
        CheckpointError: If the model cannot have such a head; `needed` is part of the message.
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
            f"{location} cannot be given a head for {len(labels)} class{'es' * (len(labels) != 1)}: "
            f"{str(error).strip().splitlines()[0]}\n{needed}"
        ) from error
    check_complete(location, model, report, new_head=True)
    return model, {*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])}


def with_new_head(
    location: str, classes: tuple[str, ...], *, device: str = "auto", revision: str | None = None
) -> Stack:
    """Load an image classifier with a random head for `classes`."""
    model, _ = classifier(
        "AutoModelForImageClassification",
        location,
        classes,
        "--new-head requires the checkpoint of an image model (folder or hub id)",
        revision=revision,
    )
    return load(model.to(resolve_device(device)))


def head_parameters(model: PreTrainedModel, drawn: Collection[str]) -> frozenset[str]:
    """Return the names of the parameters of the head: those outside the base model, or in `drawn`.

    For BERT that is the classifier, as in the frozen runs of "Transformer Layers as Painters" (appendix A.9), and the
    pooler if the checkpoint has none.

    Raises:
        CheckpointError: If the model has no head.
    """
    base = set() if model.base_model is model else {id(weight) for weight in model.base_model.parameters()}
    head = frozenset(
        name for name, weight in model.named_parameters() if name in drawn or (base and id(weight) not in base)
    )
    if not head:
        raise CheckpointError(
            f"{type(model).__name__} has no separate head: every weight is in its base model. Pass a checkpoint "
            "without a classification head."
        )
    return head
