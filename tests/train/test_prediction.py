"""What layers say about their position: logits, losses and hits as the paper's formula has them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm
from transformers import TrainerCallback, set_seed

from layerwise.plan import Plan
from layerwise.plan.samplers import Fixed, SeededSampler
from layerwise.stack import load
from layerwise.train import position
from layerwise.train.methods.layershuffle import PredictionOptions
from layerwise.train.position import PositionPrediction
from layerwise.train.trainer import PlanTrainer
from train.tiny_models import arguments, forward_by_hand, tiny_digits, tiny_llama, tiny_text, tiny_vit

PIXELS = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def _asked(model: Any, options: PredictionOptions) -> tuple[Any, PositionPrediction]:
    stack = load(model)
    torch.manual_seed(8)
    found = position.attach_prediction(stack, options)
    with torch.no_grad():
        for tensor in found.parameters():
            tensor.normal_()
    return stack, found


def _outputs(model: Any, order: tuple[int, ...]) -> list[Tensor]:
    """The state after every visit, (batch, seq, width), on `PIXELS`."""
    state, found = model.vit.embeddings(PIXELS), []
    for layer in order:
        state = model.vit.layers[layer](state)
        found.append(state)
    return found


def _logits(asked: PositionPrediction, state: Tensor, layer: int, reads: str) -> Tensor:
    tensors = dict(asked.named_parameters())
    read = state[:, 0] if reads == "first" else state.sum(1) / state.shape[1]
    normed = layer_norm(read, read.shape[-1:], tensors[f"norms.{layer}.weight"], tensors[f"norms.{layer}.bias"])
    return normed @ tensors[f"classifiers.{layer}.weight"].T + tensors[f"classifiers.{layer}.bias"]


def _nats(logits: Tensor, position: int) -> Tensor:
    """-log softmax(logits)[position], averaged over the batch."""
    return (logits.exp().sum(1).log() - logits[:, position]).mean()


@pytest.mark.parametrize("single_pass", [True, False], ids=["single pass", "twins"])
@pytest.mark.parametrize("text", ["0-2", "2 0 1", "2 0 2", "1 2"])
@pytest.mark.parametrize("total", ["sum", "mean"])
@pytest.mark.parametrize("reads", ["first", "mean"])
@torch.no_grad()
def test_loss_and_hits_are_the_formulas(reads: Any, total: Any, text: str, single_pass: bool) -> None:
    plain = tiny_vit()
    order = Plan.parse(text).order()
    outputs = _outputs(plain, order)
    stack, asked = _asked(tiny_vit(), PredictionOptions(total=total, reads=reads))
    with stack.under(Plan.parse(text), single_pass=single_pass):
        logits = stack.model(pixel_values=PIXELS).logits
    torch.testing.assert_close(logits, plain.classifier(plain.vit.layernorm(outputs[-1])[:, 0]))
    said = [_logits(asked, state, layer, reads) for state, layer in zip(outputs, order, strict=True)]
    losses = [_nats(found, position) for position, found in enumerate(said)]
    expected = sum(losses) if total == "sum" else sum(losses) / len(losses)
    assert float(asked.loss()) == pytest.approx(float(expected), rel=1e-4)
    assert {position: hit.tolist() for position, hit in asked.hits().items()} == {
        position: [max(range(3), key=row.__getitem__) == position for row in found.tolist()]
        for position, found in enumerate(said)
    }


@torch.no_grad()
def test_a_new_pass_forgets_the_last() -> None:
    stack, asked = _asked(tiny_vit(), PredictionOptions())
    for text in ("2 0 1", "1 2"):
        with stack.under(Plan.parse(text), single_pass=True):
            stack.model(pixel_values=PIXELS)
        assert [position for position, _ in asked.predicted] == list(range(len(Plan.parse(text).order())))


@torch.no_grad()
def test_the_mean_of_a_text_is_over_its_tokens_and_not_over_padding() -> None:
    stack, asked = _asked(tiny_llama(), PredictionOptions(reads="mean"))
    texts = [torch.tensor([[3, 4, 5]]), torch.tensor([[6, 7, 8, 9, 10, 11]])]
    ids, mask = torch.zeros(2, 6, dtype=torch.int64), torch.zeros(2, 6, dtype=torch.int64)
    for row, text in enumerate(texts):
        ids[row, : text.shape[1]], mask[row, : text.shape[1]] = text, 1
    stack.model(input_ids=ids, attention_mask=mask)
    together = [logits for _, logits in asked.predicted]
    for row, text in enumerate(texts):
        stack.model(input_ids=text)
        for at, logits in asked.predicted:
            torch.testing.assert_close(together[at][row], logits[0], rtol=1e-4, atol=1e-5)


def test_a_prediction_that_knows_nothing_costs_the_log_of_the_depth_for_every_layer() -> None:
    stack, asked = _asked(tiny_vit(), PredictionOptions())
    with torch.no_grad():
        for tensor in asked.classifiers.parameters():
            tensor.zero_()
        stack.model(pixel_values=PIXELS)
    assert float(asked.loss()) == pytest.approx(3 * math.log(3), rel=1e-6)


@pytest.mark.parametrize("passes", [1, 2], ids=["whole", "accumulated"])
@pytest.mark.parametrize("kind", ["vit", "llama"])
def test_training_adds_the_prediction_to_the_task(kind: str, passes: int, tmp_path: Path) -> None:
    splits, make = (tiny_digits(), tiny_vit) if kind == "vit" else (tiny_text(), tiny_llama)
    losses, batches, gradients = _one_step(make(), splits, tmp_path, passes)
    stack, asked = _asked(make(), PredictionOptions())
    total = torch.zeros(())
    by_hand = []
    for batch in batches:
        with stack.under(Plan.parse("2 0 1"), single_pass=True):
            stack.model(**{name: tensor for name, tensor in batch.items() if name != "labels"})
        extra = asked.loss()
        by_hand.append((forward_by_hand(make(), batch, (2, 0, 1)).item() + extra.item()) / passes)
        total = total + (extra + forward_by_hand(stack.model, batch, (2, 0, 1))) / passes
    total.backward()
    assert losses == pytest.approx(by_hand, rel=1e-5)
    for name, weight in stack.model.named_parameters():
        torch.testing.assert_close(gradients[name], weight.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_recomputed_passes_say_the_same(tmp_path: Path) -> None:
    splits = tiny_digits()
    whole, _, gradients = _one_step(tiny_vit(), splits, tmp_path, 1)
    for reentrant in (True, False):
        again, _, others = _one_step(
            tiny_vit(), splits, tmp_path, 1, gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": reentrant},
        )  # fmt: skip
        assert again == pytest.approx(whole, rel=1e-6)
        for name, gradient in gradients.items():
            torch.testing.assert_close(others[name], gradient, rtol=1e-4, atol=1e-7, msg=f"{name}, {reentrant=}")


def test_validation_is_by_the_loss_that_is_optimised(tmp_path: Path) -> None:
    splits = tiny_digits()
    stack, asked = _asked(tiny_vit(), PredictionOptions())
    trainer = PlanTrainer(
        stack=stack, draws=SeededSampler(Fixed(), 3, 0), validation=SeededSampler(Fixed(), 3, 0), added=asked,
        args=arguments(tmp_path, per_device_eval_batch_size=20), data_collator=splits.collate,
        eval_dataset=splits.validation,
    )  # fmt: skip
    batch = splits.collate([splits.validation[index] for index in range(20)])
    with torch.no_grad():
        task = forward_by_hand(tiny_vit(), batch, (0, 1, 2)).item()
    found = trainer.evaluate()["eval_loss"]
    assert [position for position, _ in asked.predicted] == [0, 1, 2]
    assert found == pytest.approx(task + asked.loss().item(), rel=1e-5)


def _one_step(
    model: Any, splits: Any, folder: Path, passes: int, **options: Any
) -> tuple[list[float], list[dict[str, Tensor]], dict[str, Tensor]]:
    """The losses, the batches and the gradients of one optimiser step under the plan `2 0 1`."""
    losses: list[float] = []
    batches: list[dict[str, Tensor]] = []
    gradients: dict[str, Tensor] = {}

    class Noted(PlanTrainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
            batches.append(inputs)
            loss = super().training_step(model, inputs, num_items_in_batch)
            losses.append(loss.item())
            return loss

    class Gradients(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            gradients.update({name: weight.grad.clone() for name, weight in model.named_parameters()})

    stack, asked = _asked(model, PredictionOptions())
    set_seed(3)
    Noted(
        stack=stack, draws=SeededSampler(Fixed(Plan.parse("2 0 1")), 3, 0), validation=SeededSampler(Fixed(), 3, 0),
        added=asked, data_collator=splits.collate, train_dataset=splits.train, callbacks=[Gradients()],
        args=arguments(
            folder, max_steps=1, per_device_train_batch_size=8 // passes, gradient_accumulation_steps=passes, **options
        ),
    ).train()  # fmt: skip
    return losses, batches, gradients


@pytest.mark.parametrize("single_pass", [True, False], ids=["single pass", "twins"])
def test_layers_of_another_model_say_nothing(single_pass: bool) -> None:
    """Models that predict can be merged: what a layer says has no part in the output, and its host does not ask."""
    stacks = {}
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        stacks[name], _ = _asked(tiny_vit(), PredictionOptions())
    merged = stacks["a"].with_sources(stacks)
    plan = Plan.parse("b:1 a:0 b:2")
    with torch.inference_mode():
        expected = merged.logits(plan, pixel_values=PIXELS)
        with merged.under(plan, single_pass=single_pass):
            assert torch.equal(merged.model(PIXELS).logits, expected)
