from mmap import PAGESIZE, mmap

import pytest
import torch
from torch import Tensor, nn

from layerwise.measure.cost.memory import LiveBytes, inference_memory, peak_bytes, reset_peak, weight_bytes
from layerwise.models import ElcConfig, ElcForMaskedLM

BATCH, LENGTH, WIDTH, DEPTH = 2, 8, 16, 5
STATE = BATCH * LENGTH * WIDTH * 4


@pytest.mark.parametrize(("kept", "most"), [(False, 2), (True, 6)])
def test_peak_memory_counts_live_tensors(kept: bool, most: int) -> None:
    left: list[Tensor] = []
    inputs = torch.ones(32)
    with torch.inference_mode(), LiveBytes() as live:
        state = inputs
        for _ in range(6):
            state = state + 1
            left += [state] * kept
    assert live.most == most * 32 * 4


def test_views_and_existing_tensors_are_excluded() -> None:
    inputs = torch.ones(8, 4)
    with torch.inference_mode(), LiveBytes() as live:
        inputs.t()[1:].add_(1)
    assert live.most == 0


@pytest.mark.parametrize(
    ("variant", "states"), [("ltg", 2), ("elc", DEPTH + 1), ("zero", DEPTH + 1), ("denseformer", DEPTH + 1)]
)
def test_dense_connections_keep_all_states(variant: str, states: int) -> None:
    model = ElcForMaskedLM(
        ElcConfig(
            vocab_size=64,
            hidden_size=WIDTH,
            intermediate_size=32,
            num_hidden_layers=DEPTH,
            num_attention_heads=2,
            variant=variant,
            max_position_embeddings=16,
            position_buckets=4,
        )
    )
    for layer in model.encoder.layers if variant != "ltg" else ():
        nn.init.uniform_(layer.layer_weights.scalars)  # of denseformer all but the last begin at 0, and are not read
    ids = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    memory = inference_memory(
        model, list(model.encoder.layers), lambda: model.encoder(input_ids=ids), torch.device("cpu")
    )
    assert memory.states == states * STATE
    assert memory.activations >= memory.states
    assert memory.allocated is None
    assert model.training


def test_tied_weights_count_once() -> None:
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    assert weight_bytes(tied) == 64


def test_freed_memory_counts_toward_the_peak() -> None:
    reset_peak()
    before = peak_bytes()
    with mmap(-1, 64 * 2**20) as block:  # new pages: an allocator would hand out what it has kept
        for page in range(0, len(block), PAGESIZE):
            block[page] = 1
    assert peak_bytes() - before > 32 * 2**20 or torch.cuda.is_available()
