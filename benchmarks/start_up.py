"""What a user waits for before anything is computed: processor seconds of help, import, and loading the demo.

    python benchmarks/start_up.py

Each figure is the median over fresh processes, run in turns. Loading is counted beyond what transformers itself imports
for a Llama; the budgets are 0.5 s for help and 3 s for loading.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

ROUNDS = 5

TRANSFORMERS = "import torch, transformers; from transformers import AutoTokenizer, LlamaForCausalLM"
SCRIPTS = {
    "layerwise --help": "import sys; sys.argv = ['layerwise', '--help']; from layerwise.cli.app import main; main()",
    "import layerwise": "import layerwise",
    "import torch, transformers' Llama": TRANSFORMERS,
    "... and load the demo": f"{TRANSFORMERS}; import layerwise; layerwise.load('demo')",
}
CLOCK = "import atexit, sys, time; atexit.register(lambda: print(time.process_time(), file=sys.stderr));"


def seconds(script: str) -> float:
    """Processor seconds of a fresh interpreter that runs `script`."""
    ended = subprocess.run([sys.executable, "-c", CLOCK + script], capture_output=True, text=True, check=True)
    return float(ended.stderr.splitlines()[-1])


def main() -> None:
    """Run every script in turns and print the medians."""
    times: dict[str, list[float]] = {name: [] for name in SCRIPTS}
    for _ in range(ROUNDS):
        for name, script in SCRIPTS.items():
            times[name].append(seconds(script))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"{value:6.2f} s  {name}")
    *_, base, loaded = medians.values()
    print(f"{loaded - base:6.2f} s  loading beyond torch and transformers")


if __name__ == "__main__":
    main()
