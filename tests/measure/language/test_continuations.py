import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertForMaskedLM

from conftest import tiny_llama
from layerwise.errors import MeasureError
from layerwise.measure.language.continuations import continue_prompts, encode_prompt
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from stack.random_plans import plans
from tier import by_tier
from tiny_tokenizers import ALPHABET, character_tokenizer, word_tokenizer

DEPTH = 4
NEW = 6
STACK: list[Stack] = []


def stack() -> Stack:
    if not STACK:
        STACK.append(load(tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer()))
    return STACK[0]


def recomputed(plan: Plan, prompt: str) -> list[int]:
    ids = stack().tokenizer(prompt, return_tensors="pt")["input_ids"]
    written: list[int] = []
    while len(written) < NEW and 2 not in written:
        with torch.inference_mode():
            logits = stack().logits(plan, input_ids=ids)
        written.append(int(logits[0, -1].argmax()))
        ids = torch.cat([ids, ids.new_tensor([written[-1:]])], dim=1)
    return written


@pytest.mark.slow
@example(Plan.parse("[0.mlp [0.attn]*2]"), "0")
@given(plans(DEPTH), st.text(ALPHABET, min_size=1, max_size=12))
@settings(max_examples=by_tier(fast=3, nightly=40), deadline=None)
def test_continuations_match_recomputation(plan: Plan, prompt: str) -> None:
    stack().check(plan)
    (found,) = continue_prompts(stack(), [plan], [prompt], NEW)
    written, trained = recomputed(plan, prompt), recomputed(Plan.identity(DEPTH), prompt)
    assert found.tokens == len(written)
    assert found.same == sum(ours == theirs for ours, theirs in zip(written, trained, strict=False))
    assert found.text == stack().tokenizer.decode(written, skip_special_tokens=True)


def test_finished_prompts_are_not_continued_again() -> None:
    wanted = [Plan.identity(DEPTH), Plan.parse("0 2 1 3")]
    every = list(continue_prompts(stack(), wanted, ["ab", "cd", "ab"], NEW))
    assert [(each.prompt, each.plan) for each in every] == [
        ("ab", "0-3"),
        ("ab", "0 2 1 3"),
        ("cd", "0-3"),
        ("cd", "0 2 1 3"),
    ]
    assert all(each.same == each.tokens for each in every if each.plan == "0-3")
    finished = [(each.plan, each.prompt) for each in every[:3]]
    assert list(continue_prompts(stack(), wanted, ["ab", "cd"], NEW, finished=finished)) == every[3:]


def test_empty_and_long_prompts_are_rejected() -> None:
    with pytest.raises(MeasureError, match="fit into the 128 positions"):
        encode_prompt(stack(), "ab", 200)
    bare = load(tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer(start=False))
    with pytest.raises(MeasureError, match="at least one token"):
        encode_prompt(bare, "", 3)


def test_masked_models_are_rejected() -> None:
    tokenizer = word_tokenizer(["b"])
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    masked = load(BertForMaskedLM(config), tokenizer=tokenizer)
    with pytest.raises(MeasureError, match="causal language model with a tokenizer"):
        encode_prompt(masked, "a b", 3)
    with pytest.raises(MeasureError, match="causal language model with a tokenizer"):
        encode_prompt(load(tiny_llama(2)), "a b", 3)
