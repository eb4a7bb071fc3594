"""A frontier from end to end on planted times: what is chosen where, what is stored, and how it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import layerwise
from conftest import tiny_llama
from experiments.outlines import outline_of
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.errors import OptionError, PlanError, UnsupportedModel
from layerwise.experiments.engines.steps import SHORT
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.frontier import run
from layerwise.experiments.opening import tokenized
from layerwise.experiments.reporter import Silent
from layerwise.experiments.timing import run as timing
from layerwise.experiments.timing.config import LatencyFrontier
from layerwise.measure.cost.pass_time import Setting, TimedPlan
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.search.rungs import divided_text
from layerwise.stack import Stack, load
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH = 4
SMALL: dict[str, Any] = {
    "max_length": 16,
    "batch_tokens": 256,
    "tokens": 400,
    "sizes": 2,
    "rounds": 12,
    "context": 8,
    "reporter": Silent(),
}
MEASURED = ("frontier", "time", "time_round")


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET), seed=2), tokenizer=character_tokenizer())


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus("texts", tuple(Document(f"{number}", f"text number {number} of 30") for number in range(30)))


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that depend on the plan and the round alone: a stage a millisecond where groups run as one."""

    def times(
        stacks: Mapping[str, Stack], plans: Sequence[TimedPlan], settings: Sequence[Setting], number: int, **_: Any
    ) -> dict[tuple[str, Setting], float]:
        def one(each: TimedPlan) -> float:
            return float(each.plan.cost().stages if each.fused else each.plan.cost().evaluations)

        return {(str(each), setting): one(each) + number / 1000 for each in plans for setting in settings}

    monkeypatch.setattr(timing, "round_times", times)


