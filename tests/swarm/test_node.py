"""A node answers every message with a value, and counts what each request has run."""

import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers.cache_utils import DynamicCache

from layerwise.stack import Stack
from layerwise.swarm.messages import (
    Array,
    Done,
    Hop,
    LoadLayers,
    Pass,
    Refused,
    Release,
    RemoteLayer,
    RemoteVisit,
    Reply,
    Response,
)
from layerwise.swarm.nodes.blocks import byte_count, load_message
from layerwise.swarm.nodes.node import LEASE_SECONDS, Node
from layerwise.swarm.wire import encode, joined, to_tensor
from swarm.driver import llama, passes_of, prompts

pytestmark = pytest.mark.numbers

VISITS = (RemoteVisit(1, RemoteLayer(1)), RemoteVisit(2, RemoteLayer(2)))


@pytest.fixture(scope="module")
def stack() -> Stack:
    return llama()


@pytest.fixture(scope="module")
def passes(stack: Stack) -> list[Pass]:
    return passes_of(stack, prompts(1, 8)[0], 6)


@pytest.fixture
def node(stack: Stack) -> Node:
    node = Node("node")
    assert isinstance(node.handle(load_message(stack, [1, 2])), Done)
    return node


def _hop(number: int, given: Pass, fresh: bool = False, **others: object) -> Hop:
    return replace(Hop("request", number, VISITS, given, fresh), **others)  # type: ignore[arg-type]


def test_a_replay_leaves_what_the_hops_left_that_it_repeats(node: Node, passes: list[Pass], stack: Stack) -> None:
    """All tokens but the last are replayed at once on a new node."""
    states = [_state(node.handle(_hop(index, each, fresh=index == 0))) for index, each in enumerate(passes)]
    captured = stack.capture_pass({"input_ids": prompts(1, 8)[0][:, :7], "use_cache": True, **_empty_cache(stack)})
    whole = Pass(1, joined([each.state for each in passes[:2]]), encode(captured.calls, [1, 2]))
    other = Node("other")
    other.handle(load_message(stack, [0, 1, 2]))
    replayed = _state(other.handle(_hop(5, whole, fresh=True)))
    torch.testing.assert_close(replayed, torch.cat(states[:2], dim=1))
    torch.testing.assert_close(_state(other.handle(_hop(6, passes[2]))), states[2])


def _state(answer: Response) -> torch.Tensor:
    assert isinstance(answer, Reply), answer
    return to_tensor(answer.state)


def _empty_cache(stack: Stack) -> dict[str, Any]:
    return {"past_key_values": DynamicCache(config=stack.text_config)}


def test_a_hop_that_comes_twice_runs_once(node: Node, passes: list[Pass]) -> None:
    node.handle(_hop(1, passes[0], fresh=True))
    second = node.handle(_hop(2, passes[1]))
    assert node.handle(_hop(2, passes[1])) == second
    assert isinstance(node.handle(_hop(3, passes[2])), Reply)
    late = node.handle(_hop(1, passes[0], fresh=True))
    assert late == Refused("node", "has run hop 3 of this request; hop 1 came after it")


def test_a_pass_that_was_left_out_is_noticed(node: Node, passes: list[Pass]) -> None:
    node.handle(_hop(1, passes[0], fresh=True))
    answer = node.handle(_hop(2, passes[2]))
    assert isinstance(answer, Refused)
    assert "holds 1 of 1, 1 of 2 passes and was sent pass 2" in answer.reason
    node.handle(Release("request"))
    answer = node.handle(_hop(3, passes[1]))
    assert isinstance(answer, Refused)
    assert "holds 0 of 1, 0 of 2 passes" in answer.reason


def test_caches_have_a_bound_in_bytes_and_a_lease(
    stack: Stack, passes: list[Pass], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Node("node")
    one.handle(load_message(stack, [1, 2]))
    one.handle(_hop(1, passes[0], fresh=True))
    each = one.bytes
    assert each == sum(layer.keys.nbytes + layer.values.nbytes for layer in _cache(one, "request").layers[1:3])
    one.handle(Release("request"))
    assert one.bytes == 0

    node = Node("node", most_bytes=3 * each)
    node.handle(load_message(stack, [1, 2]))
    for name in ("a", "b", "c", "a", "d"):
        node.handle(replace(_hop(1 + (name == "d"), passes[0], fresh=True), request=name))
    assert list(node._requests) == ["c", "a", "d"]
    assert node.bytes == 3 * each
    clock = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: clock + LEASE_SECONDS + 1)
    node.handle(replace(_hop(1, passes[0], fresh=True), request="e"))
    assert list(node._requests) == ["e"]
    assert node.bytes == each


def _cache(node: Node, request: str) -> Any:
    return node._requests[request].visited[VISITS[0]].cache


def test_what_a_node_does_not_hold_it_refuses(node: Node, passes: list[Pass]) -> None:
    answer = node.handle(_hop(1, passes[0], fresh=True, visits=(RemoteVisit(4, RemoteLayer(4)),)))
    assert answer == Refused("node", "does not hold layer 4", lacks_layers=True)


def test_what_goes_wrong_is_an_answer(node: Node, passes: list[Pass]) -> None:
    short = replace(passes[0], state=Array("float32", (1, 2, 4), bytes(32)))
    assert isinstance(node.handle(_hop(1, short, fresh=True)), Refused)
    cut = replace(passes[0], state=replace(passes[0].state, data=b""))
    answer = node.handle(_hop(2, cut, fresh=True))
    assert isinstance(answer, Refused)
    assert "0 came" in answer.reason
    assert isinstance(node.handle(_hop(3, passes[0], fresh=True)), Reply)


def test_a_message_names_no_other_code(stack: Stack) -> None:
    message = load_message(stack, [1])
    for kind in ("subprocess:Popen", "os:system"):
        answer = Node("node").handle(replace(message, model_class=kind))
        assert isinstance(answer, Refused)
        assert "none of the packages that a node builds models of" in answer.reason
    without = replace(message, weights=(message.weights[0][1:],))
    answer = Node("node").handle(without)
    assert isinstance(answer, Refused)
    assert "came without" in answer.reason


def test_blocks_from_bytes_are_the_blocks(stack: Stack) -> None:
    message = load_message(stack, [2])
    assert isinstance(message, LoadLayers)
    node = Node("node")
    assert node.handle(message) == Done("node")
    held = node._held[RemoteLayer(2)].block
    for (name, own), (other, sent) in zip(stack.block(2).state_dict().items(), held.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(own, sent)
    assert byte_count(held) == sum(tensor.numel() * 4 for tensor in held.state_dict().values())
    assert to_tensor(message.weights[0][0][1]).dtype == torch.float32
