"""The demo's texts have correct answers, disjoint splits and frozen files."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.data.demo import corpus, python_stdlib, skills
from layerwise.data.demo.corpus import build_demo_splits, demo_corpus
from layerwise.data.demo.skills import Example, draw_examples
from layerwise.data.text.language_modeling import TokenWindows
from layerwise.errors import DataError
from tiny_tokenizers import character_tokenizer


def _solved(example: Example) -> str:
    word, *rest = example.prompt.removesuffix(" =").split(" ")
    if word == "calc":
        terms = re.findall(r"[+-]?\d+", rest[0])
        values = [str(eval("".join(terms[:count]))) for count in range(2, len(terms) + 1)]
        assert 3 <= len(terms) <= 5
        assert all(10 <= int(value) <= 99 for value in (terms[0], *values))
        assert all(1 <= abs(int(term)) <= 9 for term in terms[1:])
    elif word == "close":
        text = "".join(rest)
        while (shorter := re.sub(r"\(\)|\[\]|\{\}", "", text)) != text:
            text = shorter
        values = [{"(": ")", "[": "]", "{": "}"}[mark] for mark in text[::-1]]
    else:
        values = {"copy": rest, "reverse": rest[::-1], "sort": sorted(rest)}[word]
    return f" {' '.join(values)}\n"


@given(st.sampled_from(skills.TASKS), st.sampled_from(skills.SPLITS), st.integers(0, 10_000))
def test_skill_answers_are_correct(task: str, split: str, seed: int) -> None:
    for example in draw_examples(task, split, 5, seed):
        assert (example.task, example.answer) == (task, _solved(example))
        assert len(example.answer) > 2
        assert skills.assign_split(example.prompt) == split


def test_demo_texts_are_frozen() -> None:
    assert [draw_examples(task, "heldout", 1)[0].text for task in skills.TASKS] == [
        "calc 72+4+5+3-3 = 76 81 84 81\n",
        "reverse s q t m = m t q s\n",
        "sort v j w l h y = h j l v w y\n",
        "close { } [ { } ] [ ( ) ] [ = ]\n",
    ]
    assert sum(skills.assign_split(f"sort {number} =") == "heldout" for number in range(4096)) == 492
    heldout = {"collections", "dataclasses", "inspect", "json", "logging", "queue", "tkinter"}
    train = {"argparse", "asyncio", "email", "http", "os", "re", "socket", "typing", "unittest", "zipfile"}
    assert {python_stdlib.assign_split(name) for name in heldout} == {"heldout"}
    assert {python_stdlib.assign_split(name) for name in train} == {"train"}


@pytest.mark.slow
def test_modules_are_in_exactly_one_split() -> None:
    texts = {
        (split, kind): {each.module: each.text for each in python_stdlib.read_documents(split, kind)}
        for split in python_stdlib.SPLITS
        for kind in python_stdlib.KINDS
    }
    train, heldout = (set(texts[split, "code"]) for split in python_stdlib.SPLITS)
    assert not train & heldout
    assert {"argparse", "asyncio.tasks"} <= train
    assert {"json", "json.decoder", "collections"} <= heldout
    size: Counter[str] = Counter()
    for (split, _), of_modules in texts.items():
        size[split] += sum(map(len, of_modules.values()))
    assert size["train"] > 4_000_000
    assert 0.05 < size["heldout"] / size["train"] < 0.4


def test_prose_is_the_standard_library_documentation() -> None:
    parts = {part for module in python_stdlib.list_modules() for part in module.split(".")}
    assert parts.isdisjoint({"test", "tests", "idlelib", "lib2to3", "encodings", "site-packages"})
    prose, code = (
        next(each.text for each in python_stdlib.read_documents("heldout", kind) if each.module == "json.decoder")
        for kind in ("prose", "code")
    )
    assert "json.decoder.JSONDecoder\nSimple JSON" in prose
    assert "json.decoder.JSONDecoder.raw_decode\n" in prose
    assert ("def " in prose, "def raw_decode" in code) == (False, True)


def test_unreadable_modules_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_stdlib.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="has no Python source"):
        python_stdlib.list_modules()
    written = {"fine": b'"""Fine."""\n', "latin": b'"""caf\xe9"""\n', "broken": b"def (:\n", "empty": b""}
    for name, content in written.items():
        (tmp_path / f"{name}.py").write_bytes(content)
    modules = python_stdlib.list_modules()
    assert {name: python_stdlib._text(name, path, "prose").strip() for name, path in modules.items()} == {
        "broken": "",
        "empty": "",
        "fine": "fine\nFine.",
        "latin": "",
    }


def test_the_demo_corpus_scores_skill_answers() -> None:
    found = demo_corpus(texts=10, characters=200, questions=3)
    assert Counter(each.task for each in found.documents) == {"stdlib": 10, **dict.fromkeys(skills.TASKS, 3)}
    heldout = {
        f"stdlib/{kind}/{each.module}": each.text
        for kind in python_stdlib.KINDS
        for each in python_stdlib.read_documents("heldout", kind)
    }
    asked = [each for task in skills.TASKS for each in draw_examples(task, "heldout", 3)]
    assert [(each.prompt, each.answer) for each in found.documents if each.task != "stdlib"] == [
        (each.prompt, each.answer) for each in asked
    ]
    for document in found.documents[:10]:
        assert document.answer_start is None
        assert len(document.text) <= 200
        assert document.text in heldout[document.id]
    digests = [demo_corpus(texts=5, questions=2, seed=seed).digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.slow
def test_the_demo_reports_on_unseen_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "DEMO_TEXTS", 10)
    monkeypatch.setattr(corpus, "DEMO_QUESTIONS", 10)
    tokenizer = character_tokenizer()
    found = build_demo_splits(tokenizer, length=600)
    counts = []
    for part, split in zip((found.train, found.validation, found.test), ("train", "train", "heldout"), strict=True):
        assert isinstance(part, TokenWindows)
        counts.append(sum(window.index == 0 for window in part.windows))
        for window in part.windows:
            if window.task in skills.TASKS:
                assert skills.assign_split(tokenizer.decode(window.ids[1 : window.scored_from])) == split
    assert counts == [45, 5, len(demo_corpus().documents)]


def test_an_unknown_split_is_rejected() -> None:
    with pytest.raises(DataError, match="unknown split 'held-out'; did you mean heldout"):
        demo_corpus("held-out")
