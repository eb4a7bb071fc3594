"""The vision transformer that ships: what its card says of it is so."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from transformers import ViTForImageClassification

from layerwise.data.digits import digits
from layerwise.measure.judgement import judge
from layerwise.plan import Plan
from layerwise.results.pedigree import Pedigree
from layerwise.stack import load
from layerwise.train import demo_vit

SHIPPED = Path(str(files("layerwise") / "models" / "demo_vit"))


@pytest.fixture(scope="module")
def model() -> ViTForImageClassification:
    return ViTForImageClassification.from_pretrained(SHIPPED).eval()


def test_it_has_the_layers_and_weights_that_its_card_says(model: ViTForImageClassification) -> None:
    card = (SHIPPED / "README.md").read_text()
    assert model.num_parameters() == 229_210
    assert f"{model.config.num_hidden_layers} layers and {model.num_parameters():,} weights" in card
    assert model.config.num_hidden_layers == 12


def test_it_reads_unseen_digits_as_well_as_its_card_says(model: ViTForImageClassification) -> None:
    found = re.search(r"Accuracy on the test images: ([0-9.]+)%", (SHIPPED / "README.md").read_text())
    assert found is not None
    test = digits().test
    examples = [test[index] for index in range(len(test))]
    with torch.no_grad():
        logits = model(pixel_values=torch.stack([example["pixel_values"] for example in examples])).logits
    right = logits.argmax(-1) == torch.stack([example["labels"] for example in examples])
    assert f"{right.float().mean():.1%}" == f"{found[1]}%"
    assert right.float().mean() > 0.95


def test_its_order_matters(model: ViTForImageClassification) -> None:
    splits = digits()
    backwards = judge(load(model), Plan.of(range(11, -1, -1)), splits.test, splits.collate).accuracy
    assert backwards < 0.4


def test_it_opens_by_its_name_and_is_small() -> None:
    stack = load("demo-vit")
    assert stack.depth == 12
    assert {weight.dtype for weight in stack.model.parameters()} == {torch.float32}
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 1_000_000


def test_its_pedigree_is_of_these_digits_and_this_recipe() -> None:
    pedigree = Pedigree.read(SHIPPED)
    assert pedigree is not None
    assert pedigree.data == digits("crop").digest
    assert (pedigree.seed, pedigree.arm, pedigree.data_name) == (demo_vit.SEED, "demo-vit", "digits")
    assert pedigree.recipe["settings"]["learning_rate"] == demo_vit.recipe().settings.learning_rate
    least = min((moment for moment in pedigree.history if moment.kind == "validation"), key=lambda moment: moment.loss)
    assert pedigree.best_step == least.step


def test_its_architecture_is_always_drawn_alike(model: ViTForImageClassification) -> None:
    first, second = demo_vit.new_model(), demo_vit.new_model()
    assert first.config.to_diff_dict() == second.config.to_diff_dict()
    shapes = {name: tensor.shape for name, tensor in first.state_dict().items()}
    assert shapes == {name: tensor.shape for name, tensor in model.state_dict().items()}
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
