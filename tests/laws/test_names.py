"""Names use the terms of the field, and functions have few parameters."""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from pkgutil import walk_packages

import layerwise
from package_sources import PACKAGE, files, nodes, text, trees

ROOT = Path(__file__).parents[2]

PARAMETERS = 12

HOME_MADE = frozenset(
    (
        *("pupil", "pupils", "lesson", "lessons", "sitting", "sittings", "consult", "consultation", "programme"),
        *("lend", "lends", "lender", "lenders", "lending", "lent", "exam", "exams", "examinee", "examinees", "newborn"),
        *("surroundings", "allowance", "kinship", "likeness", "knob", "knobs", "pedigree", "pedigrees", "material"),
        *("materials", "course", "courses", "told", "asked", "said", "found", "tell", "tells", "ask", "asks", "bear"),
        *("bears", "speaker", "speakers", "shell", "watcher", "watchers", "judging", "ledger", "place", "places"),
    )
)
"""Words that names must not contain, as papers of the field do not use them."""

IN_PROSE = re.compile(
    r"\b(pupils?|lessons?|sittings?|consultations?|lenders?|lends?|lending|newborns?|allowances?|kinships?|"
    r"likeness(?:es)?|knobs?|pedigrees?|examinees?|surroundings|bears? (?:any|other|reordering)|arbitrary order|"
    r"goes? on where it was)\b",
    re.IGNORECASE,
)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_verb(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A verb has as many parameters as options."""
    return any(ast.unparse(each).startswith("verb(") for each in function.decorator_list)


def test_no_function_has_more_than_twelve_parameters() -> None:
    crowded = {
        f"{path.relative_to(PACKAGE)}:{each.name}": count
        for path in files()
        for each in functions(path)
        if not is_verb(each)
        if (count := len(each.args.posonlyargs + each.args.args + each.args.kwonlyargs)) > PARAMETERS
    }
    assert crowded == {}


def test_no_public_class_stands_in_two_files() -> None:
    counts = Counter(
        node.name
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name: count for name, count in counts.items() if count > 1} == {}


def identifiers(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def words(name: str) -> set[str]:
    """The words of a name, in lower case; `place` in the standard term "in place" does not count.

    >>> sorted(words("GrowthPupil")), sorted(words("_told_by")), sorted(words("run_in_place"))
    (['growth', 'pupil'], ['by', 'told'], ['in', 'run'])
    """
    found = [word.lower() for word in re.findall("[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]
    return {word for before, word in pairwise(["", *found]) if (before, word) != ("in", "place")}


def test_no_name_is_a_home_made_word() -> None:
    named = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in files()
        for name in (*identifiers(path), *path.relative_to(PACKAGE).with_suffix("").parts)
        if HOME_MADE & words(name)
    }
    assert not named, "\n" + "\n".join(sorted(named))


def test_no_page_or_docstring_uses_a_home_made_word() -> None:
    pages = {path: path.read_text(encoding="utf8") for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
    texts = {**pages, **{path: text(path) for path in files()}}
    used = {
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, content in texts.items()
        if path.name != "log.md"
        for match in IN_PROSE.finditer(content)
    }
    assert not used, "\n" + "\n".join(sorted(used))


def test_the_words_of_a_name_are_told_apart() -> None:
    assert words("GrowthPupil2") == {"growth", "pupil"}
    assert words("foundation") == {"foundation"}
    assert words("as_ELC_found") == {"as", "elc", "found"}
    assert words("InPlaceStack") == {"in", "stack"}
    assert words("replace_placement") == {"replace", "placement"}
    assert words("place_in") == {"place", "in"}
    assert IN_PROSE.search("Its pedigrees say so")
    assert not IN_PROSE.search("a random order")


def test_every_exported_function_and_class_has_a_docstring() -> None:
    packages = (
        import_module(module.name) for module in walk_packages(layerwise.__path__, "layerwise.") if module.ispkg
    )
    exported = [
        getattr(package, name) for package in (layerwise, *packages) for name in getattr(package, "__all__", ())
    ]
    objects = [each for each in exported if inspect.isfunction(each) or inspect.isclass(each)]
    assert len(objects) > 100
    # A dataclass without a docstring gets one that begins with `Name(`.
    assert [each for each in objects if not each.__doc__ or each.__doc__.startswith(f"{each.__name__}(")] == []
