"""The engine on an accelerator agrees with the CPU, and a sweep agrees with single plans."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts import specimen
from contracts.specimen import DEPTH, VOCABULARY, WIDTH, Specimen
from contracts.zoo import SUPPORTED
from layerwise.data.batches import IGNORED, Batch
from layerwise.data.text.tokens import Window
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import window_losses
from layerwise.plan import Plan
from layerwise.stack import load, verify
from layerwise.stack.inputs import main_tensor
from layerwise.stack.rounding import HALF_OF_THE_DIGITS, gap, rounding
from rounding import unit

TYPES = ("llama", "gpt2", "gpt_neox", "mixtral", "gemma2", "gemma3_text", "qwen3", "phi3", "bert", "modernbert", "vit")
IN_CI = ("mixtral", "bert", "vit")
SPECIMENS = [
    pytest.param(one, id=str(one), marks=[] if one.model_type in IN_CI else [pytest.mark.nightly])
    for one in SUPPORTED
    if one.model_type in TYPES
]
DECODERS = [each for each in SPECIMENS if each.values[0].kind == "decoder"]
# A layer of every kind is kept: a cache counts tokens by an attention layer.
PLANS = ("1-4", "0 3 2 1 4", "0 1*3 3 4", "0 (1|2|3) 4", "(1 3|2 0):sum 4")


def built(one: Specimen, device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, dict[str, Tensor]]:
    model = specimen.build(one).to(device, dtype)
    batch = {name: value.to(device) for name, value in specimen.inputs(one, model).items()}
    return model, {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.items()}


@pytest.mark.parametrize("one", SPECIMENS)
def test_plan_laws_hold_on_the_accelerator(one: Specimen, device: torch.device, dtype: torch.dtype) -> None:
    """Identity, plans in place, cached decoding equal to recomputation (greedy, left-padded, static, beam)."""
    model, batch = built(one, device, dtype)
    stack = load(model)
    inputs = {name: value for name, value in batch.items() if name != "attention_mask"}
    assert stack.depth == DEPTH
    laws = verify(stack, "0 (1|2|3) 1*2 4", inputs)
    assert [law for law in laws if law.holds is False] == []
    assert sum(law.holds is True for law in laws) >= 4


@pytest.mark.parametrize("one", SPECIMENS)
def test_a_plan_equals_its_cpu_result(one: Specimen, device: torch.device) -> None:
    model, batch = built(one, device, torch.float32)
    stack, twin = load(model), load(specimen.build(one))
    own = {name: value.cpu() for name, value in batch.items()}
    for text in PLANS:
        plan = Plan.parse(text)
        with torch.inference_mode():
            there, here = main_tensor(stack.logits(plan, **batch)), main_tensor(twin.logits(plan, **own))
            with stack.under(plan, single_pass=True):
                inside = main_tensor(model(**batch))
        # Expert choice and normalization amplify rounding differences.
        assert gap(there.cpu(), here) <= HALF_OF_THE_DIGITS, text
        assert gap(inside, there) <= HALF_OF_THE_DIGITS, text


def ragged_text() -> EvalData:
    chance = torch.Generator().manual_seed(3)
    lengths, starts = (12, 9, 4), (1, 5, 1)
    ids = torch.zeros(3, 12, dtype=torch.int64)
    mask, targets = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    windows = []
    for row, (length, start) in enumerate(zip(lengths, starts, strict=True)):
        ids[row, :length] = torch.randint(3, VOCABULARY, (length,), generator=chance)
        mask[row, :length] = 1
        targets[row, start - 1 : length - 1] = ids[row, start:length]
        windows.append(Window(f"d{row}", "text", 0, tuple(ids[row, :length].tolist()), start, length))
    return EvalData("ragged", "0", 12, "next_token", (Batch(ids, mask, targets, tuple(windows)),))


@pytest.mark.parametrize("one", DECODERS)
def test_a_sweep_equals_single_plans(one: Specimen, device: torch.device, dtype: torch.dtype) -> None:
    model, _ = built(one, device, dtype)
    stack = load(model)
    data = ragged_text()
    rows = {(row.plan, row.document): row.nll for row in sweep(stack, PLANS, data)}
    (batch,) = data.batches
    with torch.inference_mode():
        captured = stack.capture(**{name: value.to(device) for name, value in batch.inputs.items()})
        for text in PLANS:
            losses = window_losses(stack, stack.run(Plan.parse(text), captured), batch)
            for window, loss in zip(batch.windows, losses, strict=True):
                # The same kernels on the same shapes; what is left is the order of additions of a group.
                assert abs(rows[str(Plan.parse(text)), window.document] - loss.nll) <= 64 * unit(dtype) * loss.nll
    if dtype == torch.bfloat16:
        wide: Any = sweep(load(specimen.build(one).to(device)), ["0-4"], data)
        enlarged = rounding(WIDTH, DEPTH) * unit(torch.bfloat16) / unit(torch.float32)
        for row in wide:
            assert abs(rows[row.plan, row.document] - row.nll) <= enlarged * row.nll * 4
