"""The demo's tokenizer and its training windows."""

from collections.abc import Iterable

import pytest
from transformers import PreTrainedTokenizerFast

from layerwise.data.demo import python_stdlib, skills
from tools.demo import windows as module
from tools.demo.windows import Mixture, Windows, train_tokenizer

SMALL = Mixture(
    batch=2,
    window=64,
    long_window=128,
    long_every=4,
    skill_share=0.5,
    skill_weights={"arithmetic": 0.7, "sort": 0.3},
    prose_share=0.5,
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TOKENIZER_EXAMPLES", 500)
        _read_few_modules(patch)
        return train_tokenizer(512)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    _read_few_modules(monkeypatch)


def _read_few_modules(patch: pytest.MonkeyPatch) -> None:
    everything = python_stdlib.modules()
    few = [name for split in python_stdlib.SPLITS for name in _of_split(split, everything)[:3]]
    patch.setattr(python_stdlib, "modules", lambda: {name: everything[name] for name in few})
    patch.setattr(python_stdlib, "_documents", python_stdlib._documents.__wrapped__)


def _of_split(split: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if python_stdlib.split_of(name) == split]


def test_special_tokens_have_the_first_two_ids(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.convert_ids_to_tokens([0, 1]) == ["<|endoftext|>", "<|pad|>"]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 0, 1)
    assert tokenizer.encode("a")[0] == 0
    assert 0 not in tokenizer.encode("a", add_special_tokens=False)


def test_digits_stand_alone_and_any_text_comes_back(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "x = 2026\n\tprint('naïve 12+345 — 数')  \n\n"
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(tokens) == text
    shown = tokenizer.convert_ids_to_tokens(tokens)
    assert [token for token in shown if any(mark.isdigit() for mark in token)] == list("202612345")


@pytest.mark.parametrize("task", skills.TASKS)
def test_prompt_and_answer_cut_the_same_together_as_apart(tokenizer: PreTrainedTokenizerFast, task: str) -> None:
    for example in skills.examples(task, "heldout", 50):
        parts = [tokenizer.encode(part, add_special_tokens=False) for part in (example.prompt, example.answer)]
        assert tokenizer.encode(example.text, add_special_tokens=False) == parts[0] + parts[1]


@pytest.mark.usefixtures("few")
def test_a_window_is_a_function_of_seed_and_index(tokenizer: PreTrainedTokenizerFast) -> None:
    one, same, other = (Windows(tokenizer, SMALL, seed, 100) for seed in (1, 1, 2))
    for index in (0, 7, 31):
        assert one[index]["input_ids"].equal(same[index]["input_ids"])
    assert any(not one[index]["input_ids"].equal(other[index]["input_ids"]) for index in range(8))


@pytest.mark.usefixtures("few")
def test_windows_are_full_and_only_answers_of_skills_are_scored(tokenizer: PreTrainedTokenizerFast) -> None:
    windows = Windows(tokenizer, SMALL, 1, 80)
    lengths = [len(windows[index]["input_ids"]) for index in range(len(windows))]
    assert lengths == ([64] * 6 + [128] * 2) * 10
    assert sum(lengths) == SMALL.tokens(steps=40)
    seen = {"text": 0, "skills": 0}
    for index in range(len(windows)):
        tokens, labels = windows[index]["input_ids"], windows[index]["labels"]
        assert tokens[0] == tokenizer.bos_token_id
        assert ((labels == tokens) | (labels == -100)).all()
        if (labels == tokens).all():
            seen["text"] += 1
            continue
        seen["skills"] += 1
        documents = tokenizer.decode(tokens[labels != -100]).split("<|endoftext|>")
        assert documents.pop() == ""
        whole = tokenizer.decode(tokens).split("<|endoftext|>")[1 : 1 + len(documents)]
        assert all(text.endswith(f" ={answer}") for text, answer in zip(whole, documents, strict=True))
        assert all(skills.split_of(text.split(" =")[0] + " =") == "train" for text in whole)
    assert min(seen.values()) > 10
