"""YAML values with their line numbers, for error messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from layerwise.bounded import MAX_SETTINGS_SIZE, UnreadableError, check_size, shown
from layerwise.errors import PlanError

SIZE = min(2**18, MAX_SETTINGS_SIZE)
"""Maximum number of characters of a YAML text, because the parser is slow."""

_WHOLE = re.compile(r"0|[1-9][0-9]{0,8}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")
_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class YamlValue:
    """A YAML value with its line and its anchor (`a` in `&a org/name`)."""

    node: yaml.Node
    loader: _Loader

    @property
    def line(self) -> int:
        """Line number, counted from 1."""
        return int(self.node.start_mark.line) + 1

    @property
    def anchor(self) -> str | None:
        return self.loader.anchor_names.get(id(self.node))

    @property
    def is_null(self) -> bool:
        return bool(self.node.tag == f"{_PREFIX}null")

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def refuse(self, message: str) -> NoReturn:
        raise PlanError(f"line {self.line}: {message}")

    def mapping(self, what: str) -> dict[str, YamlValue]:
        if not isinstance(self.node, yaml.MappingNode):
            self.refuse(f"{what} must be a mapping of keys to values, got {self.described()}")
        values: dict[str, YamlValue] = {}
        for key, value in self.node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            if name in values:
                YamlValue(key, self.loader).refuse(f"the key {shown(name)} is duplicated; write it once")
            values[name] = YamlValue(value, self.loader)
        return values

    def items(self, what: str) -> list[YamlValue]:
        if not isinstance(self.node, yaml.SequenceNode):
            self.refuse(f"{what} must be a list, got {self.described()}")
        return [YamlValue(node, self.loader) for node in self.node.value]

    def text(self, what: str) -> str:
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != f"{_PREFIX}str" or not self.node.value:
            self.refuse(f"{what} must be text, got {self.described()}")
        return str(self.node.value)

    def whole(self, what: str) -> int:
        if not isinstance(self.node, yaml.ScalarNode) or _WHOLE.fullmatch(self.node.value) is None:
            self.refuse(f"{what} must be an integer such as 12, got {self.described()}")
        return int(self.node.value)

    def number(self, what: str) -> float:
        is_number = isinstance(self.node, yaml.ScalarNode) and self.node.tag in (f"{_PREFIX}int", f"{_PREFIX}float")
        if not is_number or _NUMBER.fullmatch(self.node.value) is None:
            self.refuse(f"{what} must be a number such as 1 or 0.5, got {self.described()}")
        return float(self.node.value)

    def described(self) -> str:
        if self.is_null:
            return "nothing"
        if isinstance(self.node, yaml.ScalarNode):
            return shown(str(self.node.value))
        return "a list" if self.is_list else "a mapping"


def parse_located(text: str) -> YamlValue:
    """Parse YAML; raise `PlanError` if it is invalid, too long, or nested too deeply."""
    try:
        check_size(len(text), SIZE)
        loader = _Loader(text)
        node = loader.get_single_node()
    except UnreadableError as fault:
        raise PlanError(f"the text {fault}") from None
    except RecursionError:
        raise PlanError("the text is nested too deeply for a merge configuration") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise PlanError(f"{line}the text must be valid YAML ({problem})") from None
    if node is None:
        raise PlanError("the text is empty; a merge configuration has the keys slices and merge_method")
    return YamlValue(node, loader)


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.anchor_names: dict[int, str] = {}

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if anchor is not None:
            self.anchor_names[id(node)] = str(anchor)
        return node
