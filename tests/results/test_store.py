"""The store returns each row once, in a fixed order, and explains failures."""

import math
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerwise.errors import MeasureError, RunError
from layerwise.results import store as database
from layerwise.results.rows import Loss, Note, Score
from layerwise.results.store import Store
from results.samples import LOSS, RECORD, SCORE
from tier import by_tier

LOSS_NAME = "plan '0-3' on window 0 of document 'a.txt' (task 'prose')"

names = st.text(st.characters(codec="utf-8"), max_size=6)
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(min_value=0, max_value=2**40)


@st.composite
def losses(draw: st.DrawFn) -> Loss:
    tokens = draw(st.integers(min_value=1, max_value=2**40))
    hits = draw(st.integers(min_value=0, max_value=tokens))
    return Loss(draw(names), draw(names), draw(names), draw(counts), draw(numbers), tokens, hits)


scores = st.builds(
    Score,
    *[names] * 2,
    numbers,
    task=names,
    claim=st.none() | names,
    **{name: st.none() | numbers for name in ("low", "high", "p", "p_adjusted", "mde")},
    **{name: st.none() | counts for name in ("documents", "tokens")},
)


def cell(row: Loss) -> tuple[str, str, int, str]:
    return row.task, row.document, row.window, row.plan


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.writing(tmp_path / "run.sqlite", command=("sweep",), versions={"torch": "2"})) as opened:
        yield opened


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    if os.geteuid():
        folder.chmod(0o555)
        yield
        folder.chmod(0o755)
        return
    bind = ["mount", "--bind", str(folder), str(folder)]
    if subprocess.run(bind, check=False, capture_output=True).returncode:
        pytest.skip("root, and no mounts allowed")
    subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=by_tier(fast=10, nightly=40))
@given(rows=st.lists(losses(), unique_by=cell, max_size=12), batch=st.integers(1, 5))
def test_losses_round_trip_in_a_fixed_order(
    rows: list[Loss], batch: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "run.sqlite"
    with closing(Store.writing(path)) as store:
        for start in range(0, len(rows), batch):
            store.add_losses(rows[start : start + batch])
        assert list(store.losses()) == sorted(rows, key=lambda row: tuple(map(_bytes, cell(row))))
        assert store.count_losses() == len(rows)
        for row in rows:
            same = {other.plan for other in rows if cell(other)[:3] == cell(row)[:3]}
            assert store.finished(row.task, row.document, row.window) == same


def _bytes(value: str | int) -> bytes | int:
    return value.encode() if isinstance(value, str) else value


def test_numpy_numbers_are_stored_as_plain_numbers(store: Store) -> None:
    store.add_losses([Loss("0", "t", "d", np.int64(1), np.float32(0.5), np.int64(3), np.int32(2))])
    (row,) = store.losses()
    assert row == Loss("0", "t", "d", 1, 0.5, 3, 2)
    assert {type(value) for value in (row.window, row.tokens, row.hits)} == {int}


def test_a_duplicate_loss_rolls_back_its_batch(store: Store) -> None:
    store.add_losses([LOSS])
    fresh = replace(LOSS, plan="3-0")
    with pytest.raises(RunError, match=r"'0-3' on window 0 of document 'a.txt' \(task 'prose'\) is stored already"):
        store.add_losses([fresh, replace(LOSS, nll=1.0)])
    assert list(store.losses()) == [LOSS]
    with pytest.raises(RunError, match="stored already"):
        store.add_losses([fresh, fresh])
    store.add_losses([fresh])
    assert store.count_losses() == 2


@pytest.mark.parametrize("nll", [math.nan, math.inf, -math.inf])
def test_non_finite_losses_are_refused(store: Store, nll: float) -> None:
    with pytest.raises(MeasureError, match=r"'0-3' on window 0 of document 'a.txt' \(task 'prose'\)"):
        store.add_losses([replace(LOSS, window=1), replace(LOSS, nll=nll)])
    assert store.count_losses() == 0


@pytest.mark.parametrize(
    ("tokens", "hits", "part"),
    [(0, 0, "at least 1, got 0"), (3, 4, "has 4 hits among 3 tokens"), (3, -1, "at least 0, got -1")],
)
def test_impossible_counts_are_refused(store: Store, tokens: int, hits: int, part: str) -> None:
    with pytest.raises(MeasureError, match=rf"{part}.*A window has at least one token"):
        store.add_losses([replace(LOSS, tokens=tokens, hits=hits)])


def test_invalid_unicode_is_refused(store: Store) -> None:
    with pytest.raises(RunError, match="Rename the document"):
        store.add_losses([replace(LOSS, document="\udcff.txt")])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=by_tier(fast=10, nightly=40))
