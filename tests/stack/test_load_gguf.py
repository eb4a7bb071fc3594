"""A GGUF file as a model, under plans and by the verbs, and the importance matrix of llama.cpp."""

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint.gguf_bytes import U32, Entry, Header, Spec
from checkpoint.gguf_models import CAUSAL, TEMPLATE, write_causal
from layerwise.errors import CheckpointError, LayerwiseError, ModelError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import load
from layerwise.stack.checks import checkpoint_files
from layerwise.stack.imatrix import imatrix_beside, layer_power
from layerwise.stack.load import weight_hash
from layerwise.stack.quantization import quantization_method
from tier import TIER, first_fast

pytest.importorskip("gguf", reason="needs the package gguf: pip install 'layerwise[gguf]'")

KINDS = ("F32", "F16", "Q8_0", "Q4_0", "Q4_1")


def kinds_of(architecture: str) -> tuple[str, ...]:
    number = CAUSAL.index(architecture) % len(KINDS)
    return KINDS if TIER == "nightly" else KINDS[number : number + 1]


@pytest.mark.parametrize("architecture", first_fast(CAUSAL, 3))
def test_a_file_is_what_transformers_reads_of_it(architecture: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    tokens = torch.arange(40, 64)[None]
    for kind in kinds_of(architecture):
        path = write_causal(tmp_path / f"{kind}.gguf", architecture, kind)
        stack, apart = load(path), load(path, resident_layers=2)
        other = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).eval()
        with torch.inference_mode():
            assert torch.equal(stack.model(tokens).logits, other(tokens).logits)
            assert torch.equal(apart.model(tokens).logits, other(tokens).logits)
            with stack.under(Plan.parse("2 0 0")), apart.under(Plan.parse("2 0 0")):
                planned = stack.model(tokens).logits
                assert torch.equal(apart.model(tokens).logits, planned)
        assert (apart.resident.cost.most_layers, apart.resident.cost.most_bytes) == (2, 2 * _bytes(stack.blocks[0]))
        apart.resident.release_all()
        assert weight_hash(apart.model) == weight_hash(stack.model)
        assert _bytes(stack.model) - _bytes(apart.model) == 3 * _bytes(stack.blocks[0])
        assert stack.depth == 3
        assert planned.isfinite().all()
        assert not torch.equal(planned, stack.model(tokens).logits)
        assert quantization_method(stack.model) is quantization_method(other) is None
        assert stack.dtype == torch.float32
        tokenizer: Any = stack.tokenizer
        assert tokenizer.decode(tokenizer("the hat")["input_ids"]) == "the hat"
        assert tokenizer.chat_template == TEMPLATE
        assert stack.source.name == str(path)


def _bytes(module: torch.nn.Module) -> int:
    return sum(each.nbytes for each in module.parameters() if not each.is_meta)


def _with_type(number: int, size: int) -> Spec:
    spec = Spec()
    spec.headers.append(Header(b"blk.0.extra.weight", [256], number, size))
    return spec


def _larger() -> Spec:
    spec = Spec()
    for name in (b"embedding_length", b"feed_forward_length", b"attention.head_count", b"vocab_size"):
        spec.entries.append(Entry(b"llama." + name, U32, struct.pack("<I", 2**16)))
    spec.entries = [each for each in spec.entries if b"head_count_kv" not in each.key]
    return spec


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (_with_type(24, 256).bytes(), UnsupportedModelError, "has tensors of type I8, which transformers cannot read"),
        (_with_type(27, 2048).bytes(), UnsupportedModelError, "tensors of type I64"),
        (Spec(magic=b"GGML").bytes(), CheckpointError, "is not a GGUF file: it begins with b'GGML'"),
        (Spec(headers=Spec().headers[:-3]).bytes(), CheckpointError, r"has 3 layers, but tensors \(blk\.N\) of 2"),
        (Spec().bytes(), CheckpointError, "could not be loaded: Validation error for field 'num_key_value_heads':"),
        (Spec().bytes().replace(b"llama", b"llamb"), CheckpointError, "GGUF model with architecture llamb is not"),
        (_larger().bytes(), LayerwiseError, "describes a model of"),
    ],
)
def test_files_that_transformers_cannot_read_are_refused(
    tmp_path: Path, content: bytes, kind: type[LayerwiseError], words: str
) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(kind, match=words):
        load(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention.layer_norm_rms_epsilon", -1e-5),
        ("attention.layer_norm_rms_epsilon", 1.0),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("rope.freq_base", 0.0),
        ("rope.freq_base", float("inf")),
        ("logit_scale", float("nan")),
    ],
)
def test_a_number_that_makes_every_state_wrong_is_refused(tmp_path: Path, name: str, value: float) -> None:
    key = f"llama.{name}".encode()
    content = write_causal(tmp_path / "m.gguf", "llama", "F32").read_bytes()
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<I", 6)
    at = content.find(entry)
    changed = entry + struct.pack("<f", value)
    if at < 0:  # one more entry, in front of all
        count = struct.pack("<Q", struct.unpack_from("<Q", content, 16)[0] + 1)
        changed = content[:16] + count + changed + content[24:]
    else:
        changed = content[:at] + changed + content[at + len(changed) :]
    (tmp_path / "m.gguf").write_bytes(changed)
    with pytest.raises(CheckpointError, match=f"{name.rpartition('.')[2]}'? = .*; fetch it again, or convert"):
        load(tmp_path / "m.gguf")


