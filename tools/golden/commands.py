"""Run the commands of a kind in a separate directory, and compare their rows with the stored ones.

A command file has one command per line: `layerwise ...`, or `input NAME` for `tools.golden.inputs`. The run directory
is `run`. A kind has no commands if a comment in its file says that its rows are planted.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from itertools import zip_longest
from pathlib import Path

from layerwise.page import ReportData
from layerwise.results import Run
from layerwise.results.rows import KEY, Score
from layerwise.runner.summary import report_data
from tools.golden.outputs import FOLDER
from tools.golden.stored_run import rows_of, text_of

COMMANDS = "command.txt"
RUN = "run"
SOURCE = Path(__file__).resolve().parents[2] / "src"
NUMBERS = ("measure", "metric", "value", "low", "high", "p", "p_adjusted", "mde", "documents", "tokens")
"""Columns of a score that must be equal to the bit."""
NAMES = tuple(name for name in KEY if name != "metric")
"""Columns whose differences are reported separately, since names may change without the numbers."""
TIMED = re.compile(r"\b(ms|milliseconds|seconds?|minutes|hours|joules|memory|peak bytes|data wait)\b")
"""Matches the metric, task or unit of a score that is a time or depends on the machine."""
CLOCKED = ("time", "time_round", "frontier_round")
"""Measures whose numbers are all times."""
SHOWN = 8


def carry_out(kind: str) -> ReportData:
    """Run the commands of a kind and return its rows. Raises `RuntimeError` if a command fails."""
    from tools.golden.inputs import make_input  # loads torch, which the stored rows do not need

    with tempfile.TemporaryDirectory(prefix=f"golden-{kind}-") as place:
        work = Path(place).resolve()
        for line in (FOLDER / kind / COMMANDS).read_text(encoding="utf-8").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["input"]:
                make_input(words[1], work)
            elif words:
                print(line, file=sys.stderr, flush=True)
                _layerwise(words[1:], work)
        with Run.open(work / RUN) as run:
            return _anywhere(text_of(report_data(run)), work)


def is_planted(kind: str) -> bool:
    """Return True if the rows of a kind were written by hand, without commands."""
    lines = (FOLDER / kind / COMMANDS).read_text(encoding="utf-8").splitlines()
    return not any(shlex.split(line, comments=True) for line in lines)


def differences(stored: ReportData, now: ReportData) -> Iterator[str]:
    """Describe each difference: first scores, losses and plans, then names and notes.

    Of a score that is a time, only the measure and the metric are compared.
    """
    for what, rows in (
        ("score", lambda data: [_numbers(row) for row in data.scores]),
        ("plan", lambda data: [astuple(row) for row in data.plans]),
        ("loss", lambda data: [astuple(row) for row in data.losses]),
        ("name of a score", lambda data: [tuple(getattr(row, name) for name in NAMES) for row in data.scores]),
        ("note", lambda data: [astuple(row) for row in data.notes]),
    ):
        yield from _unequal(what, rows(stored), rows(now))


def is_timed(row: Score) -> bool:
    """Return True if the value is a time or a memory size.

    >>> is_timed(Score("run", "sweep", "all", "wall time (seconds)", 83.4))
    True
    """
    named = (row.metric, row.task, row.unit or "")
    return row.measure in CLOCKED or any(TIMED.search(name.replace("_", " ")) for name in named)


def _numbers(row: Score) -> tuple[object, ...]:
    columns = NUMBERS[:2] if is_timed(row) else NUMBERS
    return tuple(getattr(row, name) for name in columns)


def _unequal(what: str, stored: Sequence[object], now: Sequence[object]) -> Iterator[str]:
    pairs = [(number, *pair) for number, pair in enumerate(zip_longest(stored, now)) if pair[0] != pair[1]]
    for number, before, after in pairs[:SHOWN]:
        yield f"{what} {number} was {before} and is {after}"
    if len(pairs) > SHOWN:
        yield f"... and {len(pairs) - SHOWN:,} more of {len(stored):,} and now {len(now):,} rows of this kind"


def _layerwise(words: Sequence[str], work: Path) -> None:
    variables = {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "layerwise", *words],
        cwd=work,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"layerwise {shlex.join(words)} ended with {done.returncode}:\n{done.stderr[-4000:]}")


def _anywhere(text: str, work: Path) -> ReportData:
    """Remove the directories and the system name of this machine from the rows."""
    data = rows_of(text.replace(f"{work}{os.sep}", "").replace(str(work), "."), "the run")
    hardware = dict(data.manifest["hardware"])  # type: ignore[call-overload]
    hardware["platform"] = hardware["platform"].partition("-")[0]
    command = ("layerwise", *data.manifest["command"][1:])  # type: ignore[index]
    return replace(data, manifest={**data.manifest, "hardware": hardware, "command": command})
