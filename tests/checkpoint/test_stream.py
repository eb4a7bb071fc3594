"""Streaming from file to file writes the same bytes as saving from memory, or is refused."""

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
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from conftest import tiny_llama
from contracts.specimen import Specimen, build, inputs
from contracts.tiers import every_type
from contracts.zoo import SUPPORTED
from layerwise.checkpoint import kinds, proof, save, stream
from layerwise.checkpoint.folder import Writing
from layerwise.checkpoint.save import save_named
from layerwise.checkpoint.stored_config import visit_config
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.errors import ModelError, PlanError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from tier import first_fast

KINDS = ("llama", "mixtral", "vit", "bert", "gemma3_text")


@every_type(fast=KINDS[:2], slow=KINDS[2:])
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