@given(rows=st.lists(scores, unique_by=lambda row: (row.claim, row.task, row.metric), max_size=8))
def test_scores_round_trip_in_the_written_order(rows: list[Score], tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [replace(row, measure="effect") for row in rows]
    with closing(Store.writing(tmp_path_factory.mktemp("store") / "run.sqlite")) as store:
        store.replace_scores("effect", rows)
        assert store.scores() == rows


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([replace(SCORE, value=-math.inf)], "Value of the score .* must be finite, got -inf"),
        ([replace(SCORE, high=math.inf)], "High of the score .* must be finite, got inf"),
        ([replace(SCORE, measure="similarity")], "belongs to measure 'similarity'"),
        ([SCORE, replace(SCORE, value=2.0)], "is not unique"),
    ],
)
def test_refused_scores_leave_the_old_ones(store: Store, rows: list[Score], part: str) -> None:
    store.replace_scores("effect", [SCORE])
    with pytest.raises(MeasureError, match=part):
        store.replace_scores("effect", rows)
    assert store.scores() == [SCORE]


def test_scores_of_several_measures_are_replaced_atomically(store: Store) -> None:
    other = replace(SCORE, measure="similarity")
    store.replace_scores(("effect", "similarity"), [SCORE, other])
    with pytest.raises(MeasureError, match="not 'effect' or 'similarity'"):
        store.replace_scores(("effect", "similarity"), [replace(SCORE, value=2.0), replace(SCORE, measure="zones")])
    assert store.scores() == [SCORE, other]
    store.replace_scores(("effect", "similarity"), [other])
    assert store.scores() == [other]


def test_nan_values_are_dropped_and_nan_bounds_become_none(store: Store) -> None:
    absent = replace(SCORE, metric="absent", value=math.nan)
    unbounded = replace(SCORE, metric="unbounded", low=math.nan, high=math.nan, p=math.nan, mde=math.nan)
    store.replace_scores("effect", [SCORE, absent, unbounded])
    assert store.scores() == [SCORE, replace(unbounded, low=None, high=None, p=None, mde=None)]


