"""LAMB, batches and learning rates of pretraining."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from layerwise.errors import TrainError
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.train.pretrain.curriculum import Batches, CurriculumPhase, rate_at
from layerwise.train.pretrain.lamb import Lamb, is_plain

Array = NDArray[np.float64]


def small(variant: str) -> ElcForMaskedLM:
    return ElcForMaskedLM(ElcConfig.of_size("tiny", variant=variant, vocab_size=64, num_hidden_layers=2))


MATRICES = {f"attention.{name}.weight" for name in ("query_key", "value", "projection")}
MATRICES |= {f"feed_forward.{name}.weight" for name in ("up", "down")}


@pytest.mark.parametrize("variant", ["ltg", "elc", "weighted-output", "denseformer"])
def test_only_matrices_have_weight_decay(variant: str) -> None:
    model = small(variant)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, plain = optimizer(dict(model.named_parameters())).param_groups
    assert {names[id(parameter)] for parameter in decaying["params"]} == {
        "head.dense.weight",
        *(f"encoder.layers.{layer}.{name}" for layer in range(2) for name in MATRICES),
    }
    assert (decaying["weight_decay"], decaying["trust_ratio"]) == (0.4, True)
    assert (plain["weight_decay"], plain["trust_ratio"]) == (0.0, False)
    assert len(decaying["params"]) + len(plain["params"]) == len(names)


def test_frozen_weights_are_in_no_group() -> None:
    model = small("elc")
    model.encoder.layers[0].requires_grad_(False)
    count = sum(len(group["params"]) for group in optimizer(dict(model.named_parameters())).param_groups)
    assert count == sum(parameter.requires_grad for parameter in model.parameters())


SHAPES = {
    "wide.weight": ((4, 40), 1.0),
    "square.weight": ((16, 16), 0.02),
    "heavy.weight": ((32, 8), 25.0),  # a norm of 400
    "stacked.weight": ((3, 5, 7), 3.0),
    "nought.weight": ((6, 6), 0.0),
    "wide.bias": ((40,), 1.0),
    "norm.weight": ((16,), 30.0),
    "embedding.words.weight": ((20, 8), 1.0),
    "layer_weights.scalars": ((4,), 0.0),
}
"""Tensors of the encoder, with the scale of their values."""

RATE, DECAY, EPSILON, BETAS = 0.01, 0.4, 1e-6, (0.9, 0.98)


def published(values: Array, gradients: Sequence[Array], *, rates: Sequence[float], plain: bool) -> list[Array]:
    """Values after each step of You et al. 2020, algorithm 2, with phi = identity; plain tensors follow Adam."""
    first_moment, second_moment = np.zeros_like(values), np.zeros_like(values)
    found = []
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        first_moment = BETAS[0] * first_moment + (1 - BETAS[0]) * gradient
        second_moment = BETAS[1] * second_moment + (1 - BETAS[1]) * gradient**2
        corrected = first_moment / (1 - BETAS[0] ** step), second_moment / (1 - BETAS[1] ** step)
        ratio = corrected[0] / (np.sqrt(corrected[1]) + EPSILON)
        if plain:
            values = values - rate * ratio
        else:
            update = ratio + DECAY * values
            norm, of_update = np.sqrt((values**2).sum()), np.sqrt((update**2).sum())
            values = values - rate * (norm / of_update if norm > 0 and of_update > 0 else 1.0) * update
        found.append(values)
    return found


def optimizer(named: Mapping[str, nn.Parameter]) -> Lamb:
    return Lamb(named.items(), learning_rate=RATE, betas=BETAS, epsilon=EPSILON, weight_decay=DECAY)


def drawn(dtype: torch.dtype, steps: int) -> tuple[dict[str, nn.Parameter], dict[str, list[Array]]]:
    random = np.random.default_rng(0)
    named, gradients = {}, {}
    for name, (shape, size) in SHAPES.items():
        named[name] = nn.Parameter(torch.from_numpy(size * random.standard_normal(shape)).to(dtype))
        scales = 10.0 ** random.uniform(-5, 2, steps)
        gradients[name] = [scale * random.standard_normal(shape) for scale in scales]
        for gradient in gradients[name]:
            gradient[0] = 0.0
    return named, gradients


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_updates_match_the_published_algorithm(dtype: torch.dtype) -> None:
    """Compared with float64 numpy, within rounding errors."""
    rounding = torch.finfo(dtype).eps
    steps = 12
    named, gradients = drawn(dtype, steps)
    rates = [RATE * (step + 1) / steps for step in range(steps)]
    own = optimizer(named)
    start = {name: parameter.detach().double().numpy().copy() for name, parameter in named.items()}
    expected = {name: published(start[name], gradients[name], rates=rates, plain=is_plain(name)) for name in SHAPES}
    for step, rate in enumerate(rates):
        for group in own.param_groups:
            group["lr"] = rate
        for name, parameter in named.items():
            parameter.grad = torch.from_numpy(gradients[name][step]).to(dtype)
        own.step()
        for name, parameter in named.items():
            before = expected[name][step - 1] if step else start[name]
            wanted = expected[name][step] - before
            missed = parameter.detach().double().numpy() - expected[name][step]
            allowed = rounding * (40 * np.linalg.norm(wanted) + (step + 1) * np.linalg.norm(before))
            assert np.linalg.norm(missed) <= allowed, (name, step)
            assert np.linalg.norm(missed) < 0.01 * np.linalg.norm(wanted), (name, step)


def test_tensors_without_a_gradient_are_unchanged() -> None:
    named, gradients = drawn(torch.float64, 3)
    late = "wide.weight"
    start = named[late].detach().clone()
    own = optimizer(named)
    for step in range(3):
        for name, parameter in named.items():
            parameter.grad = None if name == late and step < 2 else torch.from_numpy(gradients[name][step])
        own.step()
    (expected,) = published(start.numpy(), gradients[late][2:], rates=[RATE], plain=False)
    np.testing.assert_allclose(named[late].detach().numpy(), expected, rtol=1e-12)


SHORT, LONG = CurriculumPhase(128, 8, 0, 9, segments=20), CurriculumPhase(512, 2, 9, 10, segments=5)


def test_length_and_batch_size_change_at_the_given_step_if_they_fit() -> None:
    found = [
        (len(batch), {draw.length for draw in batch}, {draw.step for draw in batch})
        for batch in Batches((SHORT, LONG), seed=0)
    ]
    assert found == [*((8, {128}, {step}) for step in range(9)), (2, {512}, {9})]
    assert len(Batches((SHORT, LONG), seed=0)) == 10
    assert list(Batches((SHORT,), seed=0)) != list(Batches((SHORT,), seed=1))

    with pytest.raises(TrainError, match=r"must be at most 5, because .* segments of up to 128 tokens, got 8"):
        CurriculumPhase(128, 8, 0, 9, segments=5)
    with pytest.raises(TrainError, match="got 2 segments of length 512"):
        Batches((SHORT, LONG), seed=0, passes=4)


@given(st.integers(1, 30), st.integers(0, 5))
def test_every_segment_is_read_once_per_epoch(segments: int, seed: int) -> None:
    batch = min(4, segments)
    phase = CurriculumPhase(128, batch, 0, 3 * segments, segments)
    read = [draw.segment for step in Batches((phase,), seed) for draw in step]
    rounds = [read[start : start + segments] for start in range(0, len(read) - segments + 1, segments)]
    assert len(rounds) == 3 * batch
    assert all(sorted(each) == list(range(segments)) for each in rounds)
    assert segments < 8 or rounds[0] != rounds[1]


@pytest.mark.parametrize(("passes", "processes"), [(1, 2), (2, 1), (2, 2), (4, 2)])
def test_batches_are_independent_of_passes_and_processes(passes: int, processes: int) -> None:
    phase = CurriculumPhase(128, 8, 0, 5, segments=20)
    whole = [Counter(batch) for batch in Batches((phase,), seed=1)]
    shares = [
        list(Batches((phase,), seed=1, passes=passes, processes=processes, process=process))
        for process in range(processes)
    ]
    for step, expected in enumerate(whole):
        pieces = [piece for share in shares for piece in share[step * passes : (step + 1) * passes]]
        assert {len(piece) for piece in pieces} == {8 // (passes * processes)}
        assert Counter(draw for piece in pieces for draw in piece) == expected


def test_linear_warmup_and_cosine_decay() -> None:
    rates = [rate_at(step, steps=1_000, warmup=16, floor=0.1) for step in range(1_000)]
    assert rates[:16] == pytest.approx([(step + 1) / 16 for step in range(16)])
    assert rates[16] == max(rates) == 1.0
    assert rates[508] == pytest.approx(0.55)  # half-way down
    assert rates[-1] == pytest.approx(0.1, abs=1e-5)
    assert all(later < earlier for earlier, later in pairwise(rates[16:]))
    assert rate_at(0, steps=10, warmup=0, floor=0.1) == 1.0, "without a warm-up it begins at its highest"
