"""Server state: admission of requests, readiness and metrics."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request

from layerwise.errors import OverloadedError
from layerwise.swarm.answer import Answer, NodeState, Overview
from layerwise.swarm.serve.responses import RequestError, find_outcome
from layerwise.swarm.serve.settings import ServeSettings

if TYPE_CHECKING:
    from layerwise.swarm.serve.router_process import RouterProcess
    from layerwise.swarm.swarm import Swarm

T = TypeVar("T")


class RequestDeadline:
    """Deadline of a request, which may be shortened while the request waits."""

    def __init__(self, seconds: float) -> None:
        self.at = asyncio.get_running_loop().time() + seconds
        self.refusal = RequestError(504, "deadline_exceeded", f"The request was not completed within {seconds:g} s.")
        self._waiting: asyncio.Timeout | None = None

    async def wait(self, work: Awaitable[T]) -> T:
        """Return the result of `work`, or cancel it at the deadline and raise a `RequestError`."""
        try:
            async with asyncio.timeout_at(self.at) as self._waiting:
                return await work
        except TimeoutError:
            if self._waiting is not None and self._waiting.expired():
                raise self.refusal from None
            raise  # raised by `work`
        finally:
            self._waiting = None

    def shorten(self, seconds: float, refusal: RequestError) -> None:
        at = asyncio.get_running_loop().time() + seconds
        if at < self.at:
            self.at, self.refusal = at, refusal
            if self._waiting is not None and not self._waiting.expired():
                self._waiting.reschedule(at)


_WEIGHT = 0.1  # of the latest request in the moving average of durations


class Admission:
    """Queue that runs up to `max_running` requests at a time. `cut_off` counts the requests that a shutdown ended."""

    def __init__(self, max_running: int, max_queued: int) -> None:
        self._free = asyncio.Semaphore(max_running)
        self._max_running, self._max_queued = max_running, max_queued
        self._mean = 1.0
        self._deadlines: set[RequestDeadline] = set()
        self.stopping = asyncio.Event()
        self.running = self.queued = self.cut_off = 0

    @asynccontextmanager
    async def admit(self, deadline: RequestDeadline) -> AsyncIterator[None]:
        """Wait until a request may run.

        Raises `OverloadedError` if the queue is full, and `RequestError` at the deadline or during a shutdown.
        """
        if self.stopping.is_set():
            raise _shutting_down()
        self._deadlines.add(deadline)
        try:
            async with self._acquire_slot(deadline):
                yield
        except RequestError as refusal:
            self.cut_off += refusal.code == "shutting_down"
            raise
        finally:
            self._deadlines.discard(deadline)

    @asynccontextmanager
    async def _acquire_slot(self, deadline: RequestDeadline) -> AsyncIterator[None]:
        if self._free.locked() and self.queued >= self._max_queued:
            raise OverloadedError(
                f"The server is at capacity ({self.running} requests running, {self.queued} queued). Try again later.",
                retry_after=self._mean * (self.queued + 1) / self._max_running,
            )
        self.queued += 1
        try:
            await deadline.wait(self._free.acquire())
        finally:
            self.queued -= 1
        self.running += 1
        began = time.monotonic()
        try:
            yield
        finally:
            self.running -= 1
            self._free.release()
            self._mean += _WEIGHT * (time.monotonic() - began - self._mean)

    def drain(self, seconds: float) -> None:
        self.stopping.set()
        for deadline in self._deadlines:
            deadline.shorten(seconds, _shutting_down())


def _shutting_down() -> RequestError:
    return RequestError(503, "shutting_down", "The server is shutting down. Try again later.")


SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


Service: TypeAlias = "Swarm | RouterProcess"
"""Backend of the routes: a swarm in this process, or a router process."""


class ServerMetrics:
    """Prometheus metrics of one server, in a separate registry.

    The `outcome` of a request is `completed` (all layers ran), `degraded` (layers were missing or a node returned a
    wrong result), `refused` (below the quorum), `overloaded`, `late`, `invalid`, `disconnected`, `stopped` or `failed`.
    """

    def __init__(self, overview: Callable[[], Overview], admission: Admission) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(
            "layerwise_requests", "Requests by endpoint and outcome.", ("endpoint", "outcome"), registry=self.registry
        )
        self.tokens = Counter("layerwise_tokens", "Generated tokens.", registry=self.registry)
        self.first_token = Histogram(
            "layerwise_first_token_seconds",
            "Time from a request's arrival to its first token.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.token = Histogram(
            "layerwise_token_seconds",
            "Time between two tokens of a request.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.request = Histogram(
            "layerwise_request_seconds",
            "Time from a request's arrival to its end.",
            buckets=SECONDS,
            registry=self.registry,
        )
        running = Gauge("layerwise_requests_running", "Running requests.", registry=self.registry)
        running.set_function(lambda: admission.running)
        queued = Gauge("layerwise_requests_queued", "Queued requests.", registry=self.registry)
        queued.set_function(lambda: admission.queued)
        self.registry.register(SwarmCollector(overview))


class SwarmCollector(Collector):
    def __init__(self, overview: Callable[[], Overview]) -> None:
        self._overview = overview

    def collect(self) -> Iterator[Metric]:
        seen = self._overview()
        nodes = GaugeMetricFamily("layerwise_swarm_nodes", "Nodes by state.", labels=("state",))
        states = Tally(node.state for node in seen.nodes)
        for state in get_args(NodeState):
            nodes.add_metric((state,), states[state])
        yield nodes
        yield GaugeMetricFamily("layerwise_swarm_layers", "Layers of the model.", value=seen.depth)
        yield GaugeMetricFamily("layerwise_swarm_layers_live", "Layers on live nodes.", value=len(seen.live_layers))
        calls = CounterMetricFamily("layerwise_swarm_calls", "Calls of a node.", labels=("node",))
        failures = CounterMetricFamily("layerwise_swarm_failures", "Calls of a node that failed.", labels=("node",))
        waiting = GaugeMetricFamily("layerwise_swarm_waiting", "Unanswered calls of a node.", labels=("node",))
        times = GaugeMetricFamily(
            "layerwise_swarm_call_seconds", "Time of the last calls.", labels=("node", "quantile")
        )
        for node in seen.nodes:
            calls.add_metric((node.name,), node.calls)
            failures.add_metric((node.name,), node.failures)
            waiting.add_metric((node.name,), node.waiting)
            for quantile, value in (("0.5", node.median), ("0.99", node.p99)):
                if value is not None:
                    times.add_metric((node.name, quantile), value)
        yield from (calls, failures, waiting, times)
        ended = CounterMetricFamily("layerwise_swarm_requests", "Requests by how they ended.", labels=("outcome",))
        for outcome in ("completed", "refused", "degraded"):
            ended.add_metric((outcome,), getattr(seen, outcome))
        yield ended
        yield CounterMetricFamily("layerwise_swarm_tokens", "Tokens that the swarm generated.", value=seen.tokens)


_CACHE_SECONDS = 1.0


class Readiness:
    def __init__(self, service: Service, seconds: float) -> None:
        self._service, self._seconds = service, seconds
        self._checking = asyncio.Lock()
        self._last: tuple[float, tuple[bool, str]] | None = None

    async def check(self) -> tuple[bool, str]:
        async with self._checking:
            clock = asyncio.get_running_loop().time
            if self._last is not None and clock() - self._last[0] < _CACHE_SECONDS:
                return self._last[1]
            try:
                async with asyncio.timeout(self._seconds):
                    ready = await self._service.ready()
            except TimeoutError:
                ready = False, f"no token was generated within {self._seconds:g} s"
            except Exception as error:  # any failure means that the swarm is not ready
                ready = False, f"no token could be generated: {error}"
            self._last = clock(), ready
            return ready


class ServerState:
    def __init__(self, service: Service, settings: ServeSettings) -> None:
        self.service, self.settings = service, settings
        self.admission = Admission(settings.max_running, settings.max_queued)
        self.metrics = ServerMetrics(service.overview, self.admission)
        self.readiness = Readiness(service, settings.ready_seconds)
        self.created = int(time.time())

    def check_model(self, model: str | None) -> None:
        if model is not None and model != self.service.name:
            message = f"model must be {self.service.name!r}, got {model[:80]!r}."
            raise RequestError(404, "model_not_found", message, param="model")

    def count(
        self, endpoint: str, request: Request, ended: RequestError | str | None, answers: Sequence[Answer] = ()
    ) -> None:
        if isinstance(ended, RequestError):
            outcome = find_outcome(ended)
        else:
            outcome = ended or ("completed" if all(answer.is_complete for answer in answers) else "degraded")
        self.metrics.requests.labels(endpoint, outcome).inc()
        self.metrics.request.observe(time.monotonic() - request.state.began)
        line: dict[str, object] = {"outcome": outcome}
        for answer in answers:
            line |= {"answer": answer.request, "tokens": len(answer.tokens)}
        request.state.log = line
