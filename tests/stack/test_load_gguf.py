"""A GGUF file as a model, quantized layers with the weights of one, and the importance matrix of llama.cpp."""

import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from checkpoint.gguf_bytes import U32, Entry, Header, Spec
from checkpoint.gguf_models import CAUSAL, TEMPLATE, write_causal
from conftest import tiny_llama
from layerwise.checkpoint import save
from layerwise.errors import CheckpointError, LayerwiseError, ModelError, PlanError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.plan.checks import TYPES, weight_type
from layerwise.stack import Stack, load, quantization
from layerwise.stack.checks import checkpoint_files
from layerwise.stack.imatrix import imatrix_beside, layer_power
from layerwise.stack.load import weight_hash
from layerwise.stack.quantization import quantization_method
from layerwise.swarm.supply import Supply
from stack.makers import IDS, stack_of
from tier import TIER, first_fast

gguf: Any = pytest.importorskip("gguf", reason="needs the package gguf: pip install 'layerwise[gguf]'")

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
    def find_matrix(name: Path) -> Path | None:
        return imatrix_beside(SimpleNamespace(source=SimpleNamespace(name=str(name))))  # type: ignore[arg-type]

    assert find_matrix(tmp_path / "model.gguf") is find_matrix(tmp_path) is None
    common, own = tmp_path / "imatrix.gguf", tmp_path / "model.imatrix.gguf"
    common.touch()
    assert find_matrix(tmp_path / "model.gguf") == find_matrix(tmp_path) == common
    own.touch()
    assert find_matrix(tmp_path / "model.gguf") == own


FAST = [*(("llama", kind) for kind in TYPES[:4]), ("gpt2", "Q8_0"), ("qwen2", "MXFP4")]
EVERY = [(architecture, kind) for architecture in CAUSAL for kind in TYPES]


def norm(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: float((each.double() - others[name].double()).norm()) for name, each in weights.items()}


def weights_of(stack: Stack, layer: int, source: str | None = None) -> dict[str, torch.Tensor]:
    return {name: each.detach() for name, each in stack.block(layer, source).named_parameters()}


@pytest.mark.parametrize(("architecture", "kind"), EVERY if TIER == "nightly" else FAST)
def test_a_layer_at_a_type_has_the_weights_of_a_file_of_that_type(architecture: str, kind: str, tmp_path: Path) -> None:
    exact = load(write_causal(tmp_path / "exact.gguf", architecture, "F32"))
    stored = load(write_causal(tmp_path / "stored.gguf", architecture, kind))
    for layer in range(exact.depth):
        own, other = weights_of(exact, layer, kind), weights_of(stored, layer)
        assert own.keys() == other.keys()
        assert all(torch.equal(own[name], other[name]) for name in own), layer
        assert any(not torch.equal(each, weights_of(exact, layer)[name]) for name, each in own.items())
    reader = gguf.GGUFReader(tmp_path / "stored.gguf")
    (tensor,) = [each for each in reader.tensors if each.name == "blk.1.ffn_down.weight"]
    module = next(m for name, m in exact.blocks[1].named_modules() if name in ("mlp.down_proj", "mlp.c_proj"))
    rows: Any = module.weight.T if architecture == "gpt2" else module.weight
    if kind in ("Q4_0", "Q8_0", "MXFP4"):
        assert np.array_equal(quantization.quantize(rows, kind), tensor.data)


def test_noise_has_the_norm_of_the_error_matrix_by_matrix_and_a_seed() -> None:
    stack = stack_of("gpt2")
    own, error, noise = (weights_of(stack, 2, source) for source in (None, "Q4_0", "Q4_0-noise0"))
    size, other = norm(error, own), norm(noise, own)
    matrices = [name for name, each in own.items() if each.ndim == 2]
    assert [name for name in size if size[name]] == matrices
    for name in matrices:
        assert other[name] == pytest.approx(size[name], rel=1e-5)
        direction, along = (noise[name] - own[name]).flatten(), (error[name] - own[name]).flatten()
        assert abs(torch.cosine_similarity(direction, along, dim=0)) < 0.1
    again = weights_of(stack_of("gpt2"), 2, "Q4_0-noise0")
    assert all(torch.equal(again[name], noise[name]) for name in noise)
    for source, layer in (("Q4_0-noise1", 2), ("Q4_1-noise0", 2), ("Q4_0-noise0", 3)):
        apart = weights_of(stack, layer, source)[matrices[0]] - weights_of(stack, layer)[matrices[0]]
        assert abs(torch.cosine_similarity(apart.flatten(), (noise[matrices[0]] - own[matrices[0]]).flatten(), 0)) < 0.1


def test_a_matrix_whose_rows_are_no_whole_blocks_is_rounded_to_f16() -> None:
    stack = stack_of("gemma")
    own, changed = (weights_of(stack, 1, source) for source in (None, "Q4_0"))
    ragged = [name for name, each in own.items() if each.ndim == 2 and each.shape[1] % 32]
    whole = [name for name, each in own.items() if each.ndim == 2 and not each.shape[1] % 32]
    assert ragged
    assert whole
    for name in ragged:
        assert torch.equal(changed[name], own[name].half().float()), name
    assert all((changed[name] - own[name]).norm() > 0.01 * own[name].norm() for name in whole)
    block, name = stack.block(1), "Q4_0"
    sizes = [each.numel() * (2 if key in ragged else 18 / 32 if key in whole else 4) for key, each in own.items()]
    assert quantization.bytes_at_type(block, name) == sum(sizes)


