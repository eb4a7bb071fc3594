"""A sweep on Ray equals a single process and leaves no process behind."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import layerwise
from cli.conftest import save_llama, save_texts
from layerwise.errors import RunError
from layerwise.results import Run
from layerwise.results.rows import Loss
from layerwise.runner.reporter import Silent
from layerwise.stack import load
from swarm.cluster.processes import PATIENCE, descendants, eventually_ended
from threads import threaded

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def losses(folder: Path) -> list[Loss]:
    with Run.open(folder) as run:
        return list(run.store.losses())


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("is_opened", [False, True])
def test_a_ray_sweep_equals_a_single_process(tmp_path: Path, is_opened: bool) -> None:
    folder, texts = save_llama(tmp_path / "model"), save_texts(tmp_path / "texts")
    model = load(folder) if is_opened else folder
    options: dict[str, Any] = {"families": ("leave_one_out",), "similarity": False, "reporter": Silent()}
    layerwise.sweep(model, texts, run=tmp_path / "alone", **options)
    layerwise.sweep(model, texts, run=tmp_path / "ray", ray="local", workers=2, **options)
    assert losses(tmp_path / "ray") == losses(tmp_path / "alone")


@pytest.mark.nightly
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_sweep_leaves_no_process_and_resumes(tmp_path: Path, end: signal.Signals) -> None:
    model, texts, folder = save_llama(tmp_path / "model"), save_texts(tmp_path / "texts", count=30), tmp_path / "run"
    families = ("leave_one_out", "every_window", "painters")
    shared: dict[str, Any] = {"families": families, "similarity": False, "batch_tokens": 64, "reporter": Silent()}
    options = {
        "--text": texts,
        "--families": ",".join(families),
        "--batch-tokens": 64,
        "--run": folder,
        "--ray": "local",
        "--workers": 2,
    }
    driver = subprocess.Popen(
        [*map(str, (sys.executable, "-m", "layerwise", "sweep", model, "--no-similarity", *chain(*options.items())))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=threaded(),
        start_new_session=True,
    )
    while driver.poll() is None and stored(folder) <= 50:
        time.sleep(0.1)
    family = descendants(driver.pid)
    driver.send_signal(end)
    _, errors = driver.communicate(timeout=PATIENCE)
    assert len(family) > 2, errors
    assert eventually_ended(family)
    kept = stored(folder)
    layerwise.sweep(model, texts, run=folder, **shared)
    layerwise.sweep(model, texts, run=tmp_path / "alone", **shared)
    assert losses(folder) == losses(tmp_path / "alone")
    assert 50 < kept < len(losses(folder))


def stored(folder: Path) -> int:
    if not (folder / "run.sqlite").exists():
        return 0
    with suppress(RunError), Run.open(folder) as run:  # it may not be a run yet
        return run.store.count_losses()
    return 0
