import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import ViTConfig, ViTForImageClassification

from conftest import tiny_llama
from contracts import specimen
from contracts.tiers import every_type
from contracts.zoo import SUPPORTED
from layerwise.data.batches import IGNORED, Batch, LabeledBatch, make_item
from layerwise.data.text.tokens import Window
from layerwise.measure.language import loss
from layerwise.measure.language.loss import find_head, window_losses
from layerwise.plan import Plan
from layerwise.stack import Stack, load

STACK = load(tiny_llama())
PLAN = Plan.parse("0 (1|2 3) 5")


def ragged_batch() -> Batch:
    generator = torch.Generator().manual_seed(5)
    lengths, starts = (12, 9, 4), (1, 5, 1)
    ids = torch.zeros(3, 12, dtype=torch.int64)
    mask, targets = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    windows = []
    for row, (length, start) in enumerate(zip(lengths, starts, strict=True)):
        ids[row, :length] = torch.randint(3, 97, (length,), generator=generator)
        mask[row, :length] = 1
        targets[row, start - 1 : length - 1] = ids[row, start:length]
        windows.append(Window(f"d{row}", "text", 0, tuple(ids[row, :length].tolist()), start, length))
    return Batch(ids, mask, targets, tuple(windows))


def all_at_once(stack: Stack, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    logits = stack.logits(PLAN, **batch.inputs)
    each = functional.cross_entropy(
        logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED, reduction="none"
    ).view(batch.targets.shape)
    hits = (logits.argmax(-1) == batch.targets) & batch.scored
    return each.sum(1), hits.sum(1)


@pytest.mark.parametrize("chunk_tokens", [1, 3, 7, 1000])
@pytest.mark.parametrize("by_token", [True, False])
def test_chunks_do_not_change_the_loss(monkeypatch: pytest.MonkeyPatch, chunk_tokens: int, by_token: bool) -> None:
    monkeypatch.setattr(loss, "CHUNK", chunk_tokens * 97)
    monkeypatch.setattr(STACK, "head_by_token", by_token)
    batch = ragged_batch()
    with torch.inference_mode():
        captured = STACK.capture(**batch.inputs)
        found = window_losses(STACK, STACK.run(PLAN, captured), batch)
        nll, hits = all_at_once(STACK, batch)
    torch.testing.assert_close(torch.tensor([row.nll for row in found]), nll, rtol=1e-5, atol=1e-5)
    assert [row.hits for row in found] == hits.tolist()
    assert [row.tokens for row in found] == [11, 4, 3]


def vision_stack() -> Stack:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=8,
        patch_size=4,
        num_labels=5,
        initializer_range=0.3,
    )
    return load(ViTForImageClassification(config).eval())


def test_images_are_scored_by_label() -> None:
    stack = vision_stack()
    pixels = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(6))
    labels = torch.tensor([0, 4, 2, 2])
    batch = LabeledBatch({"pixel_values": pixels}, labels, tuple(make_item(f"image-{n}") for n in range(4)))
    with torch.inference_mode():
        found = window_losses(stack, stack.run(Plan.parse("0 2-3"), stack.capture(pixel_values=pixels)), batch)
        logits = stack.logits(Plan.parse("0 2-3"), pixel_values=pixels)
    expected = functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(torch.tensor([row.nll for row in found]), expected)
    assert [row.hits for row in found] == (logits.argmax(-1) == labels).long().tolist()


LANGUAGE_MODELS = [one for one in SUPPORTED if one.model_class.endswith(("LM", "LMHeadModel", "LMHead"))]
QUICK = ("llama", "gpt2", "opt", "bert")


@every_type(fast=QUICK, of=LANGUAGE_MODELS)
def test_language_model_heads_act_by_token(one: specimen.Specimen) -> None:
    assert find_head(load(specimen.build(one))) is not None


def test_logits_match_in_any_token_order() -> None:
    stack = load(tiny_llama())
    ids = torch.randint(3, 97, (3, 7), generator=torch.Generator().manual_seed(0))
    head = find_head(stack)
    with torch.inference_mode():
        with stack.under(Plan.parse("2 0 (1|3)"), single_pass=True):
            expected = stack.model(input_ids=ids).logits
            states, output = head.states({"input_ids": ids})
        rows, columns = torch.tensor([2, 0, 0, 1]), torch.tensor([6, 1, 5, 0])
        found = head.logits(states[rows, columns], output, ids[rows, columns])
    # The same sums over the width, in another order.
    torch.testing.assert_close(found, expected[rows, columns], rtol=1e-5, atol=1e-5)
    assert "forward" not in head.body.__dict__
    assert not head.body._forward_hooks


class NeighborMixingHead(nn.Module):
    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, states: Tensor) -> Tensor:
        return self.head(states) + self.head(states).roll(1, dims=1)


def test_heads_over_several_tokens_are_rejected() -> None:
    model = tiny_llama()
    stack = load(model)
    model.lm_head = NeighborMixingHead(model.lm_head)
    assert find_head(stack) is None
    assert find_head(vision_stack()) is None
