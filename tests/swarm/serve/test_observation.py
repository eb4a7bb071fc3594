"""Health, metrics, live page, start and shutdown of a server."""

import asyncio
import json
import math
import os
import re
import signal
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from layerwise.errors import SwarmError
from layerwise.swarm.nodes.local import VirtualLoop
from layerwise.swarm.serve.page_files import PAGE
from layerwise.swarm.serve.run import STOP_SIGNALS, check_libraries, run
from layerwise.swarm.serve.settings import ServeSettings
from layerwise.swarm.serve.state import Readiness
from swarm.serve.fake import FakeSwarm
from swarm.serve.serving import PATIENCE, client, run_server, stream, wait_until


def test_health_endpoint() -> None:
    with client(FakeSwarm()) as http:
        assert (http.get("/health").status_code, http.get("/health").json()) == (200, {"ready": True})
    with client(FakeSwarm(is_ready=(False, "layer 4 has no live node"))) as http:
        refused = http.get("/health")
        assert (refused.status_code, refused.json()["reason"]) == (503, "layer 4 has no live node")
        assert http.get("/live").status_code == 200


def virtually(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def test_probes_share_a_check_with_a_timeout() -> None:
    class Silent(FakeSwarm):
        async def ready(self) -> tuple[bool, str]:
            await asyncio.sleep(60)
            raise AssertionError

    class Broken(FakeSwarm):
        async def ready(self) -> tuple[bool, str]:
            raise RuntimeError("no cluster")

    async def checks(service: FakeSwarm) -> list[tuple[bool, str]]:
        readiness = Readiness(service, seconds=5.0)
        answers = []
        for _ in range(2):
            answers += await asyncio.gather(*(readiness.check() for _ in range(20)))
            await asyncio.sleep(1.0)
        return answers

    service = FakeSwarm()
    assert virtually(checks(service)) == [(True, "")] * 40
    assert service.checks == 2, "one for each of the two seconds"
    assert virtually(checks(Silent()))[0] == (False, "no token was generated within 5 s")
    assert virtually(checks(Broken()))[0] == (False, "no token could be generated: no cluster")


def test_metrics() -> None:
    service = FakeSwarm(lost_from=3)
    service.lose("node-1")
    with client(service) as http:
        for body in ({"prompt": "a", "max_tokens": 9}, {"prompt": "a", "max_tokens": 2}, {"prompt": "a", "n": 2}, {}):
            http.post("/v1/completions", json=body)
        http.post("/v1/completions", content=b"{", headers={"Content-Type": "application/json"})
        text = http.get("/metrics").text
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["layerwise_requests_total", "completions", "degraded"] == 1
    assert samples["layerwise_requests_total", "completions", "completed"] == 1
    assert samples["layerwise_requests_total", "completions", "invalid"] == 3
    assert samples[("layerwise_tokens_total",)] == 11
    assert samples[("layerwise_first_token_seconds_count",)] == 2
    assert samples[("layerwise_token_seconds_count",)] == 9
    assert samples[("layerwise_requests_running",)] == 0
    assert samples["layerwise_swarm_nodes", "live"] == 3
    assert samples["layerwise_swarm_nodes", "gone"] == 1
    assert samples[("layerwise_swarm_layers",)] == 12
    assert samples[("layerwise_swarm_layers_live",)] == 12
    assert samples["layerwise_swarm_calls_total", "node-2"] == 842
    assert samples["layerwise_swarm_call_seconds", "node-0", "0.99"] == 0.031
    assert "python_info" not in text  # a separate registry


def test_servers_have_separate_metrics() -> None:
    with client(FakeSwarm()) as first, client(FakeSwarm()) as second:
        first.post("/v1/completions", json={"prompt": "a"})
        assert 'layerwise_requests_total{endpoint="completions"' in first.get("/metrics").text
        assert 'layerwise_requests_total{endpoint="completions"' not in second.get("/metrics").text


def overviews(url: str) -> Iterator[dict[str, object]]:
    with urllib.request.urlopen(f"{url}/swarm/events", timeout=PATIENCE) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def test_events_stream_a_lost_node_and_limit_viewers() -> None:
    service = FakeSwarm()
    with run_server(service, page_seconds=0.02, max_viewers=1) as running:
        seen = overviews(running.url)
        first = next(seen)
        assert [node["state"] for node in first["nodes"]] == ["live"] * 4
        with pytest.raises(urllib.error.HTTPError, match="429"):
            next(overviews(running.url))
        service.lose("node-2")
        lost = next(each for each in seen if len(each["events"]) == 2)
        assert lost["nodes"][2]["state"] == "gone"
        assert lost["events"][-1]["text"] == "node-2 has failed"
        # A page that is open does not keep the server from ending: `run_server` waits for that.
    assert running.status == 0


def test_the_page_is_self_contained() -> None:
    """The page loads nothing from elsewhere, has no inline code, and puts data into it only as text."""
    with client(FakeSwarm(name="<script>secret</script>")) as http:
        page = http.get("/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "'unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        for name in sorted(each.name for each in PAGE.iterdir()):
            part = http.get(f"/page/{name}")
            assert part.status_code == 200
            text = part.text.replace("http://www.w3.org/2000/svg", "")
            assert not re.search(
                r"https?://|@import|url\(|innerHTML|outerHTML|insertAdjacentHTML|\son\w+=\"|style=", text
            ), name
        assert "secret" not in page.text
        assert http.get("/swarm/overview").json()["model"] == "<script>secret</script>"
        state = http.get("/api/state").json()
    assert state == {"mode": "swarm", "model": "<script>secret</script>", "depth": 12, "chat": False, "images": False}


def is_refusing(url: str) -> bool:
    try:
        next(stream(url, 1))
    except urllib.error.HTTPError:
        return False  # it still answers, with a refusal
    except OSError:
        return True
    return False


def test_slow_requests_are_cut_off_at_shutdown() -> None:
    with run_server(FakeSwarm(allowed=1), drain_seconds=0.1) as running:
        events = stream(running.url, 60)
        next(events)
        running.stop()
        *_, last = events
        assert last["error"]["code"] == "shutting_down"
        assert running.service.cancelled
    assert running.status == 1


def test_a_stopped_server_leaves_no_thread() -> None:
    before = {thread.name for thread in threading.enumerate()}
    with run_server(FakeSwarm()) as running:
        list(stream(running.url, 3))
    assert {thread.name for thread in threading.enumerate()} <= before


def test_a_used_port_is_reported_before_nodes_start() -> None:
    async def gather() -> FakeSwarm:
        raise AssertionError("the nodes were started")

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SwarmError, match=f"Cannot listen on 127.0.0.1:{port}: .*Pass another --port"):
            run(gather, ServeSettings(port=port), print)
    with pytest.raises(SwarmError, match="requires an access token"):
        run(gather, ServeSettings(host="0.0.0.0"), print)


def test_a_gathering_failure_is_raised() -> None:
    async def gather() -> FakeSwarm:
        raise SwarmError("no node has memory for layer 3")

    with pytest.raises(SwarmError, match="layer 3"):
        run(gather, ServeSettings(port=0), print)


def test_hung_nodes_do_not_block_the_shutdown() -> None:
    class Stubborn(FakeSwarm):
        async def close(self) -> None:
            self.closed = True
            await asyncio.sleep(60)

    with run_server(Stubborn(), close_seconds=0.1) as running:
        pass
    assert running.status == 1


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SwarmError, match=r"requires uvicorn.*pip install 'layerwise\[ray\]'"):
        check_libraries()


