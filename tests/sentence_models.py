"""A tiny model of sentence-transformers with random weights, and a text of sentences for it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from tiny_tokenizers import word_tokenizer

WORDS = ("fox", "dog", "cat", "sees", "likes", "hears", "red", "old", "small", "and", "runs", "home", "far", "now")
MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}


def save_sentence_model(folder: Path, layers: int = 4, pooling: str = "mean_tokens") -> Path:
    """An encoder that pools its last states, in the files of sentence-transformers."""
    tokenizer = word_tokenizer([*WORDS, *(f"{word}." for word in WORDS)])
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertModel(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(MODULES.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 16}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": "cosine"}))
    (folder / "1_Pooling").mkdir()
    flags = dict.fromkeys(("cls_token", "mean_tokens", "max_tokens", "lasttoken"), False) | {pooling: True}
    settings = {"word_embedding_dimension": 16, **{f"pooling_mode_{name}": value for name, value in flags.items()}}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    return folder


def save_sentences(file: Path, documents: int = 60, each: int = 12) -> Path:
    """Documents of sentences, every sentence a few random words that begin with a capital."""
    draw = random.Random(0)

    def sentence() -> str:
        return f"A {' '.join(draw.choices(WORDS, k=draw.randint(4, 9)))} {draw.choice(WORDS)}."

    texts = [" ".join(sentence() for _ in range(each)) for _ in range(documents)]
    file.write_text("\n<|endoftext|>\n".join(texts) + "\n")
    return file
