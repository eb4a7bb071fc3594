"""A sweep resumes every part and repeats nothing that is complete."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import layerwise
from conftest import tiny_llama
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.errors import MeasureError
from layerwise.measure.interventions import sweep as sweeping
from layerwise.measure.language.evaluation_data import piece_lengths, select_pieces, tokenize
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.rows import CONTINUATION, Score, read_continuations
from layerwise.results.vocabulary import CONTRAST, NORMALIZED
from layerwise.runner.opening import default_folder
from layerwise.runner.study import RunDescription
from layerwise.runner.summary import report_data, summary
from layerwise.stack import Stack, load
from layerwise.studies.sweep import benchmarks as asking
from layerwise.studies.sweep import tasks as module
from studies.describing import describe_call
from studies.test_runner import Recorder
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH = 4
Options = dict[str, Any]
SWEEP: Options = {"families": ("leave_one_out",), "plans": ("0 (1|2) 3",), "max_length": 24, "batch_tokens": 96}
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
def corpus() -> Corpus:
    texts = [f"text number {number}: " + "sphinx of black quartz " * (1 + number % 3) for number in range(9)]
    return Corpus("texts", tuple(Document(f"{number}", text) for number, text in enumerate(texts)))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, stack: Stack) -> Counter[str]:
    counted: Counter[str] = Counter()

    def counting(name: str, work: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            counted[name] += 1
            return work(*arguments, **options)

        return run

    for name in ("sweep", "compute_effects", "similarity_sums"):
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    monkeypatch.setattr(asking, "judge_plan", counting("judged", asking.judge_plan))
    monkeypatch.setattr(stack, "apply", counting("layer", stack.apply))
    return counted


def described(stack: Stack, corpus: Corpus, options: Options = SWEEP) -> RunDescription:
    return describe_call(layerwise.sweep, stack, corpus, **options)


def measure(stack: Stack, corpus: Corpus, folder: Path, options: Options = SWEEP) -> list[str]:
    reporter = Recorder()
    layerwise.sweep(stack, corpus, run=folder, reporter=reporter, **options)
    return reporter.logs


def everything(folder: Path) -> tuple[list[object], ...]:
    with Run.open(folder) as run:
        scores = [score for score in run.store.scores() if score.measure != "run"]
        return list(run.store.losses()), scores, list(run.store.plans())


@pytest.fixture(scope="module")
def whole(stack: Stack, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    measure(stack, corpus, folder)
    return folder


def test_a_sweep_fills_every_table(whole: Path, stack: Stack, corpus: Corpus) -> None:
    with Run.open(whole) as run:
        losses = list(run.store.losses())
        windows = sum(len(batch.windows) for batch in described(stack, corpus).tasks[0].text.batches)
        assert Counter(row.plan for row in losses) == dict.fromkeys(PLANS, windows)
        assert {score.measure for score in run.store.scores()} == {"effect", "similarity", "plan_states", "run"}
        assert {score.plan for score in run.store.scores("plan_states")} == {"0-3", "0 (1|2) 3"}
        assert {record.plan for record in run.store.plans()} == PLANS
        figures = {score.metric: score.value for score in run.store.scores("run")}
        assert figures["plans"] == len(PLANS)
        assert figures["evaluations_ratio"] == 1
        assert figures["seconds"] >= figures["seconds_in_layers"] > 0
        assert figures["uniform_nll"] == pytest.approx(math.log(3 + len(ALPHABET)))


def test_a_resumed_sweep_states_no_time(
    stack: Stack, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = iter(range(30))

    def stopping(*arguments: Any) -> Any:
        if next(few, None) is None:
            raise KeyboardInterrupt
        return type(stack).apply(stack, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(stack, "apply", stopping)
        with pytest.raises(KeyboardInterrupt):
            measure(stack, corpus, tmp_path / "run")
    measure(stack, corpus, tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        figures = {score.metric: score.value for score in run.store.scores("run")}
    assert "seconds" not in figures
    assert figures["evaluations_ratio"] == 1


def test_similarity_can_be_added_later(stack: Stack, corpus: Corpus, tmp_path: Path, calls: Counter[str]) -> None:
    measure(stack, corpus, tmp_path / "run", {**SWEEP, "similarity": False})
    assert calls["similarity_sums"] == 0
    measure(stack, corpus, tmp_path / "run")
    assert (calls["sweep"], calls["similarity_sums"]) == (1, 1)


def test_a_plan_with_a_loss_that_is_not_finite_has_no_effect(
    stack: Stack, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mean over fewer windows than the other plans have would not be comparable."""
    losses = sweeping.window_losses
    count = 0

    def once_broken(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        found = losses(*arguments)
        return tuple(replace(each, nll=float("nan")) for each in found) if count == 3 else found

    with monkeypatch.context() as patched:
        patched.setattr(sweeping, "window_losses", once_broken)
        with pytest.raises(MeasureError, match="1 of 6 plans") as caught:
            measure(stack, corpus, tmp_path / "run")
    rows, scores, _ = everything(tmp_path / "run")
    per_plan = Counter(row.plan for row in rows)  # type: ignore[attr-defined]
    broken = min(per_plan, key=lambda plan: per_plan[plan])
    assert 0 < per_plan[broken] < per_plan["0-3"]
    assert f"first '{broken}'" in str(caught.value)
    assert {score.plan for score in scores if score.measure == "effect"} == PLANS - {broken}  # type: ignore[attr-defined]
    # The same command computes what failed temporarily.
    measure(stack, corpus, tmp_path / "run")
    plans = {score.plan for score in everything(tmp_path / "run")[1] if score.measure == "effect"}  # type: ignore[attr-defined]
    assert plans == PLANS


@pytest.fixture
def benchmark(tmp_path: Path) -> Iterator[Options]:
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    questions = tmp_path / "questions.jsonl"
    rows = [{"question": f"{n}+1=", "choices": [str(n), str(n + 1), "none"], "gold": 1} for n in range(6)]
    questions.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "tiny_choice.yaml").write_text(BENCHMARK.format(questions=questions, cache=tmp_path / "cache"))
    return {**SWEEP, "tasks": ("tiny_choice",), "task_folder": tmp_path, "similarity": False}


