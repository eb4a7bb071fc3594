"""What a plan loses of a model's own similarities of sentences.

The model as trained says how alike two sentences are: the cosine of their embeddings. A plan keeps that as far as it
ranks the pairs of a set of sentences alike, by Spearman's correlation, as benchmarks of semantic textual similarity
have it, with the whole model in the place of people. With z and w the standardised ranks of the pairs of n sentences
under the plan and as trained,

    loss_i = mean over j of (z_ij - w_ij)^2 / 2        mean over i of loss_i = 1 - rho

0 for the whole model, and 1 on average for similarities that have nothing to do with its own, or are all the same. A
sentence is a hit where its nearest neighbour in the set is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from layerwise.data.batches import LabelledBatch, padded
from layerwise.data.splits import SPLITS, Example, Examples, Splits, digest
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document, joined
from layerwise.data.text.sentence_sets import SIZE, sentence_windows
from layerwise.data.text.tokens import Window
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.statistics import Numbers
from layerwise.stack import Stack
from layerwise.stack.inputs import accepted, evaluating, main_tensor


def pooled(stack: Stack, output: object, inputs: Mapping[str, Tensor]) -> Tensor:
    """The embeddings (batch, width) of what the model returned."""
    assert stack.pooling is not None, "who asks for embeddings has a model that makes them"
    return stack.pooling(main_tensor(output), inputs["attention_mask"])


def embeddings(stack: Stack, inputs: Mapping[str, Tensor]) -> Tensor:
    """The embeddings (batch, width) of texts under whatever plan the model runs in place."""
    return pooled(stack, stack.model(**accepted(stack.model, inputs)), inputs)


def similarity_losses(own: Tensor, trained: Tensor) -> tuple[Numbers, Numbers]:
    """The loss and the hit of every sentence, (sentences,) each, in sets of `SIZE`: its embeddings (sentences, width)
    under a plan, and as trained. A loss that is not finite comes back as it is.

    >>> same = torch.eye(3) + torch.tensor([[0.0, 0.5, 0.1], [0.5, 0.0, 0.2], [0.1, 0.2, 0.0]])
    >>> [values.tolist() for values in similarity_losses(same, same)]
    [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """
    sets = [slice(start, start + SIZE) for start in range(0, len(own), SIZE)]
    parts = [_of_set(_cosines(own[one]), _cosines(trained[one])) for one in sets]
    return np.concatenate([losses for losses, _ in parts]), np.concatenate([hits for _, hits in parts])


def _of_set(own: Numbers, trained: Numbers) -> tuple[Numbers, Numbers]:
    count = len(own)
    upper = np.triu_indices(count, 1)
    first, second = (_standardised(each[upper]) for each in (own, trained))
    squares = np.zeros_like(own)
    squares[upper] = 2.0 if first is None or second is None else (first - second) ** 2
    losses = (squares + squares.T).sum(axis=1) / 2 / max(1, count - 1)
    nearest = [np.argmax(each - 3 * np.eye(count), axis=1) for each in (own, trained)]
    return losses, (nearest[0] == nearest[1]).astype(np.float64)


def _cosines(vectors: Tensor) -> Numbers:
    unit = torch.nn.functional.normalize(exact_on_cpu(vectors), dim=-1)
    return np.round((unit @ unit.T).numpy(), 12)  # equal vectors are equally alike


def _standardised(values: Numbers) -> Numbers | None:
    """The ranks of the values with mean 0 and variance 1; `None` where all are the same."""
    ranks = rankdata(values) if values.size else values
    spread = ranks.std() if values.size else 0.0
    return None if spread == 0 else (ranks - ranks.mean()) / spread


def similarity_batches(stack: Stack, windows: Sequence[Window]) -> tuple[LabelledBatch, ...]:
    """Each set of sentences as a batch whose targets (sentences, width) are the embeddings of the model as trained."""
    made, pad = [], getattr(stack.tokenizer, "pad_token_id", None)
    with evaluating(stack.model), torch.no_grad():
        for start in range(0, len(windows), SIZE):
            chosen = tuple(windows[start : start + SIZE])
            rows = [{"input_ids": torch.tensor(window.ids)} for window in chosen]
            inputs = padded(rows, pad if isinstance(pad, int) else 0)
            targets = embeddings(stack, {name: value.to(stack.device) for name, value in inputs.items()})
            made.append(LabelledBatch(inputs, targets.cpu(), chosen))
    return tuple(made)


class EmbeddedSentences(Examples):
    """The sentences of `windows`, each labelled with its embedding (width,) by the model as trained."""

    def __init__(self, stack: Stack, windows: Sequence[Window]) -> None:
        self.windows = tuple(windows)
        self._labels = torch.cat([batch.targets for batch in similarity_batches(stack, windows)])

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Example:
        return {"input_ids": torch.tensor(self.windows[index].ids), "labels": self._labels[index]}


def embedded_splits(stack: Stack, name: str, parts: Mapping[str, Sequence[Document]], length: int, seed: int) -> Splits:
    """Documents that are divided already, `parts` by the names in `SPLITS`, as sentences with their embeddings."""
    assert stack.pooling is not None, "who embeds sentences pools states"
    stack.pooling.check(stack.source.name)
    assert stack.tokenizer is not None, "texts are read by a tokenizer"
    read = {
        split: sentence_windows(Corpus(name, joined(documents)), stack.tokenizer, length, None, seed)
        for split, documents in parts.items()
    }
    rows = ((split, window.task, repr(window.ids).encode()) for split, windows in read.items() for window in windows)
    train, validation, test = (EmbeddedSentences(stack, read[split]) for split in SPLITS)
    pad = getattr(stack.tokenizer, "pad_token_id", None)
    return Splits(name, digest(rows), train, validation, test, pad_id=pad if isinstance(pad, int) else 0)
