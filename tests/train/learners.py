"""A tiny BERT in a folder, and tasks with planted answers, for tests of fine-tuning."""

from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from layerwise.data.suites.classification import ClassificationTask, LabeledText
from tiny_tokenizers import word_tokenizer

WORDS = [f"w{number}" for number in range(20)]


def tiny_bert(folder: Path, words: list[str] = WORDS, seed: int = 0, **changes: Any) -> Path:
    torch.manual_seed(seed)
    tokenizer = word_tokenizer(words)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    more = {"vocab_size": len(tokenizer), "max_position_embeddings": 64, "initializer_range": 0.2}
    BertForMaskedLM(BertConfig(**{**sizes, **dropout, **more, **changes})).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def planted(count: int = 240, *, random_labels: bool = False, metric: str = "mcc", seed: int = 0) -> ClassificationTask:
    random = Random(seed)
    rows: dict[str, LabeledText] = {}
    while len(rows) < count:
        label = len(rows) % 2
        words = random.choices(WORDS[1:], k=6)
        if label:
            words[random.randrange(6)] = WORDS[0]
        text = " ".join(words)
        rows[text] = LabeledText(text, None, random.randrange(2) if random_labels else label)
    examples = tuple(rows.values())
    cuts = (count // 2, 3 * count // 4)
    return ClassificationTask(
        "glue",
        "planted",
        ("without", "with"),
        metric,
        examples[: cuts[0]],
        examples[cuts[0] : cuts[1]],
        examples[cuts[1] :],
        also=("accuracy",),
    )
