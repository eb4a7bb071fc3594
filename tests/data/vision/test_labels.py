import re

import pytest
from transformers import ViTConfig

from layerwise.data.splits import Examples, Splits
from layerwise.data.vision.images import check_labels
from layerwise.errors import DataError


def splits(*classes: str) -> Splits:
    return Splits("pets", "", Examples(), Examples(), Examples(), classes)


def head(*names: str) -> ViTConfig:
    return ViTConfig(id2label=dict(enumerate(names)), label2id={name: index for index, name in enumerate(names)})


@pytest.mark.parametrize("config", [head("cat", "sea_lion"), head("Cat", "sea lion"), ViTConfig(num_labels=2)])
def test_labels_that_agree(config: ViTConfig) -> None:
    assert check_labels(splits("cat", "sea lion"), config) == ()


def test_another_number_of_outputs_is_refused() -> None:
    with pytest.raises(
        DataError,
        match=r"'pets' has 3 classes .* 5 outputs: give it a new one with `layerwise train robust \.\.\. --new-head`",
    ):
        check_labels(splits("cat", "dog", "fox"), ViTConfig(num_labels=5))


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (("cat", "wolf"), r"other names .* output 1 is 'wolf' there and 'dog' here"),
        (("dog", "cat"), "the same names in another order"),
    ],
)
def test_other_names_are_noted(names: tuple[str, ...], note: str) -> None:
    (found,) = check_labels(splits("cat", "dog"), head(*names))
    assert re.search(note, found)


def test_texts_have_no_labels_to_check() -> None:
    assert check_labels(splits(), ViTConfig(num_labels=5)) == ()
