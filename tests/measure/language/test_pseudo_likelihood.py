import tracemalloc
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaForMaskedLM,
)

from conftest import tiny_llama
from layerwise.errors import DataError, MeasureError
from layerwise.measure.language import pseudo_likelihood
from layerwise.measure.language.pseudo_likelihood import Passage, SentenceScorer, encode_passages, log_likelihoods
from layerwise.models import ElcConfig, ElcForMaskedLM
from tiny_tokenizers import character_tokenizer, word_tokenizer

WORDS = ["the", "file", "files", "is", "are", "empty", "of", "name", "."]
TEXTS = [
    "the file is empty .",
    "the file are empty .",
    "the files are empty .",
    "the name of the files is empty .",
    "the name",
    "empty",
    "unheard of",
]
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.5,
    "pad_token_id": 0,
}


def model_of(kind: str, vocabulary: int) -> nn.Module:
    torch.manual_seed(0)
    size = {"vocab_size": vocabulary, "max_position_embeddings": 32}
    models: dict[str, Any] = {
        "bert": lambda: BertForMaskedLM(BertConfig(**SMALL, **size)),
        "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**SMALL, **size)),
        "modernbert": lambda: ModernBertForMaskedLM(
            ModernBertConfig(**SMALL, **size, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
        ),
        "distilbert": lambda: DistilBertForMaskedLM(
            DistilBertConfig(**size, dim=16, n_layers=2, n_heads=2, hidden_dim=32, initializer_range=0.5)
        ),
        "elc": lambda: ElcForMaskedLM(
            ElcConfig.of_size("tiny", vocab_size=vocabulary, hidden_size=16, num_hidden_layers=3, num_attention_heads=2)
        ),
    }
    return models[kind]().eval()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def speaker() -> SentenceScorer:
    tokenizer = word_tokenizer(WORDS)
    return SentenceScorer.from_model(model_of("bert", len(tokenizer)), tokenizer)


def slowly(model: nn.Module, tokenizer: PreTrainedTokenizerBase, text: str, temperature: float = 1.0) -> float:
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    added = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    total = 0.0
    with torch.no_grad():
        for position, token in enumerate(ids[0].tolist()):
            if token not in added:
                copy = ids.clone()
                copy[0, position] = tokenizer.mask_token_id
                logits = model(input_ids=copy).logits[0, position].double() / temperature
                total += float(logits.log_softmax(-1)[token])
    return total


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "modernbert", "elc"])
def test_score_matches_masking_one_token_at_a_time(kind: str, temperature: float) -> None:
    tokenizer = word_tokenizer(WORDS)
    model = model_of(kind, len(tokenizer))
    speaker = SentenceScorer.from_model(model, tokenizer)
    assert speaker.head is not None, "the head should be seen to read one position alone"
    given = [Passage(text) for text in TEXTS]
    wanted = [slowly(model, tokenizer, text, temperature) for text in TEXTS]
    for way in (speaker, replace(speaker, head=None)):
        found = log_likelihoods(way, given, temperature=temperature)
        assert found == pytest.approx(wanted, abs=1e-5)
    assert np.ptp(wanted) > 1, "a model that likes everything equally would hide a wrong mask"


def test_tokenizer_without_special_tokens_keeps_every_word() -> None:
    tokenizer = character_tokenizer()
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    model = model_of("bert", len(tokenizer))
    found = log_likelihoods(SentenceScorer.from_model(model, tokenizer), [Passage("abc")])
    assert found == pytest.approx([slowly(model, tokenizer, "abc")], abs=1e-5)


