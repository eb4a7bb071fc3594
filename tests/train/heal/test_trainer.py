"""Healing: a training step, and a full training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import kl_div

from layerwise.errors import CheckpointError, TrainError
from layerwise.plan import Plan
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.stack import Stack, load
from layerwise.train.heal.learning import load_healed
from layerwise.train.heal.options import HealingOptions, Method, healing_recipe
from layerwise.train.recipe import Settings
from layerwise.train.training import Base, train
from tier import first_fast
from train.heal.healing_models import (
    DEPTH,
    KINDS,
    PLAN,
    batch_of,
    copied,
    logits_of,
    moved,
    opened,
    splits_for,
    trainer_of,
)

EVERY = pytest.mark.parametrize("kind", first_fast(KINDS))
METHODS = pytest.mark.parametrize("method", ["lora", "full", "tail"])


def options_of(method: Method, **more: object) -> HealingOptions:
    return HealingOptions(plan=str(PLAN), method=method, rank=2, **more)  # type: ignore[arg-type]


def divergence_by_hand(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    if labels.ndim == 2:
        scored = labels[:, 1:] != -100
        student, teacher = student[:, :-1][scored], teacher[:, :-1][scored]
    terms = kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="none")
    return terms.sum(-1).mean()


def step(stack: Stack, kind: str, folder: Path, options: HealingOptions) -> tuple[float, dict[str, Tensor], Stack]:
    trainer = trainer_of(stack, kind, folder, options)
    moved(trainer)
    batch = batch_of(kind)
    reference = copied(stack)
    loss = trainer.training_step(stack.model, batch)
    return loss.item(), {name: each.grad for name, each in trainer.learning.weights().items()}, reference  # type: ignore[misc]


@EVERY
@METHODS
def test_a_step_minimizes_the_divergence_from_the_original_model(kind: str, method: Method, tmp_path: Path) -> None:
    whole, batch = opened(kind), batch_of(kind)
    loss, gradients, reference = step(opened(kind), kind, tmp_path, options_of(method))
    with torch.no_grad():
        teacher = logits_of(whole, Plan.identity(DEPTH), batch)
    student = logits_of(reference, PLAN, batch)
    expected = divergence_by_hand(student, teacher, batch["labels"])
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    expected.backward()
    named = dict(reference.model.named_parameters())
    for name, gradient in gradients.items():
        by_hand = named[name].grad
        found, wanted = (torch.zeros_like(named[name]) if each is None else each for each in (gradient, by_hand))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6, msg=name)


@EVERY
@pytest.mark.parametrize("hidden", ["cosine", "mse"])
def test_hidden_states_are_compared_after_the_same_layer(kind: str, hidden: str, tmp_path: Path) -> None:
    whole, batch = opened(kind), batch_of(kind)
    options = options_of("full", hidden=hidden, hidden_weight=2.0)
    loss, _, reference = step(opened(kind), kind, tmp_path, options)
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    with torch.no_grad():
        teacher = list(whole.states(Plan.identity(DEPTH), whole.capture(**inputs)))[1:]
        student = list(reference.states(PLAN, reference.capture(**inputs)))[1:]
        logits = [logits_of(reference, PLAN, batch), logits_of(whole, Plan.identity(DEPTH), batch)]
    distances = []
    for state, layer in zip(student, PLAN.layers(), strict=True):
        if hidden == "cosine":
            distance = 1 - torch.nn.functional.cosine_similarity(state, teacher[layer], dim=-1)
        else:
            distance = (state - teacher[layer]).square().mean(-1)
        scored = batch["labels"][:, 1:] != -100 if kind != "vit" else None
        distances.append(distance.mean() if scored is None else distance[:, :-1][scored].mean())
    expected = divergence_by_hand(*logits, batch["labels"]) + 2.0 * torch.stack(distances).mean()
    assert loss == pytest.approx(expected.item(), rel=1e-4)


@EVERY
@METHODS
def test_the_original_model_is_restored_within_the_context(kind: str, method: Method, tmp_path: Path) -> None:
    stack, batch = opened(kind), batch_of(kind)
    own = logits_of(stack, Plan.identity(DEPTH), batch)
    trainer = trainer_of(stack, kind, tmp_path, options_of(method))
    moved(trainer)
    learned = {name: weight.detach().clone() for name, weight in trainer.learning.weights().items()}
    with trainer.learning.original():
        assert torch.equal(logits_of(stack, Plan.identity(DEPTH), batch), own)
    after = trainer.learning.weights()
    assert after.keys() == learned.keys()
    assert all(torch.equal(after[name], learned[name]) for name in learned)
    assert not torch.allclose(logits_of(stack, Plan.identity(DEPTH), batch), own, atol=1e-3)


@METHODS
def test_a_checkpoint_has_only_trainable_weights(method: Method, tmp_path: Path) -> None:
    trainer = trainer_of(opened("llama"), "llama", tmp_path, options_of(method))
    trainer._save(str(tmp_path))
    assert load_file(tmp_path / "model.safetensors").keys() == trainer.learning.weights().keys()


def test_each_method_trains_its_weights(tmp_path: Path) -> None:
    names = {}
    for method in ("lora", "full", "tail"):
        stack = opened("llama")
        names[method] = set(trainer_of(stack, "llama", tmp_path, options_of(method)).learning.weights())
    everything = set(dict(opened("llama").model.named_parameters()))
    assert names["full"] == {name for name in everything if not name.startswith("model.layers.1.")}
    assert names["tail"] == {name for name in names["full"] if "embed" not in name}  # three layers: all of the plan's
    assert all("lora_" in name and "layers.1." not in name for name in names["lora"])
    assert len(names["lora"]) == 3 * 7 * 2


def test_the_tail_of_a_vision_model_is_norm_head_and_three_layers(tmp_path: Path) -> None:
    learning = trainer_of(opened("vit"), "vit", tmp_path, options_of("tail")).learning
    outside = {name for name in learning.weights() if ".layers." not in name}
    assert outside == {"vit.layernorm.weight", "vit.layernorm.bias", "classifier.weight", "classifier.bias"}


def test_copies_are_made_only_of_trainable_weights_with_a_teacher(tmp_path: Path) -> None:
    def copies(options: HealingOptions) -> int:
        return len(trainer_of(opened("llama"), "llama", tmp_path, options).learning._first)

    assert copies(options_of("lora")) == copies(options_of("full", teacher="none")) == 0
    tail = trainer_of(opened("llama"), "llama", tmp_path, options_of("tail")).learning
    assert set(tail._first) == set(tail.weights())


def test_logits_are_computed_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for chunk in (1 << 22, 40):
        monkeypatch.setattr("layerwise.train.heal.trainer.CHUNK", chunk)
        stack, rows = opened("llama"), []
        stack.model.lm_head.register_forward_hook(lambda module, args, output, rows=rows: rows.append(output.shape[1]))
        trainer = trainer_of(stack, "llama", tmp_path, options_of("full"))
        moved(trainer)
        rows.clear()
        trainer.training_step(stack.model, batch_of("llama"))
        results.append(({name: each.grad for name, each in trainer.learning.weights().items()}, max(rows)))
    (whole, most), (pieces, least) = results
    assert least <= 2 < most
    for name, gradient in whole.items():
        torch.testing.assert_close(pieces[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


QUIET: dict[str, Any] = {"use_cpu": True}
SETTINGS = Settings(epochs=2, batch_size=8, evals=3, learning_rate=1e-2, schedule="linear", warmup=0.2)
HEALED_BY = pytest.mark.parametrize("method", first_fast(["lora", "full", "tail"]))


def healed(folder: Path, method: Method, kind: str = "llama", settings: Settings = SETTINGS) -> TrainingRecord:
    options = HealingOptions(method=method, hidden="cosine", rank=2)
    recipe = healing_recipe("healed", settings, PLAN, options)
    return train(Base(lambda: opened(kind), kind), splits_for(kind), recipe, 1, folder, arguments=QUIET)


def learned(folder: Path) -> dict[str, Tensor]:
    (path,) = (folder / MODEL).glob("*.safetensors")
    return load_file(path)


def test_peft_loads_the_adapters(tmp_path: Path) -> None:
    stack, batch = opened("llama"), batch_of("llama")
    trainer = trainer_of(stack, "llama", tmp_path, HealingOptions(plan=str(PLAN), rank=2))
    moved(trainer)
    trainer.write(tmp_path / "adapter")
    foreign = PeftModel.from_pretrained(opened("llama").model, str(tmp_path / "adapter"))
    with torch.no_grad():
        expected = logits_of(stack, PLAN, batch)
        again = load(foreign, layers="base_model.model.model.layers")
        assert torch.equal(logits_of(again, PLAN, batch), expected)


@pytest.mark.parametrize("kind", first_fast(["mixtral", "llama"]))
@HEALED_BY
def test_a_healed_model_is_loaded_as_trained(method: Method, kind: str, tmp_path: Path) -> None:
    record = healed(tmp_path, method, kind)
    stack, base = load_healed(opened(kind), tmp_path / MODEL), opened(kind).model.state_dict()
    least = min(entry.loss for entry in record.history if entry.kind == "validation")
    moved = {name for name, weight in stack.model.state_dict().items() if not torch.equal(weight, base[name])}
    assert {name for name in base if ".3.mlp" in name and "gate.weight" not in name} <= moved, "experts learn, too"
    splits = splits_for(kind)
    batch = splits.collate([splits.validation[number] for number in range(len(splits.validation))])
    with torch.no_grad(), stack.under(PLAN, single_pass=True):
        assert float(stack.model(**batch).loss) == pytest.approx(least, rel=1e-4)


def test_missing_teachers_libraries_and_weights_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match="has no healed weights"):
        load_healed(opened("llama"), tmp_path)

    with pytest.raises(TrainError, match="Pass teacher='self'"):
        HealingOptions(teacher="none", hidden="mse")
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(TrainError, match=r"layerwise\[heal\]"):
        trainer_of(opened("llama"), "llama", tmp_path, options_of("lora"))


@HEALED_BY
def test_accumulated_passes_equal_one_step(method: Method, tmp_path: Path) -> None:
    few = replace(SETTINGS, epochs=1, evals=1)
    whole = healed(tmp_path / "whole", method, settings=few)
    parts = healed(tmp_path / "parts", method, settings=replace(few, gradient_accumulation_steps=4))
    expected = [entry.loss for entry in whole.history]
    assert [entry.loss for entry in parts.history] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_weights_stay_float32_in_half_precision(tmp_path: Path) -> None:
    record = healed(tmp_path, "lora", settings=replace(SETTINGS, precision="bfloat16"))
    assert all(weight.dtype == torch.float32 for weight in learned(tmp_path).values())
    first, *_, last = [entry.loss for entry in record.history if entry.kind == "train"]
    assert last < first
