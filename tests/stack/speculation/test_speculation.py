"""Speculative decoding generates what the model generates, and costs the layer passes that it says it costs."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, MaxLengthCriteria, StoppingCriteria, StoppingCriteriaList

from contracts import specimen
from contracts.specimen import EOS, PAD, Specimen
from contracts.tiers import EVERY_TAG, every_type
from contracts.zoo import SUPPORTED
from layerwise.errors import LayerwiseError, ModelError, PlanError, UnsupportedModel
from layerwise.stack import Stack, load
from layerwise.stack.speculation import Speculation, shared_cache, speculative
from layerwise.stack.speculation.acceptance import accept_greedy

DEPTH = specimen.DEPTH
DRAFTS = ("1-4", "0-4", "0 2 4", "4-0", "0 1*2 2-4", "0 (1|2) 4", "0-2 3.mlp 4.attn")
QUICK = ("llama", "gemma3_text")
BY_POSITION = ("gpt2", "opt", "bloom", "mistral")
"""Positions that are learned, with an offset or as slopes of the scores, and a window over all layers."""
TYPES = {one.model_type: one for one in SUPPORTED if one.kind == "decoder"}


@cache
def made(name: str) -> Stack:
    """A tiny model in float64, so that one token and several are told apart by no rounding of logits; made once."""
    model = specimen.build(TYPES[name])
    model.generation_config.pad_token_id, model.generation_config.eos_token_id = PAD, EOS
    return load(model.double())


@pytest.fixture
def llama() -> Stack:
    return made("llama")


def prompts(rows: int = 1, length: int = 7) -> dict[str, Tensor]:
    ids = torch.randint(3, specimen.VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(rows))
    mask = torch.ones_like(ids)
    if rows > 1:
        mask[0, :3] = 0
    return {"input_ids": ids, "attention_mask": mask}


def generated(stack: Stack, draft: Any = None, rows: int = 1, **options: Any) -> Any:
    model: Any = stack.model
    settings = {"max_new_tokens": 12, "do_sample": False, "disable_compile": True, "use_cache": True, **options}
    return model.generate(**prompts(rows), **settings, custom_generate=draft)


@every_type(fast=QUICK, slow=(*BY_POSITION, *EVERY_TAG), of=tuple(TYPES.values()))
def test_every_architecture_generates_its_own_tokens_or_is_refused(one: Specimen) -> None:
    model = specimen.build(one)
    try:
        stack = load(model.double())
        speculative(stack, "0-4")
    except (LayerwiseError, RuntimeError):  # some compute in float32 alone
        stack = load(specimen.build(one))
    drafts = DRAFTS[: 5 if one.model_type in QUICK else 3]
    if "recurrent" in one.tags or one.model_type in REFUSED:
        with pytest.raises(UnsupportedModel, match="cannot decode"):
            speculative(stack, "0-4")
        return
    ways = [speculative(stack, draft) for draft in drafts]
    for rows in (1, 3):
        plain = generated(stack, rows=rows)
        for way in ways:
            assert torch.equal(generated(stack, way, rows), plain), f"{one.model_type} with {way.draft}, {rows} rows"


REFUSED = frozenset({"cpmant", "lfm2", "lfm2_moe", "lfm3", "openai-gpt"})
"""Types that are refused though nothing in their configuration says recurrent: one gives other logits for several
tokens at once, three have short convolutions, and one keeps no cache."""


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("name", ["llama", pytest.param("mistral", marks=pytest.mark.nightly)])
def test_the_layer_passes_are_the_printed_ones(name: str, draft: str) -> None:
    stack = made(name)
    way = speculative(stack, draft, tokens=3, adapts=False)
    calls: list[int] = []
    with ExitStack() as hooks:
        for layer in range(DEPTH):
            hook = stack.block(layer).register_forward_hook(lambda *_, layer=layer: calls.append(layer))
            hooks.callback(hook.remove)
        new = generated(stack, way).shape[1] - 7
    passes = way.passes
    assert len(calls) == DEPTH + passes.total  # one pass over the prompt
    assert passes.total == passes.rounds * DEPTH + passes.draft_passes * len(way.draft.steps())
    assert passes.tokens == new - 1 == passes.rounds + passes.accepted
    assert passes.bound == pytest.approx(passes.tokens / (passes.rounds + passes.share * passes.draft_passes))


def test_the_whole_model_as_its_own_draft_keeps_everything(llama: Stack) -> None:
    way = speculative(llama, "0-4", tokens=3, adapts=False)
    generated(llama, way, min_new_tokens=12)
    assert (way.passes.acceptance, way.passes.rounds, way.passes.tokens) == (1.0, 3, 11)


def test_a_draft_that_is_not_cut_off_would_be_seen(llama: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, way, own = generated(llama), speculative(llama, "1-4", adapts=False), shared_cache.cut
    monkeypatch.setattr(shared_cache, "cut", lambda cache, layers, n: own(cache, layers, max(0, n - 1)))
    with pytest.raises((AssertionError, RuntimeError)):
        assert torch.equal(generated(llama, way), plain)


def test_accepting_everything_would_be_seen(llama: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = generated(llama)
    own = accept_greedy

    def careless(drafted: Tensor, scores: Tensor, unfinished: Tensor) -> Any:
        agreed = own(scores.argmax(-1)[:, :-1], scores, unfinished)
        return type(agreed)(torch.cat([drafted, agreed.tokens[:, -1:]], dim=-1), agreed.count)

    monkeypatch.setattr("layerwise.stack.speculation.rounds.accept_greedy", careless)
    assert not torch.equal(generated(llama, speculative(llama, "1-4", adapts=False)), plain)


@pytest.mark.parametrize("rows", [1, 3])
def test_texts_end_where_they_end(llama: Stack, rows: int) -> None:
    ways = [speculative(llama, draft) for draft in ("0-4", "1-4")]
    for end in generated(llama, rows=rows)[:, 9].tolist():
        plain = generated(llama, rows=rows, eos_token_id=end)
        for way in ways:
            assert torch.equal(generated(llama, way, rows, eos_token_id=end), plain)


class _AtToken(StoppingCriteria):
    """Stops every text once one has `length` tokens; unlike `max_length`, nobody knows beforehand."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.length)


