"""A plan as a GGUF file: the bytes of its tensors, what its metadata says, and what is refused."""

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from unittest.mock import patch

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import layerwise
from checkpoint.gguf_bytes import ARRAY, STRING, U32, Entry, Header, Spec, array, text
from checkpoint.gguf_models import write_causal, write_llama
from layerwise.checkpoint import gguf_file, save
from layerwise.checkpoint.gguf_file import save_gguf
from layerwise.errors import CheckpointError, LayerwiseError, PlanError, UnsupportedModelError
from layerwise.gguf import GGUFFile, depth_of, layer_bytes, planned_file
from layerwise.gguf.layers import BY_DEPTH, FIRST_OF_EACH, ONE_WINDOW, ONLY_WITH_WINDOW, PERIODS
from layerwise.plan import Plan
from llama_cpp import log_of_opening

DEPTH = 12
BOOL, FLOAT = 7, 6
PATTERN = "attention.sliding_window_pattern"
OTHER_KINDS = {"qwen35", "qwen35moe", "qwen3next", "qwen4exp", "smollm3"}
"""Layers differ by more than a window."""

NO_ROTARY = {"afmoe", "llama4"}
"""Layers without a window differ by their rotary embedding."""

EPSILONS = ("layer_norm_epsilon", "layer_norm_rms_epsilon")
NEEDED = {
    "context_length": 64,
    "embedding_length": 32,
    "feed_forward_length": 32,
    "attention.head_count": 2,
    "attention.head_count_kv": 2,
    "attention.key_length": 8,
    "attention.value_length": 8,
    "rope.dimension_count": 8,
    "vocab_size": 4,
    "expert_feed_forward_length": 32,
    "expert_gating_func": 2,
    "expert_shared_count": 1,
    "interleave_moe_layer_step": 2,
    "leading_dense_block_count": 1,
    "shortconv.l_cache": 3,
}
"""Settings that llama.cpp requires before it loads the layers."""


def u32(key: str, value: int) -> Entry:
    return Entry(key.encode(), U32, struct.pack("<I", value))


def u32s(key: str, values: Sequence[int]) -> Entry:
    return Entry(key.encode(), ARRAY, array(U32, struct.pack(f"<{len(values)}I", *values), len(values)))


def f32(key: str, value: float) -> Entry:
    return Entry(key.encode(), FLOAT, struct.pack("<f", value))


def spec(architecture: str = "llama", *entries: Entry, depth: int = DEPTH, between: Sequence[Header] = ()) -> Spec:
    layers = [
        header
        for layer in range(depth)
        for header in (
            Header(b"blk.%d.attn_q.weight" % layer, [32, 3], 8, 102),
            Header(b"blk.%d.ffn_norm.weight" % layer, [layer + 5], 0, 4 * layer + 20),
        )
    ]
    return Spec(
        entries=[
            Entry(b"general.architecture", STRING, text(architecture)),
            u32(f"{architecture}.block_count", depth),
            *entries,
            Entry(b"tokenizer.ggml.tokens", ARRAY, array(STRING, text("a") + text("bc"), 2)),
        ],
        headers=[
            Header(b"token_embd.weight", [32, 4], 1, 256),
            *layers,
            *between,
            Header(b"output_norm.weight", [5], 0, 20),
        ],
    )


def windowed(architecture: str, *entries: Entry) -> Spec:
    return spec(architecture, u32(f"{architecture}.attention.sliding_window", 64), *entries)


def written(folder: Path, made: Spec, plan: str) -> tuple[GGUFFile, GGUFFile]:
    source, target = folder / "in.gguf", folder / "out.gguf"
    source.write_bytes(made.bytes())
    save(source, plan, target, overwrite=True)
    return GGUFFile.open(source), GGUFFile.open(target)


def contents(file: GGUFFile) -> dict[str, tuple[int, tuple[int, ...], bytes]]:
    content = file.path.read_bytes()
    return {name: (each.number, each.shape, content[each.begin : each.end]) for name, each in file.tensors.items()}


def entries(file: GGUFFile) -> dict[str, bytes]:
    content = file.path.read_bytes()
    return {key: content[each.begin : each.end] for key, each in file.entries.items()}


