"""Models are loaded from folders and modules, placed on a device, or refused with a reason."""

import json
import multiprocessing
import os
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.utils import _http
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PretrainedConfig

from conftest import tiny_llama
from layerwise.data.stored_files import stored_tensors
from layerwise.errors import CheckpointError, ModelError
from layerwise.plan import Plan
from layerwise.stack import load, placement, verify
from layerwise.stack.blocks import find_blocks
from layerwise.stack.load import resolve_device
from layerwise.stack.placement import batch_size_within, free_memory, release_freed
from stack.makers import IDS, gpt2
from tier import first_fast


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_llama().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("dtype", first_fast(["auto", "bfloat16", "stored", "float32"], 2))
def test_half_precision_becomes_single_on_a_cpu_unless_asked_for(tmp_path: Path, dtype: str) -> None:
    tiny_llama().to(torch.bfloat16).save_pretrained(tmp_path)
    expected = torch.bfloat16 if dtype in ("stored", "bfloat16") else torch.float32
    assert load(tmp_path, dtype=dtype, device="cpu").dtype == expected


def test_unknown_names_and_dtypes_are_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match=r"nobody/no-such-model could not be loaded"):
        load("nobody/no-such-model")

    with pytest.raises(ModelError, match="unknown dtype 'float23'"):
        load(folder, dtype="float23")


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


@pytest.mark.parametrize(("name", "said"), [("tyni", "no such folder exists, and the hub"), ("dmeo", "mean demo?")])
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


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")


BROKEN: dict[str, Callable[[Path], object]] = {
    r"only pickled weights \(pytorch_model\.bin\).*safetensors": _pickled,
    r"has no model\.safetensors or model\.safetensors\.index\.json": lambda folder: (
        folder / "model.safetensors"
    ).unlink(),
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
        ("config.json", r"is a file\. Pass a directory"),
        ("nowhere", r"nowhere does not exist\. Pass a directory, a hub id"),
    ],
)
def test_a_path_that_is_not_a_folder_is_refused(folder: Path, name: str, words: str) -> None:
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
    with pytest.raises(CheckpointError, match="has 1 tensor that LlamaForCausalLM does not use:") as refused:
        load(folder)
    assert len(str(refused.value)) < 800


def test_scaling_by_position_is_either_right_or_refused() -> None:
    model = gpt2(scale_attn_by_inverse_layer_idx=True, initializer_range=0.5).eval()
    stack = load(model)
    with stack.under(Plan.parse("3 0 1*2")), torch.inference_mode():
        inside = model(IDS).logits
    torch.testing.assert_close(inside, stack.logits(Plan.parse("3 0 1*2"), input_ids=IDS))


@pytest.mark.parametrize(("device", "message"), [("gpu", "unknown device 'gpu'"), ("cuda", "only a CPU")])
def test_missing_devices_are_refused(monkeypatch: pytest.MonkeyPatch, device: str, message: str) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(ModelError, match=message):
        resolve_device(device)
    assert resolve_device("auto").type == "cpu"


TOKENS = torch.randint(0, 11, (2, 5), generator=torch.Generator().manual_seed(0))


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(x @ self.weight)


class FrozenModel(nn.Module):
    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = PretrainedConfig(vocab_size=11)
        self.register_buffer("table", torch.randn(11, 4))
        self.small = nn.ModuleList([nn.Identity(), nn.Identity()])
        self.blocks = nn.ModuleList([Frozen() for _ in range(3)])

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table[input_ids]
        for block in self.blocks:
            x = block(x)
        return x @ self.table.T


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_model_whose_weights_are_buffers_runs_plans(dtype: torch.dtype) -> None:
    model = FrozenModel().to(dtype)
    assert find_blocks(model) == "blocks"
    stack = load(model)
    assert (stack.device, stack.dtype) == (torch.device("cpu"), dtype)
    with torch.no_grad():
        expected = model.blocks[0](model.blocks[2](model.table[TOKENS])) @ model.table.T
        assert torch.equal(stack.logits(Plan.parse("2 0"), input_ids=TOKENS), expected)
    assert [law.holds for law in verify(stack, Plan.parse("2 (0|1)"))] == [True] * 4 + [None] * 4


def test_a_batch_takes_no_more_than_its_share() -> None:
    for free in (10_000, 123_456, 10**9):
        for each in (3.0, 7.5, 1000.0):
            size = batch_size_within(free, each, most=10**12, fixed=100.0)
            assert size * each + 100 <= free / 4 < (size + 1) * each + 100
    assert batch_size_within(1, 1000.0, most=5) == 1


def test_the_free_memory_is_what_the_machine_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:  9000 kB\nMemAvailable:    4321 kB\n")
    monkeypatch.setattr(placement, "_MEMINFO", file)
    assert free_memory("cpu") == 4321 * 1024
    monkeypatch.setattr(placement, "_MEMINFO", tmp_path / "none")
    assert free_memory("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (77, 100))
    assert free_memory("cuda") == 77
    assert free_memory("meta") is None


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def free_every_other() -> None:
    held = [b"x" * 50_000 for _ in range(2_000)]  # `bytes` would take unwritten pages
    before = _resident()
    del held[1:-1:2]  # the last one stays: what is behind all others goes back by itself
    release_freed()
    assert _resident() < before - 40_000_000
    assert len(held) == 1_001


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory goes back by glibc's malloc_trim")
def test_freed_memory_goes_back_to_the_system() -> None:
    process = multiprocessing.get_context("fork").Process(target=free_every_other)
    process.start()
    process.join()
    assert process.exitcode == 0
