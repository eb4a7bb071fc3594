"""Open every page of the site in a headless Chromium, in wide and narrow windows.

    python tools/check_pages.py build/docs

The check fails if a page scrolls sideways or an image is missing. Without Chromium, it prints a message and exits with
status 0.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (1280, 420)
CHECKER = "check-pages.html"

SCRIPT = """
<body><script>
const wait = (frame, url) => new Promise(done => { frame.onload = done; frame.src = url; });
async function check() {
  const failures = [];
  for (const width of %(widths)s) {
    const frame = document.createElement("iframe");
    frame.style = `width: ${width}px; height: 900px; border: 0`;
    document.body.append(frame);
    for (const page of %(pages)s) {
      await wait(frame, page);
      const root = frame.contentDocument.documentElement;
      const images = [...frame.contentDocument.images].filter(image => image.complete && !image.naturalWidth);
      if (root.scrollWidth > root.clientWidth)
        failures.push(`${page} at ${width} pixels is ${root.scrollWidth} wide`);
      images.forEach(image => failures.push(`${page} shows no ${image.getAttribute("src")}`));
    }
  }
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(failures);
  document.body.append(result);
}
check();
</script></body>
"""


class Pages(SimpleHTTPRequestHandler):
    """A server of the site, and of the page that opens all others."""

    def do_GET(self) -> None:
        if self.path != f"/{CHECKER}":
            super().do_GET()
            return
        body = self.checker().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def checker(self) -> str:
        """Return the page that opens the others, except reports, which the tests of the package open."""
        folder = Path(self.directory)
        pages = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
        shown = [page for page in pages if not page.startswith(("reports/", "_static/"))]
        return SCRIPT % {"widths": list(WIDTHS), "pages": json.dumps(shown)}

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def failures(folder: Path, browser: str) -> list[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--virtual-time-budget=3600000",
                f"--user-data-dir={home}/profile",
                "--dump-dom",
                f"http://127.0.0.1:{server.server_port}/{CHECKER}",
            ],
            capture_output=True,
            text=True,
            timeout=900,
            check=True,
            env={**os.environ, "HOME": home},
        )
    server.shutdown()
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    if result is None:
        return ["the browser did not get to the end of the pages"]
    return [str(failure) for failure in json.loads(unescape(result[1]))]


def main(folder: str) -> int:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        print("The pages were not opened: Chromium is not installed.")
        return 0
    wrong = failures(Path(folder), browser)
    print("\n".join(wrong) or "No page scrolls sideways, and no picture is missing.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
