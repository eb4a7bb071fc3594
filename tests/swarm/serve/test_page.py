"""The page of a swarm in a real browser."""

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layerwise.swarm.answer import NodeView
from swarm.serve.chromium import BROWSER, BROWSERS, Page, opened
from swarm.serve.fake import FakeSwarm
from swarm.serve.serving import TOKEN, run_server, stream

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: install one of {', '.join(BROWSERS)}"),
]

OVERFLOWS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


def text(selector: str) -> str:
    return f"document.querySelector({selector!r}).innerText"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("browser")) as made:
        yield made


def test_the_page_shows_a_lost_node_live(page: Page) -> None:
    service = FakeSwarm(name="<b>fake</b>/model")
    with run_server(service, page_seconds=0.05) as running:
        page.show(running.url)
        page.wait("document.querySelectorAll('#nodes .live').length === 4")
        assert page.evaluate(text("#model")) == "<b>fake</b>/model"
        assert page.evaluate(text("#state")) == "all layers live"
        assert page.evaluate("document.querySelectorAll('#nodes i').length") == 24
        page.type("#prompt", "The swarm")
        page.evaluate("document.querySelector('#again').click()")
        page.wait("/ s · all layers/.test(document.querySelector('#original').innerText)")
        service.allowed = 5
        events: list[Any] = []
        reading = threading.Thread(target=lambda: events.extend(stream(running.url, 50)))
        reading.start()
        page.wait("/5 tokens/.test(document.querySelector('#requests').innerText)")
        service.lose("node-1")
        page.wait("document.querySelector('[data-node=node-1].gone')")
        assert page.evaluate(text("#events li:first-child .text")) == "node-1 has failed"
        assert page.evaluate(text("#facts dd")) == "12 of 12"
        service.lose("node-3")
        page.wait(f"{text('#state')} === '3 of 12 layers missing'")
        assert page.evaluate(text("#replicas > :last-child")) == "missing: 9-11"
        assert page.evaluate("document.querySelectorAll('#replicas .none').length") == 3
        assert page.evaluate("document.querySelectorAll('#events [data-kind=lost]').length") == 2
        service.allowed = math.inf
        reading.join()
        assert events[-1] == "[DONE]"
        page.wait(f"{text('#requests')} === 'none'")
        assert page.console == []
    page.wait(f"{text('#state')} === 'the server has stopped'")


def test_the_page_needs_a_token(page: Page) -> None:
    with run_server(FakeSwarm(), tokens=(TOKEN,)) as running:
        page.show(running.url)
        page.wait("!document.querySelector('#access').hidden")
        assert page.evaluate("document.querySelector('#swarm').hidden")
        enter = "document.querySelector('#token').value = {!r}; document.querySelector('#access button').click()"
        page.evaluate(enter.format("wrong-token-0123456789"))
        page.wait("!document.querySelector('#wrong').hidden")
        page.evaluate(enter.format(TOKEN))
        page.wait("document.querySelectorAll('#nodes .live').length === 4")
        assert page.evaluate("document.querySelector('#access').hidden")
        assert TOKEN not in page.evaluate("location.href + document.cookie")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_its_window(page: Page, tmp_path: Path, scheme: str, width: int) -> None:
    service = FakeSwarm(name="a-name-of-a-model-that-is-very-long/" + "and-longer-" * 8)
    layers = tuple(f"a:{layer}" for layer in range(12))
    service.nodes += (
        NodeView("machine-1.rack-7.example", layers, "suspected", None, None, 0, 5, 3),
        NodeView("machine-2.rack-7.example", layers, "quarantined", None, None, 0, 5, 3, "too large norms " * 5),
    )
    service.lose("node-1")
    with run_server(service) as running:
        page.show(running.url, width, scheme=scheme)
        page.wait("document.querySelectorAll('#nodes li').length === 6")
        assert not page.evaluate(OVERFLOWS)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(251, 250, 247)", "dark": "rgb(20, 22, 27)"}[scheme]
        shot = tmp_path / "page.png"
        page.picture(shot)
        assert shot.stat().st_size > 10_000