@pytest.fixture(scope="module")
def whole(stack: Stack, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a frontier that nothing disturbed."""
    patch = pytest.MonkeyPatch()
    plant(patch)
    folder = tmp_path_factory.mktemp("runs") / "whole"
    layerwise.time.frontier(stack, corpus, run=folder, **SMALL)
    patch.undo()
    return folder


def everything(folder: Path) -> tuple[list[object], list[Score]]:
    with Run.open(folder) as opened:
        return list(opened.store.losses()), [row for row in opened.store.scores() if row.measure in MEASURED]


def test_every_arm_has_points_losses_times_and_every_parallel_plan_a_verdict(whole: Path) -> None:
    _, scores = everything(whole)
    rows = [row for row in scores if row.measure == "frontier"]
    arms = {row.plan: row.arm for row in rows if row.metric == "size"}
    assert set(arms.values()) == {"identity", "skip", "parallel", "parallel, fused", "looped"}
    losses = {row.plan: row for row in rows if (row.task, row.metric) == ("report", "delta_nll")}
    assert losses.keys() == arms.keys()
    assert all(row.low is not None and row.high is not None for row in losses.values())
    assert losses["0-3"].value == 0
    assert all(losses[name].value == losses[f"{name}, fused"].value for name in arms if f"{name}, fused" in arms)
    verdicts = {(row.plan, row.condition) for row in rows if row.metric in ("beaten", "best", "not_resolvable")}
    parallel = {name for name, arm in arms.items() if arm in ("parallel", "parallel, fused")}
    assert verdicts == {(name, f"{phase}, batch 1, context 8") for name in parallel for phase in ("prefill", "decode")}
    assert any(name.endswith(", fused") for name in parallel)
    times = {(row.plan, row.condition.partition(",")[0]): row for row in scores if row.metric == "ms"}
    assert times.keys() >= {(name, phase) for name in arms for phase in ("prefill", "decode")}


def test_no_document_that_chose_a_plan_is_reported_on(whole: Path) -> None:
    losses, _ = everything(whole)
    owners: dict[str, set[str]] = {"choose": set(), "report": set()}
    plans: dict[str, set[str]] = {"choose": set(), "report": set()}
    for row in losses:
        part = row.task.partition("/")[0]  # type: ignore[attr-defined]
        owners[part].add(row.document)  # type: ignore[attr-defined]
        plans[part].add(row.plan)  # type: ignore[attr-defined]
    assert not owners["choose"] & owners["report"]
    assert len(owners["report"]) > len(owners["choose"]) >= 8
    assert plans["report"] < plans["choose"]


def test_what_is_kept_lost_least_of_its_kind_where_it_was_chosen(whole: Path) -> None:
    losses, scores = everything(whole)
    total: dict[str, float] = {}
    for row in losses:
        if row.task.startswith("choose/"):  # type: ignore[attr-defined]
            total[row.plan] = total.get(row.plan, 0.0) + row.nll  # type: ignore[attr-defined]
    kept = {row.plan for row in scores if (row.arm, row.part, row.metric, row.value) == ("skip", "window", "size", 1)}
    windows = [str(Plan.of([layer for layer in range(DEPTH) if layer != gone])) for gone in range(DEPTH)]
    assert kept == {f"{min(windows, key=total.__getitem__)}, fused"}


@pytest.mark.slow
def test_a_healed_model_is_an_arm_of_its_own(
    stack: Stack, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands under its own name, on the same documents, and is read back when a run goes on before its rounds."""
    folder = tmp_path / "shallow"
    layerwise.save(stack, "0 1 3", folder)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as before:
        before.setattr(timing, "round_times", stopped)
        with pytest.raises(KeyboardInterrupt):
            layerwise.time.frontier(stack, corpus, run=tmp_path / "run", healed=(str(folder),), **SMALL)
    result = layerwise.time.frontier(stack, corpus, run=tmp_path / "run", healed=(str(folder),), **SMALL)
    (size,) = (row for row in result.rows if row.metric == "size" and row.arm == "healed")
    assert (size.plan, size.part, size.value) == ("healed shallow", "checkpoint", 1)
    with Run.open(tmp_path / "run") as opened:
        losses = {(row.plan, row.task, row.document): row.nll for row in opened.store.losses() if row.window == 0}
    mine = {key: value for key, value in losses.items() if key[0] == "healed shallow"}
    assert mine
    for (_, task, document), value in mine.items():
        if task.startswith("choose/"):
            assert value == pytest.approx(losses["0 1 3", task, document], rel=1e-5)


@pytest.mark.slow
def test_plans_are_healed_on_the_part_that_chooses_alone(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    many = Corpus("many", tuple(Document(f"{number}", f"number {number}") for number in range(300)))
    result = layerwise.time.frontier(stack, many, run=folder, heal_steps=2, **{**SMALL, "tokens": None})
    healed_arms = [row for row in result.rows if (row.arm, row.metric) == ("healed", "size")]
    assert 1 <= len(healed_arms) <= run.SIZES
    with Run.open(folder) as opened:
        chosen = {row.document for row in opened.store.losses() if row.task.startswith("choose/")}
    for path in (folder / "healed").iterdir():
        with Run.open(path) as opened:
            assert opened.manifest.corpus == "many, the part that chooses"
    settings = {name: value for name, value in SMALL.items() if name not in ("reporter", "tokens")}
    text = tokenized(LatencyFrontier(model="demo", **settings), stack, many, Silent(), 0)
    documents = run.documents_of(many, divided_text(text, 0, run.SHARES)["choose"])
    assert {document.id for document in documents.documents} == chosen


def test_a_model_of_another_vocabulary_is_refused(stack: Stack, corpus: Corpus, tmp_path: Path) -> None:
    tiny_llama(DEPTH, vocabulary=50).save_pretrained(tmp_path / "other")
    with pytest.raises(OptionError, match="vocabulary of 50"):
        layerwise.time.frontier(stack, corpus, run=tmp_path / "run", healed=(str(tmp_path / "other"),), **SMALL)


def test_a_model_of_three_layers_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    shallow = load(tiny_llama(3, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())
    with pytest.raises(PlanError, match="has 3 layers, and a frontier needs 4"):
        layerwise.time.frontier(shallow, corpus, run=tmp_path / "run", **SMALL)


def test_what_cannot_be_fused_is_noted_and_the_rest_is_measured(
    stack: Stack, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise UnsupportedModel("its layers are of a kind of their own")

    under = Stack.under

    def unfused(self: Stack, plan: Plan, **options: Any) -> Any:
        return refused() if options.get("fused") and "|" in str(plan) else under(self, plan, **options)

    monkeypatch.setattr(Stack, "under", unfused)
    folder = tmp_path / "run"
    result = layerwise.time.frontier(stack, corpus, run=folder, **SMALL)
    arms = {row.plan: row.arm for row in result.rows if row.metric == "size"}
    assert {", fused" in name for name, arm in arms.items() if arm == "parallel"} == {False}
    assert {", fused" in name for name, arm in arms.items() if arm == "skip"} == {True}
    assert "parallel, fused" not in arms.values()
    with Run.open(folder) as opened:
        notes = [note.text for note in opened.store.notes("frontier")]
    assert any("was not timed with its members as one" in text for text in notes)


def test_a_dry_run_says_what_would_be_measured(stack: Stack, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {name: value for name, value in SMALL.items() if name != "reporter"}
    outline = outline_of(LatencyFrontier(model="demo", **settings), Inputs(stack, corpus))
    said = "\n".join(outline.says())
    assert "texts, disjoint by document, in scored tokens: choose" in said
    assert "plans to choose from: 7 of skip" in said
    assert "12 rounds of everything in turns: prefill, batch 1, context 8; decode, batch 1, context 8" in said
    works = [work for unit in outline.ahead for work in unit.works(Path("new"), None)]
    assert sum(work.slow for work in works) < SHORT  # short for any processor
    costs = [work.measure(0.01) for work in works]
    assert len(costs) == 2
    assert all(cost.seconds > 0 for cost in costs)
