"""The memory of a process that holds a few layers, beside one that holds them all, as the system counts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

DEPTH, RESIDENT, WIDTH = 16, 3, 512
LAYER = 4 * (4 * WIDTH**2 + 3 * WIDTH * 3 * WIDTH + 2 * WIDTH)
"""Bytes of a layer in float32: 13.6 MB."""

SWEEP = """
import sys
from layerwise.measure.interventions.sweep import sweep
from layerwise.stack import load
from layerwise.measure.cost.peak_memory import peak_bytes
from measure.interventions.test_sweep_pieces import text

stack = load(sys.argv[1], device="cpu", resident_layers=int(sys.argv[2]) or None)
for row in sweep(stack, ["1-15", "0-6 8-15"], text(1)):
    print(row.plan, row.nll.hex())
print(peak_bytes())
"""


@pytest.mark.slow
def test_a_process_holds_no_more_layers_than_said(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97, hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=DEPTH, num_attention_heads=8,
        num_key_value_heads=8, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    peaks, rows = [], []
    for resident in (0, RESIDENT):
        command = [sys.executable, "-c", SWEEP, str(tmp_path), str(resident)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
        assert done.returncode == 0, done.stderr
        *lines, peak = done.stdout.splitlines()
        peaks.append(int(peak))
        rows.append(lines)
    assert len(rows[0]) == 3
    assert rows[0] == rows[1]
    # Three layers, the one that is being read, and as much again for what the allocator keeps.
    assert peaks[0] - peaks[1] > (DEPTH - 2 * (RESIDENT + 1)) * LAYER
