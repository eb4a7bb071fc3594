"""A model whose layers are on several nodes.

A `Swarm` belongs to one event loop. `generate` and `outputs` run that loop until the answer is complete; a server
awaits `stream` and `classify` in its own loop.
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
from layerwise.data.text.text_stream import TextStream
from layerwise.data.vision.preprocessing import Preprocessing, load_preprocessing
from layerwise.errors import BelowQuorumError, SwarmError
from layerwise.stack import Stack
from layerwise.stack.inputs import example_inputs, main_tensor
from layerwise.stack.max_length import longest_input
from layerwise.swarm.answer import (
    COMPLETE,
    UNKNOWN,
    Answer,
    Decoding,
    ExpectedCost,
    Finish,
    Overview,
    PromptScores,
    RequestView,
    TokenSpan,
)
from layerwise.swarm.calls import NodeClient
from layerwise.swarm.checks import HealthChecks, smallest_inputs
from layerwise.swarm.decoding import BatchedHead, ServableModel, check_servable, decode, generates_text
from layerwise.swarm.estimate import LossEstimate
from layerwise.swarm.messages import Transport
from layerwise.swarm.node_records import NodeRecords
from layerwise.swarm.request import LivePlan, SwarmRequest, find_layers
from layerwise.swarm.router import Router
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.supply import Supply

if TYPE_CHECKING:
    from PIL.Image import Image

READY_SECONDS = 5.0
"""Seconds after the last token during which the swarm counts as ready."""

SCORE_POSITIONS = 256
"""Number of prompt positions whose probabilities are computed at once, which limits memory for large vocabularies."""

T = TypeVar("T")


class Swarm:
    """A model on several nodes that keeps answering when some of them fail.

    Args:
        stack: The model.
        transport: Sends messages to the nodes.
        supply: Plan and placement of the layers. `load_nodes` sends the layers to the nodes.
        settings: Quorum, deadlines and checks.
        estimate: Measured cost of missing layers.
        servable: Result of `check_servable`, if it was already called.
        loop_factory: Factory of the event loop, such as `VirtualLoop`.

    Raises:
        UnsupportedModelError: If the layers cannot run on nodes.
        SwarmError: If the plan has too few layers to ever meet the quorum.
    """

    def __init__(
        self,
        stack: Stack,
        transport: Transport,
        supply: Supply,
        settings: SwarmSettings | None = None,
        *,
        estimate: LossEstimate | None = None,
        servable: ServableModel | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self.stack = stack
        self.settings = settings or SwarmSettings()
        self.plan = supply.plan
        self._supply = supply
        servable = servable or check_servable(stack, self.plan, self.settings)  # before there is a loop to be closed
        self.quorum = servable.quorum
        self._transport = transport
        self._loop_factory = loop_factory
        self._runner = None if loop_factory is None else asyncio.Runner(loop_factory=loop_factory)
        self._members = NodeRecords(self._now, self.settings.first_deadline, self.settings.min_deadline)
        self.estimate = estimate
        self._client = NodeClient(transport, self._members, self.settings, servable.sample)
        self.health = HealthChecks(self._client, supply)
        self.router = Router(self._client, self.quorum, self.estimate_cost, servable.referee)
        self._head = BatchedHead(stack)
        self._running: dict[str, SwarmRequest] = {}
        self._names = count()
        self._completed = self._refused = self._degraded = self._tokens = 0
        self._watching: asyncio.Task[None] | None = None
        self._token_at: float | None = None
        self._preprocessing: Preprocessing | None = None

    # -- properties -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the model, or the last part of its path if it is a local file or folder."""
        name = self.stack.source.name
        return Path(name).name if kind_of(Path(name)) != "nothing" else name

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of the model, or `None` if the model does not read text."""
        return self.stack.tokenizer

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of a prompt and its answer together, or `None` if the model has no limit."""
        return longest_input(self.stack.model)

    @property
    def labels(self) -> Sequence[str]:
        """Class names of a classifier, in the order of its logits."""
        names = getattr(getattr(self.stack.model, "config", None), "id2label", None) or {}
        return tuple(names[number] for number in sorted(names))

    @property
    def is_over(self) -> bool:
        """True if all nodes have failed permanently, so a new swarm is needed."""
        return self._transport.is_over

    @property
    def members(self) -> NodeRecords:
        return self._members

    def estimate_cost(self, missing: frozenset[int]) -> ExpectedCost:
        """Return the expected cost of missing layers in nats/token."""
        if not missing:
            return COMPLETE
        return UNKNOWN if self.estimate is None else self.estimate.expected(missing)

    def overview(self) -> Overview:
        """Return the current state of the swarm."""
        running = tuple(
            RequestView(name, session.tokens, str(session.live.running), session.live.missing_numbers)
            for name, session in self._running.items()
        )
        requested = set(find_layers(self.plan))
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

    async def load_nodes(self) -> None:
        """Send every node its layers. Raises `SwarmError` if a node cannot load them."""
        await self._supply.load_nodes(self._transport, self._members)

    # -- requests -------------------------------------------------------------------------------------------------

    def generate(self, ids: Tensor | Sequence[int], *, request: str | None = None, **options: Any) -> Answer:
        """Generate an answer to a prompt.

        Args:
            ids: Token ids of the prompt, `(seq,)`.
            request: Unique name of the request (default: numbered).
            **options: Options of transformers' `generate`.

        Raises:
            BelowQuorumError: If too few layers are live.
        """
        return self.run(self.answer(ids, request=request, **options))

    def outputs(self, **inputs: Any) -> tuple[Tensor, Answer]:
        """Run one pass and return the logits (or last hidden state) and an `Answer` with the plan that ran."""
        return self.run(self.run_pass(inputs))

    def run(self, work: Awaitable[T]) -> T:
        """Run this swarm's event loop until `work` is done."""
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=self._loop_factory)

        async def main() -> T:
            return await work

        return self._runner.run(main())

    async def answer(self, ids: Tensor | Sequence[int], *, request: str | None = None, **options: Any) -> Answer:
        """Generate an answer in the caller's event loop, with the options of transformers' `generate`."""
        async with aclosing(self._stream(ids, request, None, options)) as items:
            async for item in items:
                if isinstance(item, Answer):
                    return item
        raise SwarmError("The stream of a request ended without an answer.")

    async def stream(
        self, ids: Sequence[int], decoding: Decoding, *, request: str, made: Sequence[int] = ()
    ) -> AsyncGenerator[int | Answer, None]:
        """Yield the new tokens, then the `Answer`. Closing the generator cancels the request.

        `made` are tokens of the answer that another swarm already generated; generation continues exactly after them.
        Raises `BelowQuorumError`, possibly between two tokens, if too few layers are live.
        """
        draws = None if decoding.seed is None else partial(_make_generator, decoding.seed, len(made))
        text = TextStream(self.tokenizer, ids, decoding.stop) if decoding.stop else None
        if text is not None:
            for token in made:
                text.add(token)

        def stops(token: int) -> bool:
            if text is not None:
                text.add(token)
            return text is not None and text.stopped

        options = _generation_options(decoding, len(made))
        async with aclosing(self._stream([*ids, *made], request, draws, options, stops)) as items:
            async for item in items:
                yield item

    async def run_pass(self, inputs: Mapping[str, Any], *, request: str | None = None) -> tuple[Tensor, Answer]:
        """Run one forward pass and return the main output and an `Answer` with the plan that ran."""
        async with self._session(request) as session:
            with torch.inference_mode():
                captured = self.stack.capture(**inputs)
            session.recapture = lambda: captured
            state = await self.router.forward(session, captured)
            with torch.inference_mode():
                output = main_tensor(self.stack.finish(state, captured.inputs))
            return output, self._answer(session, (), "stop")

    async def classify(self, image: Image, *, request: str) -> tuple[Sequence[float], Answer]:
        """Return the class probabilities of an image."""
        pixels = (await asyncio.to_thread(self.preprocess_image, image)).to(self.stack.device, self.stack.dtype)
        logits, answer = await self.run_pass({"pixel_values": pixels}, request=request)
        return torch.softmax(logits[0].float(), dim=-1).tolist(), answer

    async def score(self, ids: Sequence[int], *, request: str) -> tuple[PromptScores, Answer]:
        """Compute the log-probabilities of the tokens of a prompt in one pass."""
        given = torch.tensor([list(ids)], device=self.stack.device)
        logits, answer = await self.run_pass({"input_ids": given}, request=request)
        logprobs: list[float] = []
        best: list[int] = []
        best_logprobs: list[float] = []
        following = torch.cat([given[0, 1:], given[0, :1]])  # the last one is unused
        for first in range(0, len(following), SCORE_POSITIONS):
            scores = torch.log_softmax(logits[0, first : first + SCORE_POSITIONS].float(), dim=-1)
            logprobs += scores.gather(1, following[first : first + SCORE_POSITIONS, None])[:, 0].tolist()
            top = scores.max(dim=-1)
            best, best_logprobs = [*best, *top.indices.tolist()], [*best_logprobs, *top.values.tolist()]
        return PromptScores(tuple(logprobs[:-1]), tuple(best), tuple(best_logprobs)), answer

    def preprocess_image(self, image: Image) -> Tensor:
        """Preprocess an image to pixel values `(1, channels, height, width)`."""
        if self._preprocessing is None:
            self._preprocessing = load_preprocessing(
                self.stack.model.config,
                location_of(self.stack.source.name),
                trust_remote_code=self.stack.source.trust_remote_code,
            )
        preprocessing = self._preprocessing
        return preprocessing.scaling(preprocessing.pixels(image)[None])

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
            max_new_tokens, finish = options.get("max_new_tokens"), "stop"
            async with aclosing(decode(self.router, session, self._head, prompt, draws, **options)) as steps:
                async for token in steps:
                    tokens.append(int(token))
                    self._tokens += 1
                    self._token_at = self._now()
                    yield tokens[-1]
                    if stops(tokens[-1]):
                        break
                else:
                    finish = "length" if len(tokens) == max_new_tokens else "stop"
            answer = self._answer(session, tuple(tokens), finish)
        yield answer

    def _answer(self, session: SwarmRequest, tokens: tuple[int, ...], finish: Finish) -> Answer:
        answer = Answer(session.request, tokens, finish, self._spans(session))
        self._completed += 1
        self._degraded += not answer.is_complete
        self._members.note("completed", f"{session.tokens} tokens", request=session.request)
        return answer

    def spans(self, request: str) -> tuple[TokenSpan, ...]:
        """Return the spans of the tokens that a running request has generated so far."""
        return self._spans(self._running[request])

    def _spans(self, session: SwarmRequest) -> tuple[TokenSpan, ...]:
        requested = set(find_layers(session.requested))

        def cost(live: LivePlan) -> ExpectedCost:
            if requested.issuperset(visit.layer for visit in live.visits):
                return self.estimate_cost(frozenset(live.missing_numbers))
            return UNKNOWN if self.estimate is None else self.estimate.for_plan(str(live.running))

        return session.spans(cost, self.settings.on_loss == "recompute")

    @asynccontextmanager
    async def _session(self, request: str | None) -> AsyncIterator[SwarmRequest]:
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self.health.watch())
        name = request or f"request-{next(self._names)}"
        if name in self._running:
            raise SwarmError(f"Request {name} is already running. Give each request a unique name.")
        session = SwarmRequest.create(name, self.plan)
        self._running[name] = session
        try:
            yield session
        except BelowQuorumError:
            self._refused += 1
            raise
        finally:
            del self._running[name]
            self.router.release(session)

    # -- monitoring -----------------------------------------------------------------------------------------------

    async def ready(self) -> tuple[bool, str]:
        """Return True if the swarm can generate a token (or run one pass), and the reason for the answer."""
        if self._token_at is not None and self._now() - self._token_at < READY_SECONDS:
            return True, "a token was generated in the last few seconds"
        try:
            if (
                self.tokenizer is None
                and example_inputs(self.stack.model, 4) is not None
                and not generates_text(self.stack)
            ):
                await self.run_pass(smallest_inputs(self.stack))
                self._token_at = self._now()
            else:
                await self.answer(smallest_inputs(self.stack)["input_ids"], max_new_tokens=1, do_sample=False)
        except SwarmError as error:
            return False, str(error)
        return True, "a token was generated just now"

    def _now(self) -> float:
        if self._loop_factory is None or self._runner is None:
            return time.monotonic()
        return self._runner.get_loop().time()

    async def close(self) -> None:
        """Stop the health checks and all nodes that the transport started."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
            self._watching = None
        await self._client.close()
        await self._transport.close()

    def shut_down(self) -> None:
        """Close a swarm that was used through `generate` and `outputs`."""
        self.run(self.close())
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()


def _make_generator(seed: int, made: int, step: int) -> torch.Generator:
    state = np.random.SeedSequence((seed % 2**64, made + step)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def _generation_options(decoding: Decoding, made: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_new_tokens": decoding.max_new_tokens - made,
        "min_new_tokens": max(decoding.min_new_tokens - made, 0) or None,
        "do_sample": decoding.is_sampled,
        "repetition_penalty": decoding.repetition_penalty,
    }
    if decoding.is_sampled:
        options |= {"temperature": decoding.temperature, "top_p": decoding.top_p, "top_k": decoding.top_k}
        options |= {"min_p": decoding.min_p} if decoding.min_p else {}
    return options
