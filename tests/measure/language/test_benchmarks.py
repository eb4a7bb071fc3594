import copy
import math
import os
import random
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from conftest import tiny_llama
from layerwise.errors import MeasureError
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language import benchmark_requests as room
from layerwise.measure.language import benchmarks
from layerwise.measure.language.benchmark_requests import (
    BenchmarkRequests,
    RequestLikelihoods,
    build_requests,
    judge_plan,
)
from layerwise.measure.language.benchmarks import CHANCE, find_benchmarks, find_chance, normalize_scores
from layerwise.plan import Plan, families
from layerwise.results.rows import Loss, Score
from layerwise.stack import Stack, load
from measure.language.local_tasks import TASKS, asked, write_task, write_tasks
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH = 6
LONGEST = 64
"""The model's maximum length, which the longest passages exceed."""

PLANS = tuple(dict.fromkeys([Plan.identity(DEPTH), *(member.plan for member in families.painters(DEPTH))]))[:20]
CLOSE = 1e-5


@pytest.fixture(scope="module")
def stack() -> Stack:
    model = tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET))
    model.config.max_position_embeddings = LONGEST
    return load(model, tokenizer=character_tokenizer())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    folder = tmp_path_factory.mktemp("tasks")
    write_tasks(folder)
    return folder


@pytest.fixture(scope="module")
def requests(stack: Stack, folder: Path) -> BenchmarkRequests:
    return build_requests(stack, find_benchmarks([*TASKS, "texts_tiny"], folder), batch_tokens=512)


@pytest.fixture(scope="module")
def swept(stack: Stack, requests: BenchmarkRequests) -> list[Loss]:
    return sweep(stack, PLANS, requests.likelihoods)


@pytest.fixture(scope="module")
def answers(requests: BenchmarkRequests, swept: list[Loss]) -> RequestLikelihoods:
    return RequestLikelihoods.from_losses(swept, PLANS, requests.likelihoods)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    from lm_eval.tasks import TaskManager

    with room.silence_harness():
        loaded = TaskManager(include_path=str(folder), include_defaults=False).load([*TASKS, "texts_tiny"])
    for task in loaded["tasks"].values():
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
    return loaded


def one_at_a_time(stack: Stack, loaded: Any, plan: Plan) -> Mapping[str, Any]:
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    for task in loaded["tasks"].values():
        task.set_fewshot_seed(seed=0)
    with stack.under(plan), room.silence_harness():
        harness = HFLM(pretrained=stack.model, tokenizer=copy.deepcopy(stack.tokenizer), batch_size=4)
        found: Mapping[str, Any] = lm_eval.evaluate(harness, loaded, bootstrap_iters=0, log_samples=True)
    return found


def answers_of(samples: list[Mapping[str, Any]]) -> dict[int, list[Any]]:
    return {sample["doc_id"]: [answer[0] for answer in sample["resps"]] for sample in samples}


