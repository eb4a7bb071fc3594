from contextlib import ExitStack

import pytest
import torch
from torch import Tensor

from conftest import tiny_llama
from layerwise.measure.gradients import proxies as module
from layerwise.measure.gradients.proxies import Gate, compute_loss_gradient, differentiable, run_backward, split_batch
from layerwise.measure.language.loss import window_losses
from layerwise.stack import load
from layerwise.stack.branches import edited, find_branches
from measure.language.test_loss import ragged_batch
from rounding import unit

STACK = load(tiny_llama(depth=4).double())
BATCH = ragged_batch()
with torch.no_grad():
    BRANCHES = find_branches(STACK, STACK.capture(**BATCH.inputs))
STEP = 0.02


def gated_losses(gate: Gate, alpha: float) -> Tensor:
    layer, part = gate
    with torch.no_grad(), ExitStack() as gates:
        if part:
            block = STACK.model.get_submodule(f"{STACK.path}.{layer}")
            gates.enter_context(edited(block, BRANCHES.paths[layer][part], lambda output: alpha * output))
        captured = STACK.capture(**BATCH.inputs)
        state = captured.state
        for each in range(STACK.depth):
            after = STACK.apply(each, state, captured)
            state = state + alpha * (after - state) if gate == (each, None) else after
        # Finite differences need a loss in double precision.
        logits = STACK.finish(state, captured.inputs).logits
    rows = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), BATCH.targets.flatten(), ignore_index=-100, reduction="none"
    )
    return rows.view(BATCH.targets.shape).sum(dim=1)


@pytest.mark.parametrize("gate", [(layer, part) for layer in range(4) for part in (None, "attn", "mlp")])
def test_gate_gradients_match_finite_differences(gate: Gate) -> None:
    with differentiable(STACK):
        found = run_backward(STACK, BATCH, BRANCHES).gates[gate]
    # Four points allow a large step: a Llama's norms compute in float32 whatever the dtype.
    near = gated_losses(gate, 1 + STEP) - gated_losses(gate, 1 - STEP)
    far = gated_losses(gate, 1 + 2 * STEP) - gated_losses(gate, 1 - 2 * STEP)
    expected = (8 * near - far) / (12 * STEP)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert found.abs().max() > 0.01


@pytest.mark.parametrize("chunk", [97, 97 * 12 * 2, 1 << 24])
def test_chunked_loss_matches_loss_and_gradient(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    captured = STACK.capture(**BATCH.inputs)
    state = captured.state.detach().requires_grad_()
    logits = STACK.finish(state, captured.inputs).logits
    whole = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), BATCH.targets.flatten(), ignore_index=-100, reduction="sum"
    )
    monkeypatch.setattr(module, "CHUNK", chunk)
    nll, gradient = compute_loss_gradient(STACK, state.detach(), BATCH)
    torch.testing.assert_close(gradient, torch.autograd.grad(whole, state)[0], rtol=1e-4, atol=1e-6)
    expected = [loss.nll for loss in window_losses(STACK, state.detach(), BATCH)]
    torch.testing.assert_close(nll, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-5)


def test_gradients_of_parts_sum_to_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with differentiable(STACK):
        whole = run_backward(STACK, BATCH, BRANCHES)
        monkeypatch.setattr(module, "MAX_SAVED_NUMBERS", 1)
        parts = list(split_batch(STACK, BATCH))
        found = [run_backward(STACK, part, BRANCHES) for part in parts]
    assert [part.input_ids.shape for part in parts] == [(1, 12), (1, 9), (1, 4)]
    assert [window for part in parts for window in part.windows] == list(BATCH.windows)
    # Two norms per layer and the last compute in float32, forward and backward, in four operations each.
    norms = 2 * STACK.depth + 1
    rounding = 2 * 4 * norms * unit(torch.float32) * max(float(gate.abs().max()) for gate in whole.gates.values())
    for name, gate in whole.gates.items():
        torch.testing.assert_close(torch.cat([part.gates[name] for part in found]), gate, rtol=0, atol=rounding)


def test_model_is_restored_after_an_exception() -> None:
    model = STACK.model
    model.lm_head.weight.requires_grad_(False)
    own = (model.model.norm.weight, model.model.layers[2].mlp.up_proj.weight)
    for weight in own:
        weight.grad = torch.ones_like(weight)
    kept = [weight.grad for weight in own]
    flags = [parameter.requires_grad for parameter in model.parameters()]

    def stop() -> None:
        with differentiable(STACK):
            run_backward(STACK, BATCH, BRANCHES)
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        stop()
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(weight.grad is before for weight, before in zip(own, kept, strict=True))
    others = [weight for weight in model.model.layers.parameters() if weight is not own[1]]
    assert all(weight.grad is None for weight in others)
    assert not any(each._forward_hooks for each in model.modules())