@pytest.mark.parametrize("length", [8, 10, 11])
def test_stopping_criteria_are_asked_after_every_token(llama: Stack, length: int) -> None:
    for criterion in (_AtToken(length), MaxLengthCriteria(length)):
        criteria = StoppingCriteriaList([criterion])
        plain = generated(llama, stopping_criteria=criteria)
        found = generated(llama, speculative(llama, "0-4"), stopping_criteria=criteria)
        assert torch.equal(found, plain)
        assert found.shape[1] == length


@pytest.mark.parametrize("new", [1, 2, 3])
def test_short_texts(llama: Stack, new: int) -> None:
    assert torch.equal(
        generated(llama, speculative(llama, "0-4"), max_new_tokens=new), generated(llama, max_new_tokens=new)
    )


def test_logits_processors_act_as_in_generate(llama: Stack) -> None:
    options: dict[str, Any] = {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "min_new_tokens": 6}
    assert torch.equal(generated(llama, speculative(llama, "0 2-4"), **options), generated(llama, **options))


def test_the_output_object_is_that_of_generate(llama: Stack) -> None:
    options: dict[str, Any] = {
        "return_dict_in_generate": True,
        "output_scores": True,
        "output_logits": True,
        "repetition_penalty": 1.2,
    }
    plain, found = generated(llama, **options), generated(llama, speculative(llama, "0 2-4"), **options)
    assert torch.equal(found.sequences, plain.sequences)
    for name in ("scores", "logits"):
        own, other = torch.stack(getattr(found, name)), torch.stack(getattr(plain, name))
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)
    assert found.past_key_values.get_seq_length() == plain.past_key_values.get_seq_length()


