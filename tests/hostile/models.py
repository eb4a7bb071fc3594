"""Bad model folders: configurations, safetensors, indices, and tensors that do not fit together."""

import json
import os
import struct
from collections.abc import Callable
from functools import partial
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
from hostile.case import Case, Says
from hostile.material import Content, configured, device, empty_folder, loop, model, pipe, put, texts

VERIFY = ("verify", "model")
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def _replaced(name: str, content: Content, says: Says) -> Case:
    return Case(VERIFY, says, lambda folder: put(model(folder) / name, content), f"{name} of {content!r:.60}")


def _tensors(change: Callable[[dict[str, Tensor]], object], says: Says, **settings: object) -> Case:
    def make(folder: Path) -> None:
        path = configured(folder, **settings)
        tensors = load_file(path / WEIGHTS)
        change(tensors)
        save_file(tensors, path / WEIGHTS, {"format": "pt"})

    return Case(VERIFY, says, make)


UNLOADABLE: dict[str, tuple[object, ...]] = {
    "vocab_size": (10**18, -5),
    "num_attention_heads": (10**9, 0, 5),
    "hidden_act": ("nonesuch",),
    "rope_parameters": ("far",),
    "dtype": (16,),
}
SETTINGS: tuple[tuple[dict[str, object], Says], ...] = (
    ({"model_type": "nonesuch"}, "nonesuch"),
    ({"model_type": 3}, "model_type must be a name such as llama, got 3"),
    ({"architectures": "LlamaModel"}, "got 'LlamaModel'"),
    ({"architectures": [3]}, "got [3]"),
    ({"architectures": ["set_seed"]}, ("architectures", "set_seed")),
    ({"architectures": ["Trainer"]}, ("architectures", "Trainer")),
    ({"architectures": ["GPT2LMHeadModel"]}, ("GPT2LMHeadModel", "llama")),
    ({"num_hidden_layers": 10**9}, ("num_hidden_layers is 1,000,000,000", "39 tensors")),
    ({"num_hidden_layers": 50_000}, "num_hidden_layers is 50,000"),
    ({"vocab_size": 10**9}, "64,000,037,152 parameters, but 43,488 were saved"),
    ({"hidden_size": 10**9}, "config.json"),
    ({"hidden_size": 10**30}, "config.json"),
    ({"hidden_size": "wide"}, "hidden_size"),
    ({"hidden_size": 64}, ("lm_head.weight of shape (99, 32)", "(99, 64)")),
    ({"intermediate_size": 10**12}, ("config.json", "parameters")),
    ({"num_hidden_layers": 0}, ("has 36 tensors", "model.layers.0-3.{")),
    ({"num_hidden_layers": 2}, ("has 18 tensors", "model.layers.2-3.{")),
    ({"num_hidden_layers": 6}, ("lacks 18 tensors", "model.layers.4-5.{")),
    *(({"num_hidden_layers": value}, "num_hidden_layers") for value in ("four", [4], 4.5, None)),
    ({"rms_norm_eps": "small"}, "rms_norm_eps"),
    ({"dtype": "float99"}, ("could not be loaded", "float99")),
    ({"quantization_config": "4bit"}, "quantization_config must be an object"),
    *(({name: value}, "could not be loaded") for name, values in UNLOADABLE.items() for value in values),
)

_MANY_DIGITS = b'{"model_type": "llama", "vocab_size": ' + b"9" * 5_000 + b"}"
CONFIGS: tuple[tuple[Content, Says], ...] = (
    (b"", "config.json"),
    (b"{'a': 1}", ("config.json", "not JSON")),
    (b"[1, 2]", ("config.json", "list")),
    (b"7", ("config.json", "int")),
    (b'{"model_type": "\xfc"}', ("config.json", "UTF-8")),
    (b'{"a":' * 99_999 + b"1", "nested too deeply"),
    (_MANY_DIGITS, ("config.json", "4,300 digits")),
    (lambda path: os.truncate(path, 1 << 30), "1.1 GB"),
)

_CONFIGS = (
    *(_replaced("config.json", content, says) for content, says in CONFIGS),
    *(
        Case(VERIFY, says, partial(configured, **changes), f"{changes}")  # type: ignore[arg-type]
        for changes, says in SETTINGS
    ),
    Case(VERIFY, "model_type", lambda folder: configured(folder, "model_type")),
    _replaced("generation_config.json", b"{", "generation_config.json"),
    Case(VERIFY, "no config.json", lambda folder: (folder / "model").mkdir()),
    Case(VERIFY, "is a file", lambda folder: (folder / "model").write_text("abc")),
    Case(("verify", "a\nb"), "a\nb"),
)


def _safetensors(header: object, content: bytes = b"", *, length: int | None = None) -> bytes:
    written = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(written) if length is None else length) + written + content


def _claim(shape: list[int], offsets: list[int], kind: str = "F32") -> dict[str, object]:
    return {"model.norm.weight": {"dtype": kind, "shape": shape, "data_offsets": offsets}}


_BROKEN = f"{WEIGHTS} is not a complete safetensors file"
_HEADERS = (
    b"",
    _safetensors({}, length=2**63),
    _safetensors(b"{not json}"),
    _safetensors(b'{"a":' * 50_000),
    _safetensors(_claim([32], [0, 128]), bytes(8)),
    _safetensors(_claim([10**9, 10**9], [0, 128]), bytes(128)),
    _safetensors(_claim([32], [0, 4]), bytes(4)),
    _safetensors(_claim([-32], [0, 128]), bytes(128)),
    _safetensors(_claim([32], [0, 128], "F99"), bytes(128)),
    _safetensors(_claim([32], [64, 192]), bytes(192)),
    _safetensors(_claim([32], [0, 128]), bytes(999)),
    b"\x80\x02cos\nsystem\n(S'touch it-was-run'\ntR.",
)


