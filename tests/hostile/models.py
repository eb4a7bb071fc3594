"""Bad model folders: configurations, safetensors, indices, and tensors that do not belong together."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
)

from conftest import tiny_llama
from hostile.case import Case
from hostile.material import Content, configured, device, empty_folder, loop, model, nothing, pipe, put, texts

VERIFY = ("verify", "model")
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
Says = tuple[str, ...] | None


def _config(case: str, says: Says, *without: str, **changes: object) -> Case:
    """The tiny Llama with other settings in its configuration."""
    return Case(case, VERIFY, says, lambda folder: configured(folder, *without, **changes))


def _replaced(case: str, name: str, content: Content, says: Says) -> Case:
    """The tiny Llama with something else in the place of one of its files."""
    return Case(case, VERIFY, says, lambda folder: put(model(folder) / name, content))


def _tensors(case: str, change: Callable[[dict[str, Tensor]], object], says: Says, **settings: object) -> Case:
    """The tiny Llama with other tensors in its file, and other settings."""

    def make(folder: Path) -> None:
        path = configured(folder, **settings)
        tensors = load_file(path / WEIGHTS)
        change(tensors)
        save_file(tensors, path / WEIGHTS, {"format": "pt"})

    return Case(case, VERIFY, says, make)


# Configurations

_CONFIGS = (
    _replaced("an empty configuration", "config.json", b"", ("config.json",)),
    _replaced("a configuration that is no JSON", "config.json", b"{'a': 1}", ("config.json", "not JSON")),
    _replaced("a configuration that is a list", "config.json", b"[1, 2]", ("config.json", "list")),
    _replaced("a configuration that is a number", "config.json", b"7", ("config.json", "int")),
    _replaced("a configuration in Latin-1", "config.json", b'{"model_type": "\xfc"}', ("config.json", "UTF-8")),
    _replaced("a configuration nested too deeply", "config.json", b'{"a":' * 99_999 + b"1", ("nested too deeply",)),
    _replaced(
        "a configuration with a number of 5,000 digits",
        "config.json",
        b'{"model_type": "llama", "vocab_size": ' + b"9" * 5_000 + b"}",
        ("config.json", "4,300 digits"),
    ),
    _replaced("a configuration of a gigabyte", "config.json", lambda path: os.truncate(path, 1 << 30), ("1.1 GB",)),
    _config("a model type that nobody knows", ("nonesuch",), model_type="nonesuch"),
    _config("a model type that is a number", ("model_type is 3",), model_type=3),
    _config("a configuration without a model type", ("model_type",), "model_type"),
    _config("architectures that are no list", ("architectures is 'LlamaModel'",), architectures="LlamaModel"),
    _config("architectures of numbers", ("architectures is [3]",), architectures=[3]),
    _config("an architecture that is a function", ("architectures", "set_seed"), architectures=["set_seed"]),
    _config("an architecture that is a trainer", ("architectures", "Trainer"), architectures=["Trainer"]),
    _config("an architecture of another model", ("GPT2LMHeadModel", "llama"), architectures=["GPT2LMHeadModel"]),
    _config("a thousand million layers", ("num_hidden_layers is 1,000,000,000", "39 tensors"), num_hidden_layers=10**9),
    _config(
        "a thousand million layers, each of a type",
        ("num_hidden_layers is 1,000,000,000",),
        num_hidden_layers=10**9,
        model_type="qwen2",
        architectures=["Qwen2ForCausalLM"],
    ),
    _config("50,000 layers", ("num_hidden_layers is 50,000",), num_hidden_layers=50_000),
    _config("10^18 words", ("could not be loaded",), vocab_size=10**18),
    _config("10^9 words", ("64,000,037,152 numbers, and 43,488 were saved",), vocab_size=10**9),
    _config("a width of 10^9", ("config.json",), hidden_size=10**9),
    _config("a width of 10^30", ("config.json",), hidden_size=10**30),
    _config("10^12 numbers between two layers", ("config.json", "numbers"), intermediate_size=10**12),
    _config("10^9 heads", ("could not be loaded",), num_attention_heads=10**9),
    _config("no attention head", ("could not be loaded",), num_attention_heads=0),
    _config("heads that do not divide the width", ("could not be loaded",), num_attention_heads=5),
    _config("no layer", ("holds 36 tensors", "model.layers.0-3.{"), num_hidden_layers=0),
    _config("less than no layer", ("holds 36 tensors", "model.layers.0-3.{"), num_hidden_layers=-4),
    _config("a layer count in words", ("num_hidden_layers",), num_hidden_layers="four"),
    _config("a layer count that is a list", ("num_hidden_layers",), num_hidden_layers=[4]),
    _config("a layer count with a fraction", ("num_hidden_layers",), num_hidden_layers=4.5),
    _config("no layer count", ("num_hidden_layers",), num_hidden_layers=None),
    _config("a width in words", ("hidden_size",), hidden_size="wide"),
    _config("words less than none", ("could not be loaded",), vocab_size=-5),
    _config("a function that nobody knows", ("could not be loaded",), hidden_act="nonesuch"),
    _config("a rounding constant in words", ("rms_norm_eps",), rms_norm_eps="small"),
    _config("rotary settings in words", ("could not be loaded",), rope_parameters="far"),
    _config("a number type that nobody knows", ("could not be loaded", "float99"), dtype="float99"),
    _config("a number type that is a number", ("could not be loaded",), dtype=16),
    _config("a quantisation that is text", ("quantised",), quantization_config="4bit"),
    _config("fewer layers than were saved", ("holds 18 tensors", "model.layers.2-3.{"), num_hidden_layers=2),
    _config("more layers than were saved", ("lacks 18 tensors", "model.layers.4-5.{"), num_hidden_layers=6),
    _config("another width than was saved", ("lm_head.weight of shape (99, 32)", "(99, 64)"), hidden_size=64),
    _replaced("a broken generation configuration", "generation_config.json", b"{", ("generation_config.json",)),
    _replaced("a generation configuration of a list", "generation_config.json", b"[]", ("generation_config.json",)),
    Case("a folder without a configuration", VERIFY, ("no config.json",), lambda folder: (folder / "model").mkdir()),
    Case("a file for a model", VERIFY, ("is a file",), lambda folder: (folder / "model").write_text("abc")),
    Case("a name with a line break for a model", ("verify", "a\nb"), ("a\nb",), None),
)

# Files of tensors


def _safetensors(header: object, content: bytes = b"", *, length: int | None = None) -> bytes:
    """A file with this header, which may say anything."""
    written = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(written) if length is None else length) + written + content


def _claim(shape: list[int], offsets: list[int], kind: str = "F32") -> dict[str, object]:
    return {"model.norm.weight": {"dtype": kind, "shape": shape, "data_offsets": offsets}}


_BROKEN = (f"{WEIGHTS} is not a whole safetensors file",)
_HEADERS: Mapping[str, bytes] = {
    "an empty file of tensors": b"",
    "a file of tensors with nothing but zeros": bytes(100),
    "a header that ends behind the file": _safetensors({}, length=10**6),
    "a header of 2^63 bytes": _safetensors({}, length=2**63),
    "a header that is no JSON": _safetensors(b"{not json}"),
    "a header that is a list": _safetensors([]),
    "a header nested too deeply": _safetensors(b'{"a":' * 50_000),
    "a tensor that ends behind the file": _safetensors(_claim([32], [0, 128]), bytes(8)),
    "a tensor of 10^18 numbers": _safetensors(_claim([10**9, 10**9], [0, 128]), bytes(128)),
    "a tensor with fewer bytes than its shape": _safetensors(_claim([32], [0, 4]), bytes(4)),
    "a tensor that ends before it begins": _safetensors(_claim([32], [128, 0]), bytes(128)),
    "a tensor of less than nothing": _safetensors(_claim([-32], [0, 128]), bytes(128)),
    "a tensor of a type that nobody knows": _safetensors(_claim([32], [0, 128], "F99"), bytes(128)),
    "a tensor with a hole before it": _safetensors(_claim([32], [64, 192]), bytes(192)),
    "bytes behind the last tensor": _safetensors(_claim([32], [0, 128]), bytes(999)),
    "a pickle called safetensors": b"\x80\x02cos\nsystem\n(S'touch it-was-run'\ntR.",
}


def _indexed(folder: Path, where: Callable[[str], object], content: Any = None) -> None:
    """The tiny Llama in two files with an index, which says for every tensor what `where` makes of its file."""
    path = model(folder)
    tensors = load_file(path / WEIGHTS)
    (path / WEIGHTS).unlink()
    shards = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for shard in set(shards.values()):
        kept = {name: tensor for name, tensor in tensors.items() if shards[name] == shard}
        save_file(kept, path / shard, {"format": "pt"})
    found = {name: where(shard) for name, shard in shards.items()}
    index = {"metadata": {}, "weight_map": found} if content is None else content
    (path / INDEX).write_text(json.dumps(index))


def _index(case: str, where: Callable[[str], object], says: Says, content: Any = None) -> Case:
    return Case(case, VERIFY, says, lambda folder: _indexed(folder, where, content))


def _outside(folder: Path) -> None:
    """The index names a file beside the folder, which holds what it should."""
    _indexed(folder, lambda shard: f"../{shard}")
    for shard in ("part-0.safetensors", "part-1.safetensors"):
        (folder / "model" / shard).rename(folder / shard)
    save_file({"unused": torch.zeros(1)}, folder / "model" / "other.safetensors")


def _absolute(folder: Path) -> None:
    _indexed(folder, lambda shard: str(folder / "model" / shard))


def _moved_away(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "moved-away")


_FILES = (
    *(_replaced(case, WEIGHTS, content, _BROKEN) for case, content in _HEADERS.items()),
    _replaced("a file of tensors without any", WEIGHTS, _safetensors({}), ("lacks", "model.embed_tokens.weight")),
    _replaced("a file of tensors cut short", WEIGHTS, lambda path: path.read_bytes()[:-99], _BROKEN),
    _replaced("a file of tensors with bytes behind", WEIGHTS, lambda path: path.read_bytes() + b"abcd", _BROKEN),
    _replaced("a pipe for a file of tensors", WEIGHTS, pipe, (f"{WEIGHTS} is a pipe",)),
    _replaced("a device for a file of tensors", WEIGHTS, device, (f"{WEIGHTS} is a device",)),
    _replaced("a link to itself for a file of tensors", WEIGHTS, loop, (WEIGHTS,)),
    _replaced(
        "a link to nothing for a file of tensors", WEIGHTS, _moved_away, (f"{WEIGHTS} cannot be read: No such file",)
    ),
    _replaced("a folder for a file of tensors", WEIGHTS, empty_folder, (f"{WEIGHTS} is a folder",)),
    _index("an index that is right", lambda shard: shard, None),
    Case("an index that leads out of the folder", VERIFY, (INDEX, "../part-"), _outside),
    Case("an index with absolute paths", VERIFY, (INDEX, "part-0.safetensors", "beside it"), _absolute),
    _index("an index with paths into a subfolder and out", lambda shard: f"a/../../model/{shard}", (INDEX, "a/../..")),
    _index("an index of files that are not there", lambda shard: f"no-{shard}", ("no-part-0.safetensors cannot",)),
    _index("an index that names no safetensors", lambda shard: "config.json", (INDEX, "config.json")),
    _index("an index that names pickles", lambda shard: "weights.bin", (INDEX, "weights.bin")),
    _index("an index of numbers", lambda shard: 7, (INDEX, "7")),
    _index("an index of nothing", str, (INDEX, "weight_map"), content={"metadata": {}}),
    _index("an index whose map is a list", str, (INDEX, "weight_map"), content={"weight_map": ["a"]}),
    _index("an index of files with a name of 100,000 letters", lambda shard: f"{'a' * 100_000}{shard}", ("aaa...",)),
    _index("an index that is a list", str, (INDEX, "list"), content=["a"]),
    _index("an index that names the wrong file", lambda shard: "part-0.safetensors", (INDEX, "lies in part-0")),
)

# Tensors that do not belong together


def _without(*names: str) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.startswith(names)]:
            del tensors[name]

    return change


def _with(**more: Tensor) -> Callable[[dict[str, Tensor]], None]:
    return lambda tensors: tensors.update({name.replace("__", "."): tensor for name, tensor in more.items()})


def _as_type(kind: torch.dtype) -> Callable[[dict[str, Tensor]], None]:
    return lambda tensors: tensors.update({name: tensor.to(kind) for name, tensor in tensors.items()})


def _transposed(tensors: dict[str, Tensor]) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = tensors[name].T.contiguous()


def _saved(make: Callable[[], Any], *, change: Callable[[dict[str, Tensor]], object] | None = None, **settings: object):  # type: ignore[no-untyped-def]
    """A folder with another model."""

    def put(folder: Path) -> None:
        torch.manual_seed(0)
        path = folder / "model"
        make().save_pretrained(path)
        if change is not None:
            tensors = load_file(path / WEIGHTS)
            change(tensors)
            save_file(tensors, path / WEIGHTS, {"format": "pt"})
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | settings))

    return put


def _bert() -> BertConfig:
    return BertConfig(
        vocab_size=99,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )


def _gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=16, n_layer=3, n_head=2, n_positions=64))


def _old_buffers(tensors: dict[str, Tensor]) -> None:
    """What GPT-2's own checkpoints hold beside their weights, and names without `transformer.`."""
    for layer in range(3):
        tensors[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 64, 64).tril()
        tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    for name in list(tensors):
        tensors[name.removeprefix("transformer.")] = tensors.pop(name)


