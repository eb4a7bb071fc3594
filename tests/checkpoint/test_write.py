"""Checkpoints of plans, from memory or file to file, give the plan's logits in plain transformers, or are refused."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from conftest import tiny_llama
from contracts.specimen import Specimen, build, inputs
from contracts.tiers import every_type
from contracts.zoo import SUPPORTED
from layerwise.checkpoint import Origin, kinds, proof, save, stream, write
from layerwise.checkpoint.folder import FILE, Writing
from layerwise.checkpoint.proof import parts_behind, with_head
from layerwise.checkpoint.save import save_named
from layerwise.checkpoint.stored_config import visit_config
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.data.auto_classes import on_meta
from layerwise.errors import CheckpointError, ModelError, OptionError, PlanError, UnsupportedModelError
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
    with pytest.raises(UnsupportedModelError, match="the logits of the saved LlamaForCausalLM and of the"):
        save(load(tiny_llama()), Plan.parse("0-2"), tmp_path / "m")
    monkeypatch.setattr(write, "_weights", lambda stack, _, *rest: weights(stack, Plan.parse("0 1"), *rest))
    with pytest.raises(UnsupportedModelError, match="the configuration of LlamaForCausalLM cannot express"):
        save(load(tiny_llama()), Plan.parse("0-2"), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_only_a_model_is_replaced_and_only_when_asked(tmp_path: Path) -> None:
    stack, folder = load(tiny_llama()), tmp_path / "m"
    save(stack, Plan.parse("0-2"), folder)
    with pytest.raises(CheckpointError, match="already has a model"):
        save(stack, Plan.parse("0 1"), folder)
    save(stack, Plan.parse("0 1"), folder, overwrite=True)
    assert load(folder).depth == 2
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(CheckpointError, match="already exists but contains no model"):
        save(stack, Plan.parse("0"), tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_other_modules_have_no_checkpoint_and_other_inputs_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnsupportedModelError, match="only transformers models can be saved"):
        save(load(Mixer(), layers="encoder.blocks"), Plan.parse("0"), tmp_path / "m")
    stack = load(tiny_llama())
    monkeypatch.setattr(proof, "example_inputs", lambda model: None)
    with pytest.raises(ModelError, match="cannot build example inputs"):
        save(stack, Plan.parse("0"), tmp_path / "m")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_attention_scaled_by_position_is_refused_in_every_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    """GPT-2's configuration cannot express the scale of each layer's original position."""
    scaled = {"scale_attn_by_inverse_layer_idx": True, "initializer_range": 0.5}
    stack = load(gpt2(**scaled, bos_token_id=0, eos_token_id=0).to(dtype).eval())
    with pytest.raises(UnsupportedModelError, match="the logits of the saved GPT2LMHeadModel and of the"):
        save(stack, Plan.parse("0 2 4"), tmp_path / "m")
    assert save(stack, Plan.parse("0-5"), tmp_path / "m").gap < 4.7e-6


def test_weights_of_several_dtypes_are_compared_as_they_are_held(tmp_path: Path) -> None:
    model = build(next(one for one in SUPPORTED if one.model_type == "gpt2")).bfloat16()
    for each in model.modules():
        if isinstance(each, nn.LayerNorm):
            each.float()
            each.weight.data.add_(1e-3)
    assert save(load(model), Plan.parse("0 2 4"), tmp_path / "m").gap < 3e-6


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("longformer", "configuration of LongformerForMaskedLM cannot express 0 2 4"), ("qwen3_next", "does not run")],
)
def test_models_that_cannot_be_written_under_a_plan_are_refused(kind: str, reason: str, tmp_path: Path) -> None:
    model = build(next(one for one in SUPPORTED if one.model_type == kind))
    with pytest.raises(UnsupportedModelError, match=f"{reason}.*in place with stack.under"):
        save(load(model), Plan.parse("0 2 4"), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


SOLVED = [
    ("deepseek_v3", "1-4", {"first_k_dense_replace": 0}),
    ("deepseek_v3", "0*3 2 4", {"first_k_dense_replace": 3}),
    ("bamba", "4 0*2 3 1", {"attn_layer_indices": [3, 4]}),
    ("qwen3_moe", "1 3 1", {"decoder_sparse_step": 1, "mlp_only_layers": []}),
    ("qwen3_moe", "1 0 3", {"mlp_only_layers": [1]}),
    ("qwen3_moe", "4 0*2 3 1", {"decoder_sparse_step": 1, "mlp_only_layers": [0, 1, 2]}),
    ("glm4_moe", "1-4", {"first_k_dense_replace": 0}),
]


@pytest.mark.parametrize("case", first_fast(SOLVED, 1), ids=lambda case: " ".join(case[:2]))
def test_the_settings_of_the_plan(case: tuple[str, str, dict[str, object]], tmp_path: Path) -> None:
    kind, text, settings = case
    one = next(one for one in SUPPORTED if one.model_type == kind)
    model = build(one)
    model.save_pretrained(tmp_path / "home")
    for number, source in enumerate((load(model), tmp_path / "home")):
        origin = save(source, text, tmp_path / f"m{number}", inputs=inputs(one, model))
        assert (origin.gap, origin.note) == (0.0, "")
    written = [type(model).from_pretrained(tmp_path / name) for name in ("m0", "m1")]
    for each in written:
        assert {name: getattr(each.config, name) for name in settings} == settings
    first, second = (each.state_dict() for each in written)
    assert all(torch.equal(first[name], second[name]) for name in first | second)


def test_settings_without_fitting_values_are_refused(tmp_path: Path) -> None:
    build(next(one for one in SUPPORTED if one.model_type == "deepseek_v3")).save_pretrained(tmp_path / "home")
    with pytest.raises(UnsupportedModelError, match=r"in slot ., mlp would be DeepseekV3MLP instead of DeepseekV3MoE"):
        save(tmp_path / "home", "1 0 2", tmp_path / "m")
    assert not (tmp_path / "m").exists()


# Types with an untied head: a tied embedding is the first model's.
WITH_HEADS = ("bloom", "gemma2", "gpt2", "gpt_neox", "llama", "mamba", "opt", "phi", "qwen3", "vit")
UNTIED = ("gpt_neox", "llama", "mixtral", "phi", "qwen3", "vit")


def specimens(kinds: tuple[str, ...]) -> list[Specimen]:
    return [one for one in SUPPORTED if one.model_type in kinds]


def test_parts_behind_the_layers_of_a_llama_are_its_norm_and_head() -> None:
    model = tiny_llama()
    assert parts_behind(model, "model.layers") == {"model.norm.weight", "lm_head.weight"}
    model.config.tie_word_embeddings = True
    model.tie_weights()
    assert parts_behind(model, "model.layers") == {"model.norm.weight"}


@every_type(fast=("llama",), slow=("bloom", "gpt2", "mamba", "vit"), of=specimens(WITH_HEADS))
def test_parts_behind_the_layers_are_found_without_weights(one: Specimen) -> None:
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
def test_a_merge_with_a_head_is_streamed_as_it_is_built(models: dict[str, Path], tmp_path: Path, prove: bool) -> None:
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


def test_a_head_of_an_unknown_model_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="unknown model 'c' for head"):
        save(models, "a:0-2 b:3-5", tmp_path / "m", head="c")
    with pytest.raises(OptionError, match="head requires models by name"):
        save(load(tiny_llama()), "0-2", tmp_path / "m", head="a")
    assert save(models, "a:0 b:1", tmp_path / "m", head="a").head is None


STREAMED = ("llama", "mixtral", "vit", "bert", "gemma3_text")


@every_type(fast=STREAMED[:2], slow=STREAMED[2:])
@pytest.mark.parametrize("text", first_fast(["4 0*2 3 1", "0-3"]))
def test_streamed_files_are_those_of_the_way_through_memory(one: Specimen, text: str, tmp_path: Path) -> None:
    model = build(one)
    model.save_pretrained(tmp_path / "home")
    batch = inputs(one, model)
    try:
        save(load(model), text, tmp_path / "memory", inputs=batch)
    except UnsupportedModelError as refusal:
        with pytest.raises(UnsupportedModelError):
            save(tmp_path / "home", text, tmp_path / "streamed", inputs=batch)
        pytest.skip(str(refusal))
    origin = save(tmp_path / "home", text, tmp_path / "streamed", inputs=batch, prove=False)
    assert origin.note == ""
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "streamed" / name).read_bytes() == (tmp_path / "memory" / name).read_bytes()


def test_logits_are_compared_and_the_tokenizer_goes_along(home: Path, tmp_path: Path) -> None:
    origin = save(home, "0 2*2 5", tmp_path / "m")
    assert (origin.proof, origin.gap, origin.note) == ("logits", 0.0, "")
    assert json.loads((tmp_path / "m" / "plan.json").read_text())["plan"] == "0 2*2 5"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "m" / name).read_bytes() == (home / name).read_bytes()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert loaded.num_parameters() == origin.parameters


@pytest.mark.parametrize("opened", [str, load])
def test_tied_weights_are_written_once(tmp_path: Path, opened: Callable[[str], Any]) -> None:
    model = tiny_llama()
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(tmp_path / "home")
    save(opened(str(tmp_path / "home")), "0 1", tmp_path / "m", prove=False)
    assert "lm_head.weight" not in load_file(tmp_path / "m" / "model.safetensors")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


@pytest.fixture
def quantized(home: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "quantized"
    folder.mkdir()
    tensors = {}
    for name, tensor in load_file(home / "model.safetensors").items():
        if name.endswith("_proj.weight") and ".0." not in name:
            tensors[name] = tensor.to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = torch.ones(1)
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((home / "config.json").read_text())
    settings["quantization_config"] = {
        "quant_method": "fp8",
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp", "model.layers.2.self_attn"],
    }
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def test_quantized_tensors_are_bytes_and_their_exceptions_follow(quantized: Path, tmp_path: Path) -> None:
    origin = save(quantized, "3 0*2 5", tmp_path / "m")
    assert origin.proof == "keys"
    before, after = (load_file(folder / "model.safetensors") for folder in (quantized, tmp_path / "m"))
    key = "model.layers.{}.mlp.up_proj.weight"
    assert after[key.format(0)].dtype == torch.float8_e4m3fn
    assert torch.equal(after[key.format(0)].view(torch.uint8), before[key.format(3)].view(torch.uint8))
    assert f"{key.format(3)}_scale_inv" in after
    settings = json.loads((tmp_path / "m" / "config.json").read_text())
    assert settings["quantization_config"]["modules_to_not_convert"] == [
        "lm_head",
        "model.layers.1.mlp",
        "model.layers.2.mlp",
    ]


@pytest.mark.parametrize("opened", [str, load])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 (1|2) 3", "a checkpoint runs its layers in sequence, but the"),
        ("0 (1):gain=0.5", "has a group"),
        ("0 1.attn 2", r"the plan runs 1\.attn"),
        ("0 7", "visits layer 7"),
        ("b:0", "'b'"),
    ],
)
def test_plans_that_no_checkpoint_can_express_are_refused(
    home: Path, text: str, reason: str, tmp_path: Path, opened: Callable[[str], Any]
) -> None:
    with pytest.raises(PlanError, match=reason):
        save(opened(str(home)), text, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_layer_is_noticed_by_logits_and_a_missing_one_by_keys(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = stream.planned_tensors
    monkeypatch.setattr(
        stream, "planned_tensors", lambda models, names, plan: planned(models, names, Plan.parse("1 0 2"))
    )
    with pytest.raises(UnsupportedModelError, match="the logits of the saved LlamaForCausalLM and of the"):
        save(home, "0-2", tmp_path / "m")
    monkeypatch.setattr(stream, "planned_tensors", lambda *task: dict(list(planned(*task).items())[:-2]))
    origin = save(home, "0-2", tmp_path / "m")
    assert "transformers would not load it: model.layers.2.self_attn.v_proj.weight is missing" in origin.note
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def add_tensors(home: Path, folder: Path, more: Mapping[str, torch.Tensor]) -> Path:
    shutil.copytree(home, folder)
    tensors = load_file(home / "model.safetensors")
    save_file({**tensors, **more}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    "note", ["", "layerwise cannot tell which tensors belong to the layers. Groups in the tensor "]
)
def test_of_two_stacks_of_names_loading_decides_or_the_model_is_built_in_memory(
    home: Path, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = add_tensors(home, tmp_path / "copy", {f"more.{number}.w": torch.ones(1) for number in range(6)})
    if note:
        monkeypatch.setattr(kinds, "blocks_path", lambda settings: None)
    origin = save(folder, "0 5", tmp_path / "m", prove=None if note else False)
    assert note in origin.note
    assert ("more.5.w" in load_file(tmp_path / "m" / "model.safetensors")) == (not note)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "m").config.num_hidden_layers == 2


def settings_of(folder: Path, file: str = "config.json") -> Any:
    return json.loads((folder / file).read_text())


@pytest.mark.parametrize(
    ("name", "text", "count", "unwritten"),
    [
        ("model.layers.6.eh_proj.weight", "0 2-5", 0, "1 tensor (model.layers.6.*)"),
        ("model.layers.6.eh_proj.weight", "0-5", 1, ""),
        ("mtp.layers.0.fc.weight", "0 2-5", 1, ""),
        ("unlike.weight", "0 2-5", 0, ""),
    ],
)
@pytest.mark.parametrize("setting", ["num_nextn_predict_layers", "mtp_num_hidden_layers"])
def test_layers_that_predict_further_tokens_are_those_that_are_counted(
    home: Path, setting: str, name: str, text: str, count: int, unwritten: str, tmp_path: Path
) -> None:
    folder = add_tensors(home, tmp_path / "home", {name: torch.ones(1)})
    (folder / "config.json").write_text(json.dumps({**settings_of(home), setting: 1}))
    origin = save(folder, text, tmp_path / "m", prove=False)
    assert (settings_of(tmp_path / "m")[setting], origin.unwritten) == (count, unwritten)
    assert (name in load_file(tmp_path / "m" / "model.safetensors")) == (not unwritten)


def test_tensors_that_the_class_ignores_are_named_where_the_model_was_built(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LlamaForCausalLM, "_keys_to_ignore_on_load_unexpected", [r"^mtp\."])
    folder = add_tensors(home, tmp_path / "home", {"mtp.layers.0.fc.weight": torch.ones(1), "mtp.w": torch.ones(1)})
    (folder / "config.json").write_text(json.dumps({**settings_of(home), "mtp_num_hidden_layers": 1, "use_mtp": True}))
    writing = Writing(folder=tmp_path / "m")
    origin = save_named({"": str(folder)}, Plan.parse("0 2-5"), writing, lambda: load(folder), in_memory="asked for")
    assert (origin.note, origin.unwritten) == ("asked for", "2 tensors (mtp.layers.0.*, mtp.w)")
    written = settings_of(tmp_path / "m")
    assert (written["mtp_num_hidden_layers"], written["use_mtp"]) == (0, False)


@pytest.mark.parametrize("opened", [str, load])
def test_layers_that_generation_names_are_those_of_the_plan(
    home: Path, opened: Callable[[str], Any], tmp_path: Path
) -> None:
    shutil.copytree(home, tmp_path / "home")
    numbers = {"alignment_heads": [[1, 7], [2, 0], [3, 1]], "dola_layers": [0, 3, 5], "assistant_early_exit": 4}
    file = tmp_path / "home" / "generation_config.json"
    file.write_text(json.dumps({**settings_of(home, file.name), **numbers, "_from_model_config": False}))
    save(opened(str(tmp_path / "home")), "3 2 0 2", tmp_path / "m", prove=False)
    written = settings_of(tmp_path / "m", file.name)
    assert sorted(written["alignment_heads"]) == [[0, 1], [1, 0], [3, 0]]
    assert (written["dola_layers"], written["assistant_early_exit"]) == ([0, 4], 1)
    save(opened(str(tmp_path / "home")), "0 4", tmp_path / "none", prove=False)
    written = settings_of(tmp_path / "none", file.name)
    assert "alignment_heads" not in written
    assert written.get("assistant_early_exit") is None


def test_a_backbone_returns_the_outputs_of_the_same_layers() -> None:
    settings = {"model_type": "dinov2", "num_hidden_layers": 6, "out_indices": [2, 4, 6]}
    for order, indices in (((0, 1, 3, 4, 5), [2, 3, 5]), ((0, 1, 2, 3, 3, 4, 5), [2, 5, 7]), ((0, 2), None)):
        made = json.loads(visit_config(settings, {"encoder.layer.": 6}, order, None).text)
        assert made.get("out_indices") in (indices, [len(order)] if indices is None else indices)


def test_of_two_parts_with_as_many_layers_the_one_that_the_path_names() -> None:
    settings = {
        "model_type": "llava",
        "text_config": {"model_type": "llama", "num_hidden_layers": 6},
        "vision_config": {"model_type": "clip_vision_model", "num_hidden_layers": 6},
    }
    groups = {"language_model.model.layers.": 6, "vision_tower.vision_model.encoder.layers.": 6}
    for path, text, vision in (
        ("model.language_model.layers", 2, 6),
        ("vision_tower.vision_model.encoder.layers", 6, 2),
    ):
        made = json.loads(visit_config(settings, groups, (0, 2), path).text)
        depths = [made[part].get("num_hidden_layers") for part in ("text_config", "vision_config")]
        assert depths == [text, vision]


def test_the_proof_is_what_suits_the_size_and_the_settings(home: Path, tmp_path: Path) -> None:
    sizes = (stream.PROVED_SIZE - 1, stream.PROVED_SIZE)
    hosts = [cast(StoredModel, SimpleNamespace(size=size, quantized=False)) for size in sizes]
    assert [stream._proof(host, None) for host in hosts] == ["logits", "keys"]
    assert [stream._proof(hosts[1], prove) for prove in (True, False)] == ["logits", "none"]
    assert save(home, "0 2", tmp_path / "m", prove=False).proof == "none"
    folder = add_tensors(home, tmp_path / "home", {})
    (folder / "config.json").write_text(json.dumps({**settings_of(home), "moe_layer_freq": 1}))
    assert save(folder, "0 2", tmp_path / "n", prove=False).proof == "keys"


def test_a_position_that_settings_do_not_say_is_refused_by_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PROVED_SIZE", 0)
    build(next(one for one in SUPPORTED if one.model_type == "diffllama")).save_pretrained(tmp_path / "home")
    with pytest.raises(UnsupportedModelError, match=r"in slot 1, .*lambda_init would be"):
        save(tmp_path / "home", "0 2 4", tmp_path / "m")
    assert save(tmp_path / "home", "0-3", tmp_path / "m").proof == "keys"


def test_without_inputs_to_make_up_keys_are_compared(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (kinds, proof):
        monkeypatch.setattr(module, "example_inputs", lambda model: None)
    assert save(home, "0 1", tmp_path / "m").proof == "keys"
    batch = {"input_ids": torch.ones(1, 3, dtype=torch.long), "use_cache": False}
    assert save(home, "0 1", tmp_path / "n", inputs=batch).proof == "logits"
    elsewhere = SimpleNamespace(model=None, device=torch.device("meta"))
    moved = proof.proof_inputs(cast(Stack, elsewhere), batch)
    assert (moved["input_ids"].device.type, moved["use_cache"]) == ("meta", False)
    with pytest.raises(ModelError, match="cannot build example inputs for LlamaForCausalLM"):
        save(home, "0 1", tmp_path / "o", prove=True)


def test_no_progress_bar_is_shown(home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    transformers.utils.logging.enable_progress_bar()
    save(home, "0 1", tmp_path / "streamed")
    save(load(tiny_llama()), "0 1", tmp_path / "memory")
    assert "%|" not in capfd.readouterr().err
    assert transformers.utils.logging.is_progress_bar_enabled()
