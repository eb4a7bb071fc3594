"""The shipped demo models are those of their recipes and cards."""

import json
import re
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ViTForImageClassification,
)

from layerwise.data.demo import python_stdlib, skills
from layerwise.data.vision.digits import digits
from layerwise.errors import RunError
from layerwise.results.training_record import TrainingRecord
from tools.demo import language_model, vision_model, windows
from tools.demo.grading import exact_matches, generated, text_grade
from tools.demo.model_card import provenance

Shipped = tuple[PreTrainedModel, PreTrainedTokenizerFast]
SHIPPED = Path(str(files("layerwise") / "models" / "demo"))


def _tiny() -> language_model.Recipe:
    full = language_model.recipe()
    mixture = replace(full.mixture, batch=2, window=64, long_window=128, long_every=3)
    return replace(
        full,
        layers=2,
        width=32,
        heads=2,
        inner_width=48,
        vocabulary=400,
        mixture=mixture,
        steps=6,
        warmup_steps=2,
        learning_rate=2e-2,
        log_every=1,
        check_every=3,
        check_examples=4,
        grade_windows=1,
        grade_examples=8,
        grade_generated=2,
    )


_all_documents = python_stdlib.read_documents


@pytest.fixture(autouse=True)
def little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_stdlib, "read_documents", lambda split, kind: _all_documents(split, kind)[:3])
    monkeypatch.setattr(windows, "_TOKENIZER_EXAMPLES", 100)


def _log(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_trained_model_loads_with_auto_classes(tmp_path: Path) -> None:
    recipe = _tiny()
    trained = language_model.train(recipe, tmp_path)
    assert trained.steps == 6
    run = provenance(
        steps=trained.steps, tokens=recipe.mixture.tokens(6), minutes=0.1, seed=recipe.seed, note="A note."
    )
    grades = language_model.publish(recipe, trained, run, tmp_path / "log.jsonl", tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert model.dtype == torch.float32
    assert tokenizer.encode("calc 1+2 =") == trained.tokenizer.encode("calc 1+2 =")
    assert language_model.grade(recipe, model, tokenizer) == grades
    assert all(skill.agrees == skill.generated == 2 for skill in grades.skills.values())
    written = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"README.md", "grades.json", "log.jsonl", "recipe.json"} <= written
    assert "{" not in (tmp_path / "model" / "README.md").read_text().replace("close ( [ ] { = }", "")
    assert "- A note.\n" in (tmp_path / "model" / "README.md").read_text()
    losses = [line["loss"] for line in _log(tmp_path) if "loss" in line]
    assert len(losses) == 6
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = language_model.train(_tiny(), tmp_path / "whole")
    language_model.train(_tiny(), tmp_path / "broken")
    shutil.rmtree(tmp_path / "broken" / "checkpoint-6")
    resumed = language_model.train(_tiny(), tmp_path / "broken", resume=True)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert [line["step"] for line in _log(tmp_path / "broken")] == [1, 2, 3, 3, 4, 5, 6, 6]


def test_runs_are_not_overwritten_or_resumed_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises(RunError, match="add --resume"):
        language_model.train(_tiny(), tmp_path)
    with pytest.raises(RunError, match="has no checkpoint"):
        language_model.train(_tiny(), tmp_path, resume=True)


@pytest.fixture(scope="module")
def shipped() -> Shipped:
    return AutoModelForCausalLM.from_pretrained(SHIPPED), AutoTokenizer.from_pretrained(SHIPPED)


def test_the_demo_is_small_and_safe() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 8_000_000
    assert {path.suffix for path in SHIPPED.iterdir()} == {".json", ".jsonl", ".md", ".safetensors"}


def test_the_demo_matches_its_recipe(shipped: Shipped) -> None:
    model, tokenizer = shipped
    recipe = language_model.recipe()
    assert json.loads((SHIPPED / "recipe.json").read_text()) == json.loads(language_model.as_json(recipe))
    assert (model.config.num_hidden_layers, model.config.hidden_size) == (recipe.layers, recipe.width)
    assert model.config.vocab_size == len(tokenizer) == recipe.vocabulary
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


@pytest.mark.slow
@pytest.mark.parametrize("task", skills.TASKS)
def test_the_demo_reaches_its_published_skills(shipped: Shipped, task: str) -> None:
    model, tokenizer = shipped
    published = json.loads((SHIPPED / "grades.json").read_text())["skills"][task]
    sample = skills.draw_examples(task, "heldout", 100)
    matches = exact_matches(model, tokenizer, sample)
    assert sum(matches) / 100 == pytest.approx(published["hits"] / published["examples"], abs=0.08)
    for example, match in list(zip(sample, matches, strict=True))[:5]:
        assert (generated(model, tokenizer, example) == example.answer) == match


@pytest.mark.slow
def test_the_demo_reaches_its_published_loss(shipped: Shipped) -> None:
    """The evaluation may use another Python version, so the loss is near the published one, not equal."""
    model, tokenizer = shipped
    published = json.loads((SHIPPED / "grades.json").read_text())["text"]
    documents = [d for d in _all_documents("heldout", "prose") if d.module in {"json", "inspect", "logging"}]
    found = text_grade(model, tokenizer, documents, 256, most_windows=4)
    assert found.nats == pytest.approx(published["prose, windows of 256"]["nats"], abs=0.5)
    assert found.nats < 4.0


SHIPPED_VIT = Path(str(files("layerwise") / "models" / "demo_vit"))


@pytest.fixture(scope="module")
def model() -> ViTForImageClassification:
    return ViTForImageClassification.from_pretrained(SHIPPED_VIT).eval()


def test_the_vit_matches_its_card(model: ViTForImageClassification) -> None:
    card = (SHIPPED_VIT / "README.md").read_text()
    assert model.num_parameters() == 229_210
    assert f"{model.config.num_hidden_layers} layers and {model.num_parameters():,} weights" in card
    assert model.config.num_hidden_layers == 12


def test_the_vit_reaches_its_published_accuracy(model: ViTForImageClassification) -> None:
    found = re.search(r"Accuracy on the test images: ([0-9.]+)%", (SHIPPED_VIT / "README.md").read_text())
    test = digits().test
    examples = [test[index] for index in range(len(test))]
    with torch.no_grad():
        logits = model(pixel_values=torch.stack([example["pixel_values"] for example in examples])).logits
    right = logits.argmax(-1) == torch.stack([example["labels"] for example in examples])
    assert f"{right.float().mean():.1%}" == f"{found[1]}%"
    assert right.float().mean() > 0.95


def test_the_vit_record_matches_data_and_recipe() -> None:
    record = TrainingRecord.read(SHIPPED_VIT)
    assert record.data == digits("crop").digest
    assert (record.seed, record.variant, record.data_name) == (vision_model.SEED, "demo-vit", "digits")
    assert record.recipe == vision_model.recipe().to_json()
    least = min((moment for moment in record.history if moment.kind == "validation"), key=lambda moment: moment.loss)
    assert record.best_step == least.step
