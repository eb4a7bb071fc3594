"""Headless Chromium over its debugging pipe, since `--dump-dom` shows a live page only once."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)

ALT, CONTROL, SHIFT = 1, 2, 8


class Page:
    def __init__(self, into: BinaryIO, out: BinaryIO) -> None:
        self._into, self._out, self._count = into, out, 0
        self.console: list[str] = []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    _session = None

    def _call(self, method: str, parameters: dict[str, Any] | None = None) -> Any:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters or {}}
        if self._session is not None:
            message["sessionId"] = self._session
        self._into.write(json.dumps(message).encode() + b"\0")
        self._into.flush()
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                self.console.append(json.dumps(answer["params"]))

    def _message(self) -> bytes:
        parts = bytearray()
        while (byte := self._out.read(1)) != b"\0":
            assert byte, "the browser has ended"
            parts += byte
        return bytes(parts)

    def show(self, url: str, width: int = 1280, height: int = 1000, scheme: str = "light") -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self._call("Emulation.setEmulatedMedia", media)
        self._call("Page.navigate", {"url": url})

    def evaluate(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not self.evaluate(f"(() => {{ try {{ return !!({expression}) }} catch {{ return false }} }})()"):
            assert time.monotonic() < end, f"{expression}\n{self.evaluate('document.body.innerText')}\n{self.console}"
            time.sleep(0.05)

    def drag(self, *points: tuple[float, float], shift: bool = False) -> None:
        """Press the mouse at the first point, move it over the others, and release it; one point is a click."""
        path = [points[0], *points, points[-1]]
        for at, (x, y) in enumerate(path):
            kind = {0: "mousePressed", len(path) - 1: "mouseReleased"}.get(at, "mouseMoved")
            buttons = {"button": "left", "buttons": int(kind != "mouseReleased"), "modifiers": SHIFT * shift}
            self._call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "clickCount": 1, **buttons})

    def press(self, key: str, modifiers: int = 0) -> None:
        text = {"Enter": "\r", " ": " "}.get(key)
        code = {"Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowRight": 39, "Delete": 46}.get(key)
        event = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code or ord(key.upper())}
        self._call("Input.dispatchKeyEvent", {"type": "keyDown", **event, **({"text": text} if text else {})})
        self._call("Input.dispatchKeyEvent", {"type": "keyUp", **event})

    def type(self, selector: str, text: str) -> None:
        """Replace the text of a field."""
        self.evaluate(f"document.querySelector({selector!r}).focus(), document.querySelector({selector!r}).select()")
        self._call("Input.insertText", {"text": text})

    def place(self, selector: str, across: float = 0.5) -> tuple[float, float]:
        """Return a point of an element, `across` of its width from the left."""
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y, width, height = self.evaluate(f"[{box}.x, {box}.y, {box}.width, {box}.height]")
        return x + across * width, y + height / 2

    def controls(self) -> list[dict[str, Any]]:
        """Return the controls as assistive technology sees them."""
        roles = {"button", "textbox", "checkbox", "combobox", "spinbutton", "DisclosureTriangle"}
        nodes = self._call("Accessibility.getFullAXTree")["nodes"]
        return [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]

    def picture(self, file: Path) -> None:
        content = self._call("Page.captureScreenshot", {"captureBeyondViewport": True})["data"]
        file.write_bytes(base64.b64decode(content))


@contextmanager
def opened(folder: Path) -> Iterator[Page]:
    child_in, into = os.pipe()
    out, child_out = os.pipe()

    def pipes() -> None:  # the browser reads from 3 and generates_text to 4
        kept = os.dup(child_out)
        os.dup2(child_in, 3)
        os.dup2(kept, 4)

    command = [
        str(BROWSER),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-background-networking",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder / 'profile'}",
    ]
    browser = subprocess.Popen(
        command,
        preexec_fn=pipes,
        pass_fds=(3, 4),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(child_in)
    os.close(child_out)
    try:
        with os.fdopen(into, "wb") as writing, os.fdopen(out, "rb", buffering=2**16) as reading:
            yield Page(writing, reading)
    finally:
        browser.terminate()
        browser.wait(60)
