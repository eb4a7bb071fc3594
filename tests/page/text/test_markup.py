"""HTML that escapes itself."""

import json
from html import unescape
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from layerwise.page.text.markup import Safe, element, embedded_json, join


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.names: list[str] = []
        self.text = ""
        self.attributes: dict[str, str | None] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_text_and_attributes_come_back_as_they_went_in(text: str) -> None:
    reader = Reader()
    reader.feed(element("p", text, title=text))
    reader.close()
    assert reader.names == ["p"]
    assert reader.text == text
    assert unescape(reader.attributes["title"] or "") == unescape(text)


@given(st.recursive(st.text() | st.floats(allow_nan=False) | st.none(), st.lists, max_leaves=8))
def test_embedded_json_cannot_end_its_block(value: object) -> None:
    block = embedded_json("data", {"value": value, "end": "</script><script>alert(1)</script>"})
    assert block.count("</script>") == 1
    body = block.removeprefix('<script type="application/json" id="data">').removesuffix("</script>")
    read = json.loads(body)
    assert read["end"] == "</script><script>alert(1)</script>"


def test_numbers_that_are_not_finite_become_null() -> None:
    assert '{"a":[null,1.5,null]}' in embedded_json("data", {"a": (float("nan"), 1.5, float("inf"))})


def test_what_is_safe_is_not_escaped_twice() -> None:
    inner = element("b", "a & b")
    assert element("p", inner, "<") == "<p><b>a &amp; b</b>&lt;</p>"
    assert join([inner, Safe("<hr>")]) == "<b>a &amp; b</b><hr>"
