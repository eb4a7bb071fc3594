"""Tensors and block calls survive serialization, and nothing else can be sent."""

from dataclasses import replace

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.cache_utils import DynamicCache

from layerwise.errors import SwarmError
from layerwise.stack.executors.capture import Call
from layerwise.swarm.messages import Array, Hop, Pass, Release, RemoteLayer, RemoteVisit, Reply, pack, unpack
from layerwise.swarm.wire import Calls, encode, selected, to_array, to_tensor

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4))
def test_a_tensor_arrives_as_it_left(dtype: torch.dtype, shape: list[int]) -> None:
    tensor = (3 * normal(*shape)).to(dtype)
    arrived = to_tensor(unpack(pack([Reply("node", "request", 0, 0, to_array(tensor), 0.0)]))[0].state)
    assert arrived.dtype == dtype
    assert torch.equal(arrived, tensor)


def test_a_view_arrives_as_it_reads() -> None:
    tensor = torch.arange(12.0).reshape(3, 4).t()[1:].unsqueeze(0).expand(2, 3, 3)
    assert torch.equal(to_tensor(to_array(tensor)), tensor)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (Array("float32", (2, 2), bytes(15)), "takes 16 bytes; 15 came"),
        (Array("float32", (2,), bytes(16)), "takes 8 bytes; 16 came"),
        (Array("Tensor", (1,), bytes(4)), "which torch does not know"),
        (Array("load", (1,), bytes(4)), "which torch does not know"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(array: Array, words: str) -> None:
    with pytest.raises(SwarmError, match=words):
        to_tensor(array)


def _calls(state: Tensor) -> tuple[Call, ...]:
    rotary = (normal(1, 3, 4), normal(1, 3, 4))
    masks = [None, torch.ones(1, 1, 3, 3, dtype=torch.bool)]
    cache = DynamicCache()
    return tuple(
        Call(
            (state, masks[layer % 2]),
            {
                "position_embeddings": rotary,
                "past_key_values": cache,
                "use_cache": True,
                "extra": {"scale": 2.0, "n": [1, None]},
            },
        )
        for layer in range(4)
    )


def test_calls_arrive_as_they_left() -> None:
    """The node's cache takes the place of the router's, and tensors are sent once."""
    state, cache = normal(1, 3, 8), DynamicCache()
    calls = _calls(state)
    arguments = encode(calls, [0, 1, 3])
    assert len(arguments.arrays) == 3
    kinds: list[str] = []
    arrived = Calls(selected(arguments, [3, 0]), "cpu")
    for layer in (3, 0):
        args, kwargs, key = arrived.of(layer, lambda kind: kinds.append(kind) or cache)
        assert key == 0
        assert (args[1] is None) == (layer == 0)
        assert kwargs["past_key_values"] is cache
        assert kwargs["use_cache"] is True
        assert kwargs["extra"] == {"scale": 2.0, "n": [1, None]}
        for sent, received in zip(
            calls[layer].kwargs["position_embeddings"], kwargs["position_embeddings"], strict=True
        ):
            assert torch.equal(sent, received)
    assert kinds == ["transformers.cache_utils:DynamicCache"] * 2
    assert [array is None for array in selected(arguments, [0]).arrays].count(False) == 2
    assert selected(arguments, [0, 1, 3]) is arguments


def test_an_object_cannot_be_sent() -> None:
    call = Call((normal(1, 2, 4), object()), {})
    with pytest.raises(SwarmError, match="called with a object, which is neither a tensor nor plain data"):
        encode([call], [0])


def test_layers_that_are_called_alike_share_one_call() -> None:
    state = normal(1, 3, 8)
    one, other = _calls(state)[:2]
    arguments = encode([one, other, one, other], range(4))
    assert (arguments.forms, len(arguments.calls)) == ((0, 1, 0, 1), 2)
    assert selected(arguments, [2, 0]).calls == arguments.calls[:1]


def test_a_tensor_that_did_not_come_is_named() -> None:
    arguments = selected(encode(_calls(normal(1, 3, 8)), [0, 1]), [0])
    without = replace(arguments, arrays=(None,) * len(arguments.arrays))
    with pytest.raises(SwarmError, match="tensor 0 of a call was not sent with it"):
        Calls(without, "cpu").of(0, lambda kind: None)


def test_a_message_arrives_as_it_left_and_nothing_else_is_made_of_bytes() -> None:
    state = normal(1, 3, 8)
    sent = Pass(0, to_array(state), encode(_calls(state), [0, 1]))
    message = Hop("request", 3, (RemoteVisit(0, RemoteLayer(4, "a"), "mlp"), RemoteVisit(1, RemoteLayer(5))), sent)
    packed = pack([message, Release("request")])
    assert unpack(packed) == [message, Release("request")]
    assert pack([replace(message, number=4)]) != pack([message])
    packb = msgspec.msgpack.encode
    for wrong in (
        packb([("Popen", {"args": "ls"})]),
        packb([("Hop", {"request": "request"})]),
        packb([("Release", {"request": 3})]),
        packb("Hop"),
        packb(["Hop"]),
        packed[:-1],
        b"",
    ):
        with pytest.raises(SwarmError, match="is no message of this layerwise"):
            unpack(wrong)