@pytest.fixture
def signals() -> Iterator[None]:
    before = {number: signal.signal(number, _unhandled) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _unhandled(number: int, encode_frame: object) -> None:
    raise AssertionError(f"{signal.Signals(number).name} was not handled")


def run_with_client(client: Callable[[FakeSwarm, str], None], service: FakeSwarm, **settings: Any) -> int:
    failures: list[BaseException] = []

    def work(url: str) -> None:
        try:
            client(service, url)
        except BaseException as failure:
            failures.append(failure)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)

    async def gather() -> FakeSwarm:
        return service

    threads: list[threading.Thread] = []

    def announce(url: str) -> None:
        threads.append(threading.Thread(target=work, args=(url,)))
        threads[0].start()

    status = run(gather, ServeSettings(port=0, **settings), announce)
    threads[0].join(PATIENCE)
    if failures:
        raise failures[0]
    assert service.closed
    return status


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_drains_requests_and_closes_nodes(number: signal.Signals) -> None:
    def client(service: FakeSwarm, url: str) -> None:
        events = stream(url, 40)
        next(events)
        os.kill(os.getpid(), number)
        wait_until(lambda: is_refusing(url))
        service.allowed = math.inf
        assert list(events)[-1] == "[DONE]"

    assert run_with_client(client, FakeSwarm(allowed=1), drain_seconds=PATIENCE) == 0


@pytest.mark.usefixtures("signals")
def test_a_second_signal_stops_immediately() -> None:
    def client(service: FakeSwarm, url: str) -> None:
        events = stream(url, 40)
        next(events)
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: is_refusing(url))
        os.kill(os.getpid(), signal.SIGINT)
        *_, last = events
        assert last["error"]["code"] == "shutting_down"

    assert run_with_client(client, FakeSwarm(allowed=1), drain_seconds=3600) == 1


@pytest.mark.usefixtures("signals")
def test_a_signal_stops_the_start_of_nodes() -> None:
    async def gather() -> FakeSwarm:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(3600)
        raise AssertionError

    assert run(gather, ServeSettings(port=0), print) == 0
