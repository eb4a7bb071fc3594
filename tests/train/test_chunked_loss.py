"""The loss of validation in chunks: the model's own to rounding, of few logits, or not used."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from layerwise.data.batches import IGNORED
from layerwise.measure.language import lm_head
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.plan import Plan
from layerwise.plan.samplers import Shuffle
from layerwise.stack import load
from layerwise.train.trainer import PlanTrainer, find_chunked_loss
from train.tiny_models import plan_trainer, tiny_llama, tiny_text, tiny_vit


def masked_model() -> PreTrainedModel:
    torch.manual_seed(0)
    config = ElcConfig(vocab_size=61, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24)
    return ElcForMaskedLM(config).eval()


@pytest.mark.parametrize("make", [tiny_llama, masked_model])
@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_it_is_the_loss_of_the_model(make: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(make())
    vocabulary = stack.text_config.vocab_size
    monkeypatch.setattr(lm_head, "CHUNK", rows * vocabulary)
    found = find_chunked_loss(stack)
    assert found is not None
    ids = torch.randint(4, vocabulary, (3, 7), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[0, 2:] = labels[2, 0] = IGNORED
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    seen: list[int] = []
    real = lm_head.token_losses

    def counted(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(len(logits))
        return real(logits, targets)

    monkeypatch.setattr(lm_head, "token_losses", counted)
    plan = Plan.parse("2 0 1")
    with torch.no_grad(), stack.under(plan):
        own = stack.model(**inputs).loss
        torch.testing.assert_close(found(inputs), own, rtol=1e-5, atol=0)
        torch.testing.assert_close(found(inputs, 4) * 4 / sum(seen[: len(seen) // 2]), own, rtol=1e-5, atol=0)
    assert max(seen) <= rows


class Held(PlanTrainer):
    largest = 0

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        def note(module: Any, args: Any, output: Any) -> None:
            self.largest = max(self.largest, output.logits.numel())

        handle = self.stack.model.register_forward_hook(note)
        try:
            return super().evaluate(*args, **kwargs)
        finally:
            handle.remove()


def trainer(folder: Path, model: PreTrainedModel, **options: Any) -> Held:
    held: Held = plan_trainer(load(model), tiny_text(), folder, validation=Shuffle(), made=Held, **options)
    return held


def test_validation_is_the_parents_and_holds_few_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = tiny_llama().config.vocab_size
    monkeypatch.setattr(lm_head, "CHUNK", 2 * vocabulary)
    ours = trainer(tmp_path, tiny_llama())
    assert ours._chunked_loss() is not None  # the head is looked for with logits of its own
    loss = ours.evaluate()["eval_loss"]
    assert ours.largest == 2 * vocabulary
    monkeypatch.setattr(PlanTrainer, "_chunked_loss", lambda _: None)
    parents = trainer(tmp_path, tiny_llama())
    assert loss == pytest.approx(parents.evaluate()["eval_loss"], rel=1e-5)
    assert parents.largest > 2 * vocabulary


def test_another_loss_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama()
    real = model.loss_function
    model.loss_function = lambda *args, **kwargs: 1.001 * real(*args, **kwargs)
    assert find_chunked_loss(load(model)) is None
    assert find_chunked_loss(load(tiny_vit())) is None
    assert trainer(tmp_path, tiny_llama(), label_smoothing_factor=0.1)._chunked_loss() is None
