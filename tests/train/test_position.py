"""What layers are told about their position: the formula of the paper, in every order, and nothing else changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm
from transformers import PreTrainedModel, set_seed

from layerwise.errors import TrainError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.plan.samplers import Fixed, SeededSampler, Shuffle
from layerwise.stack import Stack, load
from layerwise.train import position
from layerwise.train.methods.layershuffle import PositionOptions
from layerwise.train.position import PositionEncoding
from layerwise.train.trainer import PlanTrainer
from train.tiny_models import WIDTH, arguments, tiny_digits, tiny_llama, tiny_text, tiny_vit

FEATURES = 5


def _told(stack: Stack, options: PositionOptions) -> PositionEncoding:
    """An encoding with every tensor drawn at random, norms and biases too."""
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
@pytest.mark.parametrize("text", ["0-2", "2 0 1", "2 0 2", "1 1 1", "2 1"])
@pytest.mark.parametrize("table", ["per-layer", "shared"])
@torch.no_grad()
def test_every_layer_reads_the_formula_at_its_current_position(table: str, text: str, single_pass: bool) -> None:
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


def test_tables_are_one_a_layer_or_one_for_all() -> None:
    each = position.attach_encoding(load(tiny_vit()), PositionOptions(features=FEATURES))
    shared = position.attach_encoding(load(tiny_vit()), PositionOptions(features=FEATURES, table="shared"))
    assert [tuple(table.shape) for table in each.tables] == [(3, FEATURES)] * 3
    assert [tuple(table.shape) for table in shared.tables] == [(3, FEATURES)]
    assert len(shared.projections) == len(shared.norms) == 3
    assert each.projections[0].weight.shape == (WIDTH, WIDTH + FEATURES)


def test_the_encoding_stands_beside_the_plain_parameters() -> None:
    model = tiny_vit()
    plain = [name for name, _ in model.named_parameters()]
    encoding = position.attach_encoding(load(model), PositionOptions())
    added = [name for name, _ in model.named_parameters() if name not in plain]
    assert [name for name, _ in model.named_parameters() if name in plain] == plain
    assert added == [f"layer_positions.{name}" for name, _ in encoding.named_parameters()]


@pytest.mark.parametrize("single_pass", [True, False])
def test_more_visits_than_learned_positions_are_refused(single_pass: bool) -> None:
    stack = load(tiny_vit())
    position.attach_encoding(stack, PositionOptions())
    pixels = torch.zeros(1, 1, 8, 8)
    with (
        stack.under(Plan.parse("0 1 2 0"), single_pass=single_pass),
        pytest.raises(TrainError, match=r"visit 4 of the plan .* learned 3 positions, so plans have at most 3 visits"),
    ):
        stack.model(pixel_values=pixels)


@torch.no_grad()
def test_dropout_is_on_what_is_added_and_only_in_training() -> None:
    encoding = PositionEncoding(2, WIDTH, PositionOptions(dropout=0.5))
    state = torch.randn(1, 40, WIDTH, generator=torch.Generator().manual_seed(0))
    evaluated = encoding.eval()(state, 1, 0) - state
    torch.manual_seed(0)
    trained = encoding.train()(state, 1, 0) - state
    dropped = trained == 0
    assert 0.4 < dropped.float().mean() < 0.6
    torch.testing.assert_close(trained[~dropped], 2 * evaluated[~dropped], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("make", [tiny_vit, tiny_llama], ids=["vit", "llama"])
def test_recomputed_passes_are_told_the_same(make: type[PreTrainedModel], reentrant: bool, tmp_path: Path) -> None:
    whole = _losses(make(), tmp_path)
    options = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    assert _losses(make(), tmp_path, **options) == pytest.approx(whole, rel=1e-5)
    assert len(set(whole)) == 3


def _losses(model: PreTrainedModel, folder: Path, **options: object) -> list[float]:
    found: list[float] = []

    class Noted(PlanTrainer):
        def training_step(self, *args: object, **kwargs: object) -> Tensor:
            loss = super().training_step(*args, **kwargs)
            found.append(loss.item())
            return loss

    stack = load(model)
    _told(stack, PositionOptions(features=FEATURES))
    splits = tiny_text() if hasattr(model, "lm_head") else tiny_digits()
    set_seed(3)
    Noted(
        stack=stack, draws=SeededSampler(Shuffle(), 3, 0), validation=SeededSampler(Fixed(), 3, 0),
        data_collator=splits.collate, args=arguments(folder, max_steps=3, **options), train_dataset=splits.train,
    ).train()  # fmt: skip
    return found


def test_a_model_that_does_not_say_its_width_is_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    with pytest.raises(TrainError, match="Bare does not say how wide its hidden state is"):
        position.attach_encoding(Stack(Bare(), "layers"), PositionOptions())


def test_layers_of_another_model_are_refused() -> None:
    stacks = {name: load(tiny_vit()) for name in "ab"}
    for stack in stacks.values():
        position.attach_encoding(stack, PositionOptions())
    merged = stacks["a"].with_sources(stacks)
    with (
        merged.under(Plan.parse("a:0 b:1 a:2"), single_pass=True),
        pytest.raises(TrainError, match="position encoding cannot be merged"),
    ):
        merged.model(pixel_values=torch.zeros(1, 1, 8, 8))


def test_a_checkpoint_is_not_run_without_the_encoding_it_was_trained_with(tmp_path: Path) -> None:
    stack = load(tiny_vit())
    position.attach_encoding(stack, PositionOptions(features=FEATURES))
    stack.model.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"trained with an encoding of their positions \(layer_positions\)"):
        load(tmp_path)
    assert load(tmp_path, adding=("layer_positions",)).depth == stack.depth