@pytest.mark.parametrize("by_name", [False, True])
def test_the_trained_order_is_the_file_itself(tmp_path: Path, by_name: bool) -> None:
    made = spec()
    if by_name:
        made.headers.sort(key=lambda header: header.name)  # blk.1, blk.10, blk.11, blk.2
    before, after = written(tmp_path, made, f"0-{DEPTH - 1}")
    assert after.path.read_bytes() == before.path.read_bytes()


@pytest.mark.parametrize("plan", ["0-3 6-11", "0 11-1", "0-11 4-7 11*3", "5", "a:0-3 a:3", "0-5 [4-7]*3 8-11"])
def test_every_slot_has_the_bytes_of_its_layer_and_all_else_stays(tmp_path: Path, plan: str) -> None:
    before, after = written(tmp_path, spec(), plan)
    order = Plan.parse(plan).order()
    old, new = contents(before), contents(after)
    expected = {name: old[name] for name in ("token_embd.weight", "output_norm.weight")}
    for slot, layer in enumerate(order):
        for rest in ("attn_q.weight", "ffn_norm.weight"):
            expected[f"blk.{slot}.{rest}"] = old[f"blk.{layer}.{rest}"]
    assert new == expected
    assert next(iter(new)) == "token_embd.weight"
    assert list(new)[-1] == "output_norm.weight"
    assert after.setting("block_count") == depth_of(after) == len(order)
    changed = {key for key, value in entries(after).items() if entries(before)[key] != value}
    assert changed == ({"llama.block_count"} if len(order) != DEPTH else set())
    assert list(after.entries) == list(before.entries)


