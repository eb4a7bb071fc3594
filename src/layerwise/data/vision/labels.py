"""Labels: whether the classes of an image set are those that a model's head was made for.

A head has one output a class. Another number of classes is an error, for there is nothing to compare; other names
under the same number are a note, because names are spelled in many ways (`tabby cat`, `n02123045`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layerwise.data.splits import Splits
from layerwise.errors import DataError


def check_labels(splits: Splits, config: Any) -> tuple[str, ...]:
    """What a reader should know about the labels of `splits` and of the head in `config`; empty when they agree.

    Names that transformers made up (`LABEL_3`) agree with any. Texts have no classes, and nothing to check.

    Raises `DataError` when the head has another number of outputs than there are classes.
    """
    if not splits.classes:
        return ()
    outputs = int(config.num_labels)
    if outputs != len(splits.classes):
        raise DataError(
            f"{splits.name!r} has {len(splits.classes)} classes ({_listed(splits.classes)}), but the model's head has "
            f"{outputs} outputs: give it a new one with `layerwise train robust ... --new-head`, or give images of its "
            "classes"
        )
    names = _names(config.id2label, outputs)
    differing = [index for index, name in enumerate(names) if not _same(name, splits.classes[index])]
    if not differing or all(name == f"LABEL_{index}" for index, name in enumerate(names)):
        return ()
    first = differing[0]
    order = "the same names in another order" if sorted(names) == sorted(splits.classes) else "other names"
    return (
        f"the head's {outputs} outputs have {order} than the classes of {splits.name!r}: output {first} is "
        f"{names[first]!r} there and {splits.classes[first]!r} here; unless they mean the same, use --new-head",
    )


def _names(id2label: Mapping[Any, str], outputs: int) -> list[str]:
    """The names of the outputs in order; a config read from JSON may have its numbers as text."""
    return [str(id2label.get(index, id2label.get(str(index), f"LABEL_{index}"))) for index in range(outputs)]


def _same(one: str, other: str) -> bool:
    return one.strip().lower().replace("_", " ") == other.strip().lower().replace("_", " ")


def _listed(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
