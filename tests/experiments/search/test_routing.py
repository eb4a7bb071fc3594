"""A routing from end to end: task sets of texts and benchmarks, a run that resumes to the same rows, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import layerwise
from conftest import tiny_llama
from layerwise.errors import DataError, LayerwiseError, OptionError
from layerwise.experiments.reporter import Silent
from layerwise.experiments.result import RoutingResult
from layerwise.experiments.search import routing as module
from layerwise.experiments.search.config import Routing
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.selection import Rows
from layerwise.search.routing import questions
from layerwise.search.routing.questions import read_task_set
from layerwise.stack import Stack, load
from measure.language.local_tasks import write_tasks
from search.routing.planted_routing import TIMES
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH = 4
SMALL: dict[str, Any] = {"prefix": 1, "moves": ("drop",), "batch_tokens": 512, "max_length": 32, "reporter": Silent()}


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET), seed=2), tokenizer=character_tokenizer())


def write_questions(path: Path, count: int, word: str) -> Path:
    rows = []
    for number in range(count):
        prompt = f"{word} {number} is "
        rows.append({"text": prompt + chr(97 + number % 5), "answer_start": len(prompt), "id": f"{word}{number}"})
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tasks")
    write_questions(made / "first.jsonl", 70, "item")
    write_questions(made / "second.jsonl", 64, "thing")
    return made


@pytest.fixture(autouse=True)
def made_up_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a layer takes on a busy machine decides nothing here."""
    monkeypatch.setattr(module, "router_time", lambda *_: TIMES)


@pytest.fixture
def options(folder: Path) -> dict[str, Any]:
    return {"tasks": tuple(str(folder / name) for name in ("first.jsonl", "second.jsonl")), **SMALL}


def everything(folder: Path) -> tuple[list[object], ...]:
    with Run.open(folder) as run:
        return list(run.store.losses()), run.store.scores()


@pytest.fixture(scope="module")
def whole(stack: Stack, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RoutingResult:
    """A run that nothing disturbed, on two task sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "router_time", lambda *_: TIMES)
        tasks = tuple(str(folder / name) for name in ("first.jsonl", "second.jsonl"))
        return layerwise.search.route(stack, tasks=tasks, run=tmp_path_factory.mktemp("runs") / "whole", **SMALL)


def test_both_sets_and_both_ways_out_of_domain_have_a_verdict(whole: RoutingResult, options: dict[str, Any]) -> None:
    first, second = (Path(name).name for name in options["tasks"])
    assert set(whole.verdicts) == {first, second, f"{first} to {second}", f"{second} to {first}"}
    rows = Rows(whole.rows).where(measure="route")
    for fitted, task in ((None, first), (None, second), (first, second), (second, first)):
        own = rows.where(condition=fitted, task=task)
        for metric in ("accuracy", "nats"):
            assert own.where(arm="router", metric=metric)[0].low is not None
            assert own.where(arm="fixed", metric=f"{metric}_gain")[0].mde is not None
        layers = own.where(arm="router", metric="accuracy_layers")[0].value
        assert layers <= max(3.0, 2.0 + 0.5)  # 0.9 x 4, rounded down; the least


def test_questions_that_choose_candidates_are_not_routed(whole: RoutingResult) -> None:
    rows, _ = everything(whole.folder)
    plans = set(map(str, whole.router.plans))
    tried = {row.document for row in rows if row.plan not in plans}  # type: ignore[attr-defined]
    routed = {row.documents for row in whole.rows if row.measure == "route" and row.condition is None}
    assert tried
    assert routed == {70 - 14, 64 - 13}


def test_the_router_is_kept_and_routes_the_model(stack: Stack, whole: RoutingResult) -> None:
    routed = layerwise.RoutedStack(stack, whole.router)
    assert routed.plan_of("item 3 is ") in whole.router.plans
    assert all(plan.order()[0] == 0 for plan in whole.router.plans)
    assert Plan.identity(DEPTH) in whole.router.plans


@pytest.mark.slow
def test_benchmarks_are_judged_as_lm_eval_judges_them(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from layerwise.measure.interventions.sweep import sweep
    from measure.language.local_tasks import asked

    monkeypatch.setattr(questions, "FEWEST", 5)
    write_tasks(tmp_path, documents=40)
    plans = [Plan.identity(DEPTH), Plan.parse("0 2 3")]
    for name in ("arc_tiny", "winogrande_tiny", "lambada_tiny"):
        read = read_task_set(stack, name, folder=tmp_path, limit=None, length=None, batch_tokens=2048, seed=0)
        documents = list(dict.fromkeys((window.task, window.document) for window in read.data.windows))
        right = read.judged(documents, plans, sweep(stack, plans, read.data))["accuracy"]
        expected = asked(stack, plans, [name], folder=tmp_path)
        metric = "acc_norm" if name == "arc_tiny" else "acc"
        values = {row.plan: row.value for row in expected if row.metric == metric}
        for at, plan in enumerate(plans):
            assert right[:, at].mean() == pytest.approx(values[str(plan)])
        own = {document: [w for w in read.data.windows if (w.task, w.document) == document] for document in documents}
        for document, prompt in read.prompts.items():
            assert prompt
            assert all(window.ids[: len(prompt)] == prompt for window in own[document])


def test_a_prompt_is_what_stands_before_the_answer(stack: Stack, folder: Path) -> None:
    name = str(folder / "first.jsonl")
    read = read_task_set(stack, name, folder=None, limit=60, length=32, batch_tokens=512, seed=0)
    assert len(read.prompts) == 60
    texts = {stack.tokenizer.decode(ids[1:]) for ids in read.prompts.values()}
    assert all(text.startswith("item ") and text.endswith(" is ") for text in texts)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": "ms=0.8x"}, "priced in layers"),
        ({"moves": ("merge",)}, "drop, repeat and reorder"),
        ({"margin": 0.0}, "above 0"),
        ({"tasks": ()}, "--tasks NAMES"),
        ({"tasks": ("a", "a")}, "twice"),
        ({"moves": (), "width": 3}, "does nothing here"),
    ],
)
def test_options_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Routing(**{"model": "tiny", "tasks": ("piqa",), **changes})


def test_questions_and_plans_that_cannot_be_are_refused(stack: Stack, tmp_path: Path, options: dict[str, Any]) -> None:
    few = str(write_questions(tmp_path / "few.jsonl", 20, "few"))
    plain = tmp_path / "plain.txt"
    plain.write_text("nothing to answer\n")
    for changes, words in (
        ({"tasks": (few,)}, "needs 60 at least"),
        ({"tasks": (str(plain),)}, "marks its answer"),
        ({"plan": ("1-3",)}, "does not begin with 0"),
        ({"prefix": 3}, "at most half"),
    ):
        with pytest.raises(LayerwiseError, match=words):
            layerwise.search.route(stack, run=tmp_path / "run", **{**options, **changes})
    with pytest.raises(DataError):
        read_task_set(stack, few, folder=None, limit=None, length=32, batch_tokens=512, seed=0)
