"""What five experiments were to take, and what they took: forecasts of seconds and of memory, within 15 %.

    python benchmarks/forecasts.py                       all five, one after the other, some ten minutes
    python benchmarks/forecasts.py sweep "train elc"     some of them
    python benchmarks/forecasts.py --processor           the same in seconds of one core, on a machine that is busy

Every experiment is run as a user would, in a process and a folder of its own, with its forecast before it. The bar:
|taken / forecast - 1| is at most 0.15, of seconds and of memory, in every one of the five.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BAR = 0.15
LONGEST = 1_800
EXPERIMENTS = {
    "sweep": ("sweep", "demo", "--families", "painters,leave_one_out"),
    "diagnose": ("diagnose", "demo", "--parts", "ablation,manipulation,order"),
    "train robust": ("train", "robust", "layershuffle", "--model", "demo-vit", "--seeds", "1", "--epochs", "40"),
    "train elc": ("train", "elc", "--steps", "300"),
    "train growth": ("train", "growth", "--steps", "250"),
}
_IN_PROCESSOR_SECONDS = "import time; time.perf_counter = time.process_time; "
_RUN = "import sys; from layerwise.cli.app import main; sys.argv = ['layerwise', *sys.argv[1:]]; main()"


def main() -> int:
    """Run the experiments that are named, or all; 1 where a bar is not met."""
    names = [name for name in sys.argv[1:] if not name.startswith("--")] or list(EXPERIMENTS)
    script = (_IN_PROCESSOR_SECONDS if "--processor" in sys.argv else "") + _RUN
    print(f"{'experiment':14} {'seconds':>22} {'ratio':>6}   {'memory (MB)':>16} {'ratio':>6}   met")
    met = True
    for name in names:
        met &= _one(name, script, {**os.environ, "OMP_NUM_THREADS": "1"} if "--processor" in sys.argv else None)
    return 0 if met else 1


def _one(name: str, script: str, environment: dict[str, str] | None) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-c", script, *EXPERIMENTS[name], "--run", str(run)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False)
        found = _figures(run) if done.returncode == 0 else {}
    if not found:
        print(f"{name:14} no forecast was stored (exit {done.returncode}): {done.stderr.strip()[-300:]}")
        return False
    ratios = [found[f"taken_{what}"] / found[f"forecast_{what}"] for what in ("seconds", "memory_bytes")]
    met = all(abs(ratio - 1) <= BAR for ratio in ratios)
    seconds = f"{found['taken_seconds']:.1f} of {found['forecast_seconds']:.1f}"
    memory = f"{found['taken_memory_bytes'] / 1e6:.0f} of {found['forecast_memory_bytes'] / 1e6:.0f}"
    verdict = "yes" if met else "no"
    print(f"{name:14} {seconds:>22} {ratios[0]:6.2f}   {memory:>16} {ratios[1]:6.2f}   {verdict}", flush=True)
    print(json.dumps({"experiment": name, **found}), file=sys.stderr)
    return met


def _figures(run: Path) -> dict[str, float]:
    from layerwise.results import Run

    with Run.open(run) as opened:
        return {row.metric: row.value for row in opened.store.scores("run") if row.part == "forecast"}


if __name__ == "__main__":
    sys.exit(main())