def _indexed(folder: Path, where: Callable[[str], object], content: Any = None) -> None:
    """Save the tiny Llama in two files; `where` changes the file of each tensor in the index."""
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


def _index(where: Callable[[str], object], says: Says, content: Any = None) -> Case:
    return Case(VERIFY, says, lambda folder: _indexed(folder, where, content))


def _outside(folder: Path) -> None:
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
    *(_replaced(WEIGHTS, content, _BROKEN) for content in _HEADERS),
    _replaced(WEIGHTS, _safetensors({}), ("lacks", "model.embed_tokens.weight")),
    _replaced(WEIGHTS, lambda path: path.read_bytes()[:-99], _BROKEN),
    _replaced(WEIGHTS, lambda path: path.read_bytes() + b"abcd", _BROKEN),
    _replaced(WEIGHTS, pipe, f"{WEIGHTS} is a pipe"),
    _replaced(WEIGHTS, device, f"{WEIGHTS} is a device"),
    _replaced(WEIGHTS, loop, (WEIGHTS,)),
    _replaced(WEIGHTS, _moved_away, f"{WEIGHTS} cannot be read: No such file"),
    _replaced(WEIGHTS, empty_folder, f"{WEIGHTS} is a folder"),
    _index(lambda shard: shard, None),
    Case(VERIFY, (INDEX, "../part-"), _outside),
    Case(VERIFY, (INDEX, "part-0.safetensors", "in the same directory"), _absolute),
    _index(lambda shard: f"a/../../model/{shard}", (INDEX, "a/../..")),
    _index(lambda shard: f"no-{shard}", "no-part-0.safetensors cannot"),
    _index(lambda shard: "weights.bin", (INDEX, "weights.bin")),
    _index(str, (INDEX, "weight_map"), content={"metadata": {}}),
    _index(lambda shard: f"{'a' * 100_000}{shard}", "aaa..."),
    _index(str, (INDEX, "list"), content=["a"]),
    _index(lambda shard: "part-0.safetensors", (INDEX, "which does not contain it")),
)


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
    """GPT-2's own checkpoints hold such buffers, and names without `transformer.`."""
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
    _tensors(_without("model.embed_tokens"), ("lacks 1 tensor", "model.embed_tokens.weight")),
    _tensors(
        _without("model.embed", "model.norm", "lm_head"),
        ("lacks 3 tensors", "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"),
    ),
    _tensors(_without("model.layers.2."), ("lacks 9 tensors", "model.layers.2.{")),
    _tensors(
        _with(model__layers__4__mlp__up_proj__weight=torch.zeros(64, 32)),
        ("1 tensor", "model.layers.4.mlp.up_proj.weight"),
    ),
    _tensors(
        _with(model__layers__1__mlp__up_proj__bias=torch.ones(64)), ("1 tensor", "model.layers.1.mlp.up_proj.bias")
    ),
    _tensors(_with(lm_head__bias=torch.ones(99)), "lm_head.bias"),
    _tensors(_with(model__norm_2__weight=torch.ones(32)), "model.norm_2.weight"),
    _tensors(_with(model__layers__0__self_attn__rotary_emb__inv_freq=torch.ones(4)), None),
    _tensors(_with(score__weight=torch.ones(2, 32)), None),
    _tensors(_transposed, "model.layers.1.mlp.up_proj.weight of shape (32, 64)"),
    _tensors(_as_type(torch.int64), "39 tensors of integers (I64)"),
    _tensors(lambda tensors: None, "score.weight", architectures=["LlamaForSequenceClassification"], num_labels=3),
    _tensors(lambda tensors: None, None, architectures=["LlamaModel"]),
    Case(VERIFY, None, _saved(_tied)),
    Case(VERIFY, None, _saved(_gpt2, change=_old_buffers)),
    Case(VERIFY, "h.3.", _saved(_gpt2, change=_fourth_layer)),
    Case(VERIFY, None, _saved(lambda: BertForPreTraining(_bert()), architectures=["BertForMaskedLM"])),
    Case(VERIFY, "cls.predictions", _saved(lambda: BertModel(_bert()), architectures=["BertForMaskedLM"])),
    Case(VERIFY, None, _saved(lambda: BertForMaskedLM(_bert()), architectures=["BertModel"])),
    Case(
        VERIFY, "classifier.weight", _saved(lambda: BertModel(_bert()), architectures=["BertForSequenceClassification"])
    ),
)


def _newborn(says: Says, **changes: object) -> Case:
    def make(folder: Path) -> None:
        texts(folder)
        path = configured(folder, **{"vocab_size": 512, **changes})
        (path / WEIGHTS).unlink()

    asked = ("train", "growth", "--model", "model", "--text", "texts", "--max-length", "32", "--dry-run")
    return Case(asked, says, make, f"from scratch: {changes}")


_NEWBORN = (
    _newborn(("num_hidden_layers is 1,000,000,000",), num_hidden_layers=10**9),
    _newborn(("parameters, which take", "of memory"), hidden_size=10**9),
    _newborn(("cannot build a causal language model",), hidden_size=10**30),
    _newborn(("layer",), num_hidden_layers=0),
    _newborn(("config",), num_attention_heads=5),
)

CASES = (*_CONFIGS, *_FILES, *_TENSORS, *_NEWBORN)
