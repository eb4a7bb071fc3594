"""The memory of a process that holds a few layers, beside one that holds them all, as the system counts it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from apart import apart
from layerwise.measure.cost.memory import peak_bytes
from layerwise.measure.interventions.sweep import sweep
from layerwise.stack import load
from measure.interventions.test_sweep_pieces import text

DEPTH, RESIDENT, WIDTH = 16, 3, 512
LAYER = 4 * (4 * WIDTH**2 + 3 * WIDTH * 3 * WIDTH + 2 * WIDTH)
"""Bytes of a layer in float32: 13.6 MB."""


def sweep_with(folder: Path, resident: int) -> None:
    stack = load(folder, device="cpu", resident_layers=resident or None)
    for row in sweep(stack, ["1-15", "0-6 8-15"], text(1)):
        print(row.plan, row.nll.hex())
    print(peak_bytes())


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
        ended = apart(sweep_with, tmp_path, resident)
        assert ended.code == 0, ended.err
        *lines, peak = ended.out.splitlines()
        peaks.append(int(peak))
        rows.append(lines)
    assert len(rows[0]) == 3
    assert rows[0] == rows[1]
    # Three layers, the one that is being read, and as much again for what the allocator keeps.
    assert peaks[0] - peaks[1] > (DEPTH - 2 * (RESIDENT + 1)) * LAYER
