"""What is lost of similarities, beside scipy's rank correlation of embeddings made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from transformers import AutoModel, AutoTokenizer

from layerwise.data.text.corpus import read_corpus
from layerwise.data.text.sentence_sets import SIZE
from layerwise.errors import MeasureError
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.measure.language.sentence_similarity import similarity_losses
from layerwise.measure.stats.statistics import Numbers
from layerwise.stack import Stack, load
from sentence_models import save_sentence_model, save_sentences

UPPER = np.triu_indices(SIZE, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_sentence_model(tmp_path_factory.mktemp("sentences") / "model")


@pytest.fixture(scope="module")
def stack(folder: Path) -> Stack:
    return load(folder)


@pytest.fixture(scope="module")
def text(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> EvalData:
    return tokenize(stack, read_corpus(save_sentences(tmp_path_factory.mktemp("texts") / "text.txt")))


def drawn(seed: int, count: int = SIZE) -> torch.Tensor:
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))


def cosines(vectors: torch.Tensor) -> Numbers:
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    return (unit @ unit.T).numpy()


def test_the_mean_loss_of_a_set_is_one_less_the_rank_correlation_of_its_pairs() -> None:
    own, trained = drawn(0), drawn(0) + drawn(1)
    losses, hits = similarity_losses(torch.cat([own, own]), torch.cat([trained, own]))
    rho = spearmanr(cosines(own)[UPPER], cosines(trained)[UPPER]).statistic
    assert losses[:SIZE].mean() == pytest.approx(1 - rho)
    assert not losses[SIZE:].any()
    assert hits[SIZE:].all()
    assert not hits[:SIZE].all()


def test_unrelated_similarities_lose_about_one_and_equal_ones_exactly_one() -> None:
    losses = [similarity_losses(drawn(seed), drawn(1_000 + seed))[0].mean() for seed in range(40)]
    assert np.mean(losses) == pytest.approx(1.0, abs=4 * np.std(losses) / np.sqrt(len(losses)))
    assert similarity_losses(torch.ones(SIZE, 8), drawn(0))[0].tolist() == [1.0] * SIZE


def test_a_sweep_compares_the_embeddings_of_a_plan_with_those_of_the_model(
    folder: Path, stack: Stack, text: EvalData
) -> None:
    """By transformers alone, a sentence at a time, the layers taken out of its own list."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    blocks = model.encoder.layer

    def embedded(layers: list[int], ids: tuple[int, ...]) -> torch.Tensor:
        model.encoder.layer = torch.nn.ModuleList([blocks[layer] for layer in layers])
        with torch.no_grad():
            return model(input_ids=torch.tensor([ids])).last_hidden_state.mean(dim=1)[0]

    rows = sweep(stack, ["0 3"], text)
    first = text.batches[0].windows
    assert tokenizer.decode(first[0].ids).startswith("[CLS] ")
    by_hand = [torch.stack([embedded(layers, window.ids) for window in first]) for layers in ([0, 3], [0, 1, 2, 3])]
    expected = 1 - spearmanr(*(cosines(each)[UPPER] for each in by_hand)).statistic
    chosen = {window.index for window in first}
    losses = [
        row.nll
        for row in rows
        if row.plan == "0 3" and (row.document, row.window) in {(first[0].document, index) for index in chosen}
    ]
    assert np.mean(losses) == pytest.approx(expected, abs=1e-4)
    assert all(row.nll == 0 for row in rows if row.plan == "0-3")


def test_a_model_of_other_embeddings_is_refused(tmp_path: Path) -> None:
    other = load(save_sentence_model(tmp_path / "other", pooling="max_tokens"))
    with pytest.raises(MeasureError, match="pooling by max"):
        tokenize(other, read_corpus(save_sentences(tmp_path / "text.txt")))
