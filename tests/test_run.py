"""Failed tests are rerun alone up to twice, so that a busy machine fails no change."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

import processor_time
import run
from processor_time import Table, sort_longest_first

Runs = Callable[[Sequence[Sequence[str]]], list[tuple[str, ...]]]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / run.CACHE / "v/cache/lastfailed"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"an older failure": true}')

    def planted(failures: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        asked: list[tuple[str, ...]] = []

        def pytest_run(*options: str) -> int:
            asked.append(options)
            failing = failures[len(asked) - 1]
            kept.write_text(json.dumps(dict.fromkeys(failing, True)))
            return int(bool(failing))

        monkeypatch.setattr(run, "pytest", pytest_run)
        return asked

    return planted


@pytest.mark.parametrize(
    ("failures", "status", "asked", "unsteady"),
    [
        ([[]], 0, [], []),
        ([["a", "b"], []], 0, [["a", "b"]], ["a", "b"]),
        ([["a", "b"], ["b"], []], 0, [["a", "b"], ["b"]], ["a", "b"]),
        ([["a", "b"], ["b"], ["b"]], 1, [["a", "b"], ["b"]], ["a"]),
        ([[f"t{number:02}" for number in range(run.MOST + 1)]], 1, [], []),
    ],
)
def test_what_fails_each_time_is_refused_and_the_others_are_named(
    runs: Runs,
    capsys: pytest.CaptureFixture[str],
    failures: list[list[str]],
    status: int,
    asked: list[list[str]],
    unsteady: list[str],
) -> None:
    calls = runs(failures)
    assert run.main(["-m", "not slow"]) == status
    first, *again = calls
    assert first == (*run.SIDE_BY_SIDE, "-m", "not slow")
    assert again == [("--numprocesses", "0", *ids) for ids in asked]
    printed = capsys.readouterr().out
    assert [line.strip() for line in printed.partition("passed alone.")[2].splitlines() if line] == unsteady


def test_a_run_that_could_not_be_made_is_not_repeated(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(run, "pytest", lambda *options: calls.append(options) or 4)
    assert run.main([]) == 4
    assert len(calls) == 1


@pytest.mark.slow
def test_pytest_itself_says_what_failed(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(
        "import os\nfrom pathlib import Path\n\n"
        "def test_right():\n    pass\n\n"
        "def test_unsteady():\n    assert Path('second').exists() or Path('second').write_text('') or False\n\n"
        "def test_wrong():\n    assert False\n\n"
        "def test_dies():\n    'PYTEST_XDIST_WORKER' in os.environ and os._exit(1)\n"
    )
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [sys.executable, run.__file__, "-k", "not other"],
        cwd=tmp_path,
        env=outside,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout.count("Run again, alone") == 2
    assert "Run again, alone (1 of 3)" in ended.stdout
    unsteady = ended.stdout.partition("passed alone.")[2].split()
    assert unsteady == ["test_some.py::test_dies", "test_some.py::test_unsteady"]


def test_longest_files_first_and_the_tests_of_a_file_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "stored", lambda: {"b.py": 3.0, "c.py": 9.0})
    items = [SimpleNamespace(nodeid=name) for name in ("a.py::2", "b.py::1", "c.py::2", "b.py::0", "c.py::1[::]")]
    sort_longest_first(items)  # type: ignore[arg-type]
    assert [item.nodeid for item in items] == ["c.py::2", "c.py::1[::]", "b.py::1", "b.py::0", "a.py::2"]


def test_the_seconds_of_files_that_ran_replace_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "b.py"):
        Path(name).touch()
    file = tmp_path / "durations.json"
    file.write_text(json.dumps({"gone.py": 5.0, "a.py": 4.0, "b.py": 1.0}))
    monkeypatch.setenv(processor_time.VARIABLE, str(file))
    table = Table()
    for test, seconds in (("b.py::x", 2.0), ("b.py::x", 4.5), ("c.py::y", 0.1)):
        table.pytest_runtest_logreport(SimpleNamespace(nodeid=test, processor_seconds=seconds))  # type: ignore[arg-type]
    table.pytest_runtest_logreport(SimpleNamespace(nodeid="b.py::died"))  # type: ignore[arg-type]
    table.pytest_sessionfinish()
    assert json.loads(file.read_text()) == {"b.py": 6.5, "a.py": 4.0}
    assert list(json.loads(file.read_text())) == ["b.py", "a.py"]
