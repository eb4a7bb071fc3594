"""Position encodings and position prediction of LayerShuffle."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

from layerwise.errors import TrainError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.plan.samplers import Fixed
from layerwise.stack import Stack, load
from layerwise.train import position
from layerwise.train.methods import PositionOptions, PredictionOptions
from layerwise.train.position import PositionEncoding, PositionPrediction
from tier import first_fast
from train.tiny_models import (
    WIDTH,
    FirstStep,
    forward_by_hand,
    plan_trainer,
    tiny_digits,
    tiny_llama,
    tiny_text,
    tiny_vit,
)

FEATURES = 5


def _told(stack: Stack, options: PositionOptions) -> PositionEncoding:
    torch.manual_seed(8)
    encoding = position.attach_encoding(stack, options)
    with torch.no_grad():
        for tensor in encoding.parameters():
            tensor.normal_()
    return encoding.eval()


def _by_hand(encoding: PositionEncoding, state: Tensor, layer: int, index: int, shared: bool) -> Tensor:
    tensors = dict(encoding.named_parameters())
    row = tensors[f"tables.{0 if shared else layer}"][index]
    wide = torch.cat([state, row.reshape(1, 1, -1).repeat(*state.shape[:2], 1)], dim=2)
    normed = layer_norm(
        wide, wide.shape[-1:], tensors[f"norms.{layer}.weight"], tensors[f"norms.{layer}.bias"], eps=1e-5
    )
    linear = normed @ tensors[f"projections.{layer}.weight"].T + tensors[f"projections.{layer}.bias"]
    return gelu(linear) + state


@pytest.mark.parametrize("single_pass", [True, False], ids=["single pass", "twins"])
@pytest.mark.parametrize("text", first_fast(["2 0 2", "2 1", "0-2", "2 0 1", "1 1 1"], 2))
@pytest.mark.parametrize("table", ["per-layer", "shared"])
@torch.no_grad()
def test_position_encodings_match_the_formula(table: str, text: str, single_pass: bool) -> None:
    model = tiny_vit()
    stack = load(model)
    encoding = _told(stack, PositionOptions(features=FEATURES, table=table))
    pixels = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    blocks = list(model.vit.layers)
    plan = Plan.parse(text)
    with stack.under(plan, single_pass=single_pass):
        found = model(pixel_values=pixels).logits
    state = model.vit.embeddings(pixels)
    for index, layer in enumerate(plan.order()):
        told = _by_hand(encoding, state, layer, index, table == "shared")
        state = type(blocks[layer]).forward(blocks[layer], told)
    expected = model.classifier(model.vit.layernorm(state)[:, 0])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("single_pass", [True, False])
def test_more_visits_than_positions_are_rejected(single_pass: bool) -> None:
    stack = load(tiny_vit())
    position.attach_encoding(stack, PositionOptions())
    pixels = torch.zeros(1, 1, 8, 8)
    with (
        stack.under(Plan.parse("0 1 2 0"), single_pass=single_pass),
        pytest.raises(TrainError, match="must have at most 3 visits, got 4"),
    ):
        stack.model(pixel_values=pixels)


@torch.no_grad()
def test_dropout_applies_to_the_encoding_in_training_only() -> None:
    encoding = PositionEncoding(2, WIDTH, PositionOptions(dropout=0.5))
    state = torch.randn(1, 40, WIDTH, generator=torch.Generator().manual_seed(0))
    evaluated = encoding.eval()(state, 1, 0) - state
    torch.manual_seed(0)
    trained = encoding.train()(state, 1, 0) - state
    dropped = trained == 0
    assert 0.4 < dropped.float().mean() < 0.6
    torch.testing.assert_close(trained[~dropped], 2 * evaluated[~dropped], rtol=1e-3, atol=1e-5)


def test_models_that_cannot_have_or_keep_an_encoding_are_rejected(tmp_path: Path) -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    with pytest.raises(TrainError, match=r"require config\.hidden_size, which Bare lacks"):
        position.attach_encoding(Stack(Bare(), "layers"), PositionOptions())

    stacks = {name: load(tiny_vit()) for name in "ab"}
    for stack in stacks.values():
        position.attach_encoding(stack, PositionOptions())
    merged = stacks["a"].with_sources(stacks)
    with (
        merged.under(Plan.parse("a:0 b:1 a:2"), single_pass=True),
        pytest.raises(TrainError, match="cannot be merged"),
    ):
        merged.model(pixel_values=torch.zeros(1, 1, 8, 8))

    stack = load(tiny_vit())
    position.attach_encoding(stack, PositionOptions(features=FEATURES))
    stack.model.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"trained with an encoding of their positions \(layer_positions\)"):
        load(tmp_path)
    assert load(tmp_path, adding=("layer_positions",)).depth == stack.depth


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
    return (logits.exp().sum(1).log() - logits[:, position]).mean()


@pytest.mark.parametrize("single_pass", [True, False], ids=["single pass", "twins"])
@pytest.mark.parametrize("text", first_fast(["2 0 1", "0-2", "2 0 2", "1 2"]))
@pytest.mark.parametrize("total", ["sum", "mean"])
@pytest.mark.parametrize("reads", ["first", "mean"])
@torch.no_grad()
def test_prediction_loss_and_accuracy_match_the_formulas(reads: Any, total: Any, text: str, single_pass: bool) -> None:
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
def test_predictions_are_those_of_the_last_pass() -> None:
    stack, asked = _asked(tiny_vit(), PredictionOptions())
    for text in ("2 0 1", "1 2"):
        with stack.under(Plan.parse(text), single_pass=True):
            stack.model(pixel_values=PIXELS)
        assert [position for position, _ in asked.predicted] == list(range(len(Plan.parse(text).order())))


@torch.no_grad()
def test_the_mean_state_excludes_padding() -> None:
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


@pytest.mark.parametrize("passes", [1, 2], ids=["whole", "accumulated"])
@pytest.mark.parametrize("kind", first_fast(["vit", "llama"]))
def test_the_prediction_loss_is_added_in_training(kind: str, passes: int, tmp_path: Path) -> None:
    splits, make = (tiny_digits(), tiny_vit) if kind == "vit" else (tiny_text(), tiny_llama)
    stack, asked = _asked(make(), PredictionOptions())
    sizes = {"per_device_train_batch_size": 8 // passes, "gradient_accumulation_steps": passes}
    drawn = Fixed(Plan.parse("2 0 1"))
    found = FirstStep().of(plan_trainer(stack, splits, tmp_path, drawn, own={"added": asked}, max_steps=1, **sizes))
    stack, asked = _asked(make(), PredictionOptions())
    total = torch.zeros(())
    by_hand = []
    for batch in found.batches:
        with stack.under(Plan.parse("2 0 1"), single_pass=True):
            stack.model(**{name: tensor for name, tensor in batch.items() if name != "labels"})
        extra = asked.loss()
        by_hand.append((forward_by_hand(make(), batch, (2, 0, 1)).item() + extra.item()) / passes)
        total = total + (extra + forward_by_hand(stack.model, batch, (2, 0, 1))) / passes
    total.backward()
    assert found.losses == pytest.approx(by_hand, rel=1e-5)
    for name, weight in stack.model.named_parameters():
        torch.testing.assert_close(found.gradients[name], weight.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_validation_includes_the_prediction_loss(tmp_path: Path) -> None:
    splits = tiny_digits()
    stack, asked = _asked(tiny_vit(), PredictionOptions())
    trainer = plan_trainer(stack, splits, tmp_path, Fixed(), own={"added": asked}, per_device_eval_batch_size=20)
    batch = splits.collate([splits.validation[index] for index in range(20)])
    with torch.no_grad():
        task = forward_by_hand(tiny_vit(), batch, (0, 1, 2)).item()
    found = trainer.evaluate()["eval_loss"]
    assert [position for position, _ in asked.predicted] == [0, 1, 2]
    assert found == pytest.approx(task + asked.loss().item(), rel=1e-5)


@pytest.mark.parametrize("single_pass", [True, False], ids=["single pass", "twins"])
def test_layers_of_another_model_predict_nothing(single_pass: bool) -> None:
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
