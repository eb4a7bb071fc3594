"""The grading rules, on models whose every arg-max is planted."""

import math
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from conftest import tiny_llama
from layerwise.data.demo.python_stdlib import PythonText
from layerwise.data.demo.skills import Example
from layerwise.errors import DataError
from tools.demo.grading import TextGrade, exact_matches, generated, text_grade


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    marks = ["<|endoftext|>", "<|pad|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytewise = Tokenizer(models.BPE(vocab={mark: index for index, mark in enumerate(marks)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=bytewise, bos_token=marks[0], eos_token=marks[0], pad_token=marks[1]
    )


@dataclass
class Oracle:
    blind: set[tuple[int, int]] = field(default_factory=set)
    device: str = "cpu"

    def eval(self) -> None:
        """A model's own method, with nothing to switch here."""

    def __call__(self, input_ids: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        following = functional.pad(input_ids[:, 1:], (0, 1))
        for row, position in self.blind:
            following[row, position] = 0
        return SimpleNamespace(logits=functional.one_hot(following, 258).float())


def test_one_wrong_answer_token_is_no_match_and_a_wrong_prompt_token_does_not_count(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    sample = [Example("sort", f"sort {letters} =", " a b c\n") for letters in ("c b a", "b a c", "a b c d")]
    first, last = len(sample[0].prompt), len(sample[1].text) - 1
    assert exact_matches(Oracle(), tokenizer, sample) == [True, True, True]
    assert exact_matches(Oracle({(0, first), (1, last)}), tokenizer, sample) == [False, False, True]
    assert exact_matches(Oracle({(0, first - 1), (2, 3)}), tokenizer, sample) == [True, True, True]


def test_more_examples_than_one_batch_keep_their_order(tokenizer: PreTrainedTokenizerFast) -> None:
    """The oracle is blind at the same position of the sixth row in each batch, where all answers begin."""
    sample = [Example("copy", f"copy {index:02} =", f" {index:02}\n") for index in range(80)]
    verdicts = exact_matches(Oracle({(5, len(sample[0].prompt))}), tokenizer, sample)
    assert [index for index, right in enumerate(verdicts) if not right] == [5, 37, 69]


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    drawn = tiny_llama(2, vocabulary=258)
    letters = tokenizer.encode("abcdefghijklmnopqrstuvwxyz", add_special_tokens=False)
    others = [token for token in range(258) if token not in letters]
    drawn.lm_head.weight.data[others] = 0.0
    return drawn


def test_the_loss_on_text_is_the_models_own(tokenizer: PreTrainedTokenizerFast, model: LlamaForCausalLM) -> None:
    text = "".join(chr(32 + index % 90) for index in range(40))
    grade = text_grade(model, tokenizer, [PythonText("one", "prose", text)], window=16, most_windows=9)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    windows = torch.tensor([[0, *tokens[start : start + 15]] for start in (0, 15)])
    expected = model(input_ids=windows, labels=windows).loss
    assert grade.nats == pytest.approx(expected.item(), rel=1e-5)
    assert (grade.tokens, grade.bytes) == (30, 30)


def test_windows_are_counted_per_document_and_short_ones_left_out(
    tokenizer: PreTrainedTokenizerFast, model: LlamaForCausalLM
) -> None:
    documents = [PythonText(name, "prose", "x" * length) for name, length in (("a", 100), ("b", 14), ("c", 15))]
    assert text_grade(model, tokenizer, documents, window=16, most_windows=2).tokens == 45
    with pytest.raises(DataError, match="fills a window of 16"):
        text_grade(model, tokenizer, documents[1:2], window=16, most_windows=2)


def test_bits_per_byte_do_not_depend_on_the_tokens() -> None:
    fine, coarse = TextGrade(math.log(2), tokens=100, bytes=100), TextGrade(math.log(16), tokens=25, bytes=100)
    assert fine.bits_per_byte == pytest.approx(1.0)
    assert coarse.bits_per_byte == pytest.approx(1.0)
    assert coarse.bytes_per_token == 4


def test_generate_writes_what_the_arg_max_says(tokenizer: PreTrainedTokenizerFast, model: LlamaForCausalLM) -> None:
    """The greedy text as answer is an exact match; with one token changed, it is not."""
    question = Example("free", "ab =", "?" * 6)
    written = generated(model, tokenizer, question)
    tokens = tokenizer.encode(written, add_special_tokens=False)
    assert len(tokens) == 6
    changed = written[:-1] + ("x" if written[-1] != "x" else "y")
    verdicts = exact_matches(model, tokenizer, [Example("free", "ab =", written), Example("free", "ab =", changed)])
    assert verdicts == [True, False]