def _fourth_layer(tensors: dict[str, Tensor]) -> None:
    for name in list(tensors):
        if ".h.2." in name:
            tensors[name.replace(".h.2.", ".h.3.")] = tensors[name].clone()


def _tied() -> LlamaForCausalLM:
    made = tiny_llama(4)
    made.config.tie_word_embeddings = True
    return LlamaForCausalLM(made.config)


_TENSORS = (
    _tensors("no embedding", _without("model.embed_tokens"), ("lacks 1 tensor", "model.embed_tokens.weight")),
    _tensors("no final norm", _without("model.norm"), ("lacks 1 tensor", "model.norm.weight")),
    _tensors("no head", _without("lm_head"), ("lacks 1 tensor", "lm_head.weight")),
    _tensors(
        "neither embedding nor norm nor head",
        _without("model.embed", "model.norm", "lm_head"),
        ("lacks 3 tensors", "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"),
    ),
    _tensors("a layer that is not there", _without("model.layers.2."), ("lacks 9 tensors", "model.layers.2.{")),
    _tensors(
        "a layer more than was configured",
        _with(model__layers__4__mlp__up_proj__weight=torch.zeros(64, 32)),
        ("1 tensor", "model.layers.4.mlp.up_proj.weight"),
    ),
    _tensors(
        "a bias that the configuration does not have",
        _with(model__layers__1__mlp__up_proj__bias=torch.ones(64)),
        ("1 tensor", "model.layers.1.mlp.up_proj.bias"),
    ),
    _tensors("a bias that the head does not have", _with(lm_head__bias=torch.ones(99)), ("lm_head.bias",)),
    _tensors("a second norm", _with(model__norm_2__weight=torch.ones(32)), ("model.norm_2.weight",)),
    _tensors(
        "rotary frequencies as old files have them",
        _with(model__layers__0__self_attn__rotary_emb__inv_freq=torch.ones(4)),
        None,
    ),
    _tensors("a head of a task beside the model", _with(score__weight=torch.ones(2, 32)), None),
    _tensors("a tensor of another shape", _transposed, ("model.layers.1.mlp.up_proj.weight of shape (32, 64)",)),
    _tensors("weights of whole numbers", _as_type(torch.int64), ("39 tensors of whole numbers (I64)",)),
    _tensors("weights of truths", _as_type(torch.bool), ("39 tensors of whole numbers (BOOL)",)),
    _tensors(
        "a classifier that was not saved",
        lambda tensors: None,
        ("score.weight",),
        architectures=["LlamaForSequenceClassification"],
        num_labels=3,
    ),
    _tensors("the model under a language model's head", lambda tensors: None, None, architectures=["LlamaModel"]),
    Case("a tied head, saved once", VERIFY, None, _saved(_tied)),
    Case("an old GPT-2 with its masks", VERIFY, None, _saved(_gpt2, change=_old_buffers)),
    Case("a GPT-2 with a layer too many", VERIFY, ("h.3.",), _saved(_gpt2, change=_fourth_layer)),
    Case(
        "a BERT from its pretraining",
        VERIFY,
        None,
        _saved(lambda: BertForPreTraining(_bert()), architectures=["BertForMaskedLM"]),
    ),
    Case(
        "a BERT without its head",
        VERIFY,
        ("cls.predictions",),
        _saved(lambda: BertModel(_bert()), architectures=["BertForMaskedLM"]),
    ),
    Case(
        "a BERT whose head is not wanted",
        VERIFY,
        None,
        _saved(lambda: BertForMaskedLM(_bert()), architectures=["BertModel"]),
    ),
    Case(
        "a BERT that classifies, without a classifier",
        VERIFY,
        ("classifier.weight",),
        _saved(lambda: BertModel(_bert()), architectures=["BertForSequenceClassification"]),
    ),
)


