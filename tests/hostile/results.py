"""Bad input that concerns run folders: their manifests, their tables, their reports and their exports."""

from __future__ import annotations

import csv
from pathlib import Path

from apart import Ended
from hostile import runs
from hostile.case import Case
from hostile.material import device, empty_folder, model_and_texts, pipe, sparse

SWEEP = ("sweep", "model", "--families", "leave_one_out", "--no-similarity", "--text", "texts", "--run", "run")
REPORT = ("report", "run")
DAMAGED = ("run.sqlite is damaged", "Restore the folder from a copy")


def _no_markup(folder: Path, ended: Ended) -> None:
    assert "<script>alert" not in ended.out
    assert "](http" not in ended.out.replace("\\](http", "")
    assert "\x1b" not in ended.out


def _page_is_text(folder: Path, ended: Ended) -> None:
    page = (folder / "run" / "report.html").read_text()
    assert "&lt;script&gt;alert" in page
    assert "<script>alert" not in page


def _no_formulas(folder: Path, ended: Ended) -> None:
    with (folder / "run" / "exports" / "losses.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(row["plan"][0] not in "=+-@\t\r" and row["document"][0] not in "=+-@\t\r" for row in rows)
    assert {float(row["nll"]) for row in rows} == {-2.5}


HOSTILE = "<script>alert(1)</script> [a](http://b.c) | \x1b[2J \r\n # h"

MANIFESTS: tuple[tuple[str, runs.Make, str], ...] = (
    ("raw bytes", runs.manifest(b"\xff\xfe\0\0"), "is not UTF-8 text"),
    ("nested a million times", runs.manifest("[" * 1_000_000), "nested too deeply"),
    ("a number of 5,000 digits", runs.manifest('{"seed": ' + "9" * 5000 + "}"), "4,300 digits"),
    ("of another layout", runs.manifest(format=99), "unknown ['format']"),
    ("a folder", runs.replaced("manifest.json", empty_folder), "is a folder, not a file"),
    ("a pipe", runs.replaced("manifest.json", pipe), "is a pipe, not a file"),
    ("of three gigabytes", runs.replaced("manifest.json", sparse), "has 3.2 GB"),
)

TABLES: tuple[tuple[str, runs.Make, tuple[str, ...]], ...] = (
    ("a loss in words", runs.tables("UPDATE losses SET nll = 'abc'"), (*DAMAGED, 'is "abc" where a number belongs')),
    (
        "a view without end",
        runs.tables(
            "ALTER TABLE losses RENAME TO l",
            "CREATE VIEW losses AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
            "SELECT 1 AS document, n AS window, 1 AS plan, 1.0 AS nll, 2 AS tokens, 1 AS hits, 1 AS session FROM r",
        ),
        ("has no table losses",),
    ),
    ("no rows", runs.tables("DELETE FROM losses; DELETE FROM scores"), ("stopped before its first",)),
    (
        "a name of 5,000 digits",
        runs.tables(
            "UPDATE scores SET measure = 'ablation', metric = 'skip', claim = replace(hex(zeroblob(2500)), '0', '9')"
        ),
        ("beyond any layer",),
    ),
    (
        "a layer beyond all",
        runs.tables("UPDATE scores SET measure = 'ablation', metric = 'skip', layer = 99999999999"),
        ("no model has more than 10,000",),
    ),
    ("damage", runs.replaced("run.sqlite", b"SQLite format 3\0" + b"\xff" * 4096), ("is damaged",)),
    (
        "another program's tables",
        runs.tables("DROP TABLE losses; DROP TABLE scores; DROP TABLE plans; CREATE TABLE bookmarks (address TEXT)"),
        ("is not the database of a run",),
    ),
    ("a pipe", runs.replaced("run.sqlite", pipe), ("holds no rows",)),
    ("a folder", runs.replaced("run.sqlite", empty_folder), ("holds no rows",)),
    ("zeros without end", runs.replaced("run.sqlite", device), ("holds no rows",)),
)


def _file(folder: Path) -> None:
    runs.run(folder)
    (folder / "file").write_text("a letter")


def _device(folder: Path) -> None:
    runs.run(folder)
    (folder / "full").symlink_to("/dev/full")  # and never the device itself, which a wrong answer would replace


def _named(folder: Path) -> None:
    runs.manifest(model=HOSTILE, corpus=HOSTILE, command=[HOSTILE])(folder)


def _formulas(folder: Path) -> None:
    runs.tables(
        "UPDATE plan_texts SET text = '=1+' || id",
        "UPDATE documents SET name = '@' || name",
        "UPDATE losses SET nll = -2.5",
    )(folder)


def _no_identity(folder: Path) -> None:
    runs.tables("DELETE FROM losses WHERE plan = (SELECT id FROM plan_texts WHERE text = '0-3')")(folder)


PAGES: tuple[Case, ...] = (
    Case("a report into a folder", (*REPORT, "--output", "run"), ("could not be written",), _file),
    Case("a report into nothing", (*REPORT, "--output", "."), ("could not be written",), _file),
    Case("a report into an empty name", (*REPORT, "--output="), ("--output was given an empty text",), _file),
    Case("a report beneath a file", (*REPORT, "--output", "file/report.html"), ("could not be written",), _file),
    Case("a report into no folder", (*REPORT, "--output", "nowhere/report.html"), ("could not be written",), _file),
    Case("a report into /proc", (*REPORT, "--output", "/proc/report.html"), ("could not be written",), _file),
    Case("a report into a full device", (*REPORT, "--output", "full"), ("could not be written",), _device),
    Case("a report under a name that is too long", (*REPORT, "--output", "x" * 300), ("cannot be looked up",), _file),
    Case("a report where a pipe lies", REPORT, ("could not be written",), runs.replaced("report.html", pipe)),
    Case("a report without the model as trained", REPORT, None, _no_identity),
    Case("a page of names with markup", REPORT, None, _named, check=_page_is_text),
    Case("Markdown of names with markup", (*REPORT, "--format", "markdown"), None, _named, check=_no_markup),
    Case("a run that is a file", ("report", "file"), ("is not a run",), _file),
    Case("a run beneath a file", ("report", "file/run"), ("is not a run",), _file),
    Case("a run with a name that is too long", ("report", "x" * 5000), ("RUN was given", "File name too long"), _file),
    Case("an export of formulas", ("report", "run", "--format", "csv"), None, _formulas, check=_no_formulas),
    Case("an export beneath a file", (*REPORT, "--format", "csv", "--output", "file/x"), ("Cannot use",), _file),
    Case("an export into nothing", (*REPORT, "--format", "csv", "--output="), ("--output was given an empty",), _file),
    Case("an export of another format", (*REPORT, "--format", "excel"), ("there is no format 'excel'",), _file),
)

PEDIGREES: tuple[Case, ...] = tuple(
    Case(f"a pedigree with {name}", ("robustness", "run"), (said,), make)
    for name, make, said in (
        ("nothing in it", runs.trained(""), "is not JSON"),
        ("a seed that is no number", runs.trained(seed="seed-x"), "holds no finished model"),
    )
)


def _locked(folder: Path) -> None:
    model_and_texts(folder)
    (folder / "run").mkdir()
    (folder / "run" / "run.lock").symlink_to("/dev/full")


def _lock_is_a_pipe(folder: Path) -> None:
    model_and_texts(folder)
    (folder / "run").mkdir()
    pipe(folder / "run" / "run.lock")


def _file_for_a_run(folder: Path) -> None:
    model_and_texts(folder)
    (folder / "run").write_text("a letter")


RESUMED: tuple[Case, ...] = (
    Case("a sweep into a full disk", SWEEP, ("Cannot write", "Free some space"), _locked),
    Case("a sweep into a folder whose lock is a pipe", SWEEP, ("Cannot write", "run.lock"), _lock_is_a_pipe),
    Case("a sweep into a file", SWEEP, ("Cannot make the run folder",), _file_for_a_run),
    Case("a sweep into no folder", (*SWEEP[:-1], "/proc/run"), ("Cannot make the run folder",), model_and_texts),
    Case(
        "a schedule from a run that is no diagnosis",
        ("train", "schedule", "run", "--output", "s.yaml"),
        ("is a run of another kind",),
        runs.run,
    ),
    Case(
        "a diagnosis of a run", ("diagnose", "run", "--seed", "1"), ("is the folder of a run, not a model",), runs.run
    ),
)

CASES: tuple[Case, ...] = (
    *(Case(f"a manifest: {name}", REPORT, (said,), make) for name, make, said in MANIFESTS),
    *(Case(f"a table with {name}", REPORT, said, make) for name, make, said in TABLES),
    *PAGES,
    *PEDIGREES,
    *RESUMED,
)
