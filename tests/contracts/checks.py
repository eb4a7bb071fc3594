"""The guarantees for a supported model, as functions that raise `AssertionError` when one is broken."""

import copy
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from contracts import naive, specimen
from contracts.specimen import DEPTH, Specimen
from layerwise.errors import UnsupportedModelError
from layerwise.plan import SUBLAYERS, Plan
from layerwise.stack import Capture, Stack, load
from layerwise.stack.max_length import longest_input

Answer = Literal["yes", "n/a"]
Halves = Literal["in turn", "side by side", "no"]
Way = Literal["greedy", "left-padded", "static", "beam"]
WAYS: tuple[Way, ...] = ("greedy", "left-padded", "static", "beam")

# The kind of cache makes no difference to decoding without one.
_UNCACHED: Mapping[Way, Way] = {"greedy": "greedy", "left-padded": "left-padded", "static": "greedy", "beam": "beam"}

NEW_TOKENS = 4

# Groups and caches change the order of additions; a wrong plan differs by over ten times as much.
ROUNDING = 1e-4
ROUNDING_OF_A_CACHE = 1e-3

SKETCHES: Mapping[str, naive.Sketch] = {
    "as trained": (0, 1, 2, 3, 4),
    "first layer skipped": (1, 2, 3, 4),
    "two layers exchanged": (0, 3, 2, 1, 4),
    "one layer repeated": (0, 1, 1, 1, 3, 4),
    "parallel, mean": (0, ("group", "mean", None, (1,), (2,), (3,)), 4),
    "parallel, sum": (0, ("group", "sum", None, (1,), (2,), (3,)), 4),
    "looped parallel": (("block", 2, ("group", "gain", 2.0, (1, 2), (3,))), 4),
    "groups in groups": (("group", "mean", None, (1, ("group", "sum", None, (2,), (3,))), (4, 4)), 0),
}

# Both begin with a layer other than the first, so that a cache that numbers its slots by layer fails.
SEQUENCE: naive.Sketch = (1, 3, 2, 2, 0, 4)
HALVES = Plan.parse("1.attn 3 2.mlp*2 0 (2.attn|4.mlp 1):sum 4")
PARALLEL: naive.Sketch = (("group", "gain", 0.5, (1,), (2, ("block", 2, 3, 0))), 4, ("group", "mean", None, (0,), (3,)))


@dataclass(frozen=True)
class Subject:
    specimen: Specimen
    model: nn.Module
    stack: Stack
    batch: dict[str, Tensor]


def subject(one: Specimen) -> Subject:
    model = specimen.build(one)
    return Subject(one, model, load(model), specimen.inputs(one, model))


def plan_of(sketch: naive.Sketch) -> Plan:
    return Plan.parse(naive.text(sketch))


def main_output(output: Any) -> Tensor:
    return output.logits if "logits" in output else output[0]


@torch.inference_mode()
def check_identity(subject: Subject) -> None:
    model, stack, batch = subject.model, subject.stack, subject.batch
    assert (stack.path, stack.depth) == (subject.specimen.layers, DEPTH)
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    settings = copy.deepcopy(model.config.to_dict())
    own = main_output(model(**batch))

    identity = Plan.identity(DEPTH)
    assert torch.equal(stack.logits(identity, **batch), own)
    with stack.under(identity):
        assert torch.equal(main_output(model(**batch)), own)
        assert [parameter.data_ptr() for parameter in model.parameters()] == pointers

    assert torch.equal(main_output(model(**batch)), own)
    assert model.config.to_dict() == settings


