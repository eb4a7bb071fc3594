from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from layerwise.errors import MeasureError
from layerwise.measure.gradients.attribution import TOLERANCE, MarkedText, feature_shares, integrated_gradients
from tiny_tokenizers import word_tokenizer

WORDS = ["the", "dog", "barks", "sleeps", "now"]
TEXTS = [MarkedText("the dog barks now", ((8, 13),), ((0, 3),)), MarkedText("now a dog sleeps", ((10, 16),), ((4, 5),))]


class Reader(nn.Module):
    def __init__(self, *words: str) -> None:
        super().__init__()
        tokenizer = word_tokenizer(WORDS)
        self.table = nn.Embedding(len(tokenizer), 3)
        self.config = SimpleNamespace(num_labels=2)
        with torch.no_grad():
            self.table.weight[:, 0] = 0
            self.table.weight[tokenizer.convert_tokens_to_ids(list(words)), 0] = 1

    def get_input_embeddings(self) -> nn.Embedding:
        return self.table

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Any:
        read = (inputs_embeds[..., 0] * attention_mask).sum(1) ** 3
        return SimpleNamespace(logits=torch.stack([torch.zeros_like(read), read], 1))


def test_decisive_words_receive_the_full_attribution() -> None:
    shares = feature_shares(Reader("barks", "sleeps"), word_tokenizer(WORDS), TEXTS, 16)
    assert shares.linguistic == pytest.approx((1, 1))
    assert shares.surface == pytest.approx((0, 0))
    assert shares.linguistic_tokens == shares.surface_tokens == (0.25, 0.25), "special tokens are not counted"
    both = feature_shares(Reader("barks", "the", "now"), word_tokenizer(WORDS), TEXTS[:1], 16)
    assert (both.linguistic, both.surface) == (pytest.approx((1 / 3,)), pytest.approx((1 / 3,)))


def test_polynomials_are_integrated_exactly() -> None:
    found = integrated_gradients(lambda x: x[:, :, 0].prod(1), torch.tensor([[[1.0], [2.0]]]), torch.zeros(1, 2, 1), 2)
    assert found.tokens.tolist() == [pytest.approx([1.0, 1.0])]
    assert found.gaps.item() == pytest.approx(0, abs=1e-6)


def test_attributions_sum_to_the_difference_of_logits() -> None:
    torch.manual_seed(0)
    tokenizer = word_tokenizer(WORDS)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    model = BertForSequenceClassification(config)
    shares = feature_shares(model, tokenizer, [*TEXTS, MarkedText("dog", (), ())], 16)
    assert shares.gap <= TOLERANCE
    assert all(0 < share < 1 for share in (*shares.linguistic[:2], *shares.surface[:2]))
    assert model.training, "the model is as it was"
    assert all(weight.grad is None for weight in model.parameters())


def test_other_numbers_of_labels_are_rejected() -> None:
    model = Reader("the")
    model.config = SimpleNamespace(num_labels=3)
    with pytest.raises(MeasureError, match="binary classifier, got 3 labels"):
        feature_shares(model, word_tokenizer(WORDS), TEXTS, 16)
