"""The guide says what the code does: its settings with their defaults, its endpoints, and its outcomes."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from layerwise.swarm.serve.app import create_app
from layerwise.swarm.serve.settings import ServeSettings
from swarm.serve.fake import FakeSwarm

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")


def test_the_settings_are_those_of_the_code() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", GUIDE, re.MULTILINE))
    assert table == {each.name: repr(each.default) for each in fields(ServeSettings) if each.name != "tokens"}


def test_every_setting_is_described_where_it_is_defined() -> None:
    described = set(re.findall(r"`(\w+)`", ServeSettings.__doc__ or ""))
    assert described == {each.name for each in fields(ServeSettings)}


def test_every_endpoint_is_on_the_page() -> None:
    paths = set(create_app(FakeSwarm(), ServeSettings()).openapi()["paths"]) - {"/", "/v1/models/{model}"}
    assert {path for path in paths if f"{path}`" not in GUIDE} == set()