def test_no_further_cache_and_no_weight(llama: Stack) -> None:
    def held(output: Any) -> list[tuple[int, ...]]:
        return [tuple(slot.keys.shape) for slot in output.past_key_values.layers]

    pointers = {parameter.data_ptr() for parameter in llama.model.parameters()}
    seen: set[int] = set()
    rows: list[int] = []

    def look(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        cache = kwargs["past_key_values"]
        seen.update(parameter.data_ptr() for parameter in module.parameters())
        rows.append(
            sum(
                slot.keys.shape[-2]
                for slot in {id(slot): slot for slot in cache.layers}.values()
                if slot.keys is not None
            )
        )

    hooks = [llama.block(layer).register_forward_hook(look, with_kwargs=True) for layer in range(DEPTH)]
    options: dict[str, Any] = {"return_dict_in_generate": True, "min_new_tokens": 12}
    plain = generated(llama, **options)
    most = max(rows)
    rows.clear()
    found = generated(llama, speculative(llama, "1 3 4"), **options)
    for hook in hooks:
        hook.remove()
    assert held(found) == held(plain)
    assert max(rows) <= most
    assert seen <= pointers


def test_tokens_are_streamed_one_by_one(llama: Stack) -> None:
    class Streamer:
        def __init__(self) -> None:
            self.tokens: list[int] = []
            self.ended = 0

        def put(self, value: Tensor) -> None:
            self.tokens += value.flatten().tolist()

        def end(self) -> None:
            self.ended += 1

    streamer = Streamer()
    found = generated(llama, speculative(llama, "0 2-4", streamer=streamer))
    assert (streamer.tokens, streamer.ended) == (found[0, 7:].tolist(), 1)


def test_sampling_goes_through_the_warpers(llama: Stack) -> None:
    torch.manual_seed(0)
    way = speculative(llama, "0 2-4", tokens=3, adapts=False)
    options: dict[str, Any] = {"do_sample": True, "top_k": 1, "temperature": 0.7}
    assert torch.equal(generated(llama, way, **options), generated(llama))
    found = generated(llama, way, rows=3, do_sample=True, temperature=3.0, num_return_sequences=2)
    assert found.shape[0] == 6


def test_a_model_is_as_before_afterwards(llama: Stack) -> None:
    ids = prompts()["input_ids"]
    model: Any = llama.model
    before = model(ids).logits
    settings = model.config.to_dict()
    generated(llama, speculative(llama, "1 3"))
    assert llama.running is None
    assert model.config.to_dict() == settings
    assert torch.equal(model(ids).logits, before)


def test_a_second_generation_over_the_same_layers_is_refused(llama: Stack) -> None:
    way = speculative(llama, "1 3")
    failures: Counter[str] = Counter()

    class Enter(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
            def other() -> None:
                try:
                    with llama.under("0 1"):
                        failures["entered"] += 1
                except ModelError:
                    failures["refused"] += 1

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            return torch.ones(len(input_ids), dtype=torch.bool)

    generated(llama, way, stopping_criteria=StoppingCriteriaList([Enter()]))
    assert failures == {"refused": 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_beams": 2}, "num_beams=1"),
        ({"use_cache": False}, "use_cache"),
        ({"cache_implementation": "static"}, "StaticLayer"),
        ({"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states"),
        ({"guidance_scale": 1.5}, "ClassifierFreeGuidance"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_settings_that_have_no_meaning_are_refused(llama: Stack, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        generated(llama, speculative(llama, "0-3"), **options)
    assert llama.running is None


def test_what_cannot_draft_is_refused(llama: Stack) -> None:
    with pytest.raises(PlanError, match="5 layers"):
        speculative(llama, "0-7")
    with pytest.raises(ModelError, match="tokens=4"):
        speculative(llama, "0-3", tokens=0)
    merged = Stack.with_sources({"a": llama, "b": llama})
    with pytest.raises(PlanError, match="layers of the model itself"):
        speculative(merged, "a:0-2 b:3-4")
    with llama.under("0-3"), pytest.raises(ModelError, match="running 0-3"):
        speculative(llama, "0-2")
    with pytest.raises(ModelError, match="another model"):
        generated(made("gpt2"), speculative(llama, "0-3"))


def test_an_encoder_is_refused() -> None:
    one = next(one for one in SUPPORTED if one.model_type == "bert")
    with pytest.raises(UnsupportedModel, match="does not generate text"):
        speculative(load(specimen.build(one)), "0-3")


@pytest.mark.parametrize("name", ["qwen3_5_text", "mamba"])
def test_recurrent_models_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"recurrent|keeps a state|keeps its past"):
        speculative(load(specimen.build(TYPES[name])), "0-4")


@pytest.mark.slow
def test_sampled_texts_are_distributed_as_without(llama: Stack) -> None:
    from scipy.stats import chi2_contingency

    torch.manual_seed(0)
    options: dict[str, Any] = {
        "do_sample": True,
        "top_k": 6,
        "temperature": 2.0,
        "max_new_tokens": 3,
        "min_new_tokens": 3,
    }
    ids = prompts()["input_ids"].expand(400, -1)
    model: Any = llama.model
    way = speculative(llama, "0 2-4", tokens=2, adapts=False)
    counts = []
    for draft in (None, way):
        pairs: Counter[tuple[int, ...]] = Counter()
        for _ in range(10):
            new = model.generate(ids, attention_mask=torch.ones_like(ids), custom_generate=draft, **options)
            pairs.update(map(tuple, new[:, 8:10].tolist()))
        counts.append(pairs)
    often = [pair for pair in counts[0] | counts[1] if counts[0][pair] + counts[1][pair] >= 10]
    assert chi2_contingency([[count[pair] for pair in often] for count in counts]).pvalue > 0.001


def test_the_way_says_what_it_is(llama: Stack) -> None:
    way = speculative(llama, "0-3")
    assert isinstance(way, Speculation)
    assert "'0-3'" in repr(way)
    assert isinstance(llama.model, LlamaForCausalLM)
