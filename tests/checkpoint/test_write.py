"""Checkpoints of plans give the plan's logits in plain transformers, or nothing is written."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import nn
from transformers import AutoTokenizer

from conftest import tiny_llama
from contracts.specimen import Specimen, build, inputs
from contracts.tiers import every_type
from contracts.zoo import SUPPORTED
from layerwise.checkpoint import Origin, proof, save, write
from layerwise.checkpoint.folder import FILE
from layerwise.errors import CheckpointError, ModelError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack import Stack, load, weight_hash
from layerwise.stack.inputs import main_tensor
from rounding import realigned
from stack.makers import gpt2
from stack.test_stack import Mixer
from tier import first_fast
from tiny_tokenizers import character_tokenizer

IDS = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(2))
KINDS = ("llama", "vit", "gemma3_text", "bert", "mamba", "gpt2", "distilbert", "dinov2", "gpt_oss", "mixtral", "qwen3")


def reloaded(folder: Path, one: Specimen) -> nn.Module:
    return getattr(transformers, one.model_class).from_pretrained(folder).eval()


@every_type(fast=KINDS[:2], slow=KINDS[2:6], of=[one for one in SUPPORTED if one.model_type in KINDS])
@pytest.mark.parametrize("text", first_fast(["4 0*2 3 1", "0 1 3 4", "[0-2]*2 4 3"]))
def test_plain_transformers_loads_the_logits_of_the_plan(one: Specimen, text: str, tmp_path: Path) -> None:
    model = build(one)
    stack, plan, batch = load(model), Plan.parse(text), inputs(one, model)
    origin = save(stack, plan, tmp_path / "merged", inputs=batch)
    loaded = reloaded(tmp_path / "merged", one)
    with torch.inference_mode():
        expected = stack.logits(plan, **batch)
        assert torch.equal(main_tensor(realigned(loaded)(**batch)), expected)
        assert (expected - stack.logits(Plan.identity(5), **batch)).abs().max() > 1e-2
    sizes = [sum(p.numel() for p in stack.block(layer).parameters()) for layer in range(5)]
    rest = sum(p.numel() for p in model.parameters()) - sum(sizes)
    counted = rest + sum(sizes[layer] for layer in plan.order())
    assert sum(p.numel() for p in loaded.parameters()) == counted == origin.parameters


def two_models() -> Stack:
    return Stack.with_sources({name: load(tiny_llama(seed=seed)) for seed, name in enumerate("ab")})


def test_layers_of_several_models_and_where_they_are_from(tmp_path: Path) -> None:
    stack, plan = two_models(), Plan.parse("a:0-2 b:3 5")
    origin = save(stack, plan, tmp_path / "merged")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    with torch.inference_mode():
        assert torch.equal(realigned(loaded)(IDS).logits, stack.logits(plan, input_ids=IDS))
    layers = loaded.model.layers
    assert torch.equal(layers[3].mlp.up_proj.weight, stack.block(3, "b").mlp.up_proj.weight)
    hashes = {name: weight_hash(source.model) for name, source in stack.sources.items()}
    assert origin.weights == {"shell": hashes["a"], **hashes}
    assert Origin(**json.loads((tmp_path / "merged" / FILE).read_text())) == origin
    again = load(tmp_path / "merged")
    assert again.depth == 5
    prompt = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "max_new_tokens": 5, "do_sample": False}
    with stack.under(plan):
        expected = stack.model.generate(**prompt)
    assert torch.equal(loaded.generate(**prompt), expected)


@pytest.mark.parametrize("from_folder", [False, True])
def test_gains_of_sublayers_are_multiplied_into_their_last_projections(
    home: Path, from_folder: bool, tmp_path: Path
) -> None:
    plan = "0 (1.attn):gain=0.5 (1.mlp):gain=0 2.attn 2.mlp (1.attn):gain=2 1.mlp"
    origin = save(home if from_folder else load(home), plan, tmp_path / "m")
    assert ("gains are multiplied into weights" in origin.note) == from_folder
    assert origin.gap is not None
    assert origin.gap < 1e-6
    before, after = (load_file(folder / "model.safetensors") for folder in (home, tmp_path / "m"))
    gains = {(1, "self_attn.o_proj"): 0.5, (1, "mlp.down_proj"): 0.0, (3, "self_attn.o_proj"): 2.0}
    for name, value in after.items():
        if name.startswith("model.layers."):
            slot, _, rest = name.removeprefix("model.layers.").partition(".")
            own = before[f"model.layers.{(0, 1, 2, 1)[int(slot)]}.{rest}"]
            assert torch.equal(value, own * gains.get((int(slot), rest.removesuffix(".weight")), 1.0))
    assert len(after) == 4 * 9 + 3


def test_the_model_at_hand_is_left_as_it_was(tmp_path: Path) -> None:
    model = tiny_llama()
    stack, before = load(model), weight_hash(model)
    save(stack, Plan.parse("5-0"), tmp_path / "reversed")
    assert weight_hash(model) == before
    assert all(not parameter.is_meta for parameter in model.parameters())


def test_tokenizer_and_preprocessing_go_along(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "home")
    (tmp_path / "home" / "preprocessor_config.json").write_text('{"image_mean": [0.5]}')
    save(load(tmp_path / "home"), Plan.parse("0 2"), tmp_path / "m")
    assert AutoTokenizer.from_pretrained(tmp_path / "m")("ab").input_ids == character_tokenizer()("ab").input_ids
    assert (tmp_path / "m" / "preprocessor_config.json").read_text() == '{"image_mean": [0.5]}'


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted error: two exchanged blocks are detected, and no folder is left."""
    weights = write._weights
    monkeypatch.setattr(write, "_weights", lambda stack, _, *rest: weights(stack, Plan.parse("1 0 2"), *rest))
    with pytest.raises(UnsupportedModel, match="and the plan's are apart by"):
        save(load(tiny_llama()), Plan.parse("0-2"), tmp_path / "m")
    monkeypatch.setattr(write, "_weights", lambda stack, _, *rest: weights(stack, Plan.parse("0 1"), *rest))
    with pytest.raises(UnsupportedModel, match=r"cannot say what 0-2 does.*in place"):
        save(load(tiny_llama()), Plan.parse("0-2"), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_only_a_model_is_replaced_and_only_when_asked(tmp_path: Path) -> None:
    stack, folder = load(tiny_llama()), tmp_path / "m"
    save(stack, Plan.parse("0-2"), folder)
    with pytest.raises(CheckpointError, match=r"holds a model already; .*--overwrite"):
        save(stack, Plan.parse("0 1"), folder)
    save(stack, Plan.parse("0 1"), folder, overwrite=True)
    assert load(folder).depth == 2
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(CheckpointError, match="is not a model, so it stays"):
        save(stack, Plan.parse("0"), tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_other_modules_have_no_checkpoint_and_other_inputs_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnsupportedModel, match="not a transformers model"):
        save(load(Mixer(), layers="encoder.blocks"), Plan.parse("0"), tmp_path / "m")
    stack = load(tiny_llama())
    monkeypatch.setattr(proof, "example_inputs", lambda model: None)
    with pytest.raises(ModelError, match="pass a batch"):
        save(stack, Plan.parse("0"), tmp_path / "m")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_attention_scaled_by_position_is_refused_in_every_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    """GPT-2's configuration cannot express the scale of each layer's original position."""
    scaled = {"scale_attn_by_inverse_layer_idx": True, "initializer_range": 0.5}
    stack = load(gpt2(**scaled, bos_token_id=0, eos_token_id=0).to(dtype).eval())
    with pytest.raises(UnsupportedModel, match=r"apart by 0\.\d+ of their size, rounding may leave 4"):
        save(stack, Plan.parse("0 2 4"), tmp_path / "m")
    assert save(stack, Plan.parse("0-5"), tmp_path / "m").gap < 4.7e-6


def test_weights_of_several_dtypes_are_compared_as_they_are_held(tmp_path: Path) -> None:
    model = build(next(one for one in SUPPORTED if one.model_type == "gpt2")).bfloat16()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.float()
            module.weight.data.add_(1e-3)
    assert save(load(model), Plan.parse("0 2 4"), tmp_path / "m").gap < 3e-6


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("longformer", "configuration of LongformerForMaskedLM cannot say what 0 2 4 does"),
        ("qwen3_next", "does not run"),
    ],
)
def test_what_the_written_model_cannot_do_is_refused_in_a_sentence(kind: str, reason: str, tmp_path: Path) -> None:
    model = build(next(one for one in SUPPORTED if one.model_type == kind))
    with pytest.raises(UnsupportedModel, match=f"{reason}.*in place with stack.under"):
        save(load(model), Plan.parse("0 2 4"), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
