"""A model with a new classification head: the layers as they were, the last matrix drawn anew for other classes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from transformers import PreTrainedModel

import layerwise.models  # noqa: F401  (its architectures become known to the Auto classes)
from layerwise.data.auto_classes import from_pretrained
from layerwise.errors import CheckpointError
from layerwise.stack import Stack, load
from layerwise.stack.checks.checkpoint_files import check_complete
from layerwise.stack.load import resolve_device


def classifier(auto: str, location: str, labels: Sequence[str], needed: str, **options: Any) -> tuple[Any, set[str]]:
    """The checkpoint at `location` (a folder or a hub id) with a random head for `labels`, opened by the class `auto`
    of transformers, and the names of the parameters that were drawn.

    The head is drawn from torch's global generator, so that it follows the seed of a training. Raises
    `CheckpointError`, which says what is `needed`, for a checkpoint that can have none.
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
    """The image classifier on the checkpoint at `location` with a random head for `classes`; see `classifier`."""
    model, _ = classifier(
        "AutoModelForImageClassification",
        location,
        classes,
        "a new head needs the checkpoint of an image model, as a folder or a hub id",
        revision=revision,
    )
    return load(model.to(resolve_device(device)))


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