def test_files_that_cannot_be_opened_say_why(tmp_path: Path) -> None:
    content = write_causal(tmp_path / "m.gguf", "qwen2", "F32").read_bytes()
    (tmp_path / "m.gguf").write_bytes(content.replace(b"qwen2", b"llama"))  # whose projections have no bias
    with pytest.raises(UnsupportedModelError, match=r"LlamaForCausalLM does not use: blk\.0-2\.\{attn_k\.bias,"):
        load(tmp_path / "m.gguf")

    with pytest.raises(UnsupportedModelError, match="which transformers cannot spread over devices and disk"):
        load(write_causal(tmp_path / "m.gguf", "llama", "Q8_0"), device_map="auto")


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "find_spec", lambda name: None)
    (tmp_path / "m.gguf").write_bytes(Spec().bytes())
    with pytest.raises(ModelError, match=r"pip install 'layerwise\[gguf\]'"):
        load(tmp_path / "m.gguf")


@pytest.mark.parametrize("options", [{}, {"resident_layers": 1}])
def test_a_tensor_of_another_shape_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    name = b"blk.2.attn_k.weight"
    content = write_causal(tmp_path / "m.gguf", "llama", "Q8_0").read_bytes()
    turned = content.replace(name + struct.pack("<IQQ", 2, 64, 32), name + struct.pack("<IQQ", 2, 32, 64))
    (tmp_path / "m.gguf").write_bytes(turned)
    with pytest.raises(CheckpointError, match=r"layers\.2\.self_attn\.k_proj\.weight of shape \(64, 32\), but"):
        load(tmp_path / "m.gguf", **options)


def test_a_file_that_is_cut_short_while_its_layers_are_read_is_refused(tmp_path: Path) -> None:
    path = write_causal(tmp_path / "m.gguf", "llama", "Q8_0")
    stack = load(path, resident_layers=1)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 3000)
    with pytest.raises(CheckpointError, match=r"is truncated in blk\.2\.ffn_down\.weight"):
        stack.model(torch.arange(8)[None])


gguf: Any = pytest.importorskip("gguf", reason="needs the package gguf: pip install 'layerwise[gguf]'")


def write(path: Path, sums: dict[str, Any], counts: dict[str, Any], dtype: type = np.float32) -> Path:
    writer = gguf.GGUFWriter(path, "imatrix")
    del writer.kv_data[0]["general.architecture"]  # llama-imatrix names a type alone
    writer.add_type("imatrix")
    for name, values in sums.items():
        writer.add_tensor(f"{name}.weight.in_sum2", np.asarray(values, dtype=dtype))
        if name in counts:
            writer.add_tensor(f"{name}.weight.counts", np.asarray(counts[name], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_layer_has_the_mean_squares_of_all_inputs_of_its_matrices(tmp_path: Path) -> None:
    path = write(
        tmp_path / "imatrix.gguf",
        {
            "blk.0.attn_q": [[2.0, 4.0]],
            "blk.0.ffn_down": [[3.0]],
            "blk.1.ffn_up_exps": [[8.0, 8.0], [0.0, 0.0]],
            "output": [[1e9]],
        },
        {"blk.0.attn_q": [[2.0]], "blk.0.ffn_down": [[1.0]], "blk.1.ffn_up_exps": [[4.0], [0.0]], "output": [[1.0]]},
    )
    assert layer_power(path, 2) == {0: 1 + 2 + 3, 1: 2 + 2}


@pytest.mark.parametrize(
    ("sums", "counts", "dtype", "words"),
    [
        ({"blk.0.attn_q": [[1.0]]}, {"blk.0.attn_q": [[1.0]]}, np.float32, "has finite statistics of 1"),
        ({"blk.0.attn_q": [[1.0]], "blk.1.attn_q": [[1.0]]}, {}, np.float32, "has finite statistics of 0"),
        ({"blk.0.a": [[1.0, 2.0, 3.0]]}, {"blk.0.a": [[1.0], [1.0]]}, np.float32, "has 3 numbers for 2 counts"),
        ({"blk.0.a": [[np.inf]], "blk.1.a": [[1.0]]}, {"blk.0.a": [[1.0]], "blk.1.a": [[1.0]]}, np.float32, "is no"),
        ({"blk.0.a": [[1.0]]}, {"blk.0.a": [[1.0]]}, np.float16, r"blk\.0\.a\.weight\.in_sum2 must be F32"),
    ],
)
def test_invalid_importance_matrices_are_refused(
    sums: dict[str, Any], counts: dict[str, Any], dtype: type, words: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=words):
        layer_power(write(tmp_path / "m.gguf", sums, counts, dtype), 2)


def test_an_importance_matrix_is_found_beside_a_file_or_in_a_folder(tmp_path: Path) -> None:
    def beside(name: Path) -> Path | None:
        return imatrix_beside(SimpleNamespace(source=SimpleNamespace(name=str(name))))  # type: ignore[arg-type]

    assert beside(tmp_path / "model.gguf") is beside(tmp_path) is None
    common, own = tmp_path / "imatrix.gguf", tmp_path / "model.imatrix.gguf"
    common.touch()
    assert beside(tmp_path / "model.gguf") == beside(tmp_path) == common
    own.touch()
    assert beside(tmp_path / "model.gguf") == own
