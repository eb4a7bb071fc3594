"""A search from end to end: disjoint texts, resumption to the same front, and errors."""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import layerwise
from conftest import tiny_llama
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.errors import DataError, OptionError
from layerwise.measure.cost.pass_time import Setting
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.plan import Plan
from layerwise.plan.families import INTEGER_TYPES
from layerwise.results import Run
from layerwise.results.rows import read_continuations
from layerwise.results.selection import PRESENT, Rows
from layerwise.runner.plan_choice import resolve_plan
from layerwise.runner.reporter import Silent
from layerwise.runner.result import SearchResult
from layerwise.search.budget import Budget
from layerwise.search.costs import CostTable, PlanCosts
from layerwise.search.rungs import SHARES, share_no_document, split_text
from layerwise.stack import Stack, load
from layerwise.studies.search.page import derive_front
from studies.describing import describe_call
from tier import first_fast
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH = 5
SMALL: dict[str, Any] = {
    "max_length": 16,
    "batch_tokens": 256,
    "tokens": 700,
    "dtype": "float32",
    "reporter": Silent(),
}


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET), seed=2), tokenizer=character_tokenizer())


def texts(name: str, count: int, words: str) -> Corpus:
    documents = (Document(f"{number}", f"{words} {number} of {count}") for number in range(count))
    return Corpus(name, tuple(documents))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return texts("texts", 44, "text number")


