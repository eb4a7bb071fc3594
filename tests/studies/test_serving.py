"""`layerwise serve` on Ray: a router that is killed under a stream changes no token, and nothing is left at the end."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.cluster.processes import descendants, eventually_ended
from swarm.serve.serving import PATIENCE, stream

pytestmark = pytest.mark.slow

TOKENS, BEFORE = 40, 5


def words(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@pytest.fixture
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        yield Path(folder)


def test_a_router_that_is_killed_under_a_stream_is_started_again(temporary: Path) -> None:
    command = [sys.executable, "-m", "layerwise", "serve", "demo", "--port", "0", "--nodes", "2"]
    command += ["--temperature", "0"]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        assert server.stdout is not None
        address = next(match[1] for line in server.stdout if (match := re.search(r"(http://\S+)/v1", line)))
        first = descendants(server.pid)
        *alone, done = stream(address, TOKENS)
        assert done == "[DONE]"
        texts = []
        for event in stream(address, TOKENS):
            texts.append(event)
            if len(texts) == BEFORE:
                (router,) = (process for process in first if "-m layerwise serve" in words(process))
                os.kill(router, signal.SIGKILL)
        assert texts.pop() == "[DONE]"
        assert texts[-1]["layerwise"]["missing"] == []
        written = ["".join(event["choices"][0]["text"] for event in events) for events in (alone, texts)]
        assert written[0] == written[1]
        assert eventually_ended(first)
        second = descendants(server.pid)
        assert second
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
        assert eventually_ended(second)
        assert not list(temporary.glob("layerwise-*"))
    finally:
        server.kill()
        server.communicate()
