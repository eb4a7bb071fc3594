"""Benchmarks of all plans at once equal lm-eval's own `evaluate` plan by plan, for the least work."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conftest import tiny_llama
from layerwise.errors import MeasureError
from layerwise.measure.interventions.sweep import CostMeter, cost_estimate, sweep_into
from layerwise.measure.language import benchmark_requests as room
from layerwise.measure.language.benchmark_requests import BenchmarkRequests, RequestLikelihoods, build_requests, judged
from layerwise.measure.language.benchmarks import chance_of, find_benchmarks
from layerwise.plan import Plan, families
from layerwise.results.rows import Loss
from layerwise.stack import Stack, load
from layerwise.stack.executors.graph import build
from measure.language.local_tasks import TASKS, write_tasks, write_whole_texts
from tiny_tokenizers import ALPHABET, character_tokenizer

pytestmark = pytest.mark.slow  # lm-eval takes seconds to import; `test_benchmarks` asks it in the fast tier

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
    write_whole_texts(folder)
    return folder


@pytest.fixture(scope="module")
def requests(stack: Stack, folder: Path) -> BenchmarkRequests:
    return build_requests(stack, find_benchmarks([*TASKS, "texts_tiny"], folder), batch_tokens=512)


@pytest.fixture(scope="module")
def swept(stack: Stack, requests: BenchmarkRequests) -> tuple[list[Loss], CostMeter]:
    rows: list[Loss] = []
    meters: list[CostMeter] = []
    assert requests.likelihoods is not None
    sweep_into(rows.extend, stack, PLANS, requests.likelihoods, progress=lambda meter, _: meters.append(meter))
    return rows, meters[-1]


@pytest.fixture(scope="module")
def answers(requests: BenchmarkRequests, swept: tuple[list[Loss], CostMeter]) -> RequestLikelihoods:
    return RequestLikelihoods.of(swept[0], PLANS, requests.likelihoods)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    from lm_eval.tasks import TaskManager

    with room.quietly():
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
    with stack.under(plan), room.quietly():
        harness = HFLM(pretrained=stack.model, tokenizer=copy.deepcopy(stack.tokenizer), batch_size=4)
        found: Mapping[str, Any] = lm_eval.evaluate(harness, loaded, bootstrap_iters=0, log_samples=True)
    return found


def answers_of(samples: list[Mapping[str, Any]]) -> dict[int, list[Any]]:
    return {sample["doc_id"]: [answer[0] for answer in sample["resps"]] for sample in samples}


@pytest.mark.parametrize(
    "plans", [PLANS[4:7], pytest.param((*PLANS[:4], *PLANS[7:]), marks=pytest.mark.slow)], ids=["few", "rest"]
)
def test_all_plans_at_once_answer_as_lm_eval_does_one_at_a_time(
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
        scores, _, _ = judged(stack, plan, requests, answers)
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


def test_the_plans_and_the_questions_are_worth_comparing(
    requests: BenchmarkRequests, swept: tuple[list[Loss], CostMeter], answers: RequestLikelihoods
) -> None:
    """Guard against trivial cases: equal plans, no greedy answers, no cut contexts, or one-token continuations only."""
    assert len(PLANS) == 20
    assert len({tuple(answers.nll[row]) for row in range(len(PLANS))}) == len(PLANS)
    assert 0 < answers.greedy.mean() < 1
    assert max(len(window.ids) for window in requests.likelihoods.windows) == LONGEST + 1
    assert {window.scored for window in requests.likelihoods.windows} > {1, 2, 3}
    assert any(len(cells) > 1 for cells in requests.cells.values())  # a text that is read in pieces
    assert requests.written == ("gsm8k_tiny",)
    assert len(requests.likelihoods.batches) > 3


def test_it_costs_the_least_layer_evaluations(
    stack: Stack, requests: BenchmarkRequests, swept: tuple[list[Loss], CostMeter]
) -> None:
    graph, tokens = build(PLANS), sum(batch.size for batch in requests.likelihoods.batches)
    assert swept[1].layer_tokens == graph.evaluations * tokens
    assert graph.evaluations < graph.naive
    estimate = cost_estimate(stack, PLANS, requests.likelihoods)
    assert (estimate.evaluations, estimate.layer_tokens) == (graph.evaluations, graph.evaluations * tokens)


def test_every_right_answer_has_a_row(stack: Stack, requests: BenchmarkRequests, answers: RequestLikelihoods) -> None:
    scores, rows, _ = judgement = judged(stack, PLANS[1], requests, answers)
    values = {(score.task, score.metric): score.value for score in scores}
    main = {"arc_tiny": "acc_norm", "gsm8k_tiny": "exact_match/first"}
    for name in TASKS:
        metric = main.get(name, "acc")
        mine = [row for row in rows if row.task == f"benchmark/{name}/{metric}"]
        assert sorted(int(row.document) for row in mine) == list(range(10))
        assert sum(row.hits for row in mine) / 10 == pytest.approx(values[name, metric])
    assert len(rows) == 10 * len(TASKS)  # whole texts are not answered right or wrong
    assert judged(stack, PLANS[1], requests, answers)[:2] == judgement[:2]


def test_guessing_scores_one_of_the_choices(requests: BenchmarkRequests) -> None:
    assert requests.chance == {
        "arc_tiny": pytest.approx(1 / 3),
        "hellaswag_tiny": 0.25,
        "winogrande_tiny": 0.5,
        "lambada_tiny": 0.0,
        "gsm8k_tiny": 0.0,
        "texts_tiny": 0.0,
    }
    task = requests.benchmarks.loaded["tasks"]["winogrande_tiny"]
    assert chance_of("hellaswag", task) == 0.25  # what is known goes before what is counted


def test_an_answer_that_is_missing_is_none(requests: BenchmarkRequests, swept: tuple[list[Loss], CostMeter]) -> None:
    without = [row for row in swept[0] if (row.plan, row.document, row.window) != (str(PLANS[2]), "3", 0)]
    partly = RequestLikelihoods.of(without, PLANS, requests.likelihoods)
    assert [partly.complete(plan) for plan in PLANS[:4]] == [True, True, False, True]
    assert math.isnan(partly.nll[2].min())


def test_examples_are_as_many_as_asked_for(stack: Stack, folder: Path) -> None:
    def contexts(**options: int) -> dict[str, int]:
        built = build_requests(
            stack, find_benchmarks(["arc_tiny", "hellaswag_tiny"], folder, **options), batch_tokens=512
        )  # type: ignore[arg-type]
        loaded = built.benchmarks.loaded["tasks"]
        return {name: loaded[name].instances[0].args[0].count("=") for name in loaded}

    assert contexts() == {"arc_tiny": 3, "hellaswag_tiny": 1}
    assert contexts(num_fewshot=1) == {"arc_tiny": 2, "hellaswag_tiny": 2}
    assert contexts(num_fewshot=0) == {"arc_tiny": 1, "hellaswag_tiny": 1}


def test_a_continuation_longer_than_the_model_is_refused(stack: Stack, folder: Path, tmp_path: Path) -> None:
    text = (folder / "lambada_tiny.yaml").read_text().replace("lambada_tiny", "long_tiny")
    (tmp_path / "long.yaml").write_text(text.replace(" {{answer}}", " {{passage}}{{passage}}"))
    with pytest.raises(MeasureError, match=r"request 0 of document 1 of long_tiny .* continuation of \d+: .* 1 to 64"):
        build_requests(stack, find_benchmarks(["long_tiny"], tmp_path), batch_tokens=512)


def test_a_stack_without_tokenizer_is_refused(stack: Stack, requests: BenchmarkRequests) -> None:
    with pytest.raises(MeasureError, match="--tokenizer"):
        build_requests(load(stack.model), requests.benchmarks, batch_tokens=512)
