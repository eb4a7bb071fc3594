"""Which runs stand side by side, what their models are called, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.errors import RunError
from layerwise.report import Compared, ReportData
from layerwise.report.comparison.tables import model_rows
from layerwise.results.rows import Score
from report import grown, pretrained, robust, synthetic
from report.comparison.several import diagnoses, named, sweeps


def refusal(*folders: tuple[str, ReportData]) -> str:
    with pytest.raises(RunError) as refused:
        Compared.of(folders)
    return str(refused.value)


def test_models_are_called_by_their_names_and_have_a_colour_each() -> None:
    compared = Compared.of(sweeps())
    assert compared.kind == "sweep"
    assert compared.slots == {"small": 0, "medium": 1, "large": 2}
    assert [run.evidence.depth for run in compared.runs] == [8, 12, 20]


def test_models_of_one_name_are_told_apart_by_their_runs() -> None:
    data = synthetic.run(8)
    one, two = (named(data, name) for name in ("a/model", "b/model"))
    assert Compared.of([("runs/x", one), ("runs/y", two)]).names == ("model (x)", "model (y)")
    assert Compared.of([("a/x", one), ("b/x", two)]).names == ("model (a/x)", "model (b/x)")


def test_fewer_than_two_runs_are_refused() -> None:
    assert "no run was given; write layerwise compare RUN RUN" in refusal()
    assert "only runs/small was given" in refusal(*sweeps("small"))


def test_the_same_run_twice_is_refused_also_as_a_copy() -> None:
    ((folder, data),) = sweeps("small")
    assert refusal((folder, data), (folder, data)).startswith("runs/small is named twice")
    assert refusal((folder, data), ("copy", data)).startswith("runs/small and copy hold the same run")


def test_a_sweep_and_a_diagnosis_are_not_compared() -> None:
    said = refusal(*sweeps("small"), *diagnoses("large"))
    assert said.startswith("runs/small is a sweep and runs/large is a diagnosis")
    assert "compare sweeps with sweeps" in said


@pytest.mark.parametrize(
    ("data", "kind"),
    [(robust.run(), "robustness"), (pretrained.run(), "pretraining"), (grown.run(), "growth")],
    ids=["robustness", "pretraining", "growth"],
)
def test_runs_of_trainings_are_refused_by_their_kind(data: ReportData, kind: str) -> None:
    said = refusal(*sweeps("small"), ("runs/other", data))
    assert said.startswith("runs/other is a run of another kind (")
    assert kind in said
    assert said.endswith("layerwise compare takes the runs of layerwise sweep or of layerwise diagnose")


def test_other_texts_and_token_counts_are_allowed_and_said() -> None:
    ((first, data), (second, other)) = sweeps("small", "large")
    assert Compared.of([(first, data), (second, other)]).differences() == ()
    moved = replace(other, manifest={**other.manifest, "corpus_hash": "another", "tokens": 5})
    text, tokens = Compared.of([(first, data), (second, moved)]).differences()
    assert "not measured on the same text" in text
    assert "numbers of tokens differ" in tokens


def test_two_runs_of_one_model_are_allowed_and_said() -> None:
    data = synthetic.run(8)
    again = replace(data, manifest={**data.manifest, "seed": 1})
    (said,) = Compared.of([("x", data), ("y", again)]).differences()
    assert "(x) and demo-12-layers (y) are runs of one model and count as one" in said


def test_what_some_run_lacks_is_listed() -> None:
    few = named(synthetic.run(12, families=("painters",)), "few")
    compared = Compared.of([*sweeps("small"), ("runs/few", few)])
    assert compared.missing() == {"leave_one_out": ("few",), "swap_adjacent": ("few",)}
    assert "predictability" in Compared.of(diagnoses()).runs[0].measured


def test_the_table_has_the_parameters_where_the_run_counted_them() -> None:
    (first, data), second = sweeps("small", "large")
    counted = replace(data, scores=(*data.scores, Score("run", "model", "all", "parameters", 1234567.0)))
    rows = model_rows(Compared.of([(first, counted), second])).body
    assert rows[0][:5] == ("small", "8", "1,234,567", "240", "45,000")
    assert rows[1][2] == "–"
