"""The longest text: rows that no token can have are not counted, and what is longer is refused before it runs."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    EsmConfig,
    EsmForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    MPNetConfig,
    MPNetForMaskedLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from conftest import tiny_llama
from layerwise.data.suites.classification import Labelled
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.errors import DataError
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.measure.language.loss import window_losses
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.plan import Plan
from layerwise.stack import load
from layerwise.stack.max_length import longest_input
from layerwise.train.fine_tuning import FineTuningConfig, _encoded
from measure.language.test_loss import vision_stack
from tiny_tokenizers import word_tokenizer

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
    with pytest.raises(DataError, match=f"the model has {longest} positions: use --max-length {longest} or less"):
        tokenize(stack, corpus, length=longest + 1)


def test_sentences_and_fine_tuning_know_the_longest_text_too() -> None:
    tokenizer = _tokenizer()
    model = roberta(int(tokenizer.pad_token_id), len(tokenizer))
    longest = ROWS - 1 - int(tokenizer.pad_token_id)
    assert SentenceScorer.of(model, tokenizer).positions == longest
    (row,) = _encoded([Labelled("b c " * 40, None, 0)], model, tokenizer, FineTuningConfig())
    assert len(row["input_ids"]) == longest
    model(input_ids=torch.tensor([row["input_ids"]]))
