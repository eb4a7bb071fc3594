"""The verb that CONTRIBUTING.md writes works on the command line, in Python, and in every output."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from package_sources import PACKAGE

GUIDE = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", GUIDE, re.DOTALL))
LINE = BLOCKS.pop("catalogue.py")
CODE = """
import inspect, sys, layerwise
from layerwise.cli.app import main
from layerwise.runner.reporter import Silent
assert "tokens" in inspect.signature(layerwise.updates).parameters
result = layerwise.updates("demo", tokens=600, run="run", reporter=Silent())
assert [row.layer for row in result.rows] == list(range(12))
assert all(row.low < row.value < row.high for row in result.rows)
assert "Relative updates" in (result.folder / "report.html").read_text()
sys.argv = ["layerwise", *sys.argv[1:]]
main()
"""


def test_a_verb_is_one_folder_of_few_lines() -> None:
    assert LINE.count("\n") == 1
    assert sum(text.count("\n") for text in BLOCKS.values()) <= 150


@pytest.mark.slow
def test_a_verb_of_one_folder_and_one_line_runs_everywhere(tmp_path: Path) -> None:
    copy = tmp_path / "layerwise"
    shutil.copytree(PACKAGE, copy, copy_function=os.symlink)
    folder = copy / "studies" / "updates"
    folder.mkdir()
    for name, text in BLOCKS.items():
        (folder / name).write_text(text)
    table = copy / "catalogue.py"
    text = table.read_text().replace("# isort: on\n", f"{LINE}# isort: on\n")
    table.unlink()
    table.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-c", CODE, "updates", "demo", "--tokens", "600", "--run", "run"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"layer \d+ has the smallest relative update, 0\.\d+ \[0\.\d+, 0\.\d+\]", ended.stdout)
    assert "updates of every layer" not in ended.stderr  # the rows of the first call are not computed again
