"""What scoring all of BLiMP with a small masked model takes, and how much the ways of saving save.

    python benchmarks/pseudo_likelihood.py BLIMP                  # the first 45 pairs of each of 67 paradigms: a minute
    python benchmarks/pseudo_likelihood.py BLIMP --each 1000      # all 67,000 pairs

`BLIMP` is a folder that holds BLiMP's files. The model is a random BERT of 6 layers and width 128 with a WordPiece
vocabulary of 8,192 learned from the sentences themselves: time does not depend on what the weights say. Compared, in
turns and on the same pairs: `ours`; `all logits`, the same without narrowing the head to the masked position; and `one
by one`, a forward pass for every masked token on a small sample, which is what the formula says literally. All three
must agree. The time of the whole set is extrapolated by pairs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import tokenizers
import torch
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from layerwise.data.suites.minimal_pairs import find_pairs
from layerwise.data.text.passages import Passage, encode
from layerwise.measure.language.pseudo_likelihood import SentenceScorer, log_likelihoods

WHOLE = 67_000
SAMPLE = 60
"""Sentences that are also scored one mask at a time."""


def tokenizer_of(texts: list[str], size: int) -> PreTrainedTokenizerBase:
    """A WordPiece tokenizer of `size` entries, wrapped as BERT's."""
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    made.train_from_iterator(texts, trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, mask_token="[MASK]", **names)


def model_of(vocabulary: int) -> BertForMaskedLM:
    """A random BERT of 6 layers and width 128, weights large enough that a wrong mask shows."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=344,
        max_position_embeddings=128,
        initializer_range=0.1,
    )
    return BertForMaskedLM(config).eval()


def one_by_one(speaker: SentenceScorer, passages: list[Passage]) -> np.ndarray:
    """The formula taken literally: one forward pass for each masked token."""
    mask = speaker.tokenizer.mask_token_id
    found = []
    with torch.inference_mode():
        for line in encode(speaker.tokenizer, passages, "masked_token"):
            total = 0.0
            for position in line.scored:
                ids = torch.tensor([line.ids])
                ids[0, position] = mask
                total += float(speaker.model(input_ids=ids).logits[0, position].log_softmax(-1)[line.ids[position]])
            found.append(total)
    return np.array(found)


def timed(work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Seconds, and what `work` gave."""
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def main() -> None:
    """Time the three ways and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("blimp", type=Path)
    parser.add_argument("--each", type=int, default=45, help="pairs of each paradigm")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = find_pairs("blimp", options.blimp).first(options.each).pairs
    passages = [Passage(text) for pair in pairs for text in (pair.good, pair.bad)]
    tokenizer = tokenizer_of([passage.text for passage in passages], 8192)
    model = model_of(len(tokenizer))
    ours = SentenceScorer.of(model, tokenizer)
    plain = replace(ours, body=None)
    scale = WHOLE / len(pairs)

    made = log_likelihoods(ours, passages)
    print(f"{len(pairs):,} pairs, {made.tokens:,} masked tokens, {made.copies:,} different copies")
    busy = time.process_time()
    seconds, _ = timed(lambda: log_likelihoods(ours, passages).values)
    busy = time.process_time() - busy
    print(
        f"ours         {seconds:8.1f} s   all of BLiMP in {seconds * scale / 60:6.1f} min, "
        f"{busy * scale / 60:.1f} core-minutes"
    )
    some = passages[:: max(1, len(passages) // 6000)]
    quick, few = timed(lambda: log_likelihoods(ours, some).values)
    slow, same = timed(lambda: log_likelihoods(plain, some).values)
    print(f"all logits   {slow / quick:8.2f} x ours   largest difference {np.abs(few - same).max():.1e} nats")
    sample = passages[:: max(1, len(passages) // SAMPLE)]
    seconds, literal = timed(lambda: one_by_one(ours, sample))
    quick, few = timed(lambda: log_likelihoods(ours, sample).values)
    difference = np.abs(few - literal).max()
    print(
        f"one by one   {seconds / len(sample) * len(passages) * scale / 60:8.1f} min for all of BLiMP   "
        f"largest difference {difference:.1e} nats of {np.abs(literal).mean():.0f}"
    )


if __name__ == "__main__":
    main()
