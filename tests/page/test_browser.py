"""The page in a real browser: figures, interaction, dark mode, narrow screens, and no console messages."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from layerwise.page import render
from layerwise.studies.compare.side_by_side import compare_side_by_side
from page import planted, synthetic
from page.comparison.several import sweeps
from page.page.test_render import read
from tier import first_fast
from tools.golden.outputs import stored

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
SELFCHECK = Path(__file__).with_name("selfcheck.js")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: install one of {', '.join(BROWSERS)}"),
]


def browse(page: Path, *arguments: str) -> tuple[str, list[str]]:
    command = [
        str(BROWSER),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        "--enable-logging=stderr",
        "--virtual-time-budget=60000",
        f"--user-data-dir={page.parent / 'profile'}",
        *arguments,
        page.as_uri(),
    ]
    home = {**os.environ, "HOME": str(page.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=home)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def answer(dom: str, name: str) -> dict[str, Any]:
    found = re.search(rf'<pre id="{name}">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None, "the page did not get ready"
    return dict(json.loads(unescape(found[1])))


def in_plots(dom: str) -> dict[str, str]:
    _, *parts = re.split(r'<div class="plot[ "][^>]*data-figure="([^"]+)"', dom)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("scheme", first_fast(["light", "dark"]))
def test_every_figure_is_drawn_once(tmp_path: Path, scheme: str) -> None:
    html = render(stored("sweep-planted"))
    page = tmp_path / "report.html"
    page.write_text(html.replace("<html ", f'<html data-theme="{scheme}" '), encoding="utf-8")
    dom, console = browse(page, "--window-size=1280,1600", "--dump-dom")
    plots = in_plots(dom)
    assert console == []
    assert set(plots) == set(json.loads(read(html).json)["figures"])
    assert [name for name, plot in plots.items() if plot.count('class="plot-container plotly"') != 1] == []
    assert [name for name, plot in plots.items() if not re.search('class="[xy]tick"', plot)] == []


PAGES: dict[str, Callable[[], str]] = {
    "sweep": lambda: render(synthetic.run(12, ("painters", "leave_one_out", "swap_adjacent", "every_window"))),
    "diagnosis": lambda: render(planted.DIAGNOSIS),
    "robustness": lambda: render(planted.ROBUSTNESS),
    "pretraining": lambda: render(planted.PRETRAINING),
    "growth": lambda: render(planted.GROWTH),
    "comparison": lambda: render(compare_side_by_side(sweeps())),
}
DRAWN: dict[str, dict[str, int]] = {
    "sweep": {"maps": 4, "rootedAtFirst": 1},
    "diagnosis": {"maps": 1, "rootedAtFirst": 5},  # the layers, two ablations, the median and the gates
    "robustness": {"maps": 7, "rootedAtFirst": 0, "undrawn": 1},  # the layout of outputs has no axes
    "pretraining": {},
    "growth": {"plots": 2},
    # Six strategies, two panels of layers, three maps; the first figures set the scale.
    "comparison": {"maps": 3, "rootedAtFirst": 2, "plots": 11},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for kind, page in PAGES.items():
        inner = page().replace("</body>", f"<script>{SELFCHECK.read_text()}</script></body>")
        (folder / f"{kind}.html").write_text(inner, encoding="utf-8")
    return folder


def framed(folder: Path, width: int, height: int, use: str = "") -> dict[str, dict[str, Any]]:
    frames = "".join(
        f'<iframe id="{kind}" src="{kind}.html{use}" width="{width}" height="{height}"></iframe>' for kind in PAGES
    )
    outer = folder / f"frames-{width}.html"
    outer.write_text(
        f"<body>{frames}<script>onmessage = (event) => {{"
        ' const from = [...document.querySelectorAll("iframe")].find((each) => each.contentWindow === event.source);'
        ' const node = document.createElement("pre"); node.id = `selfcheck-${from.id}`;'
        " node.textContent = event.data; document.body.append(node); };</script></body>",
        encoding="utf-8",
    )
    # Hidden frames are not drawn.
    dom, console = browse(outer, f"--window-size={(width + 10) * len(PAGES)},{height + 100}", "--dump-dom")
    assert console == []
    results = {kind: answer(dom, f"selfcheck-{kind}") for kind in PAGES}
    assert {kind: result["failures"] for kind, result in results.items()} == {kind: [] for kind in PAGES}
    return results


@pytest.fixture(scope="module")
def seen(pages: Path) -> dict[str, dict[str, Any]]:
    return framed(pages, 1280, 900, "?used")


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_pages_are_drawn_and_interactive(seen: dict[str, dict[str, Any]], kind: str) -> None:
    result, expected = seen[kind], DRAWN[kind]
    assert result["drawn"] == result["plots"] - expected.get("undrawn", 0) > (0 if kind == "growth" else 8)
    assert {name: result[name] for name in expected if name != "undrawn"} == {
        name: count for name, count in expected.items() if name != "undrawn"
    }
    assert result["overflow"] <= 0
    assert result["legend"]["after"] < result["legend"]["before"] == result["legend"]["again"]
    theme = result["theme"]
    assert theme["light"] == theme["again"]
    assert all(light != dark for light, dark in zip(theme["light"], theme["dark"], strict=True))
    if expected.get("rootedAtFirst") is not None:
        assert result["choices"]["linear"] != result["choices"]["rooted"]


@pytest.mark.slow
def test_tables_can_be_sorted_and_filtered(seen: dict[str, dict[str, Any]]) -> None:
    sweep = seen["sweep"]
    table = sweep["table"]
    assert not table["before"]
    assert table["up"] == {"aria": "ascending", "sorted": True}
    assert table["down"] == {"aria": "descending", "sorted": False}
    assert table["onlySkips"]
    assert table["none"] == 0
    assert table["after"] == table["total"]
    assert sweep["hinted"] == sweep["wide"]
    assert sweep["pictures"] > 100
    assert sweep["choices"]["pressed"] > 20
    assert "0" in sweep["choices"]["rooted"]


@pytest.mark.slow
def test_pages_fit_a_phone(pages: Path) -> None:
    for kind, result in framed(pages, 400, 800).items():
        assert 380 <= result["width"] <= 400
        assert result["hinted"] == result["wide"] > 0, kind  # overflowing tables are marked
        assert result["overflow"] <= 0, kind


@pytest.mark.slow
def test_an_empty_page_has_no_console_errors(tmp_path: Path) -> None:
    page = tmp_path / "empty.html"
    page.write_text(render(planted.of()), encoding="utf-8")
    dom, console = browse(page, "--dump-dom")
    assert console == []
    assert 'data-ready="yes"' in dom
