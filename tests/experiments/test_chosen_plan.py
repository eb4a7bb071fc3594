"""What a command takes for a plan: its text, or the run of a search that chose one."""

from pathlib import Path

import pytest

from layerwise.errors import PlanError
from layerwise.experiments.options.plans import chosen_plan
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score
from layerwise.results.vocabulary import CHOSEN, SEARCH

MANIFEST = Manifest("m", None, "w", "float32", "cpu", "c", "h", 1, 1, 1, (), (), 0)


def test_a_text_is_a_plan() -> None:
    assert chosen_plan("0-3 6-11") == Plan.parse("0-3 6-11")
    with pytest.raises(PlanError):
        chosen_plan("runs/nothing")


def test_the_folder_of_a_search_stands_for_the_plan_that_it_chose(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", MANIFEST) as run:
        rows = [
            Score(SEARCH, "front", 2.0, plan="0-3", condition="ms"),
            Score(SEARCH, CHOSEN, 1.5, plan="0-2", condition="layers", against="layers=3"),
        ]
        run.store.replace_scores(SEARCH, rows)
    assert chosen_plan(str(tmp_path / "run")) == Plan.parse("0-2")


def test_a_run_that_chose_none_is_refused(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", MANIFEST):
        pass
    with pytest.raises(PlanError, match="has chosen no plan"):
        chosen_plan(str(tmp_path / "run"))