def test_every_plan_answers_the_benchmarks_once(
    stack: Stack,
    corpus: Corpus,
    tmp_path: Path,
    benchmark: Options,
    calls: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply, ask = stack.apply, asking.judge_plan

    def stopping_layers(*arguments: Any) -> torch.Tensor:
        if calls["layer"] == in_text + 10:
            raise KeyboardInterrupt
        return apply(*arguments)

    def stopping(stack: Stack, plan: Plan, *arguments: Any) -> Any:
        if calls["judged"] == 3:
            raise KeyboardInterrupt
        return ask(stack, plan, *arguments)

    measure(stack, corpus, tmp_path / "text", {**benchmark, "tasks": (), "task_folder": None})
    in_text, calls["layer"] = calls["layer"], 0
    with monkeypatch.context() as patched:
        patched.setattr(stack, "apply", stopping_layers)
        with pytest.raises(KeyboardInterrupt):
            measure(stack, corpus, tmp_path / "run", benchmark)
    with Run.open(tmp_path / "run") as run:
        answers = list(run.store.losses("benchmark/tiny_choice"))
        assert {row.plan for row in answers} < PLANS
        assert {row.plan for row in run.store.text_losses()} == PLANS
    with monkeypatch.context() as patched:
        patched.setattr(asking, "judge_plan", stopping)
        with pytest.raises(KeyboardInterrupt):
            measure(stack, corpus, tmp_path / "run", benchmark)
    with Run.open(tmp_path / "run") as run:
        rows = list(run.store.losses("benchmark/tiny_choice"))
        assert Counter(row.plan for row in rows) == dict.fromkeys(PLANS, 18)
    measure(stack, corpus, tmp_path / "run", benchmark)
    with Run.open(tmp_path / "run") as run:
        scores = run.store.scores("benchmark")
        assert len(list(run.store.losses("benchmark/tiny_choice/acc"))) == 6 * len(PLANS)
        (note,) = run.store.notes("benchmark")
    assert {(score.plan, score.task, score.metric) for score in scores} == {
        *((plan, "tiny_choice", "acc") for plan in PLANS),
        (None, "tiny_choice", "chance"),
    }
    assert note.text == ("tiny_choice cannot be normalized: it has only 6 questions, but an interval requires 8")
    assert len(list((tmp_path / "run" / "lm_eval").rglob("results_*.json"))) == len(PLANS)
    judgments = calls["judged"]
    assert not [each for each in measure(stack, corpus, tmp_path / "run", benchmark) if "under plan" in each]
    assert calls["judged"] == judgments


def test_a_plan_with_failed_benchmarks_is_named_and_the_others_are_kept(
    stack: Stack, corpus: Corpus, tmp_path: Path, benchmark: Options
) -> None:
    config = {**benchmark, "plans": ("0 (1|2):gain=1e39 3", *benchmark["plans"])}
    broken = "1 of 7 plans"
    with pytest.raises(MeasureError, match=broken) as caught:
        measure(stack, corpus, tmp_path / "run", config)
    assert f"{broken} (first '0 (1|2):gain=1e+39 3'" in str(caught.value)
    with Run.open(tmp_path / "run") as run:
        assert {score.plan for score in run.store.scores("benchmark")} == {*PLANS, None}
    with Run.resume_or_create(tmp_path / "run", described(stack, corpus, config).manifest) as run:
        assert run.store.notes("benchmark"), "one benchmark has no scale"
        other = Score("benchmark", "acc", 1.0, task="another that has one", plan="0-3", condition=NORMALIZED)
        compared = [*run.store.scores("benchmark"), other]
        run.store.replace_scores("benchmark", compared)
    with pytest.raises(MeasureError):
        measure(stack, corpus, tmp_path / "run", config)
    with Run.open(tmp_path / "run") as run:
        assert run.store.scores("benchmark") == compared


def test_the_folder_is_named_by_the_options(stack: Stack, corpus: Corpus) -> None:
    manifest = described(stack, corpus).manifest
    folder = default_folder(manifest)
    assert folder.parent == Path("runs")
    renamed = replace(manifest, model="somewhere/else/LlamaForCausalLM", versions={"torch": "9"}, command=("other",))
    assert default_folder(renamed) == folder
    others = [{**SWEEP, "families": ("painters",)}, {**SWEEP, "plans": ()}, {**SWEEP, "seed": 1}]
    assert len({folder, *(default_folder(described(stack, corpus, other).manifest) for other in others)}) == 4


@pytest.mark.parametrize("name", ["../..", "a model: new", "", "org/name.v1"])
def test_the_folder_name_is_short(stack: Stack, corpus: Corpus, name: str) -> None:
    folder = default_folder(replace(described(stack, corpus).manifest, model=name))
    assert folder.parent == Path("runs")
    assert folder.name.strip(".-") == folder.name
    assert set(folder.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")


def test_few_tokens_give_a_warning_on_skill() -> None:
    prose = Document("prose", "the cat saw the dog. " * 4, task="prose")
    asked = Document("sort", "sort: cab = abc", task="sort", answer_start=12)
    stack = load(tiny_llama(3, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())
    corpus = Corpus("both", (prose, asked))
    whole = tokenize(stack, corpus)
    assert whole.scored_answer_tasks == whole.answer_tasks == ("sort",)
    piece = next(piece for piece in piece_lengths(whole) if piece[0] == "prose")
    assert select_pieces(whole, [piece]).scored_answer_tasks == ()


def test_a_sweep_that_skips_every_layer_stores_the_contrasts_of_all_claims(corpus: Corpus, tmp_path: Path) -> None:
    stack = load(tiny_llama(8, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())
    config = {**SWEEP, "families": ("leave_one_out", "painters"), "plans": ()}
    measure(stack, corpus, tmp_path / "run", config)
    with Run.open(tmp_path / "run") as run:
        stored = {row.claim for row in run.store.scores(CONTRAST)}
    claims = {"same_space", "all_needed", "same_function", "any_order", "parallel", "looping", "ranking"}
    assert stored >= claims | {"strategies", "core"}


def test_prompts_are_continued_under_every_plan_once(
    stack: Stack, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"families": (), "window": ("1-2",), "plans": ("0 3",), "prompt": ("sphinx", "of"), "new_tokens": 3}
    config = {**SWEEP, **more}
    members = described(stack, corpus, config).tasks[0].members
    measure(stack, corpus, tmp_path / "run", config)
    with Run.open(tmp_path / "run") as run:
        texts = read_continuations(run.store.notes(CONTINUATION))
        lines = summary(report_data(run)).splitlines()
    wanted = {str(member.plan) for member in members if member.draw in (None, 0)}
    assert {(each.plan, each.prompt) for each in texts} == {
        (plan, prompt) for plan in wanted for prompt in config["prompt"]
    }
    assert {"After “sphinx”:", "After “of”:"} <= set(lines)
    monkeypatch.setattr(module, "continue_prompts", None)
    measure(stack, corpus, tmp_path / "run", config)


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_measured(stack: Stack, corpus: Corpus) -> None:
    with pytest.raises(MeasureError, match="shorter prompt"):
        described(stack, corpus, {**SWEEP, "prompt": ("sphinx",), "new_tokens": 500})