# A configuration alone, for a model that begins from random weights


def _newborn(case: str, says: Says, content: bytes | None = None, **changes: object) -> Case:
    def make(folder: Path) -> None:
        texts(folder)
        path = configured(folder, **{"vocab_size": 512, **changes})
        (path / WEIGHTS).unlink()
        put(path / "config.json", nothing if content is None else content)

    asked = ("train", "growth", "--model", "model", "--text", "texts", "--max-length", "32", "--dry-run")
    return Case(f"from scratch: {case}", asked, says, make)


_NEWBORN = (
    _newborn("a configuration that is no JSON", ("config.json is not JSON",), b"{"),
    _newborn("a configuration nested too deeply", ("nested too deeply",), b'{"a":' * 99_999),
    _newborn("a thousand million layers", ("num_hidden_layers is 1,000,000,000",), num_hidden_layers=10**9),
    _newborn("a width of 10^9", ("numbers, which take", "of memory"), hidden_size=10**9),
    _newborn("a width of 10^30", ("no model that predicts the next token",), hidden_size=10**30),
    _newborn("no layer", ("layer",), num_hidden_layers=0),
    _newborn("heads that do not divide the width", ("config",), num_attention_heads=5),
    _newborn("a layer count in words", ("num_hidden_layers",), num_hidden_layers="four"),
)

CASES = (*_CONFIGS, *_FILES, *_TENSORS, *_NEWBORN)
