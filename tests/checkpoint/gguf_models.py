"""Small models with random weights as GGUF files, written with the package gguf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HEADS, GROUPS, INNER, VOCABULARY, POSITIONS = 64, 4, 2, 96, 128, 256
"""Of every model: a width that blocks of 32 numbers divide, and grouped queries."""


def write_llama(path: Path, depth: int, *, kind: str = "F32", tied: bool = True, seed: int = 0) -> Path:
    """A Llama whose matrices are stored as `kind`, with weights so large that the order of its layers matters."""
    import gguf

    writer: Any = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(depth)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("none")
    draw = np.random.default_rng(seed)
    keys = WIDTH // HEADS * GROUPS
    matrices = {
        "attn_q": (WIDTH, WIDTH), "attn_k": (keys, WIDTH), "attn_v": (keys, WIDTH), "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER),
    }  # fmt: skip
    _add(writer, "token_embd", 0.2 * draw.standard_normal((VOCABULARY, WIDTH)), kind)
    for layer in range(depth):
        for name in ("attn_norm", "ffn_norm"):
            _add(writer, f"blk.{layer}.{name}", 1 + 0.2 * draw.standard_normal(WIDTH), "F32")
        for name, shape in matrices.items():
            _add(writer, f"blk.{layer}.{name}", draw.standard_normal(shape) / shape[1] ** 0.5, kind)
    _add(writer, "output_norm", 1 + 0.2 * draw.standard_normal(WIDTH), "F32")
    if not tied:
        _add(writer, "output", draw.standard_normal((VOCABULARY, WIDTH)) / WIDTH**0.5, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: Any, name: str, values: Any, kind: str) -> None:
    """Add a tensor; those of one dimension are stored as they are."""
    import gguf

    chosen = gguf.GGMLQuantizationType[kind]
    stored = gguf.quants.quantize(values.astype(np.float32), chosen)
    writer.add_tensor(f"{name}.weight", stored, raw_dtype=chosen)
