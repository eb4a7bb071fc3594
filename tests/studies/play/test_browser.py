"""The playground in a real browser: mouse, keyboard, text, undo, links, narrow and dark windows."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from layerwise.plan import Plan
from studies.play.playing import Running, open_playground, run_server
from swarm.serve.chromium import ALT, BROWSER, BROWSERS, CONTROL, SHIFT, Page, opened

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: install one of {', '.join(BROWSERS)}"),
]

OVERFLOWS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with run_server(open_playground()) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture
def page(browser: Page, server: Running) -> Iterator[Page]:
    browser.show("about:blank")
    browser.console.clear()
    browser.show(server.url)
    browser.wait("document.querySelectorAll('.item').length === 12")
    yield browser
    assert browser.console == []


def block(layer: int) -> str:
    return f".cell[data-layer='{layer}'] .block"


def gauge(layer: int) -> str:
    return f".cell[data-layer='{layer}'] .gauge"


def text(selector: str) -> str:
    return f"document.querySelector({selector!r}).innerText"


def wait_for_plan(page: Page, plan: str) -> None:
    page.wait(f"document.querySelector('#plan').value === {plan!r}")
    page.wait("document.getAnimations().every((each) => each.effect.target.className !== 'cell measured')")


def press_tool(page: Page, name: str) -> None:
    page.evaluate(
        f"[...document.querySelectorAll('#tools button')].find((each) => each.innerText === {name!r}).click()"
    )


def test_the_first_minute_needs_no_click(page: Page) -> None:
    """The page says which layer costs least, and shows what the model writes without it."""
    page.wait("document.querySelectorAll('.cell.measured').length === 12")
    page.wait("/ayer \\d+ .*nats.token/.test(document.querySelector('#finding').innerText)")
    page.wait("document.querySelectorAll('#answers .card').length === 2")
    page.wait("document.querySelectorAll('.running').length === 0")
    page.wait("document.querySelectorAll('#answers .tokens span span').length > 5")
    assert "z a d k" in page.evaluate(text("#original"))


def test_the_mouse_edits_the_plan(page: Page) -> None:
    page.drag(page.place(block(7)))
    wait_for_plan(page, "0-6 8-11")
    page.drag(page.place(block(7)))
    wait_for_plan(page, "0-11")
    page.drag(page.place(block(3)), page.place(block(5)), page.place(block(8), 0.8))
    wait_for_plan(page, "0-2 4-8 3 9-11")
    page.press("z", CONTROL)
    wait_for_plan(page, "0-11")
    page.press("z", CONTROL | SHIFT)
    wait_for_plan(page, "0-2 4-8 3 9-11")
    page.evaluate("document.querySelector('#reset').click()")
    wait_for_plan(page, "0-11")


def test_a_range_is_edited_as_one(page: Page) -> None:
    page.drag(page.place(gauge(4)), page.place(gauge(5)), page.place(gauge(6)))
    press_tool(page, "parallel")
    wait_for_plan(page, "0-3 (4|5|6) 7-11")
    press_tool(page, "repeat")
    wait_for_plan(page, "0-3 (4|5|6)*2 7-11")
    press_tool(page, "ungroup")
    wait_for_plan(page, "0-11")
    press_tool(page, "damp ½")
    wait_for_plan(page, "0-3 (4-6):gain=0.5 7-11")
    page.press("Escape")
    page.evaluate("document.querySelector('#undo').click()")
    wait_for_plan(page, "0-11")
    page.evaluate("Object.assign(document.querySelector('#middle'), { value: 4 }).dispatchEvent(new Event('input'))")
    press_tool(page, "reverse")
    wait_for_plan(page, "0-3 7-4 8-11")
    page.evaluate("document.querySelector('#undo').click()")
    wait_for_plan(page, "0-11")
    page.drag(page.place(gauge(9)))
    page.drag(page.place(block(10)), shift=True)
    page.evaluate("document.querySelector('#tools select').value = 'Q8_0'")
    page.evaluate("document.querySelector('#tools select').dispatchEvent(new Event('change'))")
    wait_for_plan(page, "0-8 Q8_0:9 Q8_0:10 11")


def test_the_keyboard_edits_the_plan(page: Page) -> None:
    page.evaluate("document.querySelector('.item').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    page.press("Enter")
    wait_for_plan(page, "0 1 3-11")
    assert "skipped" in page.evaluate("document.activeElement.ariaLabel")
    assert page.evaluate(text("#live")) == "Layer 2 skipped. The plan is 0 1 3-11."
    page.press(" ")
    wait_for_plan(page, "0-11")
    page.press("ArrowRight", ALT)
    wait_for_plan(page, "0 1 3 2 4-11")
    page.press("ArrowRight", SHIFT)
    page.press("Delete")
    wait_for_plan(page, "0 1 3 5-11")


def test_the_text_of_the_plan_is_edited(page: Page) -> None:
    page.type("#plan", "0-3 (4|5 8-11")
    page.wait("!document.querySelector('#plan-error').hidden")
    assert page.evaluate("document.querySelector('#plan-error pre').innerText") == "0-3 (4|5 8-11\n    ^"
    page.type("#plan", "0-3 [4-6]*3 (7|8):sum 9.mlp 11")
    page.wait("document.querySelectorAll('.bracket').length === 2")
    assert page.evaluate("document.querySelector('#plan-error').hidden")
    assert "never: layer 10" in page.evaluate(text("#explain"))


def test_a_link_restores_the_page(page: Page, server: Running) -> None:
    page.drag(page.place(block(2)))
    wait_for_plan(page, "0 1 3-11")
    page.type("#prompt", "reverse a b c =")
    page.evaluate("document.querySelector('#text-panel').open = true")
    page.type("#text", "the cat sat on the mat. " * 20)
    page.wait("document.querySelectorAll('#scored span').length > 100")
    page.wait("/reverse.*the.cat/.test(location.hash)")
    link = page.evaluate("location.href")
    page.show("about:blank")
    page.show(link)
    wait_for_plan(page, "0 1 3-11")
    assert page.evaluate("document.querySelector('#prompt').value") == "reverse a b c ="
    page.wait("document.querySelectorAll('#scored span').length > 100")
    page.wait("document.querySelector('#score-table').innerText.includes('perplexity')")


def test_the_last_of_many_changes_is_shown(page: Page) -> None:
    """A hundred clicks, most of them before the answer to the last one, leave the plan that was clicked."""
    draw, kept = random.Random(0), set(range(12))
    for layer in draw.choices(range(12), k=100):
        if kept != {layer}:
            kept ^= {layer}
            page.evaluate(f"document.querySelector({block(layer)!r}).closest('.item').click()")
    plan = str(Plan.of(sorted(kept)))
    wait_for_plan(page, plan)
    page.wait(f"{text('#answers code')} === {plan!r}")
    page.wait("document.querySelectorAll('.running').length === 0")
    assert page.evaluate("document.querySelectorAll('#answers .card').length") == 1


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_its_window(browser: Page, server: Running, tmp_path: Path, scheme: str, width: int) -> None:
    browser.show(f"{server.url}/#plan=0-3+%5B4-6%5D*3+(7%7C8)+10+11", width, scheme=scheme)
    browser.wait("document.querySelectorAll('.cell.measured').length === 12")
    assert not browser.evaluate(OVERFLOWS)
    browser.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_every_control_has_a_name_and_is_large_enough(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    page.drag(page.place(gauge(4)), page.place(gauge(6)))
    page.wait("document.querySelectorAll('[aria-current=true]').length === 3")
    named = {node["name"]["value"] for node in page.controls()}
    assert "" not in named
    assert named >= {"Plan", "Undo", "parallel", "Quantize", "prompt", "temperature", "Text to score", "Command"}
    sizes = "[...document.querySelectorAll('button, select, summary, textarea')].map((each) => each.offsetHeight)"
    assert min(size for size in page.evaluate(sizes) if size) >= 24


LEAST_CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const paint = (...colors) => {
    canvas.fillStyle = 'white';
    canvas.fillRect(0, 0, 1, 1);
    for (canvas.fillStyle of colors) canvas.fillRect(0, 0, 1, 1);
    const linear = (value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    const [red, green, blue] = [...canvas.getImageData(0, 0, 1, 1).data].map(linear);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  };
  const contrast = (element) => {
    const behind = [];
    for (let each = element; each; each = each.parentElement) behind.unshift(getComputedStyle(each).backgroundColor);
    const [one, other] = [paint(...behind), paint(...behind, getComputedStyle(element).color)];
    return Math.max(one, other) / Math.min(one, other);
  };
  const hasText = ({ childNodes }) => [...childNodes].some(({ data }) => data?.trim());
  const isRead = (each) => each.checkVisibility() && hasText(each) && !each.matches(':disabled, option');
  return Math.min(...[...document.querySelectorAll('body *')].filter(isRead).map(contrast));
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser: Page, server: Running, scheme: str) -> None:
    browser.show("about:blank")
    browser.show(server.url, scheme=scheme)
    browser.wait("document.querySelectorAll('#answers .tokens [title]').length > 5")
    browser.wait("document.getAnimations().every((each) => each.effect.target.className !== 'block')")
    assert browser.evaluate(LEAST_CONTRAST) >= 4.5
    paint = "document.querySelectorAll('.cell').forEach((each, index) => each.style.setProperty('--level', `{}%`))"
    for level in range(0, 100, 12):
        browser.evaluate("document.querySelectorAll('.block').forEach((each) => (each.style.transition = 'none'))")
        browser.evaluate(paint.format(f"${{{level} + index}}"))
        assert browser.evaluate(LEAST_CONTRAST) >= 4.5
