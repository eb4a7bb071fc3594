"""Every head: its loss, saving and loading, and use by transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn import functional
from transformers import Trainer, TrainingArguments, pipeline

import layerwise.models as models
from layerwise.models import ElcConfig, ElcForMaskedLM
from models.published import padded_batch, random_model, randomise, small_config
from rounding import realigned
from tier import first_fast
from tiny_tokenizers import word_tokenizer

HEADS = {
    "AutoModel": models.ElcModel,
    "AutoModelForMaskedLM": models.ElcForMaskedLM,
    "AutoModelForSequenceClassification": models.ElcForSequenceClassification,
}


@pytest.mark.parametrize("name", first_fast(HEADS))
def test_a_saved_model_gives_equal_outputs(name: str, tmp_path: Path) -> None:
    ids, real = padded_batch(10)
    for variant in ("ltg", "elc", "weighted-output", "denseformer"):
        model = HEADS[name](small_config(variant)).eval()
        randomise(model)
        model.save_pretrained(tmp_path / variant)
        again, report = getattr(transformers, name).from_pretrained(tmp_path / variant, output_loading_info=True)
        assert type(again) is HEADS[name]
        assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        with torch.no_grad():
            expected, found = (each(ids, attention_mask=real) for each in (model, realigned(again)))
        assert all(torch.equal(found[key], expected[key]) for key in expected), variant


def test_an_encoder_is_found_inside_a_saved_head_and_the_other_way_round(tmp_path: Path) -> None:
    model = ElcForMaskedLM(small_config("elc")).eval()
    model.save_pretrained(tmp_path / "masked")
    alone = transformers.AutoModel.from_pretrained(tmp_path / "masked")
    ids, real = padded_batch(10)
    with torch.no_grad():
        expected = model.encoder(ids, attention_mask=real).last_hidden_state
        assert torch.equal(realigned(alone)(ids, attention_mask=real).last_hidden_state, expected)
        classifier = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "masked", num_labels=5)
        found = realigned(classifier).encoder(ids, attention_mask=real).last_hidden_state
        assert torch.equal(found, expected)
    assert classifier.classifier.projection.out_features == 5


def test_the_masked_loss_is_the_mean_over_what_is_labelled_and_training_predicts_nothing_else() -> None:
    model, (ids, real) = random_model("elc"), padded_batch(12)
    labels = torch.where(torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.3, ids, -100)
    whole = model(ids, attention_mask=real, labels=labels)
    kept = labels != -100
    expected = functional.cross_entropy(whole.logits[kept].float(), labels[kept])
    assert whole.logits.shape == (*ids.shape, 61)
    assert whole.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    training = model.train()(ids, attention_mask=real, labels=labels)
    # Products of other shapes round differently, so the head computes the same rows alone.
    assert torch.equal(training.logits, model.head(model.encoder(ids, attention_mask=real).last_hidden_state[kept]))
    assert training.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    shared = model(ids, attention_mask=real, labels=labels, num_items_in_batch=torch.tensor(100)).loss
    assert shared.item() == pytest.approx(expected.item() * int(kept.sum()) / 100, rel=1e-6)


def test_a_batch_without_a_label_has_a_loss_of_zero() -> None:
    model, (ids, _) = random_model("elc").train(), padded_batch(6)
    loss = model(ids, labels=torch.full_like(ids, -100)).loss
    loss.backward()
    assert loss.item() == 0


def test_classification_has_the_loss_of_its_labels_and_regression_one_of_its_own() -> None:
    ids, real = padded_batch(10)
    torch.manual_seed(0)
    labels = torch.tensor([0, 3, 1])
    output = models.ElcForSequenceClassification(small_config("elc", num_labels=4)).eval()(
        ids, attention_mask=real, labels=labels
    )
    assert output.loss.item() == pytest.approx(functional.cross_entropy(output.logits, labels).item(), rel=1e-6)
    targets = torch.tensor([0.5, 1.0, 2.0])
    output = models.ElcForSequenceClassification(small_config("elc", num_labels=1)).eval()(ids, labels=targets)
    assert output.loss.item() == pytest.approx(functional.mse_loss(output.logits.squeeze(), targets).item(), rel=1e-6)


def test_the_vocabulary_can_grow() -> None:
    model = ElcForMaskedLM(small_config("elc"))
    model.resize_token_embeddings(70)
    assert model.head.projection.weight is model.encoder.embedding.words.weight
    assert model(torch.full((1, 4), 69)).logits.shape == (1, 4, 70)


def test_fill_mask(tmp_path: Path) -> None:
    tokenizer = word_tokenizer([f"w{number}" for number in range(20)])
    model = ElcForMaskedLM(small_config("elc", vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)).eval()
    randomise(model)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    fill = pipeline("fill-mask", model=str(tmp_path), tokenizer=str(tmp_path), device="cpu")
    answers = fill(["w1 [MASK] w3", "w1 w2 [MASK] w4 w5"], top_k=3)
    encoded = tokenizer("w1 [MASK] w3", return_tensors="pt")
    with torch.no_grad():
        scores = model(**encoded).logits[0, 2].softmax(dim=0)
    assert answers[0][0]["token"] == int(scores.argmax())
    assert answers[0][0]["score"] == pytest.approx(float(scores.max()), rel=1e-5)


class Sentences(torch.utils.data.Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": [1, *[5 + index] * (3 + index % 4)], "labels": index % 2, "token_type_ids": [0] * 4}


@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_trainer_fine_tunes_and_its_model_is_reloaded(accumulation: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = models.ElcForSequenceClassification(small_config("elc"))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], True, 3)
        labels = torch.tensor([row["labels"] for row in rows])
        return {"input_ids": ids, "attention_mask": (ids != 3).long(), "labels": labels}

    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        save_steps=3,
        gradient_accumulation_steps=accumulation,
        learning_rate=1e-3,
        disable_tqdm=True,
        logging_steps=1,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences(), data_collator=collate)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 3
    # A loss not divided by the accumulated batches would be twice as large.
    assert all(0.3 < loss < 1.2 for loss in losses)
    # Only the layer weight of a single source has no gradient.
    still = [name for name, value in model.named_parameters() if torch.equal(value, before[name])]
    assert still == ["encoder.layers.0.layer_weights.scalars"]
    assert trainer.evaluate()["eval_loss"] > 0
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "checkpoint-3")
    batch = collate([Sentences()[index] for index in range(3)])
    with torch.no_grad():
        assert torch.equal(realigned(again)(**batch).logits, model.eval()(**batch).logits)


def test_a_configuration_survives_the_way_to_disk(tmp_path: Path) -> None:
    config = ElcConfig.of_size(
        "tiny", variant="normalized", initialisation="biased", missing_sources="keep", pad_token_id=3
    )
    config.save_pretrained(tmp_path)
    again = transformers.AutoConfig.from_pretrained(tmp_path)
    assert type(again) is ElcConfig
    assert {**again.to_dict(), "_name_or_path": ""} == config.to_dict()