@torch.inference_mode()
def check_plans(subject: Subject) -> None:
    model, stack, batch = subject.model, subject.stack, subject.batch
    # The last three keep a layer of every kind: a hybrid's cache needs an attention layer to count tokens.
    drawn = (*naive.draw(zlib.crc32(subject.specimen.model_type.encode()), DEPTH), 0, 1, 4)
    uncached = naive.uncached(model, batch)
    loop = naive.NaiveLoop(model, subject.specimen.layers, batch)
    captured = stack.capture(**batch)
    expected = {}
    for name, sketch in _allowed(subject, {**SKETCHES, "random": drawn}).items():
        expected[name] = main_output(loop.output(sketch))
        plan = plan_of(sketch)
        stepwise = main_output(stack.finish(stack.run(plan, captured), captured.inputs))
        _assert_close(stepwise, expected[name], ROUNDING, f"{name}: {plan} step by step")
        with stack.under(plan):
            inside = main_output(model(**uncached))
        _assert_close(inside, expected[name], ROUNDING, f"{name}: {plan} in place")
    for (one, left), (other, right) in combinations(list(expected.items())[: len(SKETCHES)], 2):
        assert distance(left, right) > 10 * ROUNDING, f"the test cannot tell {one!r} from {other!r}"


def _allowed(subject: Subject, sketches: Mapping[str, naive.Sketch]) -> dict[str, naive.Sketch]:
    reads = subject.specimen.reads
    for sketch in sketches.values():
        plan = plan_of(sketch)
        if naive.breaks(sketch, reads):
            with pytest.raises(UnsupportedModelError, match=f"{subject.specimen.model_class} layer . must run before"):
                subject.stack.check(plan)
            with pytest.raises(UnsupportedModelError, match="must run before"), subject.stack.under(plan):
                pass
        else:
            subject.stack.check(plan)
    if not reads:
        return dict(sketches)
    return {name: naive.behind(sketch, reads) for name, sketch in sketches.items()} | {
        f"{name}, as it stands": sketch for name, sketch in sketches.items() if not naive.breaks(sketch, reads)
    }


@torch.inference_mode()
def check_recording(subject: Subject) -> None:
    model = subject.model
    batch = naive.uncached(model, subject.batch)
    for sketch in (SEQUENCE, PARALLEL):
        plan = plan_of(naive.behind(sketch, subject.specimen.reads))
        with subject.stack.under(plan):
            inside = model(**batch, output_hidden_states=True).hidden_states
        outside = model(**batch, output_hidden_states=True).hidden_states
        assert len(inside) - len(outside) == len(plan.order()) - DEPTH
        assert len(outside) > DEPTH


@torch.inference_mode()
def check_longest(subject: Subject) -> None:
    longest = longest_input(subject.model)
    assert longest is not None
    subject.model(**_text_of(longest))
    if longest != subject.model.config.get_text_config().max_position_embeddings:
        with pytest.raises((IndexError, RuntimeError)):
            subject.model(**_text_of(longest + 1))


def _text_of(length: int) -> dict[str, Tensor]:
    ids = torch.full((1, length), specimen.VOCABULARY - 2)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@torch.inference_mode()
def check_decoding(subject: Subject) -> dict[Way, Answer]:
    ways = [way for way in WAYS if subject.specimen.kind == "decoder" and _decodes_alike(subject, way)]
    for each in (SEQUENCE, PARALLEL) if ways else ():
        sketch = naive.behind(each, subject.specimen.reads)
        with subject.stack.under(plan_of(sketch)):
            recomputed = {kind: recompute(subject, kind) for kind in {_UNCACHED[way] for way in ways}}
            for way in ways:
                _assert_same_text(decode(subject, way), recomputed[_UNCACHED[way]], f"{naive.text(sketch)}, {way}")
    return {way: "yes" if way in ways else "n/a" for way in WAYS}


@torch.inference_mode()
def check_halves(subject: Subject) -> Halves:
    """Return how sublayers compose; `no` if the model says its layers cannot be split."""
    stack = subject.stack
    captured = stack.capture(**subject.batch)
    try:
        stack.branches(captured)
    except UnsupportedModelError:
        _check_halves_are_refused(subject, captured)
        return "no"
    ways = {_check_halves_of_a_layer(stack, captured, layer) for layer in range(DEPTH)}
    assert len(ways) == 1, f"layers of one model are put together in {len(ways)} ways"
    stepwise = main_output(stack.finish(stack.run(HALVES, captured), captured.inputs))
    with stack.under(HALVES):
        inside = main_output(subject.model(**naive.uncached(subject.model, subject.batch)))
    _assert_close(inside, stepwise, ROUNDING, f"{HALVES} in place")
    if subject.specimen.kind == "decoder" and _decodes_alike(subject, "left-padded"):
        with stack.under(HALVES):
            cached, recomputed = decode(subject, "left-padded"), recompute(subject, "left-padded")
        _assert_same_text(cached, recomputed, f"{HALVES}, left-padded")
    return ways.pop()