def test_sessions_record_the_writers(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    for version in ("2.11", "2.13"):
        with closing(Store.writing(path, command=("layerwise", "sweep"), versions={"torch": version})) as store:
            assert store.sessions()[-1].ended is None
    with closing(Store.reading(path)) as store:
        first, second = store.sessions()
    assert (first.pid, first.command, first.versions) == (os.getpid(), ("layerwise", "sweep"), {"torch": "2.11"})
    assert second.versions == {"torch": "2.13"}
    assert first.started <= first.ended


def test_a_reader_sees_rows_of_an_active_writer(store: Store) -> None:
    with closing(Store.reading(store.path)) as reader:
        store.add_losses([LOSS])
        assert list(reader.losses()) == [LOSS]
        store.add_losses([replace(LOSS, window=1)])
        assert reader.count_losses() == 2
        for write in (
            lambda: reader.add_losses([replace(LOSS, window=2)]),
            lambda: reader.replace_scores("effect", [SCORE]),
            lambda: reader.add_plans([RECORD]),
            lambda: reader.replace_notes("recovery", ["no control"]),
        ):
            with pytest.raises(RunError, match="opened for reading"):
                write()


def test_a_closed_run_can_be_read_from_a_read_only_folder(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with closing(Store.writing(path)) as store:
        store.add_losses([LOSS])
    with read_only(tmp_path):
        with closing(Store.reading(path)) as store:
            assert list(store.losses()) == [LOSS]
        with pytest.raises(RunError, match="Choose a run directory on a writable disk"):
            Store.writing(path)


def test_rows_in_the_log_are_not_ignored(tmp_path: Path, store: Store) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    store.add_losses([LOSS])
    for suffix in ("", "-wal"):
        (copy / f"run.sqlite{suffix}").write_bytes((tmp_path / f"run.sqlite{suffix}").read_bytes())
    with read_only(copy), pytest.raises(RunError, match="Copy the run directory"):
        Store.reading(copy / "run.sqlite")
    with closing(Store.reading(copy / "run.sqlite")) as reader:
        assert list(reader.losses()) == [LOSS]


def test_a_full_disk_keeps_earlier_rows(store: Store) -> None:
    store.add_losses([LOSS])
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    many = [replace(LOSS, plan=f"{'0 ' * 200}{number}", window=number) for number in range(1, 400)]
    with pytest.raises(RunError, match=r"is full; all rows up to the last finished batch are safe.*to resume"):
        store.add_losses(many)
    assert list(store.losses()) == [LOSS]
    store._connection.execute("PRAGMA max_page_count = 100000")
    store.add_losses(many)
    assert store.count_losses() == 400


@pytest.mark.parametrize("content", [b"This is a letter, not a database. " * 40, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_is_reported_and_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(content)
    for attempt in (Store.writing, Store.reading):
        with pytest.raises(RunError, match=r"run\.sqlite is damaged"):
            attempt(path)
    assert path.read_bytes() == content


def test_damage_inside_the_file_is_found_on_reading(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with closing(Store.writing(path)) as store:
        store.add_losses(replace(LOSS, window=number) for number in range(2000))
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)
    with closing(Store.reading(path)) as store, pytest.raises(RunError, match="is damaged"):
        list(store.losses())


@pytest.mark.parametrize("attempt", [Store.writing, Store.reading])
def test_another_database_is_refused_and_unchanged(tmp_path: Path, attempt: Callable[[Path], Store]) -> None:
    path = tmp_path / "run.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (address TEXT)")
    before = path.read_bytes()
    with pytest.raises(RunError, match="is not a run database: it has no table"):
        attempt(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database whose tables are not strict, with a row in each."""
    path = tmp_path_factory.mktemp("loose") / "run.sqlite"
    schema = database.SCHEMA.replace("WITHOUT ROWID, STRICT", "WITHOUT ROWID").replace(" STRICT", "")
    with closing(sqlite3.connect(path)) as made:
        made.executescript(schema)
    with closing(Store.writing(path)) as store:
        store.add_losses([LOSS])
        store.replace_scores("effect", [SCORE])
        store.add_plans([RECORD])
        store.replace_notes("effect", ["skipped"])
    return path.read_bytes()


def everything(path: Path) -> list[object]:
    with closing(Store.reading(path)) as store:
        return [*store.losses(), *store.scores(), *store.plans(), *store.notes(), *store.sessions()]


def test_non_strict_tables_can_be_read(tmp_path: Path, loose: bytes) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(loose)
    assert everything(path)[:4] == [LOSS, SCORE, RECORD, Note("effect", "skipped")]


def test_tables_are_strict(store: Store) -> None:
    kinds = store._connection.execute("SELECT name, strict FROM pragma_table_list WHERE type = 'table'").fetchall()
    assert {name for name, strict in kinds if strict} >= {"losses", "scores", "plans", "notes", "sessions"}
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value in REAL column"):
        store._connection.execute("INSERT INTO losses VALUES ('0-3', 'prose', 'a', 1, 'abc', 1, 1, 1)")


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        ("UPDATE losses SET nll = 'abc'", f'nll of {LOSS_NAME} must be a number, got "abc"'),
        ("UPDATE losses SET nll = 9e999", f"nll of {LOSS_NAME} must be finite, got inf"),
        ("UPDATE losses SET tokens = 1.5", f"tokens of {LOSS_NAME} must be a whole number, got 1.5"),
        ("UPDATE losses SET tokens = x'00'", "got raw bytes"),
        ("UPDATE losses SET hits = -1", "must be a whole number of at least 0, got -1"),
        ("UPDATE losses SET hits = 11", f"{LOSS_NAME} has 11 hits among 10 tokens"),
        ("UPDATE losses SET tokens = 0, hits = 0", "must be a whole number of at least 1, got 0"),
        ("UPDATE losses SET document = x'ff'", "must be a string, got raw bytes"),
        ("UPDATE losses SET plan = CAST(x'ff' AS TEXT)", "Could not decode to UTF-8"),
        ("UPDATE scores SET value = 'abc'", "value of the score 'delta_nll'"),
        ("UPDATE scores SET low = -9e999", "(task 'prose') must be finite, got -inf"),
        ("UPDATE scores SET p = ''", 'must be a number or null, got ""'),
        ("UPDATE scores SET documents = 'many'", 'must be a whole number or null, got "many"'),
        ("UPDATE scores SET tokens = -3", "must be a whole number of at least 0, got -3"),
        ("UPDATE plans SET affected = 'x'", "affected of the record of plan '0-3' must be a whole number, got \"x\""),
        ("UPDATE plans SET stages = -1", "must be a whole number of at least 0, got -1"),
        ("UPDATE plans SET draw = 'x'", 'must be a whole number or null, got "x"'),
        ("UPDATE notes SET text = x'00'", "text of a note must be a string, got raw bytes"),
        ("UPDATE sessions SET command = '{'", "command of a session in"),
        ("UPDATE sessions SET versions = '[]'", "must be an object, got a list"),
        ("UPDATE sessions SET pid = 'x'", 'must be a whole number, got "x"'),
        ("ALTER TABLE scores DROP COLUMN mde", "its table scores has no column mde"),
        ("DROP TABLE plans", "it has no table plans"),
        ("ALTER TABLE notes RENAME TO n; CREATE VIEW notes AS SELECT * FROM n", "it has no table notes"),
        ("CREATE VIEW guest AS SELECT 1", "unexpected view 'guest'"),
        ("CREATE TRIGGER guest AFTER INSERT ON notes BEGIN DELETE FROM losses; END", "unexpected trigger 'guest'"),
    ],
)
def test_invalid_tables_are_refused(tmp_path: Path, loose: bytes, spoil: str, part: str) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(loose)
    with closing(sqlite3.connect(path)) as other:
        other.executescript(spoil)
    with pytest.raises(RunError) as refusal:
        everything(path)
    assert part in str(refusal.value)


def test_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(RunError, match="Use a newer Python"):
        Store.writing(tmp_path / "run.sqlite")
