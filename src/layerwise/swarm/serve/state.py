"""What the routes share: the swarm, its settings, the queue, whether tokens are made, the counts that `/metrics` shows,
and the end of the server."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request

from layerwise.swarm.answer import Answer, NodeState, Overview
from layerwise.swarm.serve.admission import Admission
from layerwise.swarm.serve.responses import Refusal, outcome_of
from layerwise.swarm.serve.settings import ServeSettings

if TYPE_CHECKING:
    from layerwise.swarm.serve.router_process import RouterProcess
    from layerwise.swarm.swarm import Swarm

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


Service: TypeAlias = "Swarm | RouterProcess"
"""Backend of the routes: a swarm of this process, or the process of its router."""


class ServerMetrics:
    """Counts what the edge does, in a registry of its own, so that several servers of one process keep apart.

    `outcome` of a request is `completed` (all layers ran), `degraded` (layers were missing, or a node computed
    wrongly), `refused` (below the quorum), `overloaded`, `late`, `invalid`, `disconnected`, `stopped` or `failed`.
    """

    def __init__(self, overview: Callable[[], Overview], admission: Admission) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(
            "layerwise_requests", "Requests by endpoint and outcome.", ("endpoint", "outcome"), registry=self.registry
        )
        self.tokens = Counter("layerwise_tokens", "Tokens that were made.", registry=self.registry)
        self.first_token = Histogram(
            "layerwise_first_token_seconds",
            "From a request's arrival to its first token.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.token = Histogram(
            "layerwise_token_seconds",
            "From one token of a request to its next.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.request = Histogram(
            "layerwise_request_seconds", "From a request's arrival to its end.", buckets=SECONDS, registry=self.registry
        )
        running = Gauge("layerwise_requests_running", "Requests that are answered now.", registry=self.registry)
        running.set_function(lambda: admission.running)
        queued = Gauge("layerwise_requests_queued", "Requests that wait to be answered.", registry=self.registry)
        queued.set_function(lambda: admission.queued)
        self.registry.register(SwarmCollector(overview))


class SwarmCollector(Collector):
    """The overview of a swarm as metrics, made when they are read."""

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
        yield GaugeMetricFamily(
            "layerwise_swarm_layers_live", "Layers that a live node holds.", value=len(seen.live_layers)
        )
        hops = CounterMetricFamily("layerwise_swarm_hops", "Calls of a node.", labels=("node",))
        failures = CounterMetricFamily("layerwise_swarm_failures", "Calls of a node that failed.", labels=("node",))
        waiting = GaugeMetricFamily("layerwise_swarm_waiting", "Calls of a node under way.", labels=("node",))
        times = GaugeMetricFamily("layerwise_swarm_hop_seconds", "Time of the last calls.", labels=("node", "quantile"))
        for node in seen.nodes:
            hops.add_metric((node.name,), node.hops)
            failures.add_metric((node.name,), node.failures)
            waiting.add_metric((node.name,), node.waiting)
            for quantile, value in (("0.5", node.median), ("0.99", node.p99)):
                if value is not None:
                    times.add_metric((node.name, quantile), value)
        yield from (hops, failures, waiting, times)
        ended = CounterMetricFamily("layerwise_swarm_requests", "Requests by how they ended.", labels=("outcome",))
        for outcome in ("completed", "refused", "degraded"):
            ended.add_metric((outcome,), getattr(seen, outcome))
        yield ended
        yield CounterMetricFamily("layerwise_swarm_tokens", "Tokens that the swarm made.", value=seen.tokens)


_KEPT_SECONDS = 1.0


class Readiness:
    """Answers any number of probes with one check at a time, so that nobody makes the swarm work by asking."""

    def __init__(self, service: Service, seconds: float) -> None:
        self._service, self._seconds = service, seconds
        self._checking = asyncio.Lock()
        self._last: tuple[float, tuple[bool, str]] | None = None

    async def check(self) -> tuple[bool, str]:
        async with self._checking:
            clock = asyncio.get_running_loop().time
            if self._last is not None and clock() - self._last[0] < _KEPT_SECONDS:
                return self._last[1]
            try:
                async with asyncio.timeout(self._seconds):
                    ready = await self._service.ready()
            except TimeoutError:
                ready = False, f"no token was made within {self._seconds:g} s"
            except Exception as error:  # whatever is wrong with the swarm, it makes no token
                ready = False, f"no token could be made: {error}"
            self._last = clock(), ready
            return ready


class ServerState:
    def __init__(self, service: Service, settings: ServeSettings) -> None:
        self.service, self.settings = service, settings
        self.admission = Admission(settings.most_running, settings.most_queued)
        self.metrics = ServerMetrics(service.overview, self.admission)
        self.readiness = Readiness(service, settings.ready_seconds)
        self.created = int(time.time())

    def check_model(self, model: str | None) -> None:
        """Raise `Refusal` for a request to another model; one that names none is to this."""
        if model is not None and model != self.service.name:
            message = f"the model {model[:80]!r} is not served here; write {self.service.name!r}"
            raise Refusal(404, "model_not_found", message, param="model")

    def count(
        self, endpoint: str, request: Request, ended: Refusal | str | None, answers: Sequence[Answer] = ()
    ) -> None:
        if isinstance(ended, Refusal):
            outcome = outcome_of(ended)
        else:
            is_whole = all(answer.is_whole for answer in answers)
            outcome = ended or ("completed" if is_whole else "degraded")
        self.metrics.requests.labels(endpoint, outcome).inc()
        self.metrics.request.observe(time.monotonic() - request.state.began)
        line: dict[str, object] = {"outcome": outcome}
        for answer in answers:
            line |= {"answer": answer.request, "tokens": len(answer.tokens)}
        request.state.log = line
