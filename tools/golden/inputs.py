"""The texts and small models that the commands of golden runs read: `input NAME` in a command file.

Each input is written to a directory with its name, and is the same on every call.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, ViTConfig, ViTForImageClassification

from layerwise.data.text.vocabulary import train_bytepair

SENTENCES = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")
VOCABULARY = 280
DEPTH = 4
IMAGE_DEPTH = 3


def make_input(name: str, folder: Path) -> None:
    """Write the input `name` into `folder`. Raises `ValueError` for an unknown name."""
    if name not in INPUTS:
        raise ValueError(f"unknown input {name!r}; known: {', '.join(INPUTS)}")
    place = folder / name
    place.mkdir()
    INPUTS[name](place)


def words(folder: Path) -> None:
    """Write forty documents of at least twenty lines, in one file."""
    documents = ("\n".join(SENTENCES[(n + k) % 4] for k in range(20 + n)) for n in range(40))
    (folder / "words.txt").write_text("\n<|endoftext|>\n".join(documents) + "\n")


def grammar(folder: Path) -> None:
    """Write forty documents of sentences like the generated pairs, so that the words become single tokens."""
    shutil.copyfile(Path(__file__).with_name("grammar.txt"), folder / "grammar.txt")


def llama_config(folder: Path) -> None:
    """Write the config of a four-layer Llama, without weights and tokenizer."""
    _llama().save_pretrained(folder)


def llama(folder: Path) -> None:
    """Write the Llama of `llama_config` with random weights and a tokenizer."""
    torch.manual_seed(0)
    LlamaForCausalLM(_llama()).save_pretrained(folder)
    train_bytepair([" ".join(SENTENCES)] * 4, VOCABULARY).save_pretrained(folder)


def vit(folder: Path) -> None:
    """Write a vision transformer for gray images of 8 x 8 pixels with random weights."""
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=8,
        patch_size=4,
        num_channels=1,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=IMAGE_DEPTH,
        num_attention_heads=2,
        num_labels=10,
        initializer_range=0.2,
    )
    ViTForImageClassification(config).save_pretrained(folder)


def glue(folder: Path) -> None:
    """Write two tasks in the format of BabyLM. The label tells whether a text contains a cat."""
    columns = {"cola": ("sentence",), "rte": ("sentence1", "sentence2")}
    for task, names in columns.items():
        for part, numbers in (("train", range(48)), ("valid", range(100, 116))):
            rows = [
                {**{name: f"{'cat' if n % 2 else 'dog'} {n} {name}" for name in names}, "idx": n, "label": n % 2}
                for n in numbers
            ]
            (folder / f"{task}.{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


INPUTS = {"words": words, "grammar": grammar, "llama_config": llama_config, "llama": llama, "vit": vit, "glue": glue}


def _llama() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=DEPTH,
        num_attention_heads=2,
        max_position_embeddings=64,
        use_cache=True,
        initializer_range=0.3,
    )