@pytest.mark.parametrize("inference", [False, True])
def test_changed_weights_are_quantized_again_and_the_cache_is_bounded(
    monkeypatch: pytest.MonkeyPatch, inference: bool
) -> None:
    model = tiny_llama()
    stack, plan = load(model), Plan.parse("Q4_0:0-5")
    with torch.inference_mode():
        before = stack.logits(plan, input_ids=IDS)
        assert torch.equal(stack.logits(plan, input_ids=IDS), before)
    with torch.inference_mode(inference), torch.no_grad():
        model.model.layers[3].mlp.up_proj.weight.mul_(-1)
    with torch.inference_mode():
        after = stack.logits(plan, input_ids=IDS)
        assert not torch.equal(after, before)
        assert torch.equal(load(model).logits(plan, input_ids=IDS), after)
        assert len(stack._quantized._cache) == 7, "six layers, and one as it was"
        monkeypatch.setattr(quantization, "MAX_CACHED_BYTES", 1)
        assert torch.equal(stack.logits(plan, input_ids=IDS), after)
    assert len(stack._quantized._cache) == 1


def test_the_model_stays_as_it_is_and_gradients_of_other_layers_do_not() -> None:
    model = tiny_llama()
    stack = load(model)
    before, own = weight_hash(model), model(IDS).logits
    with torch.inference_mode():
        stack.logits("0 Q8_0:1 2-5", input_ids=IDS)  # what is kept of it serves outside as well
    with stack.under("0 Q8_0:1 2-5"):
        loss = model(IDS, labels=IDS).loss
        loss.backward()
    assert model.model.layers[1].mlp.up_proj.weight.grad is None
    assert model.model.layers[0].mlp.up_proj.weight.grad.any()
    assert weight_hash(model) == before
    assert torch.equal(model(IDS).logits, own)


def test_a_half_at_a_type_is_that_half_of_the_layer_at_the_type() -> None:
    stack = stack_of("llama")
    with torch.inference_mode():
        captured = stack.capture(input_ids=IDS)
        state = captured.state
        whole = stack.apply(2, state, captured, source="Q4_0")
        in_turn = stack.apply(2, stack.apply(2, state, captured, "attn", "Q4_0"), captured, "mlp", "Q4_0")
        mixed = stack.apply(2, stack.apply(2, state, captured, "attn", "Q4_0"), captured, "mlp")
    torch.testing.assert_close(in_turn, whole, rtol=1e-5, atol=1e-5)
    assert (mixed - whole).abs().max() > 1e-2


def with_extra() -> Stack:
    stack = load(tiny_llama())
    stack.blocks[1].register_parameter("extra", nn.Parameter(torch.ones(2, 32)))
    return stack


def enter(stack: Stack) -> None:
    with stack.under("0 Q4_0:1"):
        pass


REFUSED: dict[str, tuple[Callable[[Path], object], type[LayerwiseError], str]] = {
    "other": (lambda _: with_extra().check("Q4_0:1"), UnsupportedModelError, r"its extra of shape \(2, 32\) does not"),
    "training": (lambda _: enter(load(tiny_llama().train())), PlanError, "cannot train .* with Q4_0:1"),
    "name": (
        lambda _: Stack.with_sources({"Q4_0": stack_of("llama")}),
        PlanError,
        "Q4_0 is a quantization type and cannot name a model",
    ),
    "save": (lambda path: save(stack_of("llama"), "0 Q4_0:1", path / "m"), PlanError, "cannot save a model under"),
    "swarm": (lambda _: Supply(stack_of("llama"), Plan.parse("0 Q4_0:1"), []), PlanError, "cannot serve a model under"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_plans_at_types_that_cannot_run_are_refused(name: str, tmp_path: Path) -> None:
    carry_out, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        carry_out(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_types_without_the_package_or_on_the_disk_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(quantization, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"requires the package gguf: pip install 'layerwise\[gguf\]'") as caught:
        stack_of("llama").check("0 Q4_0:1")
    assert not isinstance(caught.value, UnsupportedModelError), "which would leave plans of a sweep out"
    monkeypatch.undo()

    path = write_causal(tmp_path / "m.gguf", "llama", "F32")
    with pytest.raises(UnsupportedModelError, match=r"cannot run layer 1 at Q4_0: .* without --resident-layers"):
        load(path, resident_layers=2).check("0 Q4_0:1")


@pytest.mark.parametrize("name", ["Q4_0-noise", "Q4_0-noise01", "q4_0", "Q4_0-noise-1", "Q6_K", "a", None])
def test_names_of_types_are_spelled_in_one_way(name: str | None) -> None:
    assert weight_type(name) is None
