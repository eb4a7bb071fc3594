"""What the edge asks of a swarm: one Protocol, which the swarm and the double of the tests implement."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from layerwise.swarm.answer import Answer, Overview
from layerwise.swarm.decoding_options import Decoding

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor


class Service(Protocol):
    """A model that answers requests, and says which of its layers answered.

    A language model has a tokenizer and implements `stream`; a vision model has none and implements `pixels` and
    `classify`. All methods are called in one event loop, many requests at a time.
    """

    @property
    def name(self) -> str:
        """The model's id, as `/v1/models` shows it."""
        ...

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers, or None for a vision model."""
        ...

    @property
    def max_length(self) -> int | None:
        """The most tokens that a prompt and its answer have together, if there is a bound."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """The names of a vision model's classes, if it has names for them."""
        ...

    def stream(self, ids: Sequence[int], decoding: Decoding, *, request: str) -> AsyncGenerator[int | Answer, None]:
        """The new tokens as they are made, and the `Answer` last.

        Ends by itself where a stop text appears, as `layerwise.swarm.serve.text_stream.TextStream` says of the same
        prompt and stop texts. Closing the iterator cancels the request. Raises `BelowQuorum`, `Overloaded` or
        `SwarmError`, also after the first token.
        """
        ...

    def pixels(self, image: Image) -> Tensor:
        """What `classify` takes, made of one RGB image by the model's own preprocessing. Called in a thread."""
        ...

    async def classify(self, pixel_values: Tensor, *, request: str) -> tuple[Sequence[float], Answer]:
        """The probabilities of the classes."""
        ...

    def overview(self) -> Overview:
        """The swarm at this moment."""
        ...

    async def ready(self) -> tuple[bool, str]:
        """True when a token was really made just now or within the last seconds; else the reason why not."""
        ...

    async def close(self) -> None:
        """Stop every node. No request is under way any more."""
        ...