def _check_halves_are_refused(subject: Subject, captured: Capture) -> None:
    reason = f"{subject.specimen.model_class} cannot be split into attn and mlp"
    plan = Plan.parse("0 1 2.attn 3.mlp") if subject.specimen.reads else HALVES
    with pytest.raises(UnsupportedModelError, match=reason):
        subject.stack.run(plan, captured)
    with pytest.raises(UnsupportedModelError, match=reason), subject.stack.under(plan):
        pass


def _check_halves_of_a_layer(stack: Stack, captured: Capture, layer: int) -> Halves:
    state = stack.run(Plan.of(range(layer)), captured) if layer else captured.state
    whole = stack.apply(layer, state, captured)
    attn, mlp = (stack.apply(layer, state, captured, part) for part in SUBLAYERS)
    in_turn = distance(stack.apply(layer, attn, captured, "mlp"), whole)
    side_by_side = distance(attn + mlp - state, whole)
    assert min(in_turn, side_by_side) <= ROUNDING, f"the halves of layer {layer} do not make it: {in_turn:.2g} off"
    assert max(in_turn, side_by_side) > 10 * ROUNDING, f"the test cannot tell how layer {layer} is put together"
    elsewhere = state.clone()
    elsewhere[:, 0] = elsewhere[:, 0].flip(-1)
    changed = {part: stack.apply(layer, elsewhere, captured, part)[:, 1:] for part in SUBLAYERS}
    assert distance(changed["mlp"], mlp[:, 1:]) <= ROUNDING, f"{layer}.mlp mixes tokens"
    assert distance(changed["attn"], attn[:, 1:]) > ROUNDING, f"{layer}.attn does not mix tokens"
    return "in turn" if in_turn <= ROUNDING else "side by side"


Text = tuple[Tensor, Tensor]


def decode(subject: Subject, way: Way) -> Text:
    kind = {"cache_implementation": "static"} if way == "static" else {}
    return _generate(subject.model, subject.batch, way, use_cache=True, **kind)


def recompute(subject: Subject, way: Way) -> Text:
    return _generate(subject.model, subject.batch, way, use_cache=False)


def _generate(model: nn.Module, batch: Mapping[str, Tensor], way: Way, **options: Any) -> Text:
    generated = model.generate(
        **(specimen.padded(batch) if way == "left-padded" else batch),
        num_beams=2 if way == "beam" else 1,
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        disable_compile=True,
        return_dict_in_generate=True,
        output_logits=True,
        **options,
    )
    return generated.sequences[:, -NEW_TOKENS:], torch.stack(generated.logits)


def _decodes_alike(subject: Subject, way: Way) -> bool:
    try:
        cached, recomputed = decode(subject, way), recompute(subject, way)
    except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    return distance(cached[1], recomputed[1]) <= ROUNDING_OF_A_CACHE and torch.equal(cached[0], recomputed[0])


def distance(left: Tensor, right: Tensor) -> float:
    if left.shape != right.shape:
        return float("inf")
    return float((left - right).abs().max() / right.abs().max())


def _assert_close(found: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    error = distance(found, expected)
    assert error <= tolerance, f"{what}: off by {error:.2g} of the largest entry"


def _assert_same_text(found: Text, expected: Text, what: str) -> None:
    _assert_close(found[1], expected[1], ROUNDING_OF_A_CACHE, what)
    assert torch.equal(found[0], expected[0]), f"{what}: other tokens from the same logits"
