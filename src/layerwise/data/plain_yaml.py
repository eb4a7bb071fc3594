"""Read and write YAML that contains only lists, mappings and plain values.

Aliases and tags are rejected because a few bytes of them can expand to gigabytes. Dates stay text, and repeated keys
are errors.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import yaml

from layerwise.bounded import MAX_DIGITS, UnreadableError, check_size

SIZE = 2**18
"""Maximum number of characters of a YAML text, since the parser is slow and uses a kilobyte per word."""

DEPTH = 50


def parse_yaml(text: str) -> Any:
    r"""Parse a YAML text of plain values.

    Raises `UnreadableError` for invalid YAML, aliases, tags, repeated keys, nesting deeper than `DEPTH`, and texts or
    numbers that are too long.

    >>> parse_yaml("name: 2024-01-01\nlayers: [1, 2]")
    {'name': '2024-01-01', 'layers': [1, 2]}
    """
    check_size(len(text), SIZE)
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise UnreadableError(f"is not YAML: {' '.join(str(error).split())}") from error
    except UnreadableError:
        raise
    except ValueError as error:
        raise UnreadableError(f"has an invalid value ({error})") from error


def write_yaml(value: Any) -> str:
    r"""Format plain values as YAML, keeping the order of keys.

    >>> write_yaml({"name": "two", "layers": [1, 2]})
    'name: two\nlayers:\n- 1\n- 2\n'
    """
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = cast(Any, self).peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise UnreadableError(f"uses the alias *{event.anchor} in {_line(event)}: write its value instead")
        if getattr(event, "tag", None) is not None:
            raise UnreadableError(f"uses the tag {event.tag} in {_line(event)}: write plain values")
        if self._depth == DEPTH:
            raise UnreadableError(f"is nested more than {DEPTH} levels deep in {_line(event)}")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            entry = (key.tag, str(key.value))
            if entry in seen:
                raise UnreadableError(f"has the key {key.value} twice, the second time in {_line(key)}")
            seen.add(entry)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > MAX_DIGITS:
            raise UnreadableError(f"has a number of more than {MAX_DIGITS:,} digits in {_line(node)}")
        return int(super().construct_yaml_int(node))


# Dates stay text, since some are invalid.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _line(node: Any) -> str:
    return f"line {node.start_mark.line + 1}"
