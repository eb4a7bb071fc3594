"""Nodes, the encoding of their messages, and batched calls that equal single ones."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.cache_utils import DynamicCache

from contracts.specimen import EOS, VOCABULARY
from layerwise.errors import SwarmError
from layerwise.stack import Stack
from layerwise.stack.executors.capture import Call, Capture
from layerwise.swarm.calls import NodeClient
from layerwise.swarm.decoding import BatchedHead, CachedDecoding, prepare_generation
from layerwise.swarm.messages import (
    Array,
    Done,
    Gone,
    Message,
    Pass,
    Refused,
    Release,
    RemoteLayer,
    RemoteVisit,
    Reply,
    Response,
    RunLayers,
    pack,
    unpack,
)
from layerwise.swarm.node_records import NodeRecords
from layerwise.swarm.nodes.blocks import load_message
from layerwise.swarm.nodes.node import LEASE_SECONDS, BlockCalls, Node, group_calls, local_node
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.wire import encode, to_array, to_tensor
from swarm.driver import encode_passes, llama, options, prompts

VISITS = (RemoteVisit(1, RemoteLayer(1)), RemoteVisit(2, RemoteLayer(2)))


@pytest.fixture(scope="module")
def stack() -> Stack:
    return llama()


@pytest.fixture(scope="module")
def passes(stack: Stack) -> list[Pass]:
    return encode_passes(stack, prompts(1, 8)[0], 6)


@pytest.fixture
def node(stack: Stack) -> Node:
    node = Node("node")
    assert isinstance(node.handle(load_message(stack, [1, 2])), Done)
    return node


def _call(number: int, given: Pass, **others: object) -> RunLayers:
    return replace(RunLayers("request", number, VISITS, given), **others)  # type: ignore[arg-type]


def test_recomputing_all_tokens_restores_the_caches(node: Node, passes: list[Pass], stack: Stack) -> None:
    states = [_state(node.handle(_call(index, each))) for index, each in enumerate(passes)]
    captured = stack.capture_pass({"input_ids": prompts(1, 8)[0][:, :7], "use_cache": True, **_empty_cache(stack)})
    both = to_array(torch.cat([to_tensor(each.state) for each in passes[:2]], dim=1))
    other = Node("other")
    other.handle(load_message(stack, [0, 1, 2]))
    again = _state(other.handle(_call(5, encode(captured, [1, 2], state=both))))
    torch.testing.assert_close(again, torch.cat(states[:2], dim=1))
    torch.testing.assert_close(_state(other.handle(_call(6, replace(passes[2], index=1)))), states[2])


def _state(answer: Response) -> torch.Tensor:
    assert isinstance(answer, Reply), answer
    return to_tensor(answer.state)


def _empty_cache(stack: Stack) -> dict[str, Any]:
    return {"past_key_values": DynamicCache(config=stack.text_config)}


def test_a_repeated_call_runs_once(node: Node, passes: list[Pass]) -> None:
    node.handle(_call(1, passes[0]))
    second = node.handle(_call(2, passes[1]))
    assert node.handle(_call(2, passes[1])) == second
    assert isinstance(node.handle(_call(3, passes[2])), Reply)
    late = node.handle(_call(1, passes[0]))
    assert late == Refused("node", "received call 1 of this request after call 3")


def test_a_missing_pass_is_detected(node: Node, passes: list[Pass]) -> None:
    node.handle(_call(1, passes[0]))
    answer = node.handle(_call(2, passes[2]))
    assert isinstance(answer, Refused)
    assert "received pass 2 without the passes before it (layer 1 has run 1, layer 2 has run 1)" in answer.reason
    node.handle(Release("request"))
    answer = node.handle(_call(3, passes[1]))
    assert isinstance(answer, Refused)
    assert "(layer 1 has run 0, layer 2 has run 0)" in answer.reason


def test_caches_are_bounded_and_expire(stack: Stack, passes: list[Pass], monkeypatch: pytest.MonkeyPatch) -> None:
    one = Node("node")
    one.handle(load_message(stack, [1, 2]))
    one.handle(_call(1, passes[0]))
    each = one.bytes
    caches = [(visited.cache, visit.layer.number) for visit, visited in one._requests["request"].visited.items()]
    assert each == sum(cache.layers[n].keys.nbytes + cache.layers[n].values.nbytes for cache, n in caches)
    one.handle(Release("request"))
    assert one.bytes == 0

    node = Node("node", max_bytes=3 * each)
    node.handle(load_message(stack, [1, 2]))
    for name in ("a", "b", "c", "a", "d"):
        node.handle(replace(_call(1 + (name == "d"), passes[0]), request=name))
    assert list(node._requests) == ["c", "a", "d"]
    assert node.bytes == 3 * each
    clock = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: clock + LEASE_SECONDS + 1)
    node.handle(replace(_call(1, passes[0]), request="e"))
    assert list(node._requests) == ["e"]
    assert node.bytes == each


def test_foreign_and_damaged_messages_are_refused(node: Node, passes: list[Pass]) -> None:
    answer = node.handle(_call(1, passes[0], visits=(RemoteVisit(4, RemoteLayer(4)),)))
    assert answer == Refused("node", "does not hold layer 4", lacks_layers=True)

    short = replace(passes[0], state=Array("float32", (1, 2, 4), bytes(32)))
    assert isinstance(node.handle(_call(1, short)), Refused)
    cut = replace(passes[0], state=replace(passes[0].state, data=b""))
    answer = node.handle(_call(2, cut))
    assert isinstance(answer, Refused)
    assert "got 0" in answer.reason
    assert isinstance(node.handle(_call(3, passes[0])), Reply)


def test_a_message_cannot_name_foreign_code(stack: Stack) -> None:
    message = load_message(stack, [1])
    for kind in ("subprocess:Popen", "os:system"):
        answer = Node("node").handle(replace(message, model_class=kind))
        assert isinstance(answer, Refused)
        assert "Model classes must be from transformers or layerwise" in answer.reason
    without = replace(message, weights=(message.weights[0][1:],))
    answer = Node("node").handle(without)
    assert isinstance(answer, Refused)
    assert "The message lacks" in answer.reason


NAMES = "float32 float64 float16 bfloat16 int64 int32 uint8 bool complex64"
DTYPES = tuple(getattr(torch, name) for name in NAMES.split())


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4))
def test_tensors_round_trip(dtype: torch.dtype, shape: list[int]) -> None:
    tensor = (3 * normal(*shape)).to(dtype)
    arrived = to_tensor(unpack(pack([Reply("node", "request", 0, 0, to_array(tensor), 0.0)]))[0].state)
    assert arrived.dtype == dtype
    assert torch.equal(arrived, tensor)


def test_views_round_trip() -> None:
    tensor = torch.arange(12.0).reshape(3, 4).t()[1:].unsqueeze(0).expand(2, 3, 3)
    assert torch.equal(to_tensor(to_array(tensor)), tensor)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (Array("float32", (2, 2), bytes(15)), "must have 16 bytes, got 15"),
        (Array("float32", (2,), bytes(16)), "must have 8 bytes, got 16"),
        (Array("Tensor", (1,), bytes(4)), "must be the name of a torch dtype"),
        (Array("load", (1,), bytes(4)), "must be the name of a torch dtype"),
    ],
)
def test_inconsistent_arrays_are_rejected(array: Array, words: str) -> None:
    with pytest.raises(SwarmError, match=words):
        to_tensor(array)


def _captured(state: Tensor) -> Capture:
    rotary = (normal(1, 3, 4), normal(1, 3, 4))
    masks = [None, torch.ones(1, 1, 3, 3, dtype=torch.bool)]
    others = {
        "position_embeddings": rotary,
        "past_key_values": DynamicCache(),
        "use_cache": True,
        "extra": {"scale": 2.0, "n": [1, None]},
    }
    return Capture(state, tuple(Call((state, masks[layer % 2]), others) for layer in range(4)), {})


def test_block_arguments_round_trip() -> None:
    """The node's cache replaces the router's, and tensors are sent once."""
    state, cache = normal(1, 3, 8), DynamicCache()
    captured = _captured(state)
    given = encode(captured, [3, 0, 1], 2)
    assert len(given.arrays) == 3
    assert len(encode(captured, [0]).arrays) == 2
    assert given.calls[0] == given.calls[2] != given.calls[1]
    kinds: list[str] = []
    arrived = BlockCalls([given], "cpu")
    for visit, layer in enumerate((3, 0)):
        args, kwargs, key = arrived.build(visit, layer, [lambda kind: kinds.append(kind) or cache])
        assert key == 0
        assert (args[1] is None) == (layer == 0)
        assert kwargs["past_key_values"] is cache
        assert kwargs["use_cache"] is True
        assert kwargs["extra"] == {"scale": 2.0, "n": [1, None]}
        for sent, received in zip(
            captured.calls[layer].kwargs["position_embeddings"], kwargs["position_embeddings"], strict=True
        ):
            assert torch.equal(sent, received)
    assert kinds == ["transformers.cache_utils:DynamicCache"] * 2


def test_objects_cannot_be_sent() -> None:
    state = normal(1, 2, 4)
    with pytest.raises(SwarmError, match="called with a object, which is neither a tensor nor plain data"):
        encode(Capture(state, (Call((state, object()), {}),), {}), [0])


def test_messages_round_trip_and_foreign_bytes_are_rejected() -> None:
    state = normal(1, 3, 8)
    sent = encode(_captured(state), [0, 1])
    message = RunLayers(
        "request", 3, (RemoteVisit(0, RemoteLayer(4, "a"), "mlp"), RemoteVisit(1, RemoteLayer(5))), sent
    )
    packed = pack([message, Release("request")])
    assert unpack(packed) == [message, Release("request")]
    assert pack([replace(message, number=4)]) != pack([message])
    packb = msgspec.msgpack.encode
    for wrong in (
        packb([("Popen", {"args": "ls"})]),
        packb([("RunLayers", {"request": "request"})]),
        packb([("Release", {"request": 3})]),
        packb("RunLayers"),
        packb(["RunLayers"]),
        packed[:-1],
        b"",
    ):
        with pytest.raises(SwarmError, match=r"Received an (invalid|unknown) message"):
            unpack(wrong)


LENGTHS = (3, 7, 5)


@pytest.fixture(scope="module")
def texts(stack: Stack) -> list[list[Pass]]:
    ids = torch.randint(EOS + 1, VOCABULARY, (len(LENGTHS), 9), generator=torch.Generator().manual_seed(0))
    return [encode_passes(stack, each[None, : length + 2], length) for each, length in zip(ids, LENGTHS, strict=True)]


def _batched_call(text: int, given: Pass) -> RunLayers:
    return RunLayers(f"text-{text}", given.index, VISITS, given)


def _node(stack: Stack, texts: Sequence[Sequence[Pass]]) -> Node:
    node = local_node("node", stack, [RemoteLayer(1), RemoteLayer(2)])
    for number, passes in enumerate(texts):
        assert isinstance(node.handle(_batched_call(number, passes[0])), Reply)
    return node


def _states(responses: Sequence[Response]) -> list[Tensor]:
    assert all(isinstance(each, Reply) for each in responses), responses
    return [to_tensor(each.state) for each in responses if isinstance(each, Reply)]


def test_batched_calls_equal_single_calls(stack: Stack, texts: list[list[Pass]]) -> None:
    alone, together = _node(stack, texts), _node(stack, texts)
    blocks = [alone._blocks[RemoteLayer(1)].block, together._blocks[RemoteLayer(1)].block]
    assert blocks[0] is blocks[1]
    ran: list[int] = []
    with_hook = blocks[0].register_forward_pre_hook(lambda block, args: ran.append(args[0].shape[0]))
    for index in (1, 2):
        calls = [_batched_call(number, passes[index]) for number, passes in enumerate(texts)]
        for one, other in zip(
            _states(list(map(alone.handle, calls))), _states(together.handle_all(calls)), strict=True
        ):
            torch.testing.assert_close(one, other)
        assert together.bytes == alone.bytes
        assert together.handle_all(calls) == [together.handle(call) for call in calls], "a repeated call runs once"
    with_hook.remove()
    assert ran == [1, 1, 1, 2, 1, 1, 3, 1, 1, 1, 3]
    assert list(together._batched.values()) == [True]


def test_a_refused_call_does_not_affect_its_batch(stack: Stack, texts: list[list[Pass]]) -> None:
    node = _node(stack, texts)
    node.handle_all([_batched_call(number, passes[1]) for number, passes in enumerate(texts)])
    node.handle(Release("text-1"))
    first, second, third = node.handle_all([_batched_call(number, passes[2]) for number, passes in enumerate(texts)])
    assert isinstance(second, Refused)
    assert "received pass 2 without the passes before it (layer 1 has run 0, layer 2 has run 0)" in second.reason
    assert isinstance(first, Reply)
    assert isinstance(third, Reply)


@pytest.mark.parametrize("behavior", ["fails", "differs"])
def test_blocks_without_batch_support_run_unbatched(
    stack: Stack, texts: list[list[Pass]], behavior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, node = _node(stack, texts), _node(stack, texts)
    block = node._blocks[RemoteLayer(2)].block
    forward = block.forward

    def alone(state: Tensor, *args: Any, **kwargs: Any) -> Any:
        if len(state) > 1 and behavior == "fails":
            raise RuntimeError("one text at a time")
        return forward(state.flip(0), *args, **kwargs)

    monkeypatch.setattr(block, "forward", alone)
    for index in (1, 2):
        calls = [_batched_call(number, passes[index]) for number, passes in enumerate(texts)]
        assert node.handle_all(calls) == [
            replace(each, seconds=own.seconds, process=own.process)
            for each, own in zip(map(expected.handle, calls), node.handle_all(calls), strict=True)
            if isinstance(each, Reply) and isinstance(own, Reply)
        ]
    assert list(node._batched.values()) == [False]


def test_batches_are_single_tokens_of_different_requests(texts: list[list[Pass]]) -> None:
    first, second = (_batched_call(number, texts[number][1]) for number in (0, 1))
    other = replace(second, visits=VISITS[:1])
    messages: list[Message] = [first, _batched_call(2, texts[2][0]), second, Release("text-4"), other]
    assert group_calls(messages) == [[0, 2], [1], [3], [4]]
    assert group_calls([first, second, first]) == [[0], [1], [2]]


class _Kept:
    is_over = False

    def __init__(self) -> None:
        self.calls: list[tuple[Sequence[RunLayers], asyncio.Future[Sequence[Response]]]] = []

    async def call(self, node: str, messages: Sequence[RunLayers]) -> Sequence[Response]:
        answer: asyncio.Future[Sequence[Response]] = asyncio.get_running_loop().create_future()
        self.calls.append((messages, answer))
        return await answer

    @property
    def sent(self) -> list[list[str]]:
        return [[call.request for call in calls] for calls, _ in self.calls]

    def answer(self, call: int) -> None:
        calls, answer = self.calls[call]
        answer.set_result([Gone("node", call.request) for call in calls])


async def _context_length() -> None:
    for _ in range(9):
        await asyncio.sleep(0)


def test_messages_are_batched_while_a_node_is_busy(texts: list[list[Pass]]) -> None:
    async def main() -> None:
        kept, records = _Kept(), NodeRecords(asyncio.get_running_loop().time)
        records.join("node", [])
        client = NodeClient(kept, records, SwarmSettings(), texts[0][0])  # type: ignore[arg-type]

        def sent(name: str, given: Pass) -> asyncio.Task[Any]:
            return client.start_task(client.call("node", RunLayers(name, 0, VISITS, given), lambda: False))

        first = [sent(name, texts[0][1]) for name in "ab"]
        await _context_length()
        assert kept.sent == [["a", "b"]]
        later = [sent("c", texts[0][1]), sent("prompt", texts[1][0]), *(sent(name, texts[0][1]) for name in "de")]
        await _context_length()
        later[2].cancel()
        await _context_length()
        kept.answer(0)
        await _context_length()
        assert [task.result() for task in first] == [Gone("node", name) for name in "ab"]
        assert kept.sent[1:] == [["c", "e"]]
        kept.calls[1][1].set_exception(OSError("no way"))
        await _context_length()
        assert later[0].result() == Gone("node", "no way")
        assert kept.sent[2:] == [["prompt"]]
        await client.close()

    asyncio.run(main())


@pytest.mark.parametrize("agrees", [True, False])
def test_heads_are_batched_only_if_equal(stack: Stack, agrees: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, rows = stack.finish_pass, list[int]()

    def counted(state: Tensor, inputs: Any) -> Any:
        rows.append(len(state))
        outputs = finish(state, inputs)
        if len(state) > 1 and not agrees:
            outputs.logits = outputs.logits.flip(0)
        return outputs

    monkeypatch.setattr(stack, "finish_pass", counted)
    ids, _ = prompts(2)
    readings = [CachedDecoding(stack, prepare_generation(stack, each[None, :4], options())) for each in ids]
    captured = [each.capture(own[None, :4]) for each, own in zip(readings, ids, strict=True)]
    with torch.inference_mode():
        for each, first in zip(readings, captured, strict=True):
            each.update(finish(first.state, first.inputs), first.state)
    seconds = [each.capture(own[None, :5]) for each, own in zip(readings, ids, strict=True)]
    head = BatchedHead(stack)

    async def both() -> list[Any]:
        return await asyncio.gather(*(head.finish(each.state, each.inputs) for each in seconds))

    for _ in range(2):
        for outputs, each in zip(asyncio.run(both()), seconds, strict=True):
            with torch.inference_mode():
                torch.testing.assert_close(outputs.logits, finish(each.state, each.inputs).logits)
            assert outputs.past_key_values is each.inputs["past_key_values"]
    assert rows == [1, 1, 4, *([4] if agrees else [1, 1])], "two rows are repeated up to four"


def test_a_pass_without_a_cache_is_finished_alone(stack: Stack) -> None:
    ids, _ = prompts(1)
    with torch.inference_mode():
        bare = stack.capture_pass({"input_ids": ids[:, :1], "use_cache": False})
    cached = CachedDecoding(stack, prepare_generation(stack, ids[:, :1], options())).capture(ids[:, :1])
    head = BatchedHead(stack)
    head._agrees = True

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*(head.finish(each.state, each.inputs) for each in (bare, cached, cached)))

    with torch.inference_mode():
        first, *others = asyncio.run(all_at_once())
        for each in others:
            torch.testing.assert_close(each.logits, first.logits)
