from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import tiny_llama
from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.errors import DataError
from layerwise.results import Manifest, Run
from layerwise.runner.minimal_pairs import (
    EvaluatedModel,
    Opened,
    ScoringOptions,
    describe_setting,
    discard_rows,
    evaluate_models,
)
from row_names import named
from tiny_tokenizers import character_tokenizer

PAIRS = PairSet(
    "pairs", "a few", tuple(MinimalPair(f"the {n} is", f"the {n} are", uid) for uid in ("a", "b") for n in range(4))
)
OTHER = PairSet("pairs mine.csv", "mine", (MinimalPair("abc", "cba", "own"),))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    manifest = Manifest("m", None, "w", "float32", "cpu", "c", "h", 1, 1, 1, ("evaluation",), (), 0)
    with Run.create(tmp_path / "run", manifest) as opened:
        yield opened


class Openings:
    def __init__(self) -> None:
        self.count = 0

    def examinee(self, variant: str, number: int, seed: int) -> EvaluatedModel:
        def open_model() -> Opened:
            self.count += 1
            tokenizer = character_tokenizer()
            return tiny_llama(1, vocabulary=len(tokenizer), seed=seed), tokenizer

        return EvaluatedModel(variant, number, open_model)


def test_every_model_on_every_suite_and_the_variants(run: Run) -> None:
    openings = Openings()
    examinees = [openings.examinee("elc", 0, 0), openings.examinee("elc", 1, 1)]
    evaluate_models(examinees, [PAIRS, OTHER], ScoringOptions(), run)
    assert openings.count == 2, "one opening serves both suites"
    for suite in (PAIRS.suite, OTHER.suite):
        found = {named(row): row for row in run.store.scores(suite, task="all", metric="accuracy")}
        assert set(found) == {"elc/0", "elc/1", "elc"}
        assert found["elc"].value == pytest.approx((found["elc/0"].value + found["elc/1"].value) / 2)
    assert "temperature 1" in run.store.notes("pairs")[0].text


def test_a_stopped_evaluation_goes_on_with_the_next_paradigm(run: Run) -> None:
    openings = Openings()
    told: list[str] = []

    def stop(label: str, share: float) -> None:
        told.append(label)
        if "b" in label.rpartition(": ")[2]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_models([openings.examinee("elc", 0, 0)], [PAIRS], ScoringOptions(), run, progress=stop)
    kept = {(row.kind, row.task) for row in run.store.scores("pairs")}
    assert kept == {("paradigm", "a")}
    told.clear()
    evaluate_models(
        [openings.examinee("elc", 0, 0)], [PAIRS], ScoringOptions(), run, progress=lambda label, _: told.append(label)
    )
    assert {label.rpartition(": ")[2] for label in told} == {"b"}
    resumed = run.store.scores("pairs")
    discard_rows([PAIRS], run)
    evaluate_models([openings.examinee("elc", 0, 0)], [PAIRS], ScoringOptions(), run)
    assert run.store.scores("pairs") == resumed
    before = openings.count
    evaluate_models([openings.examinee("elc", 0, 0)], [PAIRS], ScoringOptions(), run)
    assert openings.count == before, "nothing is missing, so nothing is opened"


def test_rows_that_were_made_in_another_way_do_not_stay(run: Run) -> None:
    openings = Openings()
    evaluate_models([openings.examinee("elc", 0, 0), openings.examinee("ltg", 0, 1)], [PAIRS], ScoringOptions(), run)
    evaluate_models([openings.examinee("elc", 0, 0)], [PAIRS], ScoringOptions(temperature=2.0), run)
    assert {named(row) for row in run.store.scores("pairs")} == {"elc/0", "elc"}
    assert [row.value for row in run.store.scores("pairs", metric="temperature")] == [2.0, 2.0]
    assert describe_setting(PAIRS, ScoringOptions()) != describe_setting(PAIRS.first(1), ScoringOptions())
    assert "float32 on cpu, 2 threads" in describe_setting(PAIRS, ScoringOptions(how="float32 on cpu, 2 threads"))
    assert "have two equal texts" in describe_setting(
        replace(OTHER, pairs=(MinimalPair("a", "a", "u"),)), ScoringOptions()
    )


def test_two_suites_of_one_name_are_refused(run: Run) -> None:
    with pytest.raises(DataError, match="must be unique, got 'pairs' twice"):
        evaluate_models([], [PAIRS, PAIRS], ScoringOptions(), run)
