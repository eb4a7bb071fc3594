"""The page in a real browser: drawn, answering, dark, narrow, and silent in the console.

A fast test opens one page, light and dark; what a page answers, and the pages of the other kinds of run, is slow.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import zlib
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from layerwise.report import ReportData, render, side_by_side
from report import diagnosed, grown, pretrained, robust, synthetic
from report.comparison.several import sweeps
from report.page.test_render import read
from tier import first_fast

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
SELFCHECK = Path(__file__).with_name("selfcheck.js")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: install one of {', '.join(BROWSERS)}"),
]


def browse(page: Path, *arguments: str) -> tuple[str, list[str]]:
    """What a headless browser prints for a page, and what its console said."""
    command = [
        str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        "--force-device-scale-factor=1", "--enable-logging=stderr", "--virtual-time-budget=60000",
        f"--user-data-dir={page.parent / 'profile'}", *arguments, page.as_uri(),
    ]  # fmt: skip
    home = {**os.environ, "HOME": str(page.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=home)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def checked(html: str, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The page with the self-check in it, used at 1280 pixels."""
    page = folder / "report.html"
    page.write_text(html.replace("</body>", f"<script>{SELFCHECK.read_text()}</script></body>"), encoding="utf-8")
    dom, console = browse(page, "--window-size=1280,900", "--dump-dom")
    return answer(dom), console


