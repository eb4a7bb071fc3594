"""The demo's training and evaluation, on models with planted argmaxes."""

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from layerwise.data.demo import python_stdlib, skills
from tools.demo import callbacks as callbacks
from tools.demo import windows as module
from tools.demo.callbacks import Progress
from tools.demo.tasks import write_tasks
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
    everything = python_stdlib.list_modules()
    few = [name for split in python_stdlib.SPLITS for name in _of_split(split, everything)[:3]]
    patch.setattr(python_stdlib, "list_modules", lambda: {name: everything[name] for name in few})
    patch.setattr(python_stdlib, "read_documents", python_stdlib.read_documents.__wrapped__)


def _of_split(split: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if python_stdlib.assign_split(name) == split]


def test_special_tokens_have_the_first_two_ids(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.convert_ids_to_tokens([0, 1]) == ["<|endoftext|>", "<|pad|>"]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 0, 1)
    assert tokenizer.encode("a")[0] == 0
    assert 0 not in tokenizer.encode("a", add_special_tokens=False)


def test_digits_are_single_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "x = 2026\n\tprint('naïve 12+345 — 数')  \n\n"
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(tokens) == text
    shown = tokenizer.convert_ids_to_tokens(tokens)
    assert [token for token in shown if any(mark.isdigit() for mark in token)] == list("202612345")


@pytest.mark.parametrize("task", skills.TASKS)
def test_prompt_and_answer_tokenize_independently(tokenizer: PreTrainedTokenizerFast, task: str) -> None:
    for example in skills.draw_examples(task, "heldout", 50):
        parts = [tokenizer.encode(part, add_special_tokens=False) for part in (example.prompt, example.answer)]
        assert tokenizer.encode(example.text, add_special_tokens=False) == parts[0] + parts[1]


@pytest.mark.usefixtures("few")
def test_windows_depend_only_on_seed_and_index(tokenizer: PreTrainedTokenizerFast) -> None:
    one, same, other = (Windows(tokenizer, SMALL, seed, 100) for seed in (1, 1, 2))
    for index in (0, 7, 31):
        assert one[index]["input_ids"].equal(same[index]["input_ids"])
    assert any(not one[index]["input_ids"].equal(other[index]["input_ids"]) for index in range(8))


@pytest.mark.usefixtures("few")
def test_demo_windows_score_only_skill_answers(tokenizer: PreTrainedTokenizerFast) -> None:
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
        assert all(skills.assign_split(text.split(" =")[0] + " =") == "train" for text in whole)
    assert min(seen.values()) > 10


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    wound = Clock()
    monkeypatch.setattr(callbacks, "time", wound)
    return wound


def test_masking_share_at_text_ends(tmp_path: Path, clock: Clock) -> None:
    progress = Progress(tmp_path / "log", steps=100, warmup_steps=10, minutes=10)
    assert progress.share(25) == 0.25
    clock.now = 300.0
    assert progress.share(25) == 0.5
    assert progress.share(75) == 0.75
    clock.now = 900.0
    assert progress.share(25) == 1.0


def test_the_learning_rate_schedule(tmp_path: Path, clock: Clock) -> None:
    progress = Progress(tmp_path / "log", steps=1000, warmup_steps=10)
    rates = [progress.rate(step) for step in range(1001)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0, abs=1e-3)
    assert rates[500] == pytest.approx(0.5)
    assert rates[1000] == pytest.approx(0.0, abs=1e-12)
    assert all(later <= earlier for earlier, later in pairwise(rates[10:]))


def test_a_resumed_run_discards_rows_after_its_checkpoint(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "log"
    first = Progress(log, steps=100, warmup_steps=1, minutes=1)
    for step in (10, 20, 30):
        clock.now = float(step)
        first.write(step, loss=1.0)
    clock.now = 1000.0
    second = Progress(log, steps=100, warmup_steps=1, minutes=1)
    second.resume(20)
    assert [line["step"] for line in second.lines()] == [10, 20]
    assert second.seconds == 20.0
    assert second.share(20) == pytest.approx(1 / 3)


SHIPPED = Path(__file__).parents[3] / "docs" / "results" / "demo_tasks"


def test_shipped_tokenizer_files_are_reproducible(tmp_path: Path) -> None:
    write_tasks(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in SHIPPED.iterdir()}
    for name, text in made.items():
        for row in map(json.loads, text.splitlines() if name.endswith(".jsonl") else ()):
            assert len(set(row.get("choices", ()))) == len(row.get("choices", ()))
