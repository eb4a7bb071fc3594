"""No reader parses the text of a row's column."""

import ast
from collections.abc import Iterable, Iterator

import pytest

from package_sources import PACKAGE, files, nodes

ROOMS = ("page", "runner", "studies", "results")

COLUMNS = frozenset({"metric", "measure", "variant", "part", "condition", "plan", "task", "claim", "against"})

TAKES_APART = frozenset(
    {"partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix", "startswith", "endswith"}
)

ALLOWED = (
    # The task of a `Loss` is a path that may be split: part of a text, or metric of a benchmark.
    "results/store.py",
    "studies/search/steps.py",
    "studies/heal/benchmarks.py",
)


def is_column(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return is_column(node.func.value)
    if isinstance(node, ast.BoolOp):
        return any(map(is_column, node.values))
    return isinstance(node, ast.Attribute) and node.attr in COLUMNS


def taken_apart(source: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in source:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            own = node.func.attr in TAKES_APART and is_column(node.func.value)
            by_pattern = ast.unparse(node.func.value) == "re" and any(map(is_column, node.args))
            compiled = node.func.attr in ("match", "fullmatch", "search", "findall") and any(map(is_column, node.args))
            if own or by_pattern or compiled:
                yield node.lineno, ast.unparse(node)


def test_no_reader_takes_a_column_apart() -> None:
    by_file = {path.relative_to(PACKAGE).as_posix(): path for path in files()}
    read = {name: path for name, path in by_file.items() if name.startswith(tuple(f"{room}/" for room in ROOMS))}
    wrong = {
        f"{name}:{line}": text
        for name, path in read.items()
        if not name.startswith(ALLOWED)
        for line, text in taken_apart(nodes(path))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "line",
    [
        'row.metric.partition("@")[0]',
        'row.task.split(" | ")',
        '(row.variant or "").removeprefix("skip-")',
        'score.claim.lower().startswith("a")',
        're.fullmatch(r"(.+)_step_(.+)", row.metric)',
        "_STEP.match(row.condition)",
    ],
)
def test_a_column_taken_apart_would_be_seen(line: str) -> None:
    assert [text for _, text in taken_apart(ast.walk(ast.parse(line)))]


@pytest.mark.parametrize(
    "line",
    [
        'path.name.partition(".")',
        'row.metric == "nll"',
        'text.split("|")',
        "row.task in CONTROLS",
        "row.variant.title()",
    ],
)
def test_what_takes_no_column_apart_is_no_fault(line: str) -> None:
    assert not [*taken_apart(ast.walk(ast.parse(line)))]
