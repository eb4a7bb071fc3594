"""The encoder equals its equations; every head's loss, saving, loading, and use by transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional
from transformers import Trainer, TrainingArguments

import layerwise.models as models
from contracts.tiers import NIGHTLY
from layerwise.errors import ModelError
from layerwise.models import VARIANTS, ElcConfig, ElcForMaskedLM
from layerwise.stack.history import DepthHistory
from models.published import as_published, logits, padded_batch, random_model, randomize, small_config
from rounding import realigned
from tier import first_fast

COMPILED = ("elc", "denseformer")
"""One mixture with softmax and one without; the exhaustive tier compiles every other variant."""


def test_inputs_that_cannot_be_are_refused() -> None:
    model = random_model("elc", max_position_embeddings=20)
    with torch.no_grad():
        assert model(torch.ones(1, 20, dtype=torch.long)).logits.shape == (1, 20, 61)
    with pytest.raises(ModelError, match="a sequence must have at most max_position_embeddings"):
        model(torch.ones(1, 21, dtype=torch.long))

    model, (ids, real) = random_model("elc"), padded_batch(6)
    with pytest.raises(ModelError, match=r"attention_mask must have the shape \(batch, seq\) or"):
        model(ids, attention_mask=real.flatten())
    with pytest.raises(ModelError, match="either input_ids or inputs_embeds"):
        model()

    with pytest.raises(ModelError, match="reentrant checkpointing does not support the mixed"):
        random_model("elc").activation_checkpointing_enable({"use_reentrant": True})


def test_vectors_and_masks_of_pairs_are_ids_and_masks_said_at_length() -> None:
    model, (ids, real) = random_model("elc"), padded_batch(9)
    with torch.no_grad():
        vectors = model.get_input_embeddings()(ids)
        by_vector = model(inputs_embeds=vectors, attention_mask=real, token_type_ids=torch.zeros_like(ids)).logits
        assert torch.equal(by_vector, model(ids, attention_mask=real).logits)

    model = random_model("zero")
    ids, real = padded_batch(20)
    with torch.no_grad():
        by_token = model(ids, attention_mask=real).logits
        by_pair = model(ids, attention_mask=real[:, None, :].expand(-1, 20, -1)).logits
    assert torch.equal(by_token, by_pair)


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_states_and_attentions_are_returned_when_asked_for(variant: str) -> None:
    model, (ids, real) = random_model(variant), padded_batch(9)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model.encoder(ids, attention_mask=real, output_hidden_states=True, output_attentions=True)
        plain = model.encoder(ids, attention_mask=real)
    assert len(found.hidden_states) == 4
    assert torch.equal(found.hidden_states[-1], plain.last_hidden_state)
    assert [tuple(each.shape) for each in found.attentions] == [(3, 2, 9, 9)] * 3
    assert torch.allclose(found.attentions[0].sum(dim=-1), torch.ones((), dtype=torch.float64))
    assert plain.hidden_states is None
    assert isinstance(model(ids, return_dict=False), tuple)


@pytest.mark.parametrize("variant", ["ltg", "elc", "weighted-output", "denseformer"])
def test_checkpointing_changes_no_gradient(variant: str) -> None:
    model, (ids, real) = random_model(variant).train(), padded_batch(16)

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(ids, attention_mask=real, labels=ids).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    plain = gradients()
    model.activation_checkpointing_enable()
    assert model.encoder.layers[0].gradient_checkpointing
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(plain, gradients(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=() if name in COMPILED else pytest.mark.nightly) for name in VARIANTS]
)
def test_the_encoder_compiles_as_one_graph(variant: str) -> None:
    torch._dynamo.reset()
    model, (ids, real) = random_model(variant), padded_batch(16)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        expected = model(ids, attention_mask=real).logits
        assert torch.allclose(compiled(ids, attention_mask=real).logits, expected, atol=1e-9)
    model.train()
    loss = compiled(ids, attention_mask=real, labels=ids).loss
    loss.backward()
    assert loss.item() == pytest.approx(model(ids, attention_mask=real, labels=ids).loss.item(), rel=1e-9)


def kept_sources(model: ElcForMaskedLM, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    kept = []

    def select(record: DepthHistory, sources: frozenset[int]) -> DepthHistory:
        kept.append(original(record, sources).sources)
        return original(record, sources)

    original = DepthHistory.select
    monkeypatch.setattr(DepthHistory, "select", select)
    ids, real = padded_batch(9)
    with torch.no_grad():
        model(ids, attention_mask=real)
    return kept


def test_states_that_nobody_reads_any_more_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (ids, real) = random_model("weighted-output"), padded_batch(9)
    assert kept_sources(model, monkeypatch) == [(0, 1), (0, 1, 2), (0, 1, 2, 3)]
    scalars = [layer.layer_weights.scalars for layer in model.encoder.layers]
    with torch.no_grad():
        scalars[2][1] = -torch.inf
        model.encoder.output_weights.scalars[:2] = -torch.inf
        expected = model.train()(ids, attention_mask=real).logits
        found = model.eval()(ids, attention_mask=real).logits
    assert kept_sources(model, monkeypatch) == [(0, 1), (0, 2), (2, 3)]
    assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("variant", ["elc", "ltg"])
def test_without_padding_the_loss_and_its_gradients_are_the_same(variant: str) -> None:
    model = random_model(variant).train()
    ids, real = padded_batch(16)
    real[0, 5:], real[1, 1:] = 0, 0
    labels = ids.where((real == 1) & (ids % 2 == 0), -100)
    computed: list[int] = []
    model.encoder.layers[0].feed_forward.register_forward_hook(lambda _, given, __: computed.append(given[0].shape[0]))

    def learned(padding_free: bool) -> list[torch.Tensor]:
        model.encoder.padding_free = padding_free
        model.zero_grad()
        output = model(ids, attention_mask=real, labels=labels)
        output.loss.backward()
        return [output.loss, output.logits, *(weight.grad.clone() for weight in model.parameters())]

    pairs = zip(learned(padding_free=False), learned(padding_free=True), strict=True)
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in pairs)
    assert computed == [len(ids), int(real.sum())]
    model.eval()
    with torch.no_grad():
        assert model.encoder(ids, attention_mask=real).last_hidden_state.shape[:2] == ids.shape
    assert computed[-1] == len(ids)


BAR = 1e-6
# Layers of three with trainable layer weights; the first of denseformer has none.
READERS = {"ltg": 0, "elc": 3, "elc-base": 3, "zero": 3, "normalized": 3, "weighted-output": 4, "denseformer": 3}
LONG = ("ltg", "elc", "denseformer")
"""Variants tested on 512 tokens too: without layer weights, with softmax, and without softmax."""


def difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def both(model: ElcForMaskedLM, variant: str, length: int) -> tuple[Tensor, Tensor]:
    ids, real = padded_batch(length)
    expected = logits(as_published(model), ids, real.bool(), variant=variant, heads=2)
    return model(ids, attention_mask=real).logits, expected


BY_LENGTH = pytest.mark.parametrize(
    ("variant", "length"),
    [
        *((variant, 128) for variant in VARIANTS),
        *(pytest.param(variant, 512, marks=pytest.mark.slow if variant in LONG else NIGHTLY) for variant in VARIANTS),
    ],
)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@BY_LENGTH
def test_a_variant_equals_its_equations(variant: str, length: int, implementation: str) -> None:
    model = random_model(variant)
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        found, expected = both(model, variant, length)
    assert difference(found, expected) < BAR


@BY_LENGTH
def test_gradients_equal_those_of_the_equations(variant: str, length: int) -> None:
    model = random_model(variant)
    found, expected = both(model, variant, length)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=found.dtype)
    parameters = dict(model.named_parameters())
    own = torch.autograd.grad((found * weights).sum(), list(parameters.values()), allow_unused=True)
    theirs = torch.autograd.grad((expected * weights).sum(), list(parameters.values()), allow_unused=True)
    scalars = [name for name in parameters if name.endswith("scalars")]
    assert len(scalars) == READERS[variant]
    for name, gradient, other in zip(parameters, own, theirs, strict=True):
        # A single source has weight 1 for any scalar.
        if float(other.abs().max()) > 1e-9:
            assert difference(gradient, other) < BAR, name
        else:
            assert float(gradient.abs().max()) < 1e-9, name


def test_a_text_of_padding_alone_has_numbers_and_gradients() -> None:
    ids, _ = padded_batch(9)
    for implementation in ("sdpa", "eager"):
        model = random_model("elc")
        model.set_attn_implementation(implementation)
        mask = torch.ones_like(ids)
        mask[0] = 0
        found = model(ids, attention_mask=mask).logits
        found.sum().backward()
        assert found.isfinite().all()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        alone = model(ids[1:], attention_mask=mask[1:]).logits
        assert torch.allclose(found[1:], alone, atol=1e-12)


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
        randomize(model)
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
        "tiny", variant="normalized", initialization="biased", missing_sources="keep", pad_token_id=3
    )
    config.save_pretrained(tmp_path)
    again = transformers.AutoConfig.from_pretrained(tmp_path)
    assert type(again) is ElcConfig
    assert {**again.to_dict(), "_name_or_path": ""} == config.to_dict()