@pytest.fixture(scope="module")
def whole(stack: Stack, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    result = layerwise.search(stack, corpus, Budget(layers=3), run=folder, **SMALL)
    return result.folder


def everything(folder: Path) -> tuple[list[object], ...]:
    with Run.open(folder) as run:
        scores = [score for score in run.store.scores() if score.measure != "run"]
        return list(run.store.losses()), scores


def test_a_search_returns_the_best_plan_its_front_and_confirmation(whole: Path) -> None:
    from layerwise.search.budget import FrontPoint

    result = SearchResult(whole)
    assert callable(layerwise.search)
    assert len(result.best.steps()) == 3
    assert all(isinstance(point, FrontPoint) for point in result.front)
    assert [point.cost for point in result.front] == sorted(point.cost for point in result.front)
    assert set(result.confirmed.metric) >= {"delta_nll", "again", "gap", "above_chosen", "better"}
    assert resolve_plan(str(whole)) == result.best
    samples = read_continuations(result.data.notes)
    assert [each.plan for each in samples] == ["0-4", str(result.best)]
    assert all(each.text for each in samples)
    assert next(iter(dict.fromkeys(row.plan for row in derive_front(result.data)))) == str(result.best)


def test_search_selection_and_report_read_disjoint_documents(whole: Path) -> None:
    rows, _ = everything(whole)
    owners: dict[str, set[str]] = {name: set() for name in SHARES}
    for row in rows:
        owners[row.task.partition("/")[0]].add(row.document)  # type: ignore[attr-defined]
    assert all(owners.values())
    counts = Counter(document for documents in owners.values() for document in documents)
    assert set(counts.values()) == {1}


def test_controls_are_compared_with_the_selected_plan(whole: Path) -> None:
    with Run.open(whole) as run:
        rows = run.store.scores("search")
    controls = {row.variant for row in rows if row.metric == "control_plan"}
    assert controls == {"block_influence", "angular_distance", "sweep_effect", "deepest_keep_last", "random"}
    sets = {str(row.plan) for row in rows if (row.metric, row.variant) == ("control_plan", "random")}
    assert len(sets) == 10  # all sets of 3 of 5 layers
    assert all(len(Plan.parse(text).steps()) == 3 for text in sets)
    compared = [row for row in rows if row.metric == "above_chosen"]
    assert all(row.p_adjusted is not None and row.p_adjusted >= (row.p or 0) for row in compared)


def test_a_second_corpus_and_milliseconds_are_reported(
    stack: Stack, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def timed(stack: Stack, setting: Setting, plans: Sequence[Plan] = ()) -> tuple[CostTable, dict[Plan, float]]:
        calls.append(len(plans))
        costs = {None: 1.0, "attn": 0.6, "mlp": 0.6}
        table = CostTable({(layer, half): cost for layer in range(DEPTH) for half, cost in costs.items()}, 0.5)
        return table, {plan: 0.6 + len(plan.steps()) for plan in plans}

    monkeypatch.setattr("layerwise.studies.search.steps.measure_milliseconds", timed)
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / "a.txt").write_text("\n<|endoftext|>\n".join(f"sphinx of black quartz {n}" for n in range(12)))
    result = layerwise.search(
        stack, corpus, Budget(ms="0.8x"), second_text=folder, context=12, run=tmp_path / "run", **SMALL
    )
    rows = {(row.task, row.unit, row.metric) for row in result.rows if row.plan == str(result.best)}
    assert {("second", None, "delta_nll"), ("all", "ms", "cost"), ("report", None, "gap")} <= rows
    times = Rows(result.rows).where(measure="latency")
    assert {(row.layer, row.part) for row in times} >= {(0, None), (0, "attn"), (0, "mlp"), (None, "rest")}
    assert "0-4" in times.axis("plan")
    assert all(row.value > 0 for row in times)
    assert calls == [0, 2]
    assert len(result.best.steps()) == 3


def test_edits_are_compared_in_bfloat16_and_confirmed_in_float32(
    whole: Path, stack: Stack, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layerwise.stack.rounding.has_bfloat16", lambda device: True)
    result = layerwise.search(stack, corpus, Budget(layers=3), run=tmp_path / "run", **{**SMALL, "dtype": "auto"})
    losses: dict[bool, dict[tuple[Any, ...], float]] = {}
    for folder in (whole, result.folder):
        with Run.open(folder) as run:
            is_exact = "compared_in" not in run.manifest.numerics
            losses[is_exact] = {(row.task, row.document, row.plan): row.nll for row in run.store.losses()}
    exact, compared = losses[True], losses[False]
    searched = {key for key in exact if key[0].startswith("search/")} & compared.keys()
    held_out = {key for key in exact if not key[0].startswith("search/")} & compared.keys()
    assert all(exact[key] != compared[key] == pytest.approx(exact[key], rel=0.01) for key in searched)
    assert all(exact[key] == compared[key] for key in held_out)
    assert searched
    assert held_out


def test_a_search_says_how_long_it_still_takes_after_every_plan(stack: Stack, corpus: Corpus, tmp_path: Path) -> None:
    said: dict[str, list[float]] = {}

    class Watching(Silent):
        def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
            if label in SHARES:
                assert seconds_left is not None
                said.setdefault(label, []).append(share)

    options = {**SMALL, "reporter": Watching()}
    layerwise.search(stack, corpus, Budget(layers=3), method="one-shot", run=tmp_path / "run", **options)
    assert {name: shares == sorted(shares) for name, shares in said.items()} == dict.fromkeys(SHARES, True)
    assert len(said["search"]) > DEPTH
    assert all(0.15 < shares[-1] <= 1 for shares in said.values())


@pytest.mark.parametrize("count", [24, 31, 39, 40, 44])
def test_a_short_text_reserves_eight_documents_for_selection(stack: Stack, count: int) -> None:
    data = tokenize(stack, texts("texts", count, "text number"), length=16)
    sizes = {name: part.documents for name, part in split_text(data, 0).items()}
    assert sum(sizes.values()) == count
    assert sizes["select"] == (8 if count <= 40 else round(0.6 * count) - round(0.4 * count))
    assert abs(sizes["search"] - sizes["report"]) <= 1
    assert min(sizes.values()) >= 8


@pytest.mark.parametrize(
    ("words", "apart"), [((300,) * 3, True), ((60,) * 12, True), ((300, 300, 10), False), ((300, 300), False)]
)
def test_parts_share_no_document_if_each_has_eight_windows(stack: Stack, words: tuple[int, ...], apart: bool) -> None:
    numbers = (" ".join(str(1000 * at + word) for word in range(count)) for at, count in enumerate(words, start=1))
    data = tokenize(stack, Corpus("few", tuple(Document(str(at), text) for at, text in enumerate(numbers))), length=16)
    parts = split_text(data, 0)
    assert share_no_document(parts.values()) is apart
    assert min(len(part.windows) for part in parts.values()) >= 8
    assert sum(len(part.windows) for part in parts.values()) == len(data.windows)


@pytest.mark.parametrize(
    "options", first_fast([{"method": "one-shot"}, {"method": "evolve"}, {"edits": ("drop", "sublayers"), "width": 2}])
)
def test_every_method_meets_the_budget(stack: Stack, corpus: Corpus, tmp_path: Path, options: dict[str, Any]) -> None:
    result = layerwise.search(stack, corpus, Budget(layers=3), run=tmp_path / "run", **SMALL, **options)
    price = sum(1.0 if step.sublayer is None else 0.5 for step in result.best.steps())
    assert price <= 3
    assert result.report(tmp_path / "page.html").read_text().count("search-front")


@pytest.mark.parametrize("edits", first_fast([("bits",), ("bits", "drop")]))
def test_quantization_fits_a_budget_of_bytes(
    stack: Stack, corpus: Corpus, tmp_path: Path, edits: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf", reason="needs layerwise[gguf]")
    from stack.test_load_gguf import write

    monkeypatch.chdir(tmp_path)
    (tmp_path / stack.source.name).mkdir()
    names = [f"blk.{layer}.ffn_up" for layer in range(DEPTH)]
    sums, counts = {name: [[float(layer)]] for layer, name in enumerate(names)}, {name: [[1.0]] for name in names}
    write(tmp_path / stack.source.name / "imatrix.gguf", sums, counts)
    result = layerwise.search(stack, corpus, Budget(bytes="0.45x"), edits=edits, run=tmp_path / "run", **SMALL)
    rows = Rows(result.rows)
    costs = PlanCosts.from_stack(stack)
    limit = 0.45 * costs.compute(Plan.identity(DEPTH), "bytes")
    assert any(step.source for step in result.best.steps())
    assert {"uniform", "first_and_last", "block_influence", "imatrix", "random"} <= {
        *rows.where(metric="control_plan").axis("variant")
    }
    assert all(
        costs.compute(Plan.parse(plan), "bytes") <= limit for plan in rows.where(metric="control_plan").axis("plan")
    )
    assert costs.compute(result.best, "bytes") <= limit
    of_chosen = rows.where(metric="bits", variant="chosen")
    assert {(row.layer, row.condition) for row in of_chosen} == {
        (step.layer, step.source) for step in result.best.steps()
    }
    alone = rows.where(measure="contrast", claim="bits", metric="delta_nll", layer=PRESENT)
    assert {(row.layer, row.condition) for row in alone} == {*product(range(DEPTH), INTEGER_TYPES)}
    assert "Bits per weight, layer by layer" in result.report(tmp_path / "page.html").read_text()


@pytest.mark.parametrize("method", first_fast(["evolve", "greedy"]))
def test_another_model_provides_layers(stack: Stack, corpus: Corpus, tmp_path: Path, method: str) -> None:
    other = tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET), seed=3)
    other.save_pretrained(tmp_path / "other")
    result = layerwise.search(
        stack, corpus, "layers=1x", source=(str(tmp_path / "other"),), method=method, run=tmp_path / "run", **SMALL
    )
    plans = map(Plan.parse, Rows(result.rows).where(metric="cost").axis("plan"))
    assert {source for plan in plans for source in plan.sources()} == {"b"}
    assert len(result.best.steps()) == DEPTH
    with Run.open(tmp_path / "run") as run:
        assert any(family.startswith("b:") for family in run.manifest.families)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"budget": "layers"}, "must be a positive number, or a multiple"),
        ({"budget": "watts=3"}, "the unit of a budget must be one of"),
        ({"budget": "layers=0"}, "must be a positive number, or a multiple"),
        ({"budget": "layers=3", "edits": ("dorp",)}, "did you mean drop"),
        (
            {"budget": "layers=3", "edits": ("repeat",)},
            "edits must include one that makes a plan cheaper .*, got repeat",
        ),
        ({"budget": "layers=0.9x", "edits": ("damp",)}, "above the original model, such as layers=2x"),
        (
            {"budget": "layers=3", "method": "evolve", "edits": ("drop", "repeat")},
            "evolve requires edits drop,sublayers",
        ),
        ({"budget": "layers=3", "edits": ("bits",)}, "edits bits requires a budget of bytes, got layers=3"),
        (
            {"budget": "bytes=0.5x", "edits": ("bits", "sublayers")},
            "can only be combined with drop, repeat, reorder, got sublayers",
        ),
        ({"budget": "bytes=0.5x", "edits": ("bits",), "source": ("b",)}, "edits bits and source cannot be combined"),
        ({"budget": "layers=3", "context": 9}, "context requires latency or budget ms=NUMBER"),
        (
            {"budget": "layers=3", "method": "one-shot", "source": ("b",)},
            "source requires method auto",
        ),
        ({"budget": "layers=3", "method": "evolve", "width": 2}, "width requires method auto or greedy"),
    ],
)
def test_invalid_options_are_rejected_before_a_model_is_loaded(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        layerwise.search("nothing", **options, reporter=Silent())


def test_the_original_model_is_selected_if_no_repeat_helps(tmp_path: Path) -> None:
    result = layerwise.search(
        "demo",
        None,
        "layers=1.2x",
        edits=("repeat",),
        width=1,
        tokens=2000,
        dtype="float32",
        run=tmp_path / "run",
        reporter=Silent(),
    )
    rows = Rows(result.rows)
    (change,) = rows.where(metric="control_plan", variant="best_change")
    assert len(Plan.parse(str(change.plan)).steps()) > len(result.best.steps())
    assert rows.where(metric="above_chosen", variant="best_change", task="report")
    assert result.best == Plan.identity(12)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "the original model, because no plan was better" in page
    assert "layerwise heal" not in page


def test_a_budget_above_the_original_model_and_too_little_text_are_errors(stack: Stack, corpus: Corpus) -> None:
    with pytest.raises(OptionError, match="must be below the cost of the original model, 5 layers, got layers=5"):
        describe_call(layerwise.search, stack, corpus, "layers=5")
    with pytest.raises(DataError, match="must have at least 24 documents or windows"):
        describe_call(layerwise.search, stack, texts("few", 9, "short"), "layers=3")


def test_a_budget_as_text_resumes_the_same_run(whole: Path, stack: Stack, corpus: Corpus) -> None:
    before = everything(whole)
    assert layerwise.search(stack, corpus, "layers=3", run=whole, **SMALL).folder == whole
    assert everything(whole) == before
    with Run.open(whole) as run:
        assert run.manifest.experiment["budget"] == "layers=3"