def test_tensors_lie_one_behind_the_other_at_multiples_of_the_alignment(tmp_path: Path) -> None:
    made = spec("llama", Entry(b"general.alignment", U32, struct.pack("<I", 64)))
    for header, offset in zip(made.headers, range(0, 10**6, 320), strict=False):
        header.offset = offset  # with more between them than the alignment asks for
    content = made.bytes()
    source = tmp_path / "in.gguf"
    source.write_bytes(content + bytes(10**5))
    save_gguf(source, "3 2", tmp_path / "out.gguf")
    after = GGUFFile.open(tmp_path / "out.gguf")
    ends = [0] + [each.end for each in after.tensors.values()]
    begins = [each.begin for each in after.tensors.values()]
    assert begins[0] % 64 == 0
    assert all(begin == -(-end // 64) * 64 for begin, end in zip(begins[1:], ends[1:], strict=False))
    assert after.size == -(-ends[-1] // 64) * 64


def test_a_file_that_ends_with_its_last_tensor_is_filled_up(tmp_path: Path) -> None:
    source = tmp_path / "in.gguf"
    source.write_bytes(spec().bytes()[:-12])  # what fills its last block of 32 bytes
    save_gguf(source, "0-1", tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").stat().st_size % 32 == 0
    assert contents(GGUFFile.open(tmp_path / "out.gguf"))["output_norm.weight"][2] == spec().bytes()[-32:-12]


def test_lists_by_layer_follow_the_plan_and_other_lists_stay(tmp_path: Path) -> None:
    flags = array(BOOL, bytes(layer % 3 == 2 for layer in range(DEPTH)), DEPTH)
    before, after = written(
        tmp_path,
        spec(
            "lfm2",
            u32s("lfm2.attention.head_count_kv", range(DEPTH)),
            Entry(b"lfm2.attention.sliding_window_pattern", ARRAY, flags),
            u32("lfm2.attention.sliding_window", 64),
            u32s("lfm2.rope.dimension_sections", [9] * DEPTH),
            u32s("other.feed_forward_length", range(DEPTH)),
            u32s("xielu.beta", range(DEPTH)),
        ),
        "0-3 5 5 2",
    )
    assert after.setting("attention.head_count_kv") == (0, 1, 2, 3, 5, 5, 2)
    assert after.setting("attention.sliding_window_pattern") == (False, False, True, False, True, True, True)
    assert after.setting("rope.dimension_sections") == before.setting("rope.dimension_sections")
    assert after.entries["other.feed_forward_length"].value == tuple(range(DEPTH))
    assert after.entries["xielu.beta"].value == (0, 1, 2, 3, 5, 5, 2)  # a setting of Apertus, without its name


@pytest.mark.parametrize("plan", ["0-10", "0-7", "0-3 0-7 10 Q4_0:9"])
def test_layers_that_predict_further_tokens_follow_the_last_visit(tmp_path: Path, plan: str) -> None:
    made = spec(
        "qwen35",
        u32("qwen35.nextn_predict_layers", 1),
        u32("qwen35.full_attention_interval", 4),
        u32s("qwen35.attention.head_count_kv", range(DEPTH)),
        u32s("qwen35.feed_forward_length", range(11)),
    )
    before, after = written(tmp_path, made, plan)
    order = Plan.parse(plan).order()
    count = len(order)
    assert (depth_of(before), depth_of(after), after.setting("block_count")) == (11, count, count + 1)
    assert after.setting("nextn_predict_layers") == 1
    assert after.setting("attention.head_count_kv") == (*order, 11)
    assert after.setting("feed_forward_length") == order
    old, new = contents(before), contents(after)
    norm = "blk.{}.ffn_norm.weight".format
    assert [new[norm(slot)] for slot in range(count + 1)] == [old[norm(layer)] for layer in (*order, 11)]
    assert len(layer_bytes(after)) == count


def test_a_name_is_as_long_as_ggml_reads(tmp_path: Path) -> None:
    made = spec(depth=2)
    made.headers.append(Header(b"blk.1." + b"n" * 57, [5], 0, 20))
    assert len(written(tmp_path, made, "0*9 1")[1].tensors) == 23
    with pytest.raises(PlanError, match=r"blk\.10\.nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"):
        written(tmp_path, made, "0*10 1")


@pytest.mark.parametrize(
    ("entry", "plan", "value"),
    [
        (u32("x.leading_dense_block_count", 2), "0 4-11", 1),
        (u32("x.leading_dense_block_count", 2), "3-11", 0),
        (u32("x.leading_dense_block_count", 2), "0 1 0 1 5", 4),
        (u32("x.leading_dense_block_count", 2), "0 2 1", None),
        (u32("x.full_attention_interval", 4), "0-2 7 4-5 4 3", 4),
        (u32("x.full_attention_interval", 4), "0 3 0 3", 2),
        (u32("x.full_attention_interval", 4), "0-2 4-6", 7),  # and not 0, by which llama.cpp divides
        (u32("x.full_attention_interval", 4), "3 0", None),
        (u32("x.interleave_moe_layer_step", 2), "0 1 3", None),
        (u32("x.attention.sliding_window_pattern", 3), "0-5 3-11", 3),
        (u32("x.attention.sliding_window_pattern", 3), "0 2 3 5", 2),
        (u32("x.moe_every_n_layers", 2), "0-3 2-5", 2),
        (u32("x.moe_every_n_layers", 2), "1 0", None),
        (u32("x.rescale_every_n_layers", 6), "0-5 8-11", 6),
        (u32("x.rescale_every_n_layers", 6), "6-9", None),
        (u32("x.n_deepstack_layers", 3), "0-2 8 4", 3),
        (u32("x.n_deepstack_layers", 3), "0 2-11", None),
    ],
)
def test_numbers_that_say_the_kind_of_a_layer_keep_every_kind(
    tmp_path: Path, entry: Entry, plan: str, value: int | None
) -> None:
    made, name = spec("x", entry), entry.key.decode().removeprefix("x.")
    if value is None:
        with pytest.raises(UnsupportedModelError, match=f"x.{name} = .*run the plan on the model from which"):
            written(tmp_path, made, plan)
    else:
        assert written(tmp_path, made, plan)[1].setting(name) == value


@pytest.mark.parametrize(
    ("made", "plan", "reason"),
    [
        (spec("smollm3"), "0-2 4-11", "one layer in 4 of smollm3"),
        (spec("gemma3", u32("gemma3.attention.sliding_window", 64)), "1-11", "one layer in 6"),
        (spec("new", u32("new.attention.sliding_window", 64)), "1-11", "does not say which"),
        (spec("x", u32("x.nextn_predict_layers", 12)), "0", "has nextn_predict_layers = 12 for 12 layers"),
        (spec("minicpm", u32("minicpm.nextn_predict_layers", 1)), "0-9", "differently with 11 and with 10 layers"),
        (spec("gemma3n", u32("gemma3n.attention.shared_kv_layers", 4)), "1-11", "share keys and values"),
        (spec("g", between=[Header(b"per_layer_proj_norm.weight", [5], 0, 20)]), "1-11", "by their number"),
        (spec("rwkv7"), "1-11", "what the first one computed"),
        (spec("minimax-01", u32("minimax-01.full_attention_interval", 8)), "0-10", "how fast a layer forgets"),
        (spec("gemma2", depth=46), "0-43", "differently with 46 and with 44 layers"),
        (spec("gemma3"), "0-11 " * 5 + "0-1", "differently with 12 and with 62 layers"),
        (spec("deepseek2"), "0-11 0-11 0-2", "differently with 12 and with 27 layers"),
        (spec("minicpm"), "0-10", "differently with 12 and with 11 layers"),
        (spec("afmoe"), "1-11", "one layer in 4 of afmoe"),
        (spec("qwen35"), "0-2 4-11", "one layer in 4"),
        (windowed("plamo3"), "0-6 8-11", "one layer in 8"),
        (windowed("modern-bert", u32(f"modern-bert.{PATTERN}", 3)), "1 0 2-11", "one layer in 3"),
        (windowed("smallthinker"), "1-11", "one layer in 4"),
        (windowed("olmo2", u32s(f"olmo2.{PATTERN}", [1, 1, 1, 0] * 3)), "1-11", "one layer in 4"),
        (spec("smollm3", u32(f"smollm3.{PATTERN}", 3)), "0-2 6-11", "one layer in 4"),
        (spec("glm-dsa", u32s("glm-dsa.attention.indexer.types", [0] * DEPTH)), "1-11", "an earlier layer selected"),
        (spec("dflash", u32s("dflash.target_layers", range(DEPTH))), "1-11", "layers of another model"),
        (spec("x", u32("x.attn_res.block_size", 4)), "1-11", "block_size' = 4 refers to layers"),
        (spec("x", u32("x.hrm.layers_per_stack", 6)), "1-11", "refers to layers by their numbers"),
        (spec("x", u32s("x.moe_layers", [1, 5])), "1-11", "has 2 values for 12 layers"),
        (spec("x", u32s("x.attention.compress_ratios", range(DEPTH + 1))), "1-11", "has 13 values for 12 layers"),
        (spec("t5", u32("t5.decoder_block_count", 12)), "0-11", "two stacks"),
        (spec("llama", u32("split.count", 3)), "0-11", "llama-gguf-split --merge"),
    ],
)
def test_plans_that_the_metadata_cannot_express_are_refused(tmp_path: Path, made: Spec, plan: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        written(tmp_path, made, plan)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize(
    ("made", "plan"),
    [
        (spec("smollm3"), "0-3 8-11 4-7 0"),
        (spec("gemma3", u32("gemma3.attention.sliding_window", 64)), "3 2 1 0 0 5"),
        (spec("olmo2"), "1-11"),
        (windowed("modern-bert", u32(f"modern-bert.{PATTERN}", 3)), "0-2 6-11 3 5 4 0"),
        (windowed("smallthinker"), "0-3 8-11 4 6"),
        (windowed("lfm2"), "1-11"),
        (spec("qwen3next", u32("qwen3next.full_attention_interval", 4)), "0-2 4"),
        (spec("qwen35", u32s("qwen35.attention.recurrent_layers", [1, 1, 1, 0] * 3)), "1-11"),
        (spec("minicpm", f32("minicpm.residual_scale", 0.4)), "1-11"),
        (spec("deepseek32", u32("deepseek32.attention.indexer.head_count", 4)), "1-11"),
        (spec("baichuan", depth=40), "39-0"),
        (spec("qwen2", u32("qwen2.attention.sliding_window", 64)), "1-11"),
    ],
)
def test_plans_that_keep_every_kind_in_its_slot_are_written(tmp_path: Path, made: Spec, plan: str) -> None:
    assert depth_of(written(tmp_path, made, plan)[1]) == len(Plan.parse(plan).order())


def log_of_llama_cpp(folder: Path, architecture: str, depth: int, window: int = 64) -> str:
    pytest.importorskip("xllamacpp", reason="needs llama.cpp: pip install xllamacpp")
    needed = (u32(f"{architecture}.{name}", number) for name, number in NEEDED.items())
    real = (f32(f"{architecture}.{name}", 1.0) for name in ("logit_scale", *(f"attention.{each}" for each in EPSILONS)))
    (folder / "in.gguf").write_bytes(
        spec(
            architecture,
            *needed,
            *real,
            u32(f"{architecture}.attention.sliding_window", window),
            Entry(b"tokenizer.ggml.model", STRING, text("none")),
            depth=depth,
        ).bytes()
    )
    return log_of_opening(folder / "in.gguf")


@pytest.mark.parametrize("window", [64, 0])
@pytest.mark.parametrize("architecture", sorted((PERIODS.keys() | ONE_WINDOW) - OTHER_KINDS))
def test_llama_cpp_has_a_window_where_the_tables_say(architecture: str, window: int, tmp_path: Path) -> None:
    depth = 64 if window else 30  # depths of EXAONE 4; with 64 layers it always has a window
    log = log_of_llama_cpp(tmp_path, architecture, depth, window)
    flags = [bool(int(flag)) for flag in re.findall(r"assigned to device \w+, is_swa = (\d)", log)][:depth]
    assert len(flags) == depth, log
    if architecture in ONE_WINDOW or (not window and architecture in ONLY_WITH_WINDOW | NO_ROTARY):
        assert len(set(flags)) == 1
    else:
        period, first = PERIODS[architecture], architecture in FIRST_OF_EACH
        assert flags == [(layer if first else layer + 1) % period != 0 for layer in range(depth)]


@pytest.mark.parametrize(
    ("architecture", "depth", "setting"),
    [
        ("gemma2", 46, "f_attn_scale"),
        ("gemma3", 62, "f_attn_scale"),
        ("minicpm", 40, "f_residual_scale"),
        ("baichuan", 40, "f_max_alibi_bias"),
        ("exaone4", 64, "is_swa_any"),
    ],
)
def test_llama_cpp_computes_by_depth_what_the_table_says(
    architecture: str, depth: int, setting: str, tmp_path: Path
) -> None:
    logs = [log_of_llama_cpp(tmp_path, architecture, each) for each in (depth - 1, depth, depth + 1)]
    before, at, behind = (re.findall(rf"{setting} *= (\S+)", log) for log in logs)
    assert at
    assert at not in (before, behind)
    assert BY_DEPTH[architecture](depth) not in {BY_DEPTH[architecture](depth + each) for each in (-1, 1)}


@pytest.mark.parametrize(
    ("plan", "kind", "words"),
    [
        ("0-3 (4|5) 6-11", PlanError, ("has a group", "as in 0-11")),
        ("0-3 (4):gain=2 5", PlanError, ("has a group", "as in 0-5")),
        ("0-3 4.mlp 5-11", PlanError, ("runs 4.mlp", "omit the sublayers")),
        ("a:0-3 b:4-11", PlanError, ("several files", "merge the original models")),
        ("0-12", PlanError, ("visits layer 12", "has 12 layers")),
        ("0-3 Q4_0-noise1:4 5", UnsupportedModelError, ("blk.4.", "noise cannot be stored")),
    ],
)
def test_plans_that_are_no_sequence_of_its_layers_are_refused(
    tmp_path: Path, plan: str, kind: type[LayerwiseError], words: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as refused:
        written(tmp_path, spec(), plan)
    assert all(word in str(refused.value) for word in words)
    assert "--compact" not in str(refused.value)


def _file(folder: Path) -> Path:
    (folder / "there.gguf").write_bytes(b"text")
    return folder / "there.gguf"


def _model(folder: Path) -> Path:
    (folder / "there.gguf").write_bytes(spec().bytes())
    return folder / "there.gguf"


def _folder(folder: Path) -> Path:
    (folder / "there.gguf").mkdir()
    return folder / "there.gguf"


@pytest.mark.parametrize(
    ("target", "overwrite", "words"),
    [
        (_file, True, "already exists but contains no model"),
        (_folder, True, "already exists but contains no model"),
        (_model, False, "replace it with --overwrite"),
        (lambda folder: folder / "in.gguf", True, "is the source, so layerwise will not"),
    ],
)
def test_existing_files_stay(tmp_path: Path, target: Callable[[Path], Path], overwrite: bool, words: str) -> None:
    (tmp_path / "in.gguf").write_bytes(spec().bytes())
    path = target(tmp_path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(CheckpointError, match=words):
        save(tmp_path / "in.gguf", "0-3", path, overwrite=overwrite)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_model_is_replaced_with_overwrite_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = _model(tmp_path)
    _, after = written(tmp_path, spec(), "0-3")
    save(after.path, "3 2", path, overwrite=True)
    assert depth_of(GGUFFile.open(path)) == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.gguf", "out.gguf", "there.gguf"]


def test_a_file_that_becomes_shorter_meanwhile_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.gguf").write_bytes(spec().bytes())
    opened = GGUFFile.open

    def cut(path: Path) -> GGUFFile:
        file = opened(path)
        os.truncate(path, 900)
        return file

    monkeypatch.setattr(GGUFFile, "open", cut)
    with pytest.raises(CheckpointError, match="was truncated while it was read"):
        save(tmp_path / "in.gguf", "0-3", tmp_path / "out.gguf")
    assert [each.name for each in tmp_path.iterdir()] == ["in.gguf"]


@pytest.mark.parametrize("stored", ["F32", "F16", "Q8_0"])
def test_the_matrices_of_a_layer_at_a_type_are_those_of_the_package_gguf(stored: str, tmp_path: Path) -> None:
    source = write_llama(tmp_path / "in.gguf", 3, kind=stored)
    plan = Plan.parse("0 Q4_0:2 Q8_0:1 MXFP4:1 2")
    with patch.object(gguf_file, "CHUNK", 3 * 64):
        save(source, plan, tmp_path / "out.gguf")
    before, after = (contents(GGUFFile.open(path)) for path in (source, tmp_path / "out.gguf"))
    types = gguf.GGMLQuantizationType
    assert len(after) == len(before) + 2 * 9
    for name, (number, shape, content) in after.items():
        slot, _, rest = name.removeprefix("blk.").partition(".")
        at = plan.steps()[int(slot)] if name.startswith("blk.") else None
        own = before[name] if at is None else before[f"blk.{at.layer}.{rest}"]
        if at is None or at.source is None or at.source == stored or len(shape) == 1:
            assert (number, shape, content) == own, name
            continue
        rows = np.frombuffer(own[2], dtype=np.uint8).reshape(shape[1], -1)
        numbers = gguf.quants.dequantize(rows, types(own[0])).astype(np.float32)
        assert (types(number).name, shape) == (at.source, own[1])
        assert content == gguf.quants.quantize(numbers, types[at.source]).tobytes(), name


def test_a_file_becomes_a_folder_and_new_files_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_causal(tmp_path / "in.gguf", "llama", "Q8_0")
    ids = torch.arange(24)[None]
    stack = layerwise.load(source)
    wanted = stack.logits("0 2 1", input_ids=ids)
    origin = save(source, "0 2 1", tmp_path / "folder")
    assert (origin.note, origin.gap, origin.weights.keys()) == ("a GGUF file is dequantized", 0.0, {"shell"})
    assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path / "folder")(ids).logits, wanted)
    assert AutoTokenizer.from_pretrained(tmp_path / "folder")("the").input_ids == stack.tokenizer("the").input_ids
    origin = save(source, "0 2 1", tmp_path / "out.gguf", prove=True)
    assert (origin.gap, origin.proof, origin.weights) == (0.0, "logits", {})
    monkeypatch.setattr(gguf_file, "planned_file", lambda file, order: planned_file(file, order[::-1]))
    with pytest.raises(UnsupportedModelError, match=r"the logits of the new file and of the plan are 1\.6"):
        save(source, "0 2 1", tmp_path / "wrong.gguf", prove=True)
    assert not (tmp_path / "wrong.gguf").exists()


@pytest.mark.parametrize(("name", "shape"), [("ffn_down_exps.weight", [64, 32, 2]), ("ssm_conv1d.weight", [64, 4])])
def test_tensors_without_a_standard_quantized_form_are_refused(name: str, shape: list[int], tmp_path: Path) -> None:
    made = spec(depth=2)
    headers = [*made.headers, Header(f"blk.1.{name}".encode(), shape, 0, 4 * prod(shape))]
    with pytest.raises(UnsupportedModelError, match=f"blk.1.{name} cannot be quantized to Q4_0: .*not standardized"):
        written(tmp_path, replace(made, headers=headers), "0 Q4_0:1")


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")  # the numbers are any bytes
def test_rows_that_are_no_whole_blocks_are_written_in_f16(tmp_path: Path) -> None:
    made = spec(depth=2)
    headers = [*made.headers, Header(b"blk.1.ffn_down.weight", [48, 4], 0, 4 * 48 * 4)]
    _, after = written(tmp_path, replace(made, headers=headers), "0 Q4_0:1")
    tensor = after.tensors["blk.1.ffn_down.weight"]
    assert (tensor.type.name, tensor.shape, tensor.size) == ("F16", (48, 4), 4 * 48 * 2)


COMMANDS: dict[str, tuple[tuple[str, ...], int | str]] = {
    "plan": (("in.gguf", "--plan", "0-2 5 5", "--output", "out.gguf"), 5),
    "no plan": (("in.gguf", "--output", "out.gguf"), DEPTH),
    "a type that changes nothing": (("in.gguf", "--plan", "0-2 Q4_0:5", "--output", "out.gguf"), 4),
    "a plan behind --from": (("in.gguf", "--from", "0-4 2-11", "--output", "out.gguf"), 15),
    "mergekit": (("--from", "merge.yml", "--output", "out.gguf"), 6),
    "card": (("in.gguf", "--plan", "0-2", "--card", "--output", "out.gguf"), 3),
    "a group": (("in.gguf", "--plan", "0 (1|2)", "--output", "out.gguf"), "has a group"),
    "another model": (("demo", "--plan", "0-2", "--output", "out.gguf"), "convert_hf_to_gguf.py"),
    "two models": (("in.gguf", "in.gguf", "--plan", "a:0 b:1", "--output", "out.gguf"), "exactly one GGUF model"),
    "an idle option": (("in.gguf", "--plan", "0", "--compact", "--output", "out.gguf"), "--compact has no effect"),
    "an absent file": (("no.gguf", "--plan", "0", "--output", "out.gguf"), "no.gguf does not exist"),
}
MERGEKIT = """
merge_method: passthrough
dtype: bfloat16
slices:
  - sources: [{model: in.gguf, layer_range: [0, 2]}]
  - sources: [{model: in.gguf, layer_range: [8, 12]}]
"""


COMMANDS_IN_ONE_PROCESS = """
import contextlib, io, json, os, sys
from layerwise.cli.app import main
for folder, arguments in json.loads(sys.argv[1]).items():
    os.chdir(folder)
    sys.argv = ["layerwise", "save", *arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    heavy = [name for name in ("torch", "transformers") if name in sys.modules]
    print(json.dumps([code, out.getvalue(), err.getvalue(), heavy]))
"""


def test_the_command_writes_a_file_or_says_why_not_without_torch(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in COMMANDS}
    for folder in folders.values():
        folder.mkdir()
        (folder / "in.gguf").write_bytes(spec("llama", Entry(b"general.license", STRING, text("mit"))).bytes())
        (folder / "merge.yml").write_text(MERGEKIT)
    asked = json.dumps({str(folders[name]): arguments for name, (arguments, _) in COMMANDS.items()})
    environment = {**os.environ, "PYTHONPATH": str(Path(layerwise.__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "-c", COMMANDS_IN_ONE_PROCESS, asked], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    for (name, (_, outcome)), line in zip(COMMANDS.items(), ran.stdout.splitlines(), strict=True):
        code, out, err, heavy = json.loads(line)
        file = folders[name] / "out.gguf"
        assert heavy == [], name
        if isinstance(outcome, int):
            assert code == 0, err
            assert depth_of(GGUFFile.open(file)) == outcome
            assert f"out.gguf: {outcome} layers" in out
        else:
            assert (code, file.exists()) == (2, False), name
            assert outcome in err
    card = (folders["card"] / "out.md").read_text()
    assert all(each in card for each in ("library_name: gguf", "license: mit", "    0-2", "out.gguf"))
