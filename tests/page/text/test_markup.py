"""JSON in a page; names in it are hostile in tests/page/test_hostile_names.py."""

import json

from hypothesis import given
from hypothesis import strategies as st

from layerwise.page.markup import embedded_json


@given(st.recursive(st.text() | st.floats(allow_nan=False) | st.none(), st.lists, max_leaves=8))
def test_embedded_json_cannot_end_its_script(value: object) -> None:
    block = embedded_json({"value": value, "end": "</script><script>alert(1)</script>"})
    assert "</script>" not in block
    read = json.loads(block)
    assert read["end"] == "</script><script>alert(1)</script>"


def test_non_finite_numbers_become_null() -> None:
    assert '{"a":[null,1.5,null]}' in embedded_json({"a": (float("nan"), 1.5, float("inf"))})