def answer(dom: str, name: str = "selfcheck") -> dict[str, Any]:
    found = re.search(rf'<pre id="{name}">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None, "the page did not get ready"
    return dict(json.loads(unescape(found[1])))


def distinct_rows(png: bytes) -> int:
    """How many different rows of pixels a PNG has: a blank page has one."""
    width, height = struct.unpack(">II", png[16:24])
    body, at = b"", 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        body += png[at + 8 : at + 8 + size] if png[at + 4 : at + 8] == b"IDAT" else b""
        at += size + 12
    pixels = zlib.decompress(body)
    stride = len(pixels) // height
    assert stride > width
    return len({pixels[row * stride : (row + 1) * stride] for row in range(height)})


def in_plots(dom: str) -> dict[str, str]:
    """What a browser drew into the slot of each figure."""
    _, *parts = re.split(r'<div class="plot[ "][^>]*data-figure="([^"]+)"', dom)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("scheme", first_fast(["light", "dark"]))
def test_a_page_is_not_blank_and_every_figure_is_drawn_once(tmp_path: Path, scheme: str) -> None:
    families = ("painters", "leave_one_out", "swap_adjacent", "every_window")
    html = render(synthetic.run(6, families, tasks=("text", "sorting")))
    page, shot = tmp_path / "report.html", tmp_path / "shot.png"
    page.write_text(html.replace("<html ", f'<html data-theme="{scheme}" '), encoding="utf-8")
    dom, console = browse(page, "--window-size=1280,1600", "--dump-dom", f"--screenshot={shot}")
    plots = in_plots(dom)
    assert console == []
    assert set(plots) == set(json.loads(read(html).json)["figures"])
    assert [name for name, plot in plots.items() if plot.count('class="plot-container plotly"') != 1] == []
    assert [name for name, plot in plots.items() if not re.search('class="[xy]tick"', plot)] == []
    assert distinct_rows(shot.read_bytes()) > 300


@pytest.fixture(scope="module")
def html() -> str:
    return render(synthetic.run(12, ("painters", "leave_one_out", "swap_adjacent", "every_window")))


@pytest.fixture(scope="module")
def seen(html: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    result, console = checked(html, tmp_path_factory.mktemp("wide"))
    assert console == []
    assert result["failures"] == []
    return result


@pytest.mark.slow
def test_every_figure_of_a_sweep_is_drawn(seen: dict[str, Any]) -> None:
    assert seen["plots"] > 10
    assert seen["drawn"] == seen["plots"]
    assert seen["hinted"] == seen["wide"]
    assert seen["maps"] == 5
    assert seen["tiles"] > 100


@pytest.mark.slow
def test_the_table_sorts_and_filters(seen: dict[str, Any]) -> None:
    table = seen["table"]
    assert not table["before"]
    assert table["up"] == {"aria": "ascending", "sorted": True}
    assert table["down"] == {"aria": "descending", "sorted": False}
    assert table["onlySkips"]
    assert table["none"] == 0
    assert table["after"] == table["total"]


@pytest.mark.slow
def test_dark_mode_restyles_the_page_and_its_figures(seen: dict[str, Any]) -> None:
    theme = seen["theme"]
    assert theme["light"] == theme["again"]
    assert theme["light"][0] != theme["dark"][0]
    assert theme["light"][1] != theme["dark"][1]


@pytest.mark.slow
def test_choices_scales_and_legends_answer(seen: dict[str, Any]) -> None:
    assert seen["choices"]["pressed"] > 20
    assert seen["choices"]["linear"] != seen["choices"]["rooted"]
    assert "0" in seen["choices"]["rooted"]
    assert seen["legend"]["after"] < seen["legend"]["before"] == seen["legend"]["again"]


@pytest.mark.slow
def test_a_tile_opens_its_plan(seen: dict[str, Any]) -> None:
    assert seen["gallery"]["open"]
    assert seen["gallery"]["plan"] in {record.plan for record in synthetic.run(12).plans}
    assert seen["gallery"]["drawn"] > 1


@pytest.fixture(scope="module")
def diagnosis() -> str:
    return render(diagnosed.diagnosis(12))


@pytest.mark.slow
def test_a_diagnosis_is_drawn_and_answers(diagnosis: str, tmp_path: Path) -> None:
    result, console = checked(diagnosis, tmp_path)
    assert console == []
    assert result["failures"] == []
    assert result["drawn"] == result["plots"] > 35
    assert result["maps"] == 2
    assert result["overflow"] <= 0
    assert result["rootedAtFirst"] == 6  # the layers, two ablations, the median, the strategies and the gates
    assert result["choices"]["linear"] != result["choices"]["rooted"]
    assert result["legend"]["after"] < result["legend"]["before"] == result["legend"]["again"]
    assert result["theme"]["light"] == result["theme"]["again"] != result["theme"]["dark"]


@pytest.fixture(scope="module")
def robustness() -> str:
    return render(robust.run(12))


@pytest.mark.slow
def test_a_robustness_run_is_drawn_and_answers(robustness: str, tmp_path: Path) -> None:
    result, console = checked(robustness, tmp_path)
    assert console == []
    assert result["failures"] == []
    assert result["drawn"] == result["plots"] - 1 > 10  # the layout of outputs has no axes
    assert result["maps"] == 7
    assert result["overflow"] <= 0
    assert result["rootedAtFirst"] == 0
    assert result["choices"]["linear"] != result["choices"]["rooted"]
    assert result["legend"]["after"] < result["legend"]["before"] == result["legend"]["again"]
    assert result["theme"]["light"] == result["theme"]["again"] != result["theme"]["dark"]


@pytest.fixture(scope="module")
def pretraining() -> str:
    return render(pretrained.run())


@pytest.mark.slow
def test_a_pretraining_is_drawn_and_answers(pretraining: str, tmp_path: Path) -> None:
    result, console = checked(pretraining, tmp_path)
    assert console == []
    assert result["failures"] == []
    assert result["drawn"] == result["plots"] > 11
    assert result["overflow"] <= 0
    assert result["legend"]["after"] < result["legend"]["before"] == result["legend"]["again"]
    assert result["theme"]["light"] == result["theme"]["again"] != result["theme"]["dark"]


@pytest.fixture(scope="module")
def growth() -> str:
    return render(grown.run())


@pytest.mark.slow
def test_a_growth_run_is_drawn_and_answers(growth: str, tmp_path: Path) -> None:
    result, console = checked(growth, tmp_path)
    assert console == []
    assert result["failures"] == []
    assert result["drawn"] == result["plots"] == 18
    assert result["rootedAtFirst"] == 1  # the importance of layers
    assert result["choices"]["linear"] != result["choices"]["rooted"]
    assert result["overflow"] <= 0
    assert result["legend"]["after"] < result["legend"]["before"] == result["legend"]["again"]
    assert result["theme"]["light"] == result["theme"]["again"] != result["theme"]["dark"]


@pytest.fixture(scope="module")
def comparison() -> str:
    return render(side_by_side(sweeps()))


@pytest.mark.slow
def test_a_comparison_is_drawn_and_answers(comparison: str, tmp_path: Path) -> None:
    result, console = checked(comparison, tmp_path)
    assert console == []
    assert result["failures"] == []
    assert result["drawn"] == result["plots"] == 11  # six strategies, two panels of layers, three maps
    assert result["maps"] == 3
    assert result["rootedAtFirst"] == 2  # the curves and the layers, each by its first figure
    assert result["overflow"] <= 0
    assert result["legend"]["after"] < result["legend"]["before"] == result["legend"]["again"]
    assert result["theme"]["light"] == result["theme"]["again"] != result["theme"]["dark"]


KINDS = ("html", "diagnosis", "robustness", "pretraining", "growth", "comparison")


@pytest.mark.slow
def test_nothing_sticks_out_on_a_phone(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The page of every kind of run in a frame as wide as a phone, all of them beside one another in one browser."""
    for kind in KINDS:
        page: str = request.getfixturevalue(kind)
        inner = page.replace("</body>", f"<script>{SELFCHECK.read_text()}</script></body>")
        (tmp_path / f"{kind}.html").write_text(inner, encoding="utf-8")
    frames = "".join(f'<iframe id="{kind}" src="{kind}.html" width="400" height="800"></iframe>' for kind in KINDS)
    outer = tmp_path / "phone.html"
    outer.write_text(
        f"<body>{frames}<script>onmessage = (event) => {{"
        ' const from = [...document.querySelectorAll("iframe")].find((each) => each.contentWindow === event.source);'
        ' const node = document.createElement("pre"); node.id = `selfcheck-${from.id}`;'
        " node.textContent = event.data; document.body.append(node); };</script></body>",
        encoding="utf-8",
    )
    # A frame that cannot be seen is not drawn.
    dom, console = browse(outer, f"--window-size={410 * len(KINDS)},900", "--dump-dom")
    assert console == []
    for kind in KINDS:
        result = answer(dom, f"selfcheck-{kind}")
        assert result["failures"] == [], kind
        assert 380 <= result["width"] <= 400
        assert result["hinted"] == result["wide"] > 0, kind  # tables that are wider than the page say so
        assert result["overflow"] <= 0, kind


@pytest.mark.slow
def test_an_empty_run_opens_without_a_word(tmp_path: Path) -> None:
    page = tmp_path / "empty.html"
    page.write_text(render(ReportData({}, (), ())), encoding="utf-8")
    dom, console = browse(page, "--dump-dom")
    assert console == []
    assert 'data-ready="yes"' in dom
