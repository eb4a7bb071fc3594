"""A search that is killed again and again: it goes on to the same front, and nothing is evaluated twice.

    python benchmarks/search_kill.py --kills 20

Searches the demo model to its end; then in another folder, in a process of its own that `kill -9` ends at random
moments, 20 times in all, beginning anew in a fresh folder whenever it came to its end. Every finished run must have the
very rows of the first. The store refuses a loss that it holds already, and the losses of both are counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path
from random import Random

import torch

import layerwise
from layerwise.experiments.reporter import Silent
from layerwise.results import Run
from layerwise.results.rows import Loss, Score


def search(stack: layerwise.Stack, folder: Path) -> int:
    """Begin a search in a process of its own, which has the model already; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        layerwise.search(
            stack,
            layerwise.demo_corpus(),
            "layers=10",
            tokens=1200,
            max_length=64,
            width=2,
            run=folder,
            reporter=Silent(),
        )
        code = 0
    finally:
        os._exit(code)


def ended(child: int, seconds: float) -> bool:
    """Whether the process ends by itself within so many seconds. Raises `AssertionError` where it fails."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, f"the search ended with {status}"
            return True
        time.sleep(0.05)
    return False


def rows(folder: Path) -> tuple[list[Loss], list[Score]]:
    """Everything that a run holds but what it took."""
    with Run.open(folder) as run:
        return list(run.store.losses()), [score for score in run.store.scores() if score.measure != "run"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = Random(options.seed)
    home = Path(tempfile.mkdtemp())
    torch.set_num_threads(1)
    stack = layerwise.load("demo")
    began = time.perf_counter()
    assert ended(search(stack, home / "whole"), 3600)
    whole_seconds = time.perf_counter() - began
    whole = rows(home / "whole")
    print(f"undisturbed: {whole_seconds:.0f} s, {len(whole[0]):,} losses, {len(whole[1]):,} scores", flush=True)
    kills, finished, moments = 0, 0, []
    while kills < options.kills or not finished:
        folder = home / f"killed-{finished}"
        child = search(stack, folder)
        if ended(child, draw.uniform(0.05, 0.5) * whole_seconds if kills < options.kills else 3600):
            assert rows(folder) == whole, f"{folder} differs from the undisturbed run"
            finished += 1
            continue
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        moments.append(0)
        if (folder / "run.sqlite").exists():
            with Run.open(folder) as run:
                moments[-1] = run.store.count_losses()
    during = sum(0 < held < len(whole[0]) for held in moments)
    print(f"{kills} kills, {during} of them with some losses stored and others not ({moments})")
    print(f"{finished} resumed runs came to their end, each with the same {len(whole[0]):,} losses and the same scores")


if __name__ == "__main__":
    main()
