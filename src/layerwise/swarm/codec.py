"""Messages as runs of bytes, by msgspec: (name of the class, its fields), in MessagePack.

Ray would pickle anything but bytes, and unpickling runs whatever it is sent. Only the classes of
`layerwise.swarm.messages` are made again, with fields of their types, whatever the bytes say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from layerwise.errors import SwarmError
from layerwise.swarm import messages
from layerwise.swarm.messages import Message, Response

_ENCODER: Final = msgspec.msgpack.Encoder()

_NAMED: Final = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])

_DECODERS: Final[Mapping[str, msgspec.msgpack.Decoder[Any]]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind)
    for kind in (
        messages.Hop, messages.LoadLayers, messages.UnloadLayers, messages.Release, messages.Reply, messages.Done,
        messages.Gone, messages.Late, messages.Refused, messages.Corrupt,
    )
}  # fmt: skip


def pack(message: Message | Response) -> bytes:
    """The bytes of a message.

    >>> pack(messages.Release("request-1"))
    b'\\x92\\xa7Release\\x81\\xa7request\\xa9request-1'
    """
    return _ENCODER.encode((type(message).__name__, message))


def unpack(packed: bytes) -> Any:
    """The message of such bytes. Raises `SwarmError` for bytes that are no message of this layerwise.

    >>> unpack(pack(messages.Release("request-1")))
    Release(request='request-1')
    """
    try:
        name, fields = _NAMED.decode(packed)
        decoder = _DECODERS.get(name)
        if decoder is None:
            raise SwarmError(f"{name[:60]!r} is no message of this layerwise")
        return decoder.decode(fields)
    except msgspec.MsgspecError as error:
        raise SwarmError(f"what came is no message of this layerwise: {error}") from error
