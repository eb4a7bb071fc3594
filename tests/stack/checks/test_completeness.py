"""Names decide which tensors a checkpoint may lack or have in addition."""

import doctest

import pytest
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, PreTrainedModel

from layerwise.errors import CheckpointError
from layerwise.stack.checks import completeness
from layerwise.stack.checks.completeness import check_complete, listed

BERT = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)


def report(**keys: list[str]) -> dict[str, list[str]]:
    return {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []} | keys


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(completeness).failed == 0


@pytest.fixture(scope="module")
def models() -> dict[str, PreTrainedModel]:
    return {kind.__name__: kind(BERT) for kind in (BertModel, BertForMaskedLM, BertForSequenceClassification)}


@pytest.mark.parametrize(
    ("kind", "key", "name", "right"),
    [
        ("BertModel", "missing_keys", "pooler.dense.weight", True),
        ("BertModel", "missing_keys", "embeddings.word_embeddings.weight", False),
        ("BertForMaskedLM", "missing_keys", "cls.predictions.bias", False),
        ("BertForSequenceClassification", "missing_keys", "bert.pooler.dense.weight", False),
        ("BertModel", "unexpected_keys", "cls.predictions.bias", True),
        ("BertModel", "unexpected_keys", "encoder.layer.2.output.dense.bias", False),
        ("BertModel", "unexpected_keys", "bert.encoder.layer.2.output.dense.bias", False),
        ("BertForMaskedLM", "unexpected_keys", "bert.pooler.dense.weight", True),
        ("BertForMaskedLM", "unexpected_keys", "cls.seq_relationship.bias", True),
        ("BertForMaskedLM", "unexpected_keys", "cls.predictions.transform.dense.scale", False),
        ("BertForMaskedLM", "unexpected_keys", "classifier.weight", True),
        ("BertForMaskedLM", "unexpected_keys", "bert.embeddings.position_ids", True),
        ("BertForMaskedLM", "unexpected_keys", "bert.embeddings.other.weight", False),
        ("BertForMaskedLM", "unexpected_keys", "encoder.layer.2.output.dense.bias", False),
    ],
)
def test_what_may_be_missing_or_left(
    models: dict[str, PreTrainedModel], kind: str, key: str, name: str, right: bool
) -> None:
    if right:
        check_complete("here", models[kind], report(**{key: [name]}))
        return
    with pytest.raises(CheckpointError, match=rf"here (lacks|holds) 1 tensor .*{name}"):
        check_complete("here", models[kind], report(**{key: [name]}))


def test_a_new_head_is_drawn_and_nothing_else(models: dict[str, PreTrainedModel]) -> None:
    model = models["BertForSequenceClassification"]
    head = ["classifier.weight", "bert.pooler.dense.weight"]
    check_complete("here", model, report(missing_keys=head), new_head=True)
    with pytest.raises(CheckpointError, match=r"lacks 1 tensor .* bert\.embeddings\.LayerNorm\.weight;"):
        check_complete("here", model, report(missing_keys=[*head, "bert.embeddings.LayerNorm.weight"]), new_head=True)


def test_many_tensors_are_named_in_few_words() -> None:
    names = [f"model.layers.{layer}.{part}.weight" for layer in range(40) for part in ("attn", "mlp")]
    assert listed(names) == "model.layers.0-39.{attn.weight, mlp.weight}"
    experts = [f"model.layers.1.experts.{expert}.up.weight" for expert in range(60)]
    assert listed(experts) == "model.layers.1.experts.*.up.weight"
    assert len(listed(f"part_{'x' * number}.weight" for number in range(100))) < 300