@pytest.mark.parametrize(
    "plans", [PLANS[4:5], pytest.param((*PLANS[:4], *PLANS[5:]), marks=pytest.mark.nightly)], ids=["one", "rest"]
)
def test_scores_match_lm_eval(
    stack: Stack,
    theirs: Any,
    requests: BenchmarkRequests,
    answers: RequestLikelihoods,
    monkeypatch: pytest.MonkeyPatch,
    plans: tuple[Plan, ...],
) -> None:
    found: list[Mapping[str, Any]] = []
    evaluate = room.evaluate

    def noting(*arguments: Any, **options: Any) -> Mapping[str, Any]:
        found.append(evaluate(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(room, "evaluate", noting)
    for plan in plans:
        expected = one_at_a_time(stack, theirs, plan)
        scores, _, _ = judge_plan(stack, plan, requests, answers)
        for name, wanted in ((name, answers_of(each)) for name, each in expected["samples"].items()):
            ours = answers_of(found[-1]["samples"][name])
            assert ours.keys() == wanted.keys()
            for document, answered in wanted.items():
                assert_alike(ours[document], answered)
        values = {(score.task, score.metric): score.value for score in scores}
        for name, metrics in expected["results"].items():
            for key, value in metrics.items():
                metric, _, filtered = key.partition(",")
                if isinstance(value, float) and not metric.endswith("_stderr"):
                    metric = metric if filtered == "none" else f"{metric}/{filtered}"
                    assert values[name, metric] == pytest.approx(value, rel=1e-5), (name, metric)


def assert_alike(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for mine, wanted in zip(ours, theirs, strict=True):
        if isinstance(wanted, tuple | list):
            assert mine[0] == pytest.approx(wanted[0], abs=CLOSE)
            assert mine[1] == wanted[1]
        elif isinstance(wanted, float):
            assert mine == pytest.approx(wanted, abs=10 * CLOSE)  # of a whole text
        else:
            assert mine == wanted


def test_plans_differ_in_their_scores(requests: BenchmarkRequests, answers: RequestLikelihoods) -> None:
    """Guard against trivial cases: equal plans, no greedy answers, no cut contexts, or one-token continuations only."""
    assert len(PLANS) == 20
    assert len({tuple(answers.nll[row]) for row in range(len(PLANS))}) == len(PLANS)
    assert 0 < answers.greedy.mean() < 1
    assert max(len(window.ids) for window in requests.likelihoods.windows) == LONGEST + 1
    assert {window.scored for window in requests.likelihoods.windows} > {1, 2, 3}
    assert any(len(cells) > 1 for cells in requests.cells.values())  # a text that is read in pieces
    assert requests.written == ("gsm8k_tiny",)
    assert len(requests.likelihoods.batches) > 3


def test_every_right_answer_has_a_row(stack: Stack, requests: BenchmarkRequests, answers: RequestLikelihoods) -> None:
    scores, rows, _ = judgment = judge_plan(stack, PLANS[1], requests, answers)
    values = {(score.task, score.metric): score.value for score in scores}
    main = {"arc_tiny": "acc_norm", "gsm8k_tiny": "exact_match/first"}
    for name in TASKS:
        metric = main.get(name, "acc")
        mine = [row for row in rows if row.task == f"benchmark/{name}/{metric}"]
        assert sorted(int(row.document) for row in mine) == list(range(10))
        assert sum(row.hits for row in mine) / 10 == pytest.approx(values[name, metric])
    assert len(rows) == 10 * len(TASKS)  # whole texts are not answered right or wrong
    assert judge_plan(stack, PLANS[1], requests, answers)[:2] == judgment[:2]


def test_guess_score_is_one_over_choices(requests: BenchmarkRequests) -> None:
    assert requests.chance == {
        "arc_tiny": pytest.approx(1 / 3),
        "hellaswag_tiny": 0.25,
        "winogrande_tiny": 0.5,
        "lambada_tiny": 0.0,
        "gsm8k_tiny": 0.0,
        "texts_tiny": 0.0,
    }
    task = requests.benchmarks.loaded["tasks"]["winogrande_tiny"]
    assert find_chance("hellaswag", task) == 0.25  # what is known goes before what is counted


def test_missing_answer_is_none(requests: BenchmarkRequests, swept: list[Loss]) -> None:
    without = [row for row in swept if (row.plan, row.document, row.window) != (str(PLANS[2]), "3", 0)]
    partly = RequestLikelihoods.from_losses(without, PLANS, requests.likelihoods)
    assert [partly.complete(plan) for plan in PLANS[:4]] == [True, True, False, True]
    assert math.isnan(partly.nll[2].min())


def test_num_fewshot_sets_the_number_of_examples(stack: Stack, folder: Path) -> None:
    def contexts(**options: int) -> dict[str, int]:
        built = build_requests(
            stack, find_benchmarks(["arc_tiny", "hellaswag_tiny"], folder, **options), batch_tokens=512
        )  # type: ignore[arg-type]
        loaded = built.benchmarks.loaded["tasks"]
        return {name: loaded[name].instances[0].args[0].count("=") for name in loaded}

    assert contexts() == {"arc_tiny": 3, "hellaswag_tiny": 1}
    assert contexts(num_fewshot=1) == {"arc_tiny": 2, "hellaswag_tiny": 2}
    assert contexts(num_fewshot=0) == {"arc_tiny": 1, "hellaswag_tiny": 1}


def test_long_continuation_is_rejected(stack: Stack, folder: Path, tmp_path: Path) -> None:
    text = (folder / "lambada_tiny.yaml").read_text().replace("lambada_tiny", "long_tiny")
    (tmp_path / "long.yaml").write_text(text.replace(" {{answer}}", " {{passage}}{{passage}}"))
    with pytest.raises(MeasureError, match=r"1 to 64 continuation tokens.*request 0 of document 1 of long_tiny"):
        build_requests(stack, find_benchmarks(["long_tiny"], tmp_path), batch_tokens=512)


def test_missing_tokenizer_is_rejected(stack: Stack, requests: BenchmarkRequests) -> None:
    with pytest.raises(MeasureError, match="--tokenizer"):
        build_requests(load(stack.model), requests.benchmarks, batch_tokens=512)


def test_data_files_are_found_beside_the_task_file(folder: Path) -> None:
    write_task(folder, "lambada_tiny", Path("questions.jsonl"), "near")
    assert find_benchmarks(["near"], folder).names == ("near",)


def test_rows_have_standard_error_and_questions(stack: Stack, folder: Path) -> None:
    rows = asked(stack, PLANS[:1], ["arc_tiny", "lambada_tiny"], folder=folder)
    row = next(row for row in rows if row.metric == "acc_norm")
    assert (row.measure, row.task, row.documents) == ("benchmark", "arc_tiny", 10)
    assert 0 < row.value < 1
    error = (row.value * (1 - row.value) / 9) ** 0.5  # of a mean of 10 questions
    assert (row.low, row.high) == (pytest.approx(row.value - 1.96 * error), pytest.approx(row.value + 1.96 * error))
    assert all(score.low is not None for score in rows)


CHANCE_UTILS = """
import random
import numpy
import torch

def choices(doc):
    return [f"{random.random():.6f}", f"{numpy.random.random():.6f}", f"{torch.rand(1).item():.6f}"]

def shuffled(dataset):
    return dataset.select(random.sample(range(len(dataset)), len(dataset)))
"""


def test_task_sampling_is_seeded_and_isolated(stack: Stack, folder: Path, tmp_path: Path) -> None:
    """The task draws from the generators of Python, numpy and torch, and shuffles its questions."""
    (tmp_path / "chance_utils.py").write_text(CHANCE_UTILS)
    drawn = write_task(tmp_path, "arc_tiny", folder / "questions.jsonl", "drawn")
    text = drawn.read_text().replace("num_fewshot: 2", "num_fewshot: 0")
    text = text.replace('"{{choices}}"', "!function chance_utils.choices")
    drawn.write_text(text + "process_docs: !function chance_utils.shuffled")

    def seen(seed: int, luck: int) -> list[list[int]]:
        random.seed(luck)
        np.random.seed(luck)
        torch.manual_seed(luck)
        before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
        found: list[list[int]] = []
        handle = stack.model.register_forward_pre_hook(
            lambda model, args, kwargs: found.extend((args[0] if args else kwargs["input_ids"]).tolist()),
            with_kwargs=True,
        )
        try:
            asked(stack, PLANS[:1], ["drawn"], folder=tmp_path, seed=seed)
        finally:
            handle.remove()
        after = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
        assert [one == other for one, other in zip(before, after, strict=True)] == [True] * 3
        return found

    first = seen(0, luck=1)
    assert seen(0, luck=2) == first
    assert seen(1, luck=1) != first


def test_limit_reduces_questions(stack: Stack, folder: Path) -> None:
    (row,) = asked(stack, PLANS[:1], ["gsm8k_tiny"], limit=4, folder=folder)
    assert row.documents == 4


def test_caller_state_is_unchanged(stack: Stack, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack.tokenizer.pad_token = None
    stack.model.train()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    asked(stack, PLANS[:1], ["arc_tiny", "gsm8k_tiny"], limit=2, folder=folder)
    assert torch.equal(torch.get_rng_state(), before)
    assert stack.tokenizer.pad_token is None
    assert stack.model.training
    assert not stack.model._forward_hooks
    assert "DISABLE_MULTIPROC" not in os.environ
    assert capsys.readouterr().out == ""
    stack.model.eval()
    stack.tokenizer.pad_token = "</s>"


def test_non_finite_logits_name_the_plan(stack: Stack, folder: Path) -> None:
    damaged, written = load(copy.deepcopy(stack.model), tokenizer=stack.tokenizer), ["gsm8k_tiny"]
    with torch.no_grad():
        damaged.model.model.layers[2].mlp.down_proj.weight[0, 0] = float("nan")
    assert asked(damaged, [Plan.parse("0 1 3-5")], written, limit=2, folder=folder)
    with pytest.raises(MeasureError, match=r"logits of plan 0-5 must be finite"):
        asked(damaged, PLANS[:1], written, limit=2, folder=folder)


def test_missing_extra_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    with pytest.raises(MeasureError, match=r"pip install 'layerwise\[eval\]'"):
        find_benchmarks(["hellaswag"])


def test_missing_folder_and_empty_names_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="must be a directory"):
        find_benchmarks(["hellaswag"], tmp_path / "nowhere")
    with pytest.raises(MeasureError, match="At least one benchmark"):
        find_benchmarks([])


def test_unavailable_data_suggests_task_folder(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    write_task(tmp_path, "arc_tiny", name="far")
    with pytest.raises(MeasureError, match=r"data of far could not be loaded.*--task-folder"):
        find_benchmarks(["far"], tmp_path)


@pytest.mark.parametrize("names", [list(CHANCE), ["arc_easy"], ["mmlu_astronomy", "piqa"]])
def test_only_needed_benchmarks_are_indexed(names: list[str]) -> None:
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    indexed = set(benchmarks._manager(names, None).task_index)
    assert indexed >= set(names)
    assert len(indexed) < 1_000  # of more than ten thousand


@pytest.mark.slow
def test_unknown_benchmark_suggests_near_matches(folder: Path) -> None:
    with pytest.raises(MeasureError, match=r"Unknown benchmark 'helaswag': did you mean hellaswag"):
        find_benchmarks(["arc_tiny", "helaswag"], folder)


def score(plan: str, task: str, metric: str, value: float, reach: float | None = None) -> Score:
    low, high = (None, None) if reach is None else (value - reach, value + reach)
    return Score("benchmark", metric, value, low, high, task=task, plan=plan)


def test_normalized_is_0_at_chance_and_1_at_the_original_model() -> None:
    raw = [
        score("0-3", "hellaswag", "acc", 0.75, 0.05),
        score("3-0", "hellaswag", "acc", 0.25, 0.05),
        score("0 2", "hellaswag", "acc", 0.5),
    ]
    found = {row.plan: row for row in normalize_scores(raw, "0-3")}
    assert {(row.metric, row.condition) for row in found.values()} == {("acc", "normalized")}
    assert {plan: row.value for plan, row in found.items()} == {"0-3": 1.0, "3-0": 0.0, "0 2": 0.5}
    assert (found["3-0"].low, found["3-0"].high) == (pytest.approx(-0.1), pytest.approx(0.1))
    assert found["0 2"].low is None


@pytest.mark.parametrize(
    "full",
    [
        score("0-3", "winogrande", "acc", 0.52, 0.03),  # chance lies in its interval
        score("0-3", "winogrande", "acc", 0.5),
        score("0-3", "winogrande", "perplexity", 9.0, 0.1),  # no share of right answers
        score("0-2", "winogrande", "acc", 0.9, 0.1),  # not the full model
    ],
)
def test_undefined_normalized_scores_are_omitted(full: Score) -> None:
    assert normalize_scores([full, replace(full, plan="3-0", value=0.4)], "0-3") == []


@pytest.mark.parametrize(("aggregation", "guessing"), [({}, (1 / 3 + 1 / 2) / 2), ({"acc_mutual_info": 1}, 5 / 6)])
def test_chance_is_one_over_choices(aggregation: dict[str, int], guessing: float) -> None:
    asked_of = [SimpleNamespace(doc_id=document) for document in (0, 0, 0, 1, 1)]
    task = SimpleNamespace(OUTPUT_TYPE="multiple_choice", aggregation=lambda: aggregation, instances=asked_of)
    assert find_chance("mine", task) == pytest.approx(guessing)
