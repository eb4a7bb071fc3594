"""A leave-one-out sweep with at most three of thirty layers in memory, beside one with the whole model in memory.

    python benchmarks/layer_streaming.py                     # 30 layers of 12 MB, 6 windows, two rounds in turns
    python benchmarks/layer_streaming.py --width 768         # larger layers

Each sweep is a process of its own, so that its peak of memory is its own. Bars: the same rows to the bit; each layer is
read once a round of batches; no more than three layers in memory, counted; and the peak of the process above that of
one that holds no layer at all at most that of four layers (three, and one file that is being read).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

DEPTH, RESIDENT = 30, 3


def make(folder: Path, width: int) -> None:
    """Write a Llama-shaped model of thirty layers with random weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=DEPTH,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def measure(folder: Path, resident: int | None, windows: int, plans: bool) -> dict[str, Any]:
    """In a process of its own: the rows of the sweep, its seconds, its peak of memory, and what was read."""
    from layerwise.data.batches import batches
    from layerwise.data.text.tokens import Window
    from layerwise.measure.interventions.sweep import streaming_of, sweep, with_identity
    from layerwise.measure.language.evaluation_data import EvalData
    from layerwise.plan import families
    from layerwise.stack import load
    from layerwise.train.training_log import peak_bytes

    stack = load(folder, device="cpu", resident_layers=resident)
    texts = [
        Window(str(number), "text", 0, tuple((31 * number + 7 * place) % 500 + 3 for place in range(24)), 1, 20)
        for number in range(windows)
    ]
    data = EvalData("windows", "0", 24, "next_token", batches(texts, 24, 0))
    members = families.leave_one_out(DEPTH) if plans else ()
    estimate = streaming_of(stack, with_identity(stack, members), data)
    cost = None if stack.resident is None else stack.resident.count()
    begin = time.perf_counter()
    rows = sweep(stack, members, data) if plans else []
    found: dict[str, Any] = {"seconds": time.perf_counter() - begin, "peak": peak_bytes()}
    found["rows"] = sorted([row.plan, row.document, row.nll.hex(), row.hits] for row in rows)
    if cost is not None and estimate is not None and stack.resident is not None:
        found |= {
            "readings": cost.readings,
            "expected": DEPTH * len(estimate.rounds),
            "bytes": cost.bytes,
            "most": cost.most_layers,
            "layer": max(stack.resident.sizes),
            "rounds": len(estimate.rounds),
        }
    return found


def run(folder: Path, resident: int | None, windows: int, plans: bool = True) -> dict[str, Any]:
    """`measure` in another process."""
    command = [sys.executable, __file__, "--measure", str(folder), "--windows", str(windows)]
    command += ["--resident", str(resident)] if resident is not None else []
    command += [] if plans else ["--no-plans"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure in turns, and say whether the bars are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--resident", type=int)
    parser.add_argument("--no-plans", action="store_true")
    given = parser.parse_args()
    if given.measure is not None:
        print(json.dumps(measure(given.measure, given.resident, given.windows, not given.no_plans)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, given.width)
        idle = run(folder, 1, given.windows, plans=False)
        whole, streamed = [], []
        for _ in range(given.times):
            whole.append(run(folder, None, given.windows))
            streamed.append(run(folder, RESIDENT, given.windows))
    one, other = whole[0], streamed[0]
    layer, allowed = other["layer"], idle["peak"] - other["layer"] + (RESIDENT + 1) * other["layer"]
    print(f"{DEPTH} layers of {layer / 1e6:.1f} MB; {len(one['rows'])} rows; {other['rounds']} rounds of batches")
    print(f"rows equal to the bit: {'yes' if all(e['rows'] == one['rows'] for e in (*whole, *streamed)) else 'NO'}")
    print(
        f"readings: {other['readings']}, bar {other['expected']} (each layer once a round), "
        f"{other['bytes'] / 1e9:.2f} GB"
    )
    print(f"layers in memory: {other['most']}, bar {RESIDENT}")
    peaks = [max(each["peak"] for each in side) for side in (whole, streamed)]
    print(
        f"peak of the process: {peaks[0] / 1e6:.0f} MB whole, {peaks[1] / 1e6:.0f} MB streamed, bar "
        f"{allowed / 1e6:.0f} MB (with one layer and no sweep {idle['peak'] / 1e6:.0f} MB)"
    )
    seconds = [statistics.median(each["seconds"] for each in side) for side in (whole, streamed)]
    print(f"seconds: {seconds[0]:.1f} whole, {seconds[1]:.1f} streamed, in turns ({seconds[1] / seconds[0]:.2f} x)")
    met = all(each["rows"] == one["rows"] for each in (*whole, *streamed)) and peaks[1] <= allowed
    met = met and other["readings"] == other["expected"] and other["most"] <= RESIDENT
    print("bars:", "met" if met else "NOT MET")
    raise SystemExit(not met)


if __name__ == "__main__":
    main()
