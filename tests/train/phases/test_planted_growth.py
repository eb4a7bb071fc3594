"""Growth by importance, with a planted block that always adds zero.

A letter follows from the two before it nine times in ten.
"""

import random
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from layerwise.data.splits import Splits
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.division import divide_documents
from layerwise.data.text.documents import Document
from layerwise.data.text.language_modeling import build_text_splits
from layerwise.measure.cost.flops import model_cost
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.interventions.importance import estimate_importance
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.measure.stats.seeds import seed_difference
from layerwise.plan import Plan
from layerwise.plan.schedule import GrowthSchedule, preset, share_of_uniform
from layerwise.plan.schedule.allocation import Importance, allocation
from layerwise.results.training_record import MODEL
from layerwise.stack import Stack, load
from layerwise.train.recipe import GrowthExtension, Settings, grown
from layerwise.train.training import Base, train
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH, PLANTED = 3, 1
SEEDS = (0, 1, 2)
PILOT = 1_000
STEPS = 200
LETTERS = "abcdefghijklmnop"
DOCUMENTS, LENGTH = 8_192, 16
SETTINGS = Settings(batch_size=32, learning_rate=4e-3, schedule="cosine", warmup=0.05, evals=1)
QUIET = {"use_cpu": True, "save_strategy": "no", "eval_strategy": "no"}

MARGIN = 0.005
"""Tolerance in nats/token; the control must lose ten times as much."""


def planted() -> Stack:
    config = LlamaConfig(
        vocab_size=3 + len(ALPHABET),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=DEPTH,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.3,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config)
    for weight in _outputs(model):
        torch.nn.init.zeros_(weight)
        weight.requires_grad_(False)
    return load(model, tokenizer=character_tokenizer())


def _outputs(model: LlamaForCausalLM) -> list[torch.nn.Parameter]:
    block = model.model.layers[PLANTED]
    return [block.self_attn.o_proj.weight, block.mlp.down_proj.weight]


@cache
def corpus() -> Corpus:
    chance = random.Random(0)
    table = {(one, two): chance.choice(LETTERS) for one in LETTERS for two in LETTERS}
    texts = []
    for _ in range(DOCUMENTS):
        text = chance.choices(LETTERS, k=2)
        while len(text) < LENGTH:
            text.append(chance.choice(LETTERS) if chance.random() < 0.1 else table[text[-2], text[-1]])
        texts.append("".join(text))
    return Corpus("rule", tuple(Document(str(number), text) for number, text in enumerate(texts)))


@pytest.fixture(scope="module")
def splits() -> Splits:
    return build_text_splits(character_tokenizer(), divide_documents(corpus()), length=1 + LENGTH)


def trained(schedule: GrowthSchedule, splits: Splits, seed: int, folder: Path) -> tuple[Stack, float]:
    growth = GrowthExtension(schedule, STEPS, model_cost(planted(), LENGTH))
    path = folder / schedule.name / f"seed-{seed}"
    train(Base(planted, "planted"), splits, grown(SETTINGS, growth), seed, path, arguments=QUIET)
    stack = load(str(path / MODEL))
    assert not any(weight.any() for weight in _outputs(stack.model)), "the planted block has learned something"
    return stack, evaluate(stack, Plan.identity(DEPTH), splits.test, splits.collate).mean_nll


@pytest.fixture(scope="module")
def importance(splits: Splits, tmp_path_factory: pytest.TempPathFactory) -> tuple[Importance, ...]:
    stack, _ = trained(preset("uniform", DEPTH), splits, PILOT, tmp_path_factory.mktemp("pilot"))
    unseen = {window.document for window in splits.validation.windows}  # type: ignore[attr-defined]
    text = Corpus("unseen", tuple(each for each in corpus().documents if each.id in unseen))
    return estimate_importance(stack, tokenize(stack, text))


@pytest.mark.slow
def test_a_block_without_a_benefit_gets_no_budget(importance: tuple[Importance, ...]) -> None:
    assert importance[PLANTED] == Importance(0.0, 0.0, 0.0)
    found = allocation(importance)
    assert [layer for layer, parts in enumerate(found.parts) if not parts] == [PLANTED]
    assert all(PLANTED not in phase.trains for phase in found.schedule().phases)


@pytest.mark.nightly  # nine trainings; that the block gets no budget is asked of the slow tier
def test_growth_loses_nothing_where_the_control_does(
    importance: tuple[Importance, ...], splits: Splits, tmp_path: Path
) -> None:
    uniform = preset("uniform", DEPTH)
    found = allocation(importance)
    schedule = replace(found, parts=tuple(found.phases if parts else 0 for parts in found.parts)).schedule()
    # Control: the block that can learn nothing and the most important one exchange roles.
    roles = list(range(DEPTH))
    most = max(range(DEPTH), key=lambda layer: importance[layer].value)
    roles[PLANTED], roles[most] = most, PLANTED
    control = replace(schedule.permuted(roles), name="permuted")

    variants = (uniform, schedule, control)
    of = partial(trained, splits=splits, folder=tmp_path)
    losses = {variant.name: {seed: of(variant, seed=seed)[1] for seed in SEEDS} for variant in variants}
    kept, lost = (seed_difference(losses[variant.name], losses["uniform"]) for variant in (schedule, control))
    assert kept.high < MARGIN, losses
    assert lost.low > 10 * MARGIN, losses
    # And it is cheaper, by a third of what the block costs.
    cost = model_cost(planted(), LENGTH)
    saved = cost.layers[PLANTED] / (3 * cost.total)
    assert share_of_uniform(schedule, cost) == pytest.approx(1 - saved)
