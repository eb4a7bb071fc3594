"""Small models with random weights as GGUF files, written with the package gguf."""

from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HEADS, GROUPS, INNER, VOCABULARY, POSITIONS = 64, 4, 2, 96, 128, 256
"""Blocks of 32 numbers divide the width, and queries are grouped."""


def write_llama(path: Path, depth: int, *, kind: str = "F32", tied: bool = True, seed: int = 0) -> Path:
    writer = _writer(path, "llama", depth, VOCABULARY)
    writer.add_tokenizer_model("none")
    draw = np.random.default_rng(seed)
    keys = WIDTH // HEADS * GROUPS
    matrices = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (keys, WIDTH),
        "attn_v": (keys, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (INNER, WIDTH),
        "ffn_up": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
    }
    _add(writer, "token_embd", 0.2 * draw.standard_normal((VOCABULARY, WIDTH)), kind)
    for layer in range(depth):
        for name in ("attn_norm", "ffn_norm"):
            _add(writer, f"blk.{layer}.{name}", 1 + 0.2 * draw.standard_normal(WIDTH), "F32")
        for name, shape in matrices.items():
            _add(writer, f"blk.{layer}.{name}", draw.standard_normal(shape) / shape[1] ** 0.5, kind)
    _add(writer, "output_norm", 1 + 0.2 * draw.standard_normal(WIDTH), "F32")
    if not tied:
        _add(writer, "output", draw.standard_normal((VOCABULARY, WIDTH)) / WIDTH**0.5, kind)
    _written(writer).close()
    return path


def _writer(path: Path, architecture: str, depth: int, vocabulary: int) -> Any:
    import gguf

    writer: Any = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(depth)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS if architecture in ("gpt2", "falcon") else GROUPS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(vocabulary)
    return writer


def _written(writer: Any) -> Any:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    return writer


def _add(writer: Any, name: str, values: Any, kind: str) -> None:
    import gguf

    chosen = gguf.GGMLQuantizationType[kind]
    stored = gguf.quants.quantize(values.astype(np.float32), chosen)
    writer.add_tensor(f"{name}.weight", stored, raw_dtype=chosen)


CAUSAL = ("llama", "qwen2", "qwen3", "phi3", "gpt2", "starcoder2", "stablelm", "gemma2", "gemma3", "falcon", "nemotron")

TEMPLATE = "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"


def write_causal(path: Path, architecture: str, kind: str, depth: int = 3) -> Path:
    """Write a decoder of `CAUSAL`; the tensors and shapes are those transformers makes from the metadata."""
    import gguf
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    _causal_writer(path, architecture, depth, []).close()
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    names = gguf.get_tensor_name_map(
        next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture), depth
    )
    draw = np.random.default_rng(len(architecture))
    tensors, seen = [], set()
    for name, parameter in model.named_parameters():
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if stored is None or stored in seen or (config.tie_word_embeddings and stored == "output.weight"):
            continue
        seen.add(stored)
        shape = tuple(parameter.shape)
        if architecture == "gpt2" and "h." in name and len(shape) == 2:
            shape = shape[::-1]  # whose matrices transformers keeps the other way round
        values = (
            draw.standard_normal(shape) / shape[-1] ** 0.5 if len(shape) > 1 else 1 + 0.1 * draw.standard_normal(shape)
        )
        tensors.append((stored, values, kind if len(shape) > 1 and shape[-1] % 32 == 0 else "F32"))
    _causal_writer(path, architecture, depth, tensors).close()
    return path


def _causal_writer(path: Path, architecture: str, depth: int, tensors: list[tuple[str, Any, str]]) -> Any:
    import gguf
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = ["<s>", "</s>", *sorted(ByteLevel.alphabet()), "th", "he"]
    writer = _writer(path, architecture, depth, len(tokens))
    writer.add_layer_norm_eps(1e-5)
    writer.add_sliding_window(16)
    writer.add_key_length(WIDTH // HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges(["t h", "h e"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(1)
    writer.add_chat_template(TEMPLATE)
    for name, values, kind in tensors:
        chosen = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(values.astype(np.float32), chosen), raw_dtype=chosen)
    return _written(writer)
