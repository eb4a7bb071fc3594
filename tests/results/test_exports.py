"""Exports contain all rows, and Parquet files their provenance."""

import csv
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from layerwise.errors import RunError
from layerwise.results import export as export_run
from layerwise.results.exports import compute_perplexity
from layerwise.results.manifest import Manifest
from layerwise.results.rows import Loss, Score
from layerwise.results.run import Run
from results.samples import MANIFEST, RECORD, SCORE

LOSSES = [Loss("0-3", "prose", 'a, "b"\n.txt', number, 1 / 3 + number, 10, 4) for number in range(5)]
SCORES = [replace(SCORE, low=-1e-300), Score("similarity", "cka", 1.0, claim="1,2", task="prose")]
PLANS = [replace(RECORD, strategy="random", draw=9), RECORD]
TABLES: dict[str, list[Any]] = {"losses": LOSSES, "scores": SCORES, "plans": PLANS}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Run.create(tmp_path / "run", MANIFEST) as run:
        run.store.add_losses(LOSSES)
        run.store.replace_scores("effect", SCORES[:1])
        run.store.replace_scores("similarity", SCORES[1:])
        run.store.add_plans(PLANS)
    return tmp_path / "run"


def whole(row: Any) -> dict[str, Any]:
    if not isinstance(row, Score):
        return asdict(row)
    change = 100 * math.expm1(row.value) if row.metric == "delta_nll" else None
    return {**asdict(row), "perplexity": None, "perplexity_change": change}


@pytest.mark.parametrize(
    ("measure", "metric", "nats", "expected"),
    [
        ("effect", "nll", math.log(20), (pytest.approx(20.0), None)),
        ("effect", "delta_nll", math.log(1.5), (None, pytest.approx(50.0))),
        ("effect", "delta_nll", -math.log(2), (None, pytest.approx(-50.0))),
        ("ablation", "neighbor_average", math.log(635.19), (None, pytest.approx(63_419.0))),
        ("effect", "nll", 1e4, (None, None)),
        ("effect", "token_accuracy", 0.5, (None, None)),
        ("similarity", "cosine", 0.5, (None, None)),
    ],
)
def test_losses_become_perplexity_and_differences_its_change(
    measure: str, metric: str, nats: float, expected: tuple[Any, Any]
) -> None:
    assert compute_perplexity(Score(measure, metric, nats, claim="3")) == expected


def test_parquet_round_trips_rows_and_manifest(folder: Path) -> None:
    with Run.open(folder) as run:
        written = export_run(run)
    assert written == tuple(folder / "exports" / f"{name}.parquet" for name in TABLES)
    for path in written:
        table = parquet.read_table(path)
        assert table.to_pylist() == [whole(row) for row in TABLES[path.stem]]
        assert Manifest.from_json(table.schema.metadata[b"layerwise.manifest"].decode()) == MANIFEST


def test_csv_round_trips_rows(folder: Path) -> None:
    with Run.open(folder) as run:
        *written, manifest = export_run(run, format="csv")
    assert Manifest.from_json(manifest.read_text()) == MANIFEST
    for path in written:
        with path.open(newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file))
        expected = [
            {name: "" if value is None else str(value) for name, value in whole(row).items()}
            for row in TABLES[path.stem]
        ]
        assert found == expected
        if path.stem == "losses":
            assert [float(row["nll"]) for row in found] == [row.nll for row in LOSSES]


STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＠")


def test_csv_text_is_never_a_formula(tmp_path: Path) -> None:
    losses = [Loss(f"{sign}1+1", f"{sign}t", f"{sign}cmd|' /C calc'!A0", 0, -1.5, 10, 4) for sign in STARTS]
    scores = [Score("effect", "m", -0.5, -1.0, 1e-9, claim=f"{sign}x", task="t") for sign in STARTS]
    with Run.create(tmp_path / "run", MANIFEST) as run:
        run.store.add_losses(losses)
        run.store.replace_scores("effect", scores)
        tables = {path.stem: path for path in export_run(run, format="csv")}
    with tables["losses"].open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    for row in found:
        assert all(not row[name].startswith(STARTS[:7]) for name in ("plan", "task", "document"))
        assert float(row["nll"]) == -1.5
        assert row["nll"] == "-1.5"
    assert sorted(row["plan"].removeprefix("'") for row in found) == sorted(loss.plan for loss in losses)
    assert sorted(row["document"].removeprefix("'") for row in found) == sorted(loss.document for loss in losses)
    with tables["scores"].open(newline="", encoding="utf-8") as file:
        assert [(row["claim"].removeprefix("'"), row["value"], row["low"]) for row in csv.DictReader(file)] == [
            (score.claim, "-0.5", "-1.0") for score in scores
        ]


def test_unknown_formats_are_refused(folder: Path) -> None:
    with Run.open(folder) as run, pytest.raises(RunError, match="did you mean parquet"):
        export_run(run, format="parket")  # type: ignore[arg-type]


def test_an_unusable_folder_is_reported(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Run.open(folder) as run, pytest.raises(RunError, match="Choose another"):
        export_run(run, tmp_path / "file" / "exports")
