"""What `/metrics` says: counts and times of the requests, and the swarm's own overview, for Prometheus."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from layerwise.swarm.answer import NodeState, Overview
from layerwise.swarm.serve.admission import Admission

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""The upper ends of the histograms' buckets."""


class ServerMetrics:
    """Counts what the edge does, in a registry of its own, so that several servers of one process keep apart.

    `outcome` of a request is `completed` (all layers ran), `degraded` (layers were missing), `refused` (below the
    quorum), `overloaded`, `late`, `invalid`, `disconnected`, `stopped` or `failed`.
    """

    def __init__(self, overview: Callable[[], Overview], admission: Admission) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(
            "layerwise_requests", "Requests by endpoint and outcome.", ("endpoint", "outcome"), registry=self.registry
        )
        self.tokens = Counter("layerwise_tokens", "Tokens that were made.", registry=self.registry)
        self.first_token = Histogram(
            "layerwise_first_token_seconds", "From a request's arrival to its first token.",
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self.token = Histogram(
            "layerwise_token_seconds", "From one token of a request to its next.",
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self.request = Histogram(
            "layerwise_request_seconds", "From a request's arrival to its end.",
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
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
        """Nodes by state, layers, hops, failures and times of hops by node, and requests by how they ended."""
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
