"""A running server: how it is observed, and how it starts and ends."""

import asyncio
import builtins
import json
import math
import os
import re
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from layerwise.errors import SwarmError
from layerwise.swarm.nodes.local import VirtualLoop
from layerwise.swarm.serve.observation import live_page
from layerwise.swarm.serve.run import ENDING, check_libraries, run
from layerwise.swarm.serve.settings import ServeSettings
from layerwise.swarm.serve.state import Readiness
from swarm.serve.fake import FakeSwarm
from swarm.serve.serving import PATIENCE, client, eventually, served, stream


def test_ready_means_that_a_token_was_made() -> None:
    with client(FakeSwarm()) as http:
        assert (http.get("/health").status_code, http.get("/health").json()) == (200, {"ready": True})
    with client(FakeSwarm(is_ready=(False, "layer 4 has no live node"))) as http:
        refused = http.get("/health")
        assert (refused.status_code, refused.json()["reason"]) == (503, "layer 4 has no live node")
        assert http.get("/live").status_code == 200


def virtually(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def test_probes_share_a_check_and_a_check_has_an_end() -> None:
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
    assert virtually(checks(Silent()))[0] == (False, "no token was made within 5 s")
    assert virtually(checks(Broken()))[0] == (False, "no token could be made: no cluster")


def test_metrics_of_requests_and_of_the_swarm() -> None:
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
    assert samples["layerwise_swarm_hops_total", "node-2"] == 842
    assert samples["layerwise_swarm_hop_seconds", "node-0", "0.99"] == 0.031
    assert "python_info" not in text  # a registry of its own


def test_two_servers_of_one_process_count_for_themselves() -> None:
    with client(FakeSwarm()) as first, client(FakeSwarm()) as second:
        first.post("/v1/completions", json={"prompt": "a"})
        assert 'layerwise_requests_total{endpoint="completions"' in first.get("/metrics").text
        assert 'layerwise_requests_total{endpoint="completions"' not in second.get("/metrics").text


def overviews(url: str) -> Iterator[dict[str, object]]:
    with urllib.request.urlopen(f"{url}/swarm/events", timeout=PATIENCE) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def test_a_loss_is_sent_as_it_happens_and_pages_are_bounded() -> None:
    service = FakeSwarm()
    with served(service, page_seconds=0.02, most_viewers=1) as running:
        seen = overviews(running.url)
        first = next(seen)
        assert [node["state"] for node in first["nodes"]] == ["live"] * 4
        with pytest.raises(urllib.error.HTTPError, match="429"):
            next(overviews(running.url))
        service.lose("node-2")
        lost = next(each for each in seen if len(each["events"]) == 2)
        assert lost["nodes"][2]["state"] == "gone"
        assert lost["events"][-1]["text"] == "node-2 has died"
        # A page that is open does not keep the server from ending: `served` waits for that.
    assert running.status == 0


def test_the_page_is_one_file_that_runs_its_own_script_alone() -> None:
    html, policy = live_page()
    assert not re.search(r"https?://|@import|url\(|\bsrc=|innerHTML|\son\w+=|style=", html)
    assert "/*style*/" not in html
    assert "default-src 'none'" in policy
    assert "'unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    with client(FakeSwarm(name="<script>secret</script>")) as http:
        page = http.get("/swarm")
        assert page.text == html
        assert "secret" not in page.text
        assert page.headers["content-security-policy"] == policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert http.get("/swarm/overview").json()["model"] == "<script>secret</script>"


def refuses(url: str) -> bool:
    try:
        next(stream(url, 1))
    except urllib.error.HTTPError:
        return False  # it still answers, with a refusal
    except OSError:
        return True
    return False


def test_those_that_take_too_long_are_cut_off_with_a_reason() -> None:
    with served(FakeSwarm(allowed=1), drain_seconds=0.1) as running:
        events = stream(running.url, 60)
        next(events)
        running.stop()
        *_, last = events
        assert last["error"]["code"] == "shutting_down"
        assert running.service.cancelled
    assert running.status == 1


def test_nothing_is_left_of_a_server() -> None:
    before = {thread.name for thread in threading.enumerate()}
    with served(FakeSwarm()) as running:
        list(stream(running.url, 3))
    assert {thread.name for thread in threading.enumerate()} <= before


def test_a_port_that_is_taken_is_known_before_the_nodes_start() -> None:
    async def gather() -> FakeSwarm:
        raise AssertionError("the nodes were started")

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SwarmError, match=f"cannot listen on 127.0.0.1:{port}: .*choose another --port"):
            run(gather, ServeSettings(port=port), print)
    with pytest.raises(SwarmError, match="no token for access"):
        run(gather, ServeSettings(host="0.0.0.0"), print)


def test_a_service_that_cannot_be_gathered_is_an_error() -> None:
    async def gather() -> FakeSwarm:
        raise SwarmError("no node has memory for layer 3")

    with pytest.raises(SwarmError, match="layer 3"):
        run(gather, ServeSettings(port=0), print)


def test_nodes_that_do_not_stop_are_not_waited_for() -> None:
    class Stubborn(FakeSwarm):
        async def close(self) -> None:
            self.closed = True
            await asyncio.sleep(60)

    with served(Stubborn(), close_seconds=0.1) as running:
        pass
    assert running.status == 1


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name == "uvicorn":
            raise ImportError("no", name="uvicorn")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SwarmError, match=r"needs uvicorn.*pip install 'layerwise\[ray\]'"):
        check_libraries()


@pytest.fixture
def signals() -> Iterator[None]:
    before = {number: signal.signal(number, _unhandled) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _unhandled(number: int, frame: object) -> None:
    raise AssertionError(f"{signal.Signals(number).name} was not handled")


def run_beside(client: Callable[[FakeSwarm, str], None], service: FakeSwarm, **settings: Any) -> int:
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
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_lets_requests_finish_and_closes_the_nodes(number: signal.Signals) -> None:
    def client(service: FakeSwarm, url: str) -> None:
        events = stream(url, 40)
        next(events)
        os.kill(os.getpid(), number)
        eventually(lambda: refuses(url))
        service.allowed = math.inf
        assert list(events)[-1] == "[DONE]"

    assert run_beside(client, FakeSwarm(allowed=1), drain_seconds=PATIENCE) == 0


@pytest.mark.usefixtures("signals")
def test_a_second_signal_ends_it_now() -> None:
    def client(service: FakeSwarm, url: str) -> None:
        events = stream(url, 40)
        next(events)
        os.kill(os.getpid(), signal.SIGINT)
        eventually(lambda: refuses(url))
        os.kill(os.getpid(), signal.SIGINT)
        *_, last = events
        assert last["error"]["code"] == "shutting_down"

    assert run_beside(client, FakeSwarm(allowed=1), drain_seconds=3600) == 1


@pytest.mark.usefixtures("signals")
def test_a_signal_while_the_nodes_start_ends_it() -> None:
    async def gather() -> FakeSwarm:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(3600)
        raise AssertionError

    assert run(gather, ServeSettings(port=0), print) == 0
