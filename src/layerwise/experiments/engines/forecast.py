"""The forecast of an experiment, and what it took in the end.

    seconds     from the forecast to the report
    memory      the most that the process holds at once (`layerwise.measure.cost.memory`)
    disk        what is in the run folder at the end, and the checkpoints of a training while it lasts

It is measured for `LIMIT` seconds, of which each kind of work has its share, or as long as the least piece of each
takes; work that is short for any processor is not measured. What could not be measured in its share, as far as the
works before it have told, is left out and named. What is measured leaves no trace: the random generators are set back.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from layerwise.experiments.engines.steps import SHORT, Work, WorkCost, total
from layerwise.experiments.reporter import Reporter, Silent, duration, size
from layerwise.measure.cost.memory import PeakMemory
from layerwise.report.derived.power import PACE
from layerwise.results import Run, Score

LIMIT = 10.0
"""Seconds that a measurement may take."""

ABOUT_RUN, FORECAST = "run", "forecast"
"""The measure and the subject of the rows."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is left of an experiment will take this; it was measured in `measured_seconds`.

    `passing_bytes` are those on disk that are gone at its end. `measured_on` says of each work on what it was measured
    and for how long; the works `left_out` are not in any of the figures. `busy` says that there was more to do than
    processors, so that the seconds are those of a machine under load.
    """

    seconds: float
    memory_bytes: int
    disk_bytes: int
    passing_bytes: int
    measured_seconds: float
    measured_on: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    busy: str = ""

    def __str__(self) -> str:
        passing = f" ({size(self.passing_bytes)} more of checkpoints meanwhile)" if self.passing_bytes else ""
        by_work = f" ({'; '.join(self.measured_on)})" if self.measured_on else ""
        beside = f"; beside {' and '.join(self.left_out)}, too long to be measured" if self.left_out else ""
        where = f"{duration(self.measured_seconds)}{self.busy}{by_work}"
        return (
            f"this will take about {duration(self.seconds)}{beside}, {size(self.memory_bytes)} of memory, "
            f"{size(self.disk_bytes)} on disk{passing}; measured in {where}"
        )


def forecast(works: Sequence[Work], progress: Callable[[str, float], None] | None = None) -> Forecast | None:
    """What `works` will take together; `None` where there are none, or all of it is short.

    `progress(label, share)` hears which of them is being measured.
    """
    if not works or sum(work.slow for work in works) < SHORT:
        return None
    progress = progress or Silent().progress
    begun = time.perf_counter()
    costs, measured_on, left_out = [], [], []
    with _undisturbed(), PeakMemory() as memory:
        for work, each, taken in _measured(works, LIMIT, progress):
            if each is None:
                left_out.append(work.name)
                continue
            costs.append(each)
            on = f": {each.measured_on}" if each.measured_on else ""
            measured_on.append(f"{work.name}{on} in {duration(taken)}")
        most = memory.most
    gc.collect()
    cost = total(costs)
    if cost.seconds < SHORT:
        return None
    beyond = max(work.memory_bytes for work in works)
    return Forecast(
        cost.seconds,
        most + beyond,
        cost.disk_bytes,
        cost.passing_bytes,
        time.perf_counter() - begun,
        tuple(measured_on),
        tuple(left_out),
        _busy(),
    )


def seconds_of(works: Sequence[Work], limit: float, progress: Callable[[str, float], None]) -> float:
    """The seconds that `works` take together, measured for about `limit` seconds, however short they are."""
    with _undisturbed():
        return sum(
            work.roughly() if cost is None else cost.seconds for work, cost, _ in _measured(works, limit, progress)
        )


def _measured(
    works: Sequence[Work], limit: float, progress: Callable[[str, float], None]
) -> Iterator[tuple[Work, WorkCost | None, float]]:
    """Each work with what it costs, `None` where its least piece has no time, and the seconds that measuring took."""
    begun = time.perf_counter()
    for number, work in enumerate(works):
        progress(f"forecast: {work.name}", number / len(works))
        started = time.perf_counter()
        # What the works before it took too much is not taken from its share.
        seconds = max(limit / len(works), (limit - (started - begun)) / (len(works) - number))
        cost = work.measure(seconds) if work.least() <= seconds else None
        yield work, cost, time.perf_counter() - started
    progress("forecast", 1.0)


@contextmanager
def held_against(expected: Forecast | None, run: Run, reporter: Reporter, of_text: bool = False) -> Iterator[None]:
    """Within the context the experiment is carried out; then what it took is said and stored beside its forecast.

    One `of_text` takes its time for the tokens that it scores; what each of them took is known where nothing was stored
    before.
    """
    if expected is None:
        yield
        return
    is_new = not run.store.count_losses()
    begun = time.perf_counter()
    with PeakMemory() as memory:
        yield
        most = memory.most
    taken = time.perf_counter() - begun
    for text in _comparison(expected, taken, most):
        reporter.log(text)
    figures = {
        "forecast_seconds": expected.seconds,
        "taken_seconds": taken,
        "forecast_memory_bytes": expected.memory_bytes,
        "taken_memory_bytes": most,
        "forecast_disk_bytes": expected.disk_bytes,
        "taken_disk_bytes": folder_bytes(run.folder),
    }
    if of_text and is_new:
        figures[PACE] = taken / run.manifest.tokens
    others = [row for row in run.store.scores(ABOUT_RUN) if row.part != FORECAST]
    rows = [Score(ABOUT_RUN, name, float(value), part=FORECAST) for name, value in figures.items()]
    run.store.replace_scores(ABOUT_RUN, [*others, *rows])


def folder_bytes(folder: Path) -> int:
    """The bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _comparison(expected: Forecast, seconds: float, memory: int) -> Iterator[str]:
    yield f"took {duration(seconds)} (forecast {duration(expected.seconds)}, {_off(seconds, expected.seconds)})"
    yield f"memory {size(memory)} (forecast {size(expected.memory_bytes)}, {_off(memory, expected.memory_bytes)})"


def load_of_machine() -> str:
    """The load of the last minute, where the system tells it."""
    if not hasattr(os, "getloadavg"):
        return "under a load that this system does not tell"
    return f"under a load of {os.getloadavg()[0]:.1f} on {os.cpu_count() or 1} processors"


def _busy() -> str:
    """The load of the machine, where it is more than its processors."""
    load = getattr(os, "getloadavg", lambda: (0.0,))()[0]
    return f" {load_of_machine()}" if load > (os.cpu_count() or 1) else ""


def _off(taken: float, expected: float) -> str:
    """How far off a forecast was.

    >>> _off(110, 100), _off(90, 100), _off(100.2, 100)
    ('10 % more', '10 % less', 'as forecast')
    """
    share = round(100 * (taken / expected - 1))
    if not share:
        return "as forecast"
    return f"{abs(share)} % {'more' if share > 0 else 'less'}"


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Set every random generator back to where it was."""
    python, numbers = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(list(devices)):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)
