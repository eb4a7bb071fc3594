"""Inputs that `load` accepts, and those it refuses with a reason."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.utils import _http
from safetensors.torch import load_file, save_file

from conftest import tiny_llama
from layerwise.data.stored_files import stored_tensors
from layerwise.errors import CheckpointError, ModelError
from layerwise.plan import Plan
from layerwise.stack import load, weight_hash
from layerwise.stack.load import resolve_device
from stack.makers import IDS, gpt2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_llama().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_gives_the_model_that_was_saved(folder: Path) -> None:
    stack = load(folder)
    assert (stack.depth, stack.path, stack.tokenizer) == (6, "model.layers", None)
    assert weight_hash(stack.model) == weight_hash(load(folder).model)
    assert stack.source.name == str(folder)


def test_another_weight_is_another_hash() -> None:
    model = tiny_llama()
    before = weight_hash(model)
    with torch.no_grad():
        model.model.norm.weight[0] += 1e-3
    assert weight_hash(model) != before


def test_a_module_is_used_as_it_is() -> None:
    model = tiny_llama()
    assert load(model).model is model


@pytest.mark.parametrize("dtype", ["auto", "stored", "float32", "bfloat16"])
def test_half_precision_becomes_single_on_a_cpu_unless_asked_for(tmp_path: Path, dtype: str) -> None:
    tiny_llama().to(torch.bfloat16).save_pretrained(tmp_path)
    expected = torch.bfloat16 if dtype in ("stored", "bfloat16") else torch.float32
    assert load(tmp_path, dtype=dtype, device="cpu").dtype == expected


def test_a_hub_name_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match=r"nobody/no-such-model could not be loaded"):
        load("nobody/no-such-model")


class NoNetwork:
    def __init__(self) -> None:
        self.asked = 0

    def request(self, **what: object) -> NoReturn:
        self.asked += 1
        raise UNREACHED("no network")

    def head(self, *what: object, **more: object) -> NoReturn:
        self.request()


UNREACHED = (getattr(_http, "httpx2", None) or _http.httpx).ConnectError
"""The HTTP client of huggingface_hub depends on its version."""


@pytest.mark.parametrize(("name", "said"), [("tyni", "no folder tyni here, and the hub"), ("dmeo", "mean demo?")])
def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    client = NoNetwork()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(_http, "_GLOBAL_CLIENT", client)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(CheckpointError) as caught:
        load(name)
    assert client.asked == 1
    assert said in str(caught.value)
    assert not constants.HF_HUB_OFFLINE


def _configured(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def _cut(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")


BROKEN: dict[str, Callable[[Path], object]] = {
    r"has no config\.json \(it holds model\.safetensors\)": lambda folder: [
        each.unlink() for each in folder.glob("*.json")
    ],
    r"config\.json is not JSON": lambda folder: (folder / "config.json").write_text("{"),
    r"only pickled weights \(pytorch_model\.bin\).*safetensors": _pickled,
    r"has no model\.safetensors and no model\.safetensors\.index\.json": lambda folder: (
        folder / "model.safetensors"
    ).unlink(),
    r"model\.safetensors is not a whole safetensors file": _cut,
    r"lacks 18 tensors .* model\.layers\.6-7\.{.* would be random": partial(_configured, num_hidden_layers=8),
    r"could not be loaded: .*(?i:gptq)": partial(_configured, quantization_config={"quant_method": "gptq", "bits": 4}),
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_broken_folder_is_refused_with_what_is_wrong(folder: Path, words: str) -> None:
    BROKEN[words](folder)
    with pytest.raises(CheckpointError, match=words):
        load(folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("config.json", "is a file; give the folder"),
        ("nowhere", "there is no folder .*nowhere; give a folder, a hub id"),
    ],
)
def test_what_is_no_folder(folder: Path, name: str, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        load(folder / name)


@pytest.mark.parametrize("read", [load, stored_tensors])
@pytest.mark.parametrize("letters", ["a", "model"])
def test_a_name_of_100_000_letters_is_not_printed_whole(folder: Path, read: Any, letters: str) -> None:
    long = letters * 100_000
    shards = {long: "model-1.safetensors"} if letters == "model" else {"lm_head.weight": f"{long}.safetensors"}
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    with pytest.raises(CheckpointError) as refused:
        read(folder)
    assert len(str(refused.value)) < 800


def test_tensors_of_long_names_are_not_printed_whole(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.norm." + "a" * 50_000: torch.zeros(1)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="for which LlamaForCausalLM has no place") as refused:
        load(folder)
    assert len(str(refused.value)) < 800


def test_scaling_by_position_is_either_right_or_refused() -> None:
    model = gpt2(scale_attn_by_inverse_layer_idx=True, initializer_range=0.5).eval()
    stack = load(model)
    with stack.under(Plan.parse("3 0 1*2")), torch.inference_mode():
        inside = model(IDS).logits
    torch.testing.assert_close(inside, stack.logits(Plan.parse("3 0 1*2"), input_ids=IDS))


@pytest.mark.parametrize(("device", "message"), [("gpu", "device 'gpu' is not known"), ("cuda", "only a CPU")])
def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch, device: str, message: str) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(ModelError, match=message):
        resolve_device(device)
    assert resolve_device("auto").type == "cpu"


def test_an_unknown_dtype_is_answered_with_the_near_ones(folder: Path) -> None:
    with pytest.raises(ModelError, match="'float23' is not known; did you mean float32"):
        load(folder, dtype="float23")
