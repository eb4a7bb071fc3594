"""The tests of the longest files come first, and what was measured is kept."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import processor_time
from processor_time import Table, sort_longest_first


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
