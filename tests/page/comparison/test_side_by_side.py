"""Runs side by side: which can be compared, names of models, errors, and the page."""

from dataclasses import replace

import pytest

from layerwise.errors import RunError
from layerwise.page import ReportData, render
from layerwise.studies.compare.page import list_differences, list_missing
from layerwise.studies.compare.side_by_side import compare_side_by_side
from page import planted, synthetic
from page.comparison.several import diagnoses, named, sweeps

SMALL, LARGE = sweeps("small", "large")
FOLDER, RUN = SMALL
WITHOUT_PAIRS = named(synthetic.run(12, families=("painters",)), "few")


def names(*folders: tuple[str, ReportData]) -> tuple[str, ...]:
    return tuple(compare_side_by_side(folders).runs)


def test_models_of_the_same_name_are_named_by_their_runs() -> None:
    assert names(*sweeps()) == ("small", "medium", "large")
    one, two = (named(RUN, name) for name in ("a/model", "b/model"))
    assert names(("runs/x", one), ("runs/y", two)) == ("model (x)", "model (y)")
    assert names(("a/x", one), ("b/x", two)) == ("model (a/x)", "model (b/x)")


KINDS = "other must be a run of layerwise sweep or layerwise diagnose, got a run of another command"
REFUSED = [
    ((), "got none. Run layerwise compare RUN RUN"),
    ((SMALL,), "got only runs/small."),
    ((SMALL, ("copy", RUN)), "runs/small and copy are the same run"),
    ((SMALL, *diagnoses("large")), "runs/small is a sweep and runs/large is a diagnosis"),
    ((SMALL, *diagnoses("large")), "Compare sweeps with sweeps"),
    ((SMALL, ("other", planted.ROBUSTNESS)), f"{KINDS} (robustness)."),
    ((SMALL, ("other", planted.PRETRAINING)), "another command (pretraining and evaluation)."),
    ((SMALL, ("other", planted.GROWTH)), "another command (growth)."),
    ((SMALL, ("other", ReportData({}, (), ()))), "another command (no rows)."),
]


@pytest.mark.parametrize(("folders", "words"), REFUSED)
def test_runs_that_cannot_be_compared_are_rejected(folders: tuple[tuple[str, ReportData], ...], words: str) -> None:
    with pytest.raises(RunError) as refused:
        compare_side_by_side(folders)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        ((("x", RUN), ("y", named(RUN, "other"))), []),
        ((("x", RUN), ("y", named(RUN, "other", corpus_hash="another"))), ["not evaluated on the same text"]),
        ((("x", RUN), ("y", named(RUN, "other", tokens=5))), ["on different numbers of tokens"]),
        ((("x", RUN), ("y", named(RUN, "org/small", seed=1))), ["small (x) and small (y) are runs of the same model"]),
    ],
)
def test_differences_between_runs_are_reported(folders: list[tuple[str, ReportData]], words: list[str]) -> None:
    sentences = list(list_differences(compare_side_by_side(folders)))
    assert len(sentences) == len(words)
    assert all(word in sentence for word, sentence in zip(words, sentences, strict=True))


def test_missing_rows_of_a_run_are_listed() -> None:
    few = compare_side_by_side([SMALL, ("runs/few", WITHOUT_PAIRS)])
    assert list(list_missing(few)) == ["leave one out: missing in few", "swap adjacent: missing in few"]
    bare = named(synthetic.run(12, families=("leave_one_out",)), "bare")
    bare = replace(bare, scores=tuple(score for score in bare.scores if score.measure != "similarity"))
    page = render(compare_side_by_side([SMALL, LARGE, ("runs/bare", bare)]))
    for words in ("No curve was measured for bare.", "Similarity was not measured in bare.", "missing in bare"):
        assert words in page
