"""The text, figures and pages of the stored runs equal the frozen ones."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from layerwise.page import ReportData
from layerwise.page.kinds import load_judges
from layerwise.results.rows import Score
from tools.golden import outputs
from tools.golden.commands import COMMANDS, differences
from tools.golden.stored_run import read_run, rows_of, stored_text, text_of, write_run

KINDS = outputs.kinds()
STORED = [kind for kind in KINDS if kind not in outputs.COMPARED]
MOST_BYTES = 3_000_000  # of all files together, which are read in a review and cloned by everybody


@cache
def rendered(kind: str) -> dict[str, str]:
    return outputs.rendered(kind)


@pytest.mark.parametrize("name", outputs.OUTPUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_output_is_what_was_frozen(kind: str, name: str) -> None:
    found = outputs.difference(kind, name, rendered(kind)[name])
    assert found is None, found


@pytest.mark.parametrize("name", outputs.OUTPUTS)
def test_a_difference_names_the_file_and_what_to_write(name: str) -> None:
    found = outputs.difference("sweep", name, rendered("sweep")[name].replace("1", "2", 1))
    assert f"tests/golden/sweep/{name}" in found
    assert "python -m tools.golden write sweep" in found
    assert len(found.splitlines()) < 20


@pytest.mark.parametrize("kind", STORED)
def test_stored_rows_are_written_as_they_are_read(kind: str, tmp_path: Path) -> None:
    folder = outputs.FOLDER / kind
    write_run(tmp_path, read_run(folder))
    assert stored_text(tmp_path) == stored_text(folder)
    assert (folder / COMMANDS).read_text().strip()


def test_a_column_that_is_newer_than_a_file_has_its_default_and_one_that_is_gone_is_refused() -> None:
    row = Score("effect", "delta_nll", 0.1, tokens=9, plan="0 2")
    data = ReportData({"model": "demo"}, (), (row,))
    text = text_of(data)
    assert rows_of(text, "a run") == data
    older = text.replace(', "task", "plan"]', ', "task"]').replace(',"0 2"]', "]")
    assert rows_of(older, "a run").scores == (replace(row, plan=None),)
    with pytest.raises(ValueError, match=r"\['words'\], which a Score does not have"):
        rows_of(text.replace('"tokens"', '"words"'), "a run")


def test_rows_are_compared_to_the_bit_and_those_of_a_clock_are_not() -> None:
    scores = (Score("effect", "delta_nll", 0.1, plan="0 2"), Score("run", "wall time (seconds)", 3.0, section="sweep"))
    stored = ReportData({}, (), scores)
    slower = replace(stored, scores=(scores[0], replace(scores[1], value=4.0)))
    assert list(differences(stored, slower)) == []
    renamed = replace(stored, scores=(replace(scores[0], claim="0,2"), scores[1]))
    (found,) = differences(stored, renamed)
    assert found.startswith("name of a score 0 was")
    moved = replace(stored, scores=(replace(scores[0], value=0.1 + 2**-55), scores[1]))
    (found,) = differences(stored, moved)
    assert found.startswith("score 0 was")


def test_the_golden_runs_are_small() -> None:
    files = [path for path in outputs.FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES


def test_every_published_question_is_answered_by_some_stored_run() -> None:
    runs = [outputs.stored(kind) for kind in STORED]
    assert [judge for judge in load_judges() if all(judge(run) is None for run in runs)] == []
