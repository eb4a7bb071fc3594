"""The vision transformer that ships: what its card says of it is so."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from transformers import ViTForImageClassification

from layerwise.data.vision.digits import digits
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.plan import Plan
from layerwise.results.training_record import TrainingRecord
from layerwise.stack import load
from tools.demo import vision_model

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
    test = digits().test
    examples = [test[index] for index in range(len(test))]
    with torch.no_grad():
        logits = model(pixel_values=torch.stack([example["pixel_values"] for example in examples])).logits
    right = logits.argmax(-1) == torch.stack([example["labels"] for example in examples])
    assert f"{right.float().mean():.1%}" == f"{found[1]}%"
    assert right.float().mean() > 0.95


def test_its_order_matters(model: ViTForImageClassification) -> None:
    splits = digits()
    backwards = evaluate(load(model), Plan.of(range(11, -1, -1)), splits.test, splits.collate).accuracy
    assert backwards < 0.4


def test_it_opens_by_its_name_and_is_small() -> None:
    stack = load("demo-vit")
    assert stack.depth == 12
    assert {weight.dtype for weight in stack.model.parameters()} == {torch.float32}
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 1_000_000


def test_its_record_is_of_these_digits_and_this_recipe() -> None:
    record = TrainingRecord.read(SHIPPED)
    assert record.data == digits("crop").digest
    assert (record.seed, record.arm, record.data_name) == (vision_model.SEED, "demo-vit", "digits")
    assert record.recipe == vision_model.recipe().to_json()
    least = min((moment for moment in record.history if moment.kind == "validation"), key=lambda moment: moment.loss)
    assert record.best_step == least.step


def test_its_architecture_is_always_drawn_alike(model: ViTForImageClassification) -> None:
    first, second = vision_model.new_model(), vision_model.new_model()
    assert first.config.to_diff_dict() == second.config.to_diff_dict()
    shapes = {name: tensor.shape for name, tensor in first.state_dict().items()}
    assert shapes == {name: tensor.shape for name, tensor in model.state_dict().items()}
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