def test_batches_and_chunks_do_not_change_scores(speaker: SentenceScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    together = log_likelihoods(speaker, [Passage(text) for text in TEXTS])
    alone = np.concatenate([log_likelihoods(speaker, [Passage(text)]) for text in TEXTS])
    assert alone == pytest.approx(together, abs=1e-5)
    monkeypatch.setattr(pseudo_likelihood, "MAX_LOGITS", len(speaker.tokenizer))
    monkeypatch.setattr(pseudo_likelihood, "MAX_COPIED_TOKENS", 1)
    monkeypatch.setattr(pseudo_likelihood, "BATCH_TOKENS", 1)
    assert log_likelihoods(speaker, [Passage(text) for text in TEXTS]) == pytest.approx(together, abs=1e-5)


def test_repeated_sentences_are_computed_once(speaker: SentenceScorer) -> None:
    rows: list[int] = []
    handle = speaker.model.register_forward_hook(lambda _, args, output: rows.append(output.logits.shape[:2].numel()))
    for texts, copies in (
        (["the file is empty"], 4),
        (["the file is empty"] * 2, 4),
        (["the file is empty", "the file are empty"], 7),  # with the differing word masked the two are one copy
    ):
        rows.clear()
        log_likelihoods(speaker, [Passage(text) for text in texts])
        assert sum(rows) == copies
    handle.remove()


def test_context_is_excluded_from_the_sum(speaker: SentenceScorer) -> None:
    text = "the name of the file"
    whole, rest = log_likelihoods(speaker, [Passage(text), Passage(text, len("the name "))])
    single = []
    for start, end in ((0, 3), (3, 8)):
        line = encode_passages(speaker.tokenizer, [Passage(text)], "masked_token")[0]
        for position in line.scored[start:end][: 2 if start == 0 else None]:
            ids = torch.tensor([line.ids])
            ids[0, position] = speaker.tokenizer.mask_token_id
            with torch.no_grad():
                logits = speaker.model(input_ids=ids).logits[0, position]
            single.append(float(logits.log_softmax(-1)[line.ids[position]]))
    assert whole - rest == pytest.approx(sum(single[:2]), abs=1e-5)


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_causal_score_is_the_sum_over_next_tokens(start: bool, temperature: float) -> None:
    tokenizer = character_tokenizer(start=start)
    model = tiny_llama(2, vocabulary=len(tokenizer))
    texts = ["a name", "ab", "another name"]
    found = log_likelihoods(
        SentenceScorer.from_model(model, tokenizer), [Passage(text) for text in texts], temperature=temperature
    )
    for text, value in zip(texts, found, strict=True):
        bare = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[1, *bare] if start else bare])
        with torch.no_grad():
            logits = model(ids).logits[0, :-1].double() / temperature
        wanted = logits.log_softmax(-1).gather(-1, ids[0, 1:, None]).sum()
        assert value == pytest.approx(float(wanted), abs=1e-4)


def test_long_sentences_are_rejected_or_skipped(speaker: SentenceScorer) -> None:
    given = [Passage("the file"), Passage("the " * 40), Passage("the " * 50)]
    with pytest.raises(DataError, match=r"at most 32 tokens .* 2 of 3 .* 52 tokens"):
        log_likelihoods(speaker, given)
    found = log_likelihoods(speaker, given, too_long="skip")
    assert np.isnan(found).tolist() == [False, True, True]


class WholeSequenceHead(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states - states.mean(dim=1, keepdim=True)


def test_head_over_the_sequence_gets_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = word_tokenizer(WORDS)
    model = model_of("bert", len(tokenizer))
    plain = model.cls
    monkeypatch.setattr(model, "cls", nn.Sequential(WholeSequenceHead(), plain))
    speaker = SentenceScorer.from_model(model, tokenizer)
    assert speaker.head is None
    found = log_likelihoods(speaker, [Passage(TEXTS[0])])
    assert found == pytest.approx([slowly(model, tokenizer, TEXTS[0])], abs=1e-5)


def test_memory_is_bounded(speaker: SentenceScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudo_likelihood, "MAX_COPIED_TOKENS", 4 * 32**2)
    draw = Random(0)
    peaks = []
    for count in (4, 40):
        texts = [Passage(" ".join(draw.choices(WORDS, k=30))) for _ in range(count)]
        tracemalloc.start()
        log_likelihoods(speaker, texts)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The text takes some kilobytes; 30 copies of its 33 numbers, held several times, took ten times that.
    assert peaks[1] - peaks[0] < 36 * 3_000


def test_unscorable_models_are_rejected() -> None:
    tokenizer = word_tokenizer(WORDS)
    with pytest.raises(MeasureError, match="got BertModel"):
        SentenceScorer.from_model(BertModel(BertConfig(**SMALL, vocab_size=20)), tokenizer)
    with pytest.raises(DataError, match="requires a tokenizer with a mask token"):
        SentenceScorer.from_model(model_of("bert", 120), character_tokenizer())
    small = SentenceScorer.from_model(model_of("bert", 7), tokenizer)
    with pytest.raises(DataError, match=r"vocabulary size 7"):
        log_likelihoods(small, [Passage("the empty name")])
    speaker = SentenceScorer.from_model(model_of("bert", len(tokenizer)), tokenizer)
    with torch.no_grad():
        next(iter(speaker.model.parameters())).fill_(float("nan"))
    with pytest.raises(MeasureError, match="must be finite"):
        log_likelihoods(speaker, [Passage("the")])
