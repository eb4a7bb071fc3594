"""A model whose layers are on nodes.

A `Swarm` belongs to one event loop. `generate` and `outputs` run that loop until their answer is there; a server awaits
`stream` and `classify` in its own loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from layerwise.bounded import kind_of
from layerwise.data.model_location import location_of
from layerwise.data.vision.preprocessing import Preprocessing, preprocessing_of
from layerwise.errors import BelowQuorumError, SwarmError
from layerwise.stack import Stack
from layerwise.stack.inputs import example_inputs, main_tensor
from layerwise.stack.max_length import longest_input
from layerwise.swarm.answer import (
    COMPLETE,
    UNKNOWN,
    Answer,
    Decoding,
    Expected,
    Finish,
    Overview,
    PromptScores,
    RequestView,
    TokenSpan,
)
from layerwise.swarm.calls import Calling
from layerwise.swarm.decoding.decode import decode
from layerwise.swarm.decoding.head import BatchedHead
from layerwise.swarm.decoding.servable import Servable, writes
from layerwise.swarm.decoding.text_stream import TextStream
from layerwise.swarm.estimate import LossEstimate
from layerwise.swarm.health import HealthChecks, smallest_inputs
from layerwise.swarm.live_plan import LivePlan, layers_of
from layerwise.swarm.messages import Transport
from layerwise.swarm.node_records import NodeRecords
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.router import Router
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.supply import Supply

if TYPE_CHECKING:
    from PIL.Image import Image

READY_FOR = 5.0
"""Seconds for which a token that was made shows that the swarm is ready."""

ROWS = 256
"""Positions of a prompt whose probabilities are computed at a time: of a large vocabulary they are large."""

T = TypeVar("T")


class Swarm:
    """A model on nodes, and the requests that they answer.

    `supply` places the layers on the nodes of `transport`; `fill` sends them. `estimate` is the cost of missing layers,
    if known. Raises as `Servable.of` does, unless `servable` is given.
    """

    def __init__(
        self,
        stack: Stack,
        transport: Transport,
        supply: Supply,
        settings: SwarmSettings | None = None,
        *,
        estimate: LossEstimate | None = None,
        servable: Servable | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self.stack = stack
        self.settings = settings or SwarmSettings()
        self.plan = supply.plan
        self._supply = supply
        servable = servable or Servable.of(stack, self.plan, self.settings)  # before there is a loop to be closed
        self.quorum = servable.quorum
        self._transport = transport
        self._loop_factory = loop_factory
        self._runner = None if loop_factory is None else asyncio.Runner(loop_factory=loop_factory)
        self._members = NodeRecords(self._now, self.settings.first_deadline, self.settings.hop_floor)
        self.estimate = estimate
        self._calling = Calling(transport, self._members, self.settings, servable.sample)
        self.health = HealthChecks(self._calling, supply)
        self.router = Router(self._calling, self.quorum, self.expected, servable.referee)
        self._head = BatchedHead(stack)
        self._running: dict[str, SwarmRequest] = {}
        self._names = count()
        self._completed = self._refused = self._degraded = self._tokens = 0
        self._watching: asyncio.Task[None] | None = None
        self._token_at: float | None = None
        self._preprocessing: Preprocessing | None = None

    # -- what there is --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the model: as it was given, but of a folder or a file the last part alone."""
        given = self.stack.source.name
        return Path(given).name if kind_of(Path(given)) != "nothing" else given

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the model; `None` for one that reads no text."""
        return self.stack.tokenizer

    @property
    def max_length(self) -> int | None:
        """The most tokens that a prompt and its answer have together, if the model has a bound."""
        return longest_input(self.stack.model)

    @property
    def labels(self) -> Sequence[str]:
        """The names of the classes of a model that classifies; empty where it names none."""
        names = getattr(getattr(self.stack.model, "config", None), "id2label", None) or {}
        return tuple(names[number] for number in sorted(names))

    @property
    def is_over(self) -> bool:
        """Whether no node will ever answer again: this swarm is to be gathered anew."""
        return self._transport.is_over

    @property
    def members(self) -> NodeRecords:
        """The nodes, as the router sees them."""
        return self._members

    def expected(self, missing: frozenset[int]) -> Expected:
        """What answers cost without these layers, in nats per token."""
        if not missing:
            return COMPLETE
        return UNKNOWN if self.estimate is None else self.estimate.expected(missing)

    def overview(self) -> Overview:
        """The swarm at this moment."""
        running = tuple(
            RequestView(name, session.tokens, str(session.live.running), session.live.missing_numbers)
            for name, session in self._running.items()
        )
        requested = set(layers_of(self.plan))
        live = tuple(sorted(layer.number for layer in self._members.live_layers() & requested))
        return Overview(
            self.name,
            self.stack.depth,
            self._members.seconds,
            tuple(member.view() for member in self._members),
            running,
            self._completed,
            self._refused,
            self._degraded,
            self._tokens,
            live,
            str(self.quorum),
            tuple(self._members.events),
        )

    async def fill(self) -> None:
        """Send every node its layers, and begin to rely on it. Raises `SwarmError` where one cannot take them."""
        await self._supply.fill(self._transport, self._members)

    # -- requests -------------------------------------------------------------------------------------------------

    def generate(self, ids: Tensor | Sequence[int], *, request: str | None = None, **options: Any) -> Answer:
        """Answer a prompt; `options` are those of `generate`. Raises `BelowQuorumError` if too few layers are left."""
        return self.run(self.answer(ids, request=request, **options))

    def outputs(self, **inputs: Any) -> tuple[Tensor, Answer]:
        """What the model returns on `inputs` in one pass (logits, or the last hidden state), and by which layers."""
        return self.run(self.single_pass(inputs))

    def run(self, work: Awaitable[T]) -> T:
        """Run this swarm's event loop until `work` is done."""
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=self._loop_factory)

        async def main() -> T:
            return await work

        return self._runner.run(main())

    async def answer(self, ids: Tensor | Sequence[int], *, request: str | None = None, **options: Any) -> Answer:
        """The answer to one prompt; `options` are those of `generate`."""
        async with aclosing(self._stream(ids, request, None, options)) as items:
            async for item in items:
                if isinstance(item, Answer):
                    return item
        raise SwarmError("the stream of a request ended without its answer")

    async def stream(
        self, ids: Sequence[int], decoding: Decoding, *, request: str, made: Sequence[int] = ()
    ) -> AsyncGenerator[int | Answer, None]:
        """Yield the new tokens, then the `Answer`. Closing the generator cancels the request.

        `made` tokens of another swarm are continued exactly. Raises `BelowQuorumError`, also after the first token.
        """
        draws = None if decoding.seed is None else partial(_draws, decoding.seed, len(made))
        text = TextStream(self.tokenizer, ids, decoding.stop) if decoding.stop else None
        if text is not None:
            for token in made:
                text.add(token)

        def stops(token: int) -> bool:
            if text is not None:
                text.add(token)
            return text is not None and text.stopped

        options = _options(decoding, len(made))
        async with aclosing(self._stream([*ids, *made], request, draws, options, stops)) as items:
            async for item in items:
                yield item

    async def single_pass(self, inputs: Mapping[str, Any], *, request: str | None = None) -> tuple[Tensor, Answer]:
        """The main output of one forward pass, and by which layers it was made."""
        async with self._session(request) as session:
            with torch.inference_mode():
                captured = self.stack.capture(**inputs)
            session.recapture = lambda: captured
            state = await self.router.forward(session, captured)
            with torch.inference_mode():
                output = main_tensor(self.stack.finish(state, captured.inputs))
            return output, self._answer(session, (), "stop")

    async def classify(self, image: Image, *, request: str) -> tuple[Sequence[float], Answer]:
        """The probabilities of a vision model's classes for one image."""
        pixels = (await asyncio.to_thread(self.pixels, image)).to(self.stack.device, self.stack.dtype)
        logits, answer = await self.single_pass({"pixel_values": pixels}, request=request)
        return torch.softmax(logits[0].float(), dim=-1).tolist(), answer

    async def score(self, ids: Sequence[int], *, request: str) -> tuple[PromptScores, Answer]:
        """How likely the tokens of a prompt are, by one pass."""
        given = torch.tensor([list(ids)], device=self.stack.device)
        logits, answer = await self.single_pass({"input_ids": given}, request=request)
        logprobs: list[float] = []
        best: list[int] = []
        best_logprobs: list[float] = []
        following = torch.cat([given[0, 1:], given[0, :1]])  # of the last one nobody asks
        for first in range(0, len(following), ROWS):
            scores = torch.log_softmax(logits[0, first : first + ROWS].float(), dim=-1)
            logprobs += scores.gather(1, following[first : first + ROWS, None])[:, 0].tolist()
            most = scores.max(dim=-1)
            best, best_logprobs = [*best, *most.indices.tolist()], [*best_logprobs, *most.values.tolist()]
        return PromptScores(tuple(logprobs[:-1]), tuple(best), tuple(best_logprobs)), answer

    def pixels(self, image: Image) -> Tensor:
        """The pixel values of one image, as the model's own preprocessing makes them."""
        if self._preprocessing is None:
            self._preprocessing = preprocessing_of(
                self.stack.model.config,
                location_of(self.stack.source.name),
                trust_remote_code=self.stack.source.trust_remote_code,
            )
        prepared = self._preprocessing
        return prepared.scaling(prepared.pixels(image)[None])

    async def _stream(
        self,
        ids: Tensor | Sequence[int],
        request: str | None,
        draws: Callable[[int], torch.Generator] | None,
        options: Mapping[str, Any],
        stops: Callable[[int], bool] = lambda token: False,
    ) -> AsyncGenerator[int | Answer, None]:
        prompt = ids if isinstance(ids, Tensor) else torch.tensor([list(ids)], device="cpu")
        prompt = prompt.reshape(1, -1).to(self.stack.device)
        async with self._session(request) as session:
            tokens: list[int] = []
            finish: Finish
            most, finish = options.get("max_new_tokens"), "stop"
            async with aclosing(decode(self.router, session, self._head, prompt, draws, **options)) as steps:
                async for chosen in steps:
                    tokens.append(int(chosen))
                    self._tokens += 1
                    self._token_at = self._now()
                    yield tokens[-1]
                    if stops(tokens[-1]):
                        break
                else:
                    finish = "length" if len(tokens) == most else "stop"
            answer = self._answer(session, tuple(tokens), finish)
        yield answer

    def _answer(self, session: SwarmRequest, tokens: tuple[int, ...], finish: Finish) -> Answer:
        answer = Answer(session.request, tokens, finish, self._spans(session))
        self._completed += 1
        self._degraded += not answer.is_whole
        self._members.note("completed", f"{session.tokens} tokens", request=session.request)
        return answer

    def spans(self, request: str) -> tuple[TokenSpan, ...]:
        """Which plans wrote the tokens so far of a request under way."""
        return self._spans(self._running[request])

    def _spans(self, session: SwarmRequest) -> tuple[TokenSpan, ...]:
        requested = set(layers_of(session.requested))

        def cost(live: LivePlan) -> Expected:
            if requested.issuperset(visit.layer for visit in live.visits):
                return self.expected(frozenset(live.missing_numbers))
            return UNKNOWN if self.estimate is None else self.estimate.of_plan(str(live.running))

        return session.spans(cost, self.settings.on_loss == "recompute")

    @asynccontextmanager
    async def _session(self, request: str | None) -> AsyncIterator[SwarmRequest]:
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self.health.watch())
        name = request or f"request-{next(self._names)}"
        if name in self._running:
            raise SwarmError(f"request {name} is under way already; give each request a name of its own")
        session = SwarmRequest.of(name, self.plan)
        self._running[name] = session
        try:
            yield session
        except BelowQuorumError:
            self._refused += 1
            raise
        finally:
            del self._running[name]
            self.router.release(session)

    # -- watching -------------------------------------------------------------------------------------------------

    async def ready(self) -> tuple[bool, str]:
        """Whether a token, or one pass, was made just now; else why not."""
        if self._token_at is not None and self._now() - self._token_at < READY_FOR:
            return True, "a token was made in the last seconds"
        try:
            if self.tokenizer is None and example_inputs(self.stack.model, 4) is not None and not writes(self.stack):
                await self.single_pass(smallest_inputs(self.stack))
                self._token_at = self._now()
            else:
                await self.answer(smallest_inputs(self.stack)["input_ids"], max_new_tokens=1, do_sample=False)
        except SwarmError as error:
            return False, str(error)
        return True, "a token was made just now"

    def _now(self) -> float:
        if self._loop_factory is None or self._runner is None:
            return time.monotonic()
        return self._runner.get_loop().time()

    async def close(self) -> None:
        """Stop watching, and every node that the transport started."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
            self._watching = None
        await self._calling.close()
        await self._transport.close()

    def shut_down(self) -> None:
        """`close`, for a swarm that was run by `generate` and `outputs`."""
        self.run(self.close())
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()


def _draws(seed: int, made: int, step: int) -> torch.Generator:
    own = np.random.SeedSequence((seed % 2**64, made + step)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(own[0]))


def _options(decoding: Decoding, made: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_new_tokens": decoding.max_new_tokens - made,
        "min_new_tokens": max(decoding.min_new_tokens - made, 0) or None,
        "do_sample": decoding.samples,
        "repetition_penalty": decoding.repetition_penalty,
    }
    if decoding.samples:
        options |= {"temperature": decoding.temperature, "top_p": decoding.top_p, "top_k": decoding.top_k}
        options |= {"min_p": decoding.min_p} if decoding.min_p else {}
    return options
