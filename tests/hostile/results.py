"""Bad run directorys: manifests, tables, reports and exports."""

import csv
from collections.abc import Callable
from pathlib import Path

from apart import Ended
from hostile import runs
from hostile.case import Case, Says
from hostile.material import Content, device, empty_folder, model_and_texts, pipe, put

SWEEP = ("sweep", "model", "--families", "leave_one_out", "--no-similarity", "--text", "texts", "--run", "run")
REPORT = ("report", "run")
DAMAGED = ("run.sqlite is damaged", "Restore the directory from a copy")


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


ENDLESS = (
    "CREATE VIEW losses AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    "SELECT 1 AS document, n AS window, 1 AS plan, 1.0 AS nll, 2 AS tokens, 1 AS hits, 1 AS session FROM r"
)
ABLATION = "UPDATE scores SET measure = 'ablation', metric = 'skip'"
ANOTHER_PROGRAM = "DROP TABLE losses; DROP TABLE scores; DROP TABLE plans; CREATE TABLE bookmarks (address TEXT)"
HOSTILE = "<script>alert(1)</script> [a](http://b.c) | \x1b[2J \r\n # h"

REPORTED: tuple[tuple[runs.Make, Says], ...] = (
    (runs.manifest(b"\xff\xfe\0\0"), "is not UTF-8 text"),
    (runs.manifest(format=99), "unknown ['format']"),
    (runs.replaced("manifest.json", empty_folder), "is a folder, not a file"),
    (runs.tables("UPDATE losses SET nll = 'abc'"), (*DAMAGED, 'must be a number, got "abc"')),
    (runs.tables("ALTER TABLE losses RENAME TO l", ENDLESS), "has no table losses"),
    (runs.tables("DELETE FROM losses; DELETE FROM scores"), "has no rows yet"),
    (runs.tables(f"{ABLATION}, claim = replace(hex(zeroblob(2500)), '0', '9')"), "contains too many digits"),
    (runs.tables(f"{ABLATION}, layer = 99999999999"), "must be at most 10,000"),
    (runs.replaced("run.sqlite", b"SQLite format 3\0" + b"\xff" * 4096), "is damaged"),
    (runs.tables(ANOTHER_PROGRAM), "is not a run database"),
    (runs.replaced("run.sqlite", pipe), "the run has no rows"),
    (runs.replaced("run.sqlite", empty_folder), "the run has no rows"),
    (runs.replaced("run.sqlite", device), "the run has no rows"),
)


def _file(folder: Path) -> None:
    runs.run(folder)
    (folder / "file").write_text("a letter")


def _device(folder: Path) -> None:
    runs.run(folder)
    (folder / "full").symlink_to("/dev/full")  # and never the device itself, which a wrong answer would replace


def _full(path: Path) -> None:
    path.symlink_to("/dev/full")


_NAMED = runs.manifest(model=HOSTILE, corpus=HOSTILE, command=[HOSTILE])
_FORMULAS = runs.tables(
    "UPDATE plans SET plan = '=1+' || plan",
    "UPDATE losses SET plan = '=1+' || plan, document = '@' || document, nll = -2.5",
)
_DEEP = runs.tables(*(f"UPDATE {table} SET plan = '0-9998' WHERE plan = '0-3'" for table in ("plans", "losses")))
_NO_IDENTITY = runs.tables("DELETE FROM losses WHERE plan = '0-3'")

PAGES: tuple[Case, ...] = (
    Case((*REPORT, "--output", "run"), "Cannot write the report", _file),
    Case((*REPORT, "--output="), "--output must not be empty", _file),
    Case((*REPORT, "--output", "file/report.html"), "Cannot write the report", _file),
    Case((*REPORT, "--output", "nowhere/report.html"), "Cannot write the report", _file),
    Case((*REPORT, "--output", "/proc/report.html"), "Cannot write the report", _file),
    Case((*REPORT, "--output", "full"), "Cannot write the report", _device),
    Case((*REPORT, "--output", "x" * 300), "must be a valid path", _file),
    Case(REPORT, "Cannot write the report", runs.replaced("report.html", pipe)),
    Case(REPORT, None, _NO_IDENTITY),
    Case(REPORT, None, _DEEP),
    Case(REPORT, None, _NAMED, check=_page_is_text),
    Case((*REPORT, "--format", "markdown"), None, _NAMED, check=_no_markup),
    Case(("report", "file"), "is not a run", _file),
    Case(("report", "file/run"), "is not a run", _file),
    Case(("report", "x" * 5000), ("RUN must be a valid path", "File name too long"), _file),
    Case(("report", "run", "--format", "csv"), None, _FORMULAS, check=_no_formulas),
    Case((*REPORT, "--format", "csv", "--output", "file/x"), "Cannot use", _file),
    Case((*REPORT, "--format", "excel"), "--format must be one of", _file),
)


def _before(path: str, content: Content) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        model_and_texts(folder)
        put(folder / path, content)

    return make


RESUMED: tuple[Case, ...] = (
    Case(("robustness", "run"), "is not JSON", runs.trained("")),
    Case(("robustness", "run"), "has no finished model", runs.trained(seed="seed-x")),
    Case(SWEEP, "Cannot lock the run directory", _before("run/run.lock", _full)),
    Case(SWEEP, None, _before("run/run.lock", pipe)),
    Case(SWEEP, "run is a file", _before("run", "a letter")),
    Case((*SWEEP[:-1], "/proc/run"), "Cannot lock the run directory", model_and_texts),
    Case(("train", "schedule", "run", "--output", "s.yaml"), "must be a diagnosis, got another run", runs.run),
    Case(("diagnose", "run", "--seed", "1"), "got the run directory", runs.run),
)

CASES: tuple[Case, ...] = (*(Case(REPORT, says, make) for make, says in REPORTED), *PAGES, *RESUMED)
