"""Batched calls of a node and batched heads of a router equal single ones."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.specimen import EOS, VOCABULARY
from layerwise.stack import Stack
from layerwise.swarm.calls import NodeClient
from layerwise.swarm.decoding import BatchedHead, CachedDecoding, prepare_generation
from layerwise.swarm.messages import (
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
)
from layerwise.swarm.node_records import NodeRecords
from layerwise.swarm.nodes.node import Node, group_calls, local_node
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.wire import to_tensor
from swarm.driver import encode_passes, llama, options, prompts

VISITS = (RemoteVisit(1, RemoteLayer(1)), RemoteVisit(2, RemoteLayer(2)))
LENGTHS = (3, 7, 5)


@pytest.fixture(scope="module")
def stack() -> Stack:
    return llama()


@pytest.fixture(scope="module")
def texts(stack: Stack) -> list[list[Pass]]:
    ids = torch.randint(EOS + 1, VOCABULARY, (len(LENGTHS), 9), generator=torch.Generator().manual_seed(0))
    return [encode_passes(stack, each[None, : length + 2], length) for each, length in zip(ids, LENGTHS, strict=True)]


def _call(text: int, given: Pass) -> RunLayers:
    return RunLayers(f"text-{text}", given.index, VISITS, given)


def _node(stack: Stack, texts: Sequence[Sequence[Pass]]) -> Node:
    node = local_node("node", stack, [RemoteLayer(1), RemoteLayer(2)])
    for number, passes in enumerate(texts):
        assert isinstance(node.handle(_call(number, passes[0])), Reply)
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
        calls = [_call(number, passes[index]) for number, passes in enumerate(texts)]
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
    node.handle_all([_call(number, passes[1]) for number, passes in enumerate(texts)])
    node.handle(Release("text-1"))
    first, second, third = node.handle_all([_call(number, passes[2]) for number, passes in enumerate(texts)])
    assert isinstance(second, Refused)
    assert "has 0 of 1, 0 of 2 passes, and received pass 2" in second.reason
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
        calls = [_call(number, passes[index]) for number, passes in enumerate(texts)]
        assert node.handle_all(calls) == [
            replace(each, seconds=own.seconds, process=own.process)
            for each, own in zip(map(expected.handle, calls), node.handle_all(calls), strict=True)
            if isinstance(each, Reply) and isinstance(own, Reply)
        ]
    assert list(node._batched.values()) == [False]


def test_batches_are_single_tokens_of_different_requests(texts: list[list[Pass]]) -> None:
    first, second = (_call(number, texts[number][1]) for number in (0, 1))
    other = replace(second, visits=VISITS[:1])
    messages: list[Message] = [first, _call(2, texts[2][0]), second, Release("text-4"), other]
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
