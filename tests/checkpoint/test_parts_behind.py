"""Modules after the layers are found by running the model, and can come from another model."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from conftest import tiny_llama
from contracts.specimen import Specimen, build, inputs
from contracts.tiers import every_type
from contracts.zoo import SUPPORTED
from layerwise.checkpoint import parts_behind as module
from layerwise.checkpoint import save
from layerwise.checkpoint.parts_behind import parts_behind, with_head
from layerwise.data.auto_classes import on_meta
from layerwise.errors import OptionError, PlanError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.stack.inputs import main_tensor
from rounding import realigned
from tier import first_fast

# Of those with a head of its own: an embedding that is the head, too, is that of the first model.
KINDS = ("bloom", "gemma2", "gpt2", "gpt_neox", "llama", "mamba", "opt", "phi", "qwen3", "vit")
UNTIED = ("gpt_neox", "llama", "mixtral", "phi", "qwen3", "vit")


def specimens(kinds: tuple[str, ...]) -> list[Specimen]:
    return [one for one in SUPPORTED if one.model_type in kinds]


def test_those_of_a_llama_are_its_norm_and_its_head() -> None:
    model = tiny_llama()
    assert parts_behind(model, "model.layers") == {"model.norm.weight", "lm_head.weight"}
    model.config.tie_word_embeddings = True
    model.tie_weights()
    assert parts_behind(model, "model.layers") == {"model.norm.weight"}


@every_type(fast=("llama",), slow=("bloom", "gpt2", "mamba", "vit"), of=specimens(KINDS))
def test_they_are_seen_without_the_weights(one: Specimen) -> None:
    model = build(one)
    path = load(model).path
    drawn = on_meta(type(model), model.config)
    drawn.tie_weights()  # type: ignore[operator]  # a model of transformers
    assert parts_behind(drawn, path) == parts_behind(model, path, inputs(one, model)) != frozenset()


@every_type(fast=("llama",), slow=("mixtral", "vit"), of=specimens(UNTIED))
def test_a_merge_ends_as_the_other_model_would_go_on(one: Specimen) -> None:
    first, second = build(one), build(one)
    for parameter in second.parameters():
        parameter.data *= 0.75
    a, b = load(first), load(second)
    batch, plan = inputs(one, first), Plan.parse("a:0-2 b:3")
    merged = Stack.with_sources({"a": a, "b": b})
    with torch.inference_mode():
        captured = merged.capture(**batch)
        state = merged.run(plan, captured)
        expected = main_tensor(b.finish(state, b.capture(**batch).inputs))
        assert torch.equal(with_head(merged, "b", batch).logits(plan, **batch), expected)
        assert not torch.equal(merged.logits(plan, **batch), expected)
    assert all(left is right for left, right in zip(first.parameters(), a.model.parameters(), strict=True))


@pytest.mark.parametrize("prove", first_fast([True, False]))
def test_it_is_streamed_as_it_is_built(models: dict[str, Path], tmp_path: Path, prove: bool) -> None:
    origin = save(models, "a:0-2 b:3-5", tmp_path / "m", head="b", prove=prove)
    assert (origin.head, origin.note, origin.gap) == ("b", "", 0.0 if prove else None)
    written, first, second = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "m", models["a"], models["b"])
    )
    assert torch.equal(written["model.embed_tokens.weight"], first["model.embed_tokens.weight"])
    assert torch.equal(written["lm_head.weight"], second["lm_head.weight"])
    assert not torch.equal(first["lm_head.weight"], second["lm_head.weight"])
    stacks = {name: load(folder) for name, folder in models.items()}
    with torch.inference_mode():
        ids = torch.arange(8)[None]
        expected = with_head(Stack.with_sources(stacks), "b").logits("a:0-2 b:3-5", input_ids=ids)
        assert torch.equal(realigned(load(tmp_path / "m").model)(ids).logits, expected)


def test_a_head_that_was_left_behind_would_be_seen(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted error: without the last norm and the head, the logits differ."""
    monkeypatch.setattr(module, "stored_parts_behind", lambda model, path: frozenset())
    with pytest.raises(UnsupportedModel, match="apart"):
        save(models, "a:0-2 b:3-5", tmp_path / "m", head="b")
    assert not (tmp_path / "m").exists()


def test_a_head_of_nobody_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="there is no model 'c' whose head could be taken"):
        save(models, "a:0-2 b:3-5", tmp_path / "m", head="c")
    with pytest.raises(OptionError, match="a Stack has a head of its own"):
        save(load(tiny_llama()), "0-2", tmp_path / "m", head="a")
    assert save(models, "a:0 b:1", tmp_path / "m", head="a").head is None
