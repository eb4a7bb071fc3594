"""Inputs of models: what is made up for a head, and the longest text."""

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import (
    CLIPVisionConfig,
    EsmConfig,
    EsmForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    MPNetConfig,
    MPNetForMaskedLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from conftest import tiny_llama
from layerwise.data.suites.classification import LabeledText
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.errors import DataError, MeasureError, UnsupportedModelError
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.measure.language.loss import window_losses
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.plan import Plan
from layerwise.stack import load, verify
from layerwise.stack.inputs import example_inputs, main_tensor
from layerwise.stack.max_length import longest_input
from layerwise.train.fine_tuning import FineTuningConfig, _encoded
from measure.language.test_loss import vision_stack
from tier import first_fast
from tiny_tokenizers import word_tokenizer

TEXT: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IMAGE: dict[str, Any] = {"image_size": 16, "patch_size": 4, "num_labels": 7}
VIDEO: dict[str, Any] = {**IMAGE, "num_frames": 4, "tubelet_size": 2}
SOUND: dict[str, Any] = {
    "conv_dim": [8, 8],
    "conv_kernel": [4, 4],
    "conv_stride": [4, 4],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "tdnn_dim": [8],
    "tdnn_kernel": [1],
    "tdnn_dilation": [1],
    "feature_projection_input_dim": 8,
}
SIDES: dict[str, Any] = {
    **{f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("ffn_dim", "attention_heads")},
    "encoder_layers": 3,
    "decoder_layers": 3,
    "d_model": 16,
    "decoder_start_token_id": 1,
    "num_mel_bins": 8,
    "max_source_positions": 20,
}
HEADS: dict[str, dict[str, Any]] = {
    "BertForMultipleChoice": {},
    "RobertaForMultipleChoice": {},
    "DebertaV2ForMultipleChoice": {},
    "BertForNextSentencePrediction": {},
    "BertForPreTraining": {},
    "ElectraForTokenClassification": {},
    "ElectraForPreTraining": {},
    "LlamaForSequenceClassification": {},
    "LlamaForQuestionAnswering": {},
    "ViTForMaskedImageModeling": IMAGE,
    "BeitForMaskedImageModeling": IMAGE,
    "VideoMAEForVideoClassification": VIDEO,
    "CLIPTextModel": {},
    "CLIPVisionModel": IMAGE,
    "Wav2Vec2ForCTC": SOUND,
    "HubertForSequenceClassification": SOUND,
    "Wav2Vec2ForXVector": SOUND,
    "Wav2Vec2BertForCTC": SOUND,
    "ASTForAudioClassification": {**IMAGE, "max_length": 32, "num_mel_bins": 16},
    "WhisperForAudioClassification": SIDES,
    "BartForSequenceClassification": {**SIDES, "layers": "model.encoder.layers"},
    "BartForCausalLM": SIDES,
}


def loud(model: Any) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
    return model.eval()


def model_of(name: str, settings: dict[str, Any]) -> PreTrainedModel:
    kind = getattr(transformers, name)
    return loud(kind(kind.config_class(**{**TEXT, **settings})))


@pytest.mark.parametrize("name", first_fast(HEADS, count=1))
@torch.no_grad()
def test_every_head_is_proved_on_inputs_of_its_own(name: str) -> None:
    settings = dict(HEADS[name])
    path = settings.pop("layers", None)
    model = model_of(name, settings)
    stack, inputs = load(model, layers=path), example_inputs(model)
    assert inputs is not None
    stepwise = stack.logits("2 0 0", **inputs)  # proved on the same inputs when it was loaded
    with stack.under("2 0 0"):
        inside = main_tensor(model(**inputs))
    torch.testing.assert_close(inside, stepwise, rtol=1e-4, atol=1e-4)
    assert (stepwise - main_tensor(model(**inputs))).abs().max() > 1e-5


def llava(feature_layer: int) -> Any:
    sight = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 6, "num_attention_heads": 2}
    config = LlavaConfig(
        text_config=LlamaConfig(**TEXT).to_dict(),
        vision_config=CLIPVisionConfig(**sight, image_size=28, patch_size=14, projection_dim=16).to_dict(),
        image_token_index=90,
        vision_feature_layer=feature_layer,
    )
    return loud(LlavaForConditionalGeneration(config))


