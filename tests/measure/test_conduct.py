"""Conducting a study: every part is resumed where it was left, and what is complete is not computed again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import tiny_llama
from layerwise.data.corpus import Corpus
from layerwise.data.documents import Document
from layerwise.errors import MeasureError
from layerwise.measure import conduct as module
from layerwise.measure import sweep as sweep_module
from layerwise.measure.conduct import Watcher, benchmarks_of, conduct, manifest_of
from layerwise.measure.provenance import folder_of
from layerwise.measure.reading import Reading, pieces, portion, read
from layerwise.measure.study import Study
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.stack import Stack, load
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH = 4
STUDY = Study(("leave_one_out",), ("0 (1|2) 3",))
PLANS = {"0-3", "1-3", "0 2 3", "0 1 3", "0-2", "0 (1|2) 3"}
BENCHMARK = """
task: tiny_choice
dataset_path: json
dataset_kwargs:
  data_files: {{test: {questions}}}
  cache_dir: {cache}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{gold}}}}"
doc_to_choice: "{{{{choices}}}}"
num_fewshot: 0
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())


@pytest.fixture(scope="module")
def reading(stack: Stack) -> Reading:
    texts = [f"text number {number}: " + "sphinx of black quartz " * (1 + number % 3) for number in range(9)]
    corpus = Corpus("texts", tuple(Document(f"{number}", text) for number, text in enumerate(texts)))
    return read(stack, corpus, length=24, batch_tokens=96)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, stack: Stack) -> Counter[str]:
    """How often each part is computed, and each layer run by the sweep."""
    counted: Counter[str] = Counter()

    def counting(name: str, work: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            counted[name] += 1
            return work(*arguments, **options)

        return run

    for name in ("sweep", "effects", "similarity_sums", "ask_benchmarks"):
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    monkeypatch.setattr(stack, "apply", counting("layer", stack.apply))
    return counted


def carry_on(stack: Stack, reading: Reading, folder: Path, study: Study = STUDY, said: list[str] | None = None) -> None:
    """One sitting."""
    watcher = Watcher((said if said is not None else []).append, lambda meter, due: None)
    with Run.resume_or_create(folder, manifest_of(stack, reading, study)) as run:
        conduct(stack, reading, study, benchmarks_of(study), run, watcher)


def everything(folder: Path) -> tuple[list[object], ...]:
    with Run.open(folder) as run:
        scores = [score for score in run.store.scores() if score.measure != "run"]
        return list(run.store.losses()), scores, list(run.store.plans())


@pytest.fixture(scope="module")
def whole(stack: Stack, reading: Reading, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a study that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    carry_on(stack, reading, folder)
    return folder


def test_a_study_fills_every_table(whole: Path, reading: Reading) -> None:
    with Run.open(whole) as run:
        losses = list(run.store.losses())
        windows = sum(len(batch.windows) for batch in reading.batches)
        assert Counter(row.plan for row in losses) == dict.fromkeys(PLANS, windows)
        assert {score.measure for score in run.store.scores()} == {"effect", "similarity", "run"}
        assert {record.plan for record in run.store.plans()} == PLANS
        figures = {score.metric: score.value for score in run.store.scores("run")}
        assert figures["plans"] == len(PLANS)
        assert figures["evaluations_ratio"] == 1
        assert figures["seconds"] >= figures["seconds_in_layers"] > 0


def test_a_complete_study_computes_nothing_again(
    stack: Stack, reading: Reading, tmp_path: Path, calls: Counter[str]
) -> None:
    carry_on(stack, reading, tmp_path / "run")
    assert calls.pop("layer") > 0
    assert calls == {"sweep": 1, "effects": 1, "similarity_sums": 1}
    before = everything(tmp_path / "run")
    calls.clear()
    said: list[str] = []
    carry_on(stack, reading, tmp_path / "run", said=said)
    assert not calls
    assert not said
    assert everything(tmp_path / "run") == before


@pytest.mark.parametrize("stop_at", ["layer", "effects", "similarity_sums"])
def test_each_part_is_resumed_where_it_was_left(
    stack: Stack, reading: Reading, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: str
) -> None:
    work = stack.apply if stop_at == "layer" else getattr(module, stop_at)
    left = iter(range(30 if stop_at == "layer" else 0))

    def stopping(*arguments: Any, **options: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return work(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(*((stack, "apply") if stop_at == "layer" else (module, stop_at)), stopping)
        with pytest.raises(KeyboardInterrupt):
            carry_on(stack, reading, tmp_path / "run")
    kept = everything(tmp_path / "run")[0]
    assert len(kept) > 0
    assert (len(kept) < len(everything(whole)[0])) == (stop_at == "layer")
    carry_on(stack, reading, tmp_path / "run")
    assert everything(tmp_path / "run") == everything(whole)


def test_a_sweep_in_two_sittings_claims_no_time(
    stack: Stack, reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = iter(range(30))

    def stopping(*arguments: Any) -> Any:
        if next(few, None) is None:
            raise KeyboardInterrupt
        return type(stack).apply(stack, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(stack, "apply", stopping)
        with pytest.raises(KeyboardInterrupt):
            carry_on(stack, reading, tmp_path / "run")
    carry_on(stack, reading, tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        figures = {score.metric: score.value for score in run.store.scores("run")}
    assert "seconds" not in figures
    assert figures["evaluations_ratio"] == 1


def test_similarity_can_be_asked_for_later(stack: Stack, reading: Reading, tmp_path: Path, calls: Counter[str]) -> None:
    carry_on(stack, reading, tmp_path / "run", replace(STUDY, with_similarity=False))
    assert calls["similarity_sums"] == 0
    carry_on(stack, reading, tmp_path / "run")
    assert (calls["sweep"], calls["similarity_sums"]) == (1, 1)


def test_a_plan_that_is_not_finite_costs_itself_alone(stack: Stack, reading: Reading, tmp_path: Path) -> None:
    study = replace(STUDY, plans=("0 (1|2):gain=1e39 3", *STUDY.plans))
    for _ in range(2):
        with pytest.raises(
            MeasureError, match=r"1 of 7 plans gave non-finite losses, first '0 \(1\|2\):gain=1e\+39 3'"
        ):
            carry_on(stack, reading, tmp_path / "run", study)
        losses, scores, _ = everything(tmp_path / "run")
        assert {row.plan for row in losses} == PLANS  # type: ignore[attr-defined]
        assert {score.measure for score in scores} == {"effect", "similarity"}  # type: ignore[attr-defined]


def test_a_plan_that_is_not_finite_somewhere_has_no_effect(
    stack: Stack, reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other rows are kept, but a mean over fewer windows than the others have would compare unlike things."""
    losses = sweep_module.window_losses
    count = 0

    def once_broken(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        found = losses(*arguments)
        return tuple(replace(each, nll=float("nan")) for each in found) if count == 3 else found

    with monkeypatch.context() as patched:
        patched.setattr(sweep_module, "window_losses", once_broken)
        with pytest.raises(MeasureError, match="1 of 6 plans") as caught:
            carry_on(stack, reading, tmp_path / "run")
    rows, scores, _ = everything(tmp_path / "run")
    per_plan = Counter(row.plan for row in rows)  # type: ignore[attr-defined]
    broken = min(per_plan, key=lambda plan: per_plan[plan])
    assert 0 < per_plan[broken] < per_plan["0-3"]
    assert f"first '{broken}'" in str(caught.value)
    assert {score.subject for score in scores if score.measure == "effect"} == PLANS - {broken}  # type: ignore[attr-defined]
    # What was a passing fault is made good by the same command.
    carry_on(stack, reading, tmp_path / "run")
    subjects = {score.subject for score in everything(tmp_path / "run")[1] if score.measure == "effect"}  # type: ignore[attr-defined]
    assert subjects == PLANS


def test_a_model_that_is_not_finite_is_said_at_once(reading: Reading, tmp_path: Path, calls: Counter[str]) -> None:
    model = tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET))
    broken = load(model, tokenizer=character_tokenizer())
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(MeasureError, match="the model itself"):
        carry_on(broken, reading, tmp_path / "run")
    assert calls["effects"] == calls["similarity_sums"] == 0


# Benchmarks


@pytest.fixture
def benchmark(tmp_path: Path) -> Iterator[Study]:
    """A study with a benchmark whose questions lie in a local file."""
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    questions = tmp_path / "questions.jsonl"
    rows = [{"question": f"{n}+1=", "choices": [str(n), str(n + 1), "none"], "gold": 1} for n in range(6)]
    questions.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "tiny_choice.yaml").write_text(BENCHMARK.format(questions=questions, cache=tmp_path / "cache"))
    return replace(STUDY, tasks=("tiny_choice",), task_folder=tmp_path, with_similarity=False)


def test_benchmarks_are_asked_of_every_plan_and_of_none_twice(
    stack: Stack,
    reading: Reading,
    tmp_path: Path,
    benchmark: Study,
    calls: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = module.ask_benchmarks

    def stopping(stack: Stack, plans: list[Plan], *arguments: Any, **options: Any) -> Any:
        if calls["ask_benchmarks"] == 3:
            raise KeyboardInterrupt
        return ask(stack, plans, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(module, "ask_benchmarks", stopping)
        with pytest.raises(KeyboardInterrupt):
            carry_on(stack, reading, tmp_path / "run", benchmark)
    with Run.open(tmp_path / "run") as run:
        assert len({score.subject for score in run.store.scores("benchmark")}) == 3
    said: list[str] = []
    carry_on(stack, reading, tmp_path / "run", benchmark, said)
    assert calls["ask_benchmarks"] == len(PLANS)
    assert said[0] == "benchmarks under plan 4 of 6: 0 1 3"
    with Run.open(tmp_path / "run") as run:
        scores = run.store.scores("benchmark")
    assert {(score.subject, score.task, score.metric) for score in scores} == {
        (plan, "tiny_choice", "acc") for plan in PLANS
    }
    carry_on(stack, reading, tmp_path / "run", benchmark)
    assert calls["ask_benchmarks"] == len(PLANS)


def test_a_plan_with_broken_benchmarks_is_named_after_the_others(
    stack: Stack, reading: Reading, tmp_path: Path, benchmark: Study
) -> None:
    study = replace(benchmark, plans=("0 (1|2):gain=1e39 3", *benchmark.plans))
    with pytest.raises(MeasureError) as caught:
        carry_on(stack, reading, tmp_path / "run", study)
    assert "1 of 7 plans gave non-finite losses" in str(caught.value)
    assert "plan 0 (1|2):gain=1e+39 3 gives logits that are not finite" in str(caught.value)
    with Run.open(tmp_path / "run") as run:
        assert {score.subject for score in run.store.scores("benchmark")} == PLANS


@pytest.mark.slow
def test_a_benchmark_that_is_unknown_is_said_before_a_run_begins() -> None:
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    with pytest.raises(MeasureError, match="unknown benchmark 'winogrand'"):
        benchmarks_of(Study(tasks=("winogrand",)))
    assert benchmarks_of(STUDY) is None


# The folder


def test_the_folder_is_named_by_what_is_measured(stack: Stack, reading: Reading) -> None:
    manifest = manifest_of(stack, reading, STUDY, ("layerwise", "sweep"))
    folder = folder_of(manifest)
    assert folder == folder_of(manifest_of(stack, reading, STUDY, ("another", "command")))
    assert folder.parent == Path("runs")
    renamed = replace(manifest, model="somewhere/else/LlamaForCausalLM", versions={"torch": "9"})
    assert folder_of(renamed) == folder
    others = [
        replace(STUDY, families=("painters",)),
        replace(STUDY, plans=()),
        replace(STUDY, seed=1),
        replace(STUDY, tasks=("gsm8k",)),
        replace(STUDY, tasks=("gsm8k",), task_limit=5),
    ]
    assert len({folder, *(folder_of(manifest_of(stack, reading, other)) for other in others)}) == 6


@pytest.mark.parametrize("name", ["../..", "a model: new", "", "org/name.v1"])
def test_the_folder_has_a_name_that_every_disk_takes(stack: Stack, reading: Reading, name: str) -> None:
    folder = folder_of(replace(manifest_of(stack, reading, STUDY), model=name))
    assert folder.parent == Path("runs")
    assert folder.name.strip(".-") == folder.name
    assert set(folder.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")


def test_of_few_tokens_a_skill_may_not_be_read() -> None:
    """The corpus has answers to sort; the few tokens that are read are prose."""
    prose = Document("prose", "the cat saw the dog. " * 4, task="prose")
    asked = Document("sort", "sort: cab = abc", task="sort", answer_start=12)
    stack = load(tiny_llama(3, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())
    corpus = Corpus("both", (prose, asked))
    whole = read(stack, corpus)
    assert whole.scored_answer_tasks == whole.answer_tasks == ("sort",)
    piece = next(piece for piece in pieces(whole) if piece[0] == "prose")
    assert portion(whole, [piece]).scored_answer_tasks == ()


def test_contrasts_of_claims_are_kept_and_an_older_run_gets_them_from_its_losses(
    reading: Reading, tmp_path: Path, calls: Counter[str]
) -> None:
    deep = load(tiny_llama(8, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())
    study = Study(("painters",))
    carry_on(deep, reading, tmp_path / "run", study)
    with Run.open(tmp_path / "run") as run:
        kept = run.store.scores("contrast")
    claims = {"same_space", "all_needed", "same_function", "any_order", "parallel", "looping", "ranking"}
    assert {score.subject for score in kept} == claims
    with Run.resume_or_create(tmp_path / "run", manifest_of(deep, reading, study)) as run:
        run.store.replace_scores("contrast", [])
    calls.clear()
    carry_on(deep, reading, tmp_path / "run", study)
    assert not calls
    with Run.open(tmp_path / "run") as run:
        again = run.store.scores("contrast")
    assert again == [score for score in kept if score.subject != "same_space"]