@pytest.mark.parametrize("feature_layer", [-1, -2])
@torch.no_grad()
def test_a_vision_tower_is_reached_by_images_and_equals_surgery(feature_layer: int) -> None:
    path = "model.vision_tower.encoder.layers"
    model = llava(feature_layer)
    stack, inputs = load(model, layers=path), example_inputs(model)
    assert inputs is not None
    assert set(inputs) == {"input_ids", "pixel_values"}
    assert int((inputs["input_ids"] == 90).sum()) == 2 * 4, "a token for each feature of an image"
    for order in ((0, 1, 3, 4, 5), (0, 1, 1, 2, 5, 4)):
        rebuilt = llava(feature_layer)
        rebuilt.load_state_dict(model.state_dict())
        tower = rebuilt.model.vision_tower.encoder
        tower.layers = nn.ModuleList(copy.deepcopy(tower.layers[layer]) for layer in order)
        tower.config.num_hidden_layers = len(order)
        plan = " ".join(map(str, order))
        with stack.under(plan):
            torch.testing.assert_close(model(**inputs).logits, rebuilt(**inputs).logits, rtol=1e-4, atol=1e-5)
        if feature_layer == -2:  # the step before the last visit is read, which no single state tells
            with pytest.raises(UnsupportedModelError, match="run one by one"):
                stack.logits(plan, **inputs)
    with pytest.raises(UnsupportedModelError, match="such as pixel_values"):
        stack.inspect(input_ids=inputs["input_ids"][:, -3:])


def test_a_model_whose_inputs_cannot_be_made_up_is_opened_and_asks_for_them() -> None:
    model = model_of("LayoutLMv3Model", {"input_size": 16})  # its boxes have another width than its states
    stack = load(model)
    assert example_inputs(model) is None
    with pytest.raises(
        UnsupportedModelError, match=r"LayoutLMv3Model fails on the inputs input_ids \(RuntimeError: The size"
    ):
        stack.inspect(input_ids=torch.ones(1, 4, dtype=torch.long))
    with pytest.raises(MeasureError, match="cannot build example inputs"):
        verify(stack, "0")


ROWS = 32
SMALL: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": ROWS,
}


def roberta(padding: int = 1, vocabulary: int = 20) -> RobertaForMaskedLM:
    torch.manual_seed(0)
    return RobertaForMaskedLM(RobertaConfig(**{**SMALL, "vocab_size": vocabulary}, pad_token_id=padding)).eval()


@pytest.mark.parametrize(
    ("model", "longest"),
    [
        (roberta(1), ROWS - 2),
        (roberta(0), ROWS - 1),
        (roberta(5), ROWS - 6),
        (MPNetForMaskedLM(MPNetConfig(**SMALL)), ROWS - 2),
        (EsmForMaskedLM(EsmConfig(**SMALL, position_embedding_type="absolute", pad_token_id=1)), ROWS - 2),
        (EsmForMaskedLM(EsmConfig(**SMALL, position_embedding_type="rotary", pad_token_id=1)), ROWS),
        (OPTForCausalLM(OPTConfig(**SMALL, ffn_dim=32, word_embed_proj_dim=16)), ROWS),  # a table of two rows more
        (GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=2, n_positions=ROWS)), ROWS),
        (tiny_llama(1), 128),
        (vision_stack().model, None),
        (nn.Linear(2, 2), None),
    ],
    ids=["roberta", "padding 0", "padding 5", "mpnet", "esm", "esm rotary", "opt", "gpt2", "llama", "vit", "module"],
)
def test_the_longest_text_is_seen_and_not_only_read(model: nn.Module, longest: int | None) -> None:
    modes = [module.training for module in model.modules()]
    assert longest_input(model) == longest
    assert [module.training for module in model.modules()] == modes


def _tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer(["b", "c"])


def test_a_window_of_all_positions_is_scored_and_a_longer_one_is_refused_with_a_sentence() -> None:
    tokenizer = _tokenizer()
    stack = load(roberta(int(tokenizer.pad_token_id), len(tokenizer)), tokenizer=tokenizer)
    longest = longest_input(stack.model)
    assert longest == ROWS - 1 - int(tokenizer.pad_token_id)
    corpus = Corpus("words", (Document("d", "b c " * 40, task="text"),))
    reading = tokenize(stack, corpus)
    assert reading.length == longest == max(batch.inputs["input_ids"].shape[1] for batch in reading.batches)
    for batch in reading.batches:
        state = stack.run(Plan.identity(2), stack.capture(**batch.inputs))
        assert all(loss.nll > 0 for loss in window_losses(stack, state, batch))
    with pytest.raises(DataError, match=f"--max-length must be at most the {longest} positions"):
        tokenize(stack, corpus, length=longest + 1)


def test_sentences_and_fine_tuning_know_the_longest_text_too() -> None:
    tokenizer = _tokenizer()
    model = roberta(int(tokenizer.pad_token_id), len(tokenizer))
    longest = ROWS - 1 - int(tokenizer.pad_token_id)
    assert SentenceScorer.from_model(model, tokenizer).positions == longest
    (row,) = _encoded([LabeledText("b c " * 40, None, 0)], model, tokenizer, FineTuningConfig())
    assert len(row["input_ids"]) == longest
    model(input_ids=torch.tensor([row["input_ids"]]))
