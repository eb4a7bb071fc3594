"""Every doctest of the package passes."""

import doctest
import importlib
import io
from pathlib import Path
from types import ModuleType

import pytest

import layerwise

PACKAGE = Path(layerwise.__file__).parent


def written(source: str) -> int:
    return sum(line.strip().startswith(">>> ") and "+SKIP" not in line for line in source.splitlines())


def wrongs(module: ModuleType, source: str) -> list[str]:
    said = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder().find(module, module.__name__):
        runner.run(test, out=said.write)
    found = [said.getvalue()] if runner.failures else []
    # Doctest never sees examples in comments, or in docstrings below a decorator that wraps.
    if runner.tries != written(source):
        found.append(f"{module.__name__}: {runner.tries} of {written(source)} examples were run")
    return found


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


SOURCES = {path: path.read_text(encoding="utf8") for path in sorted(PACKAGE.rglob("*.py"))}
WITH_EXAMPLES = [path for path, source in SOURCES.items() if ">>>" in source]
# One test per package, so that the workers share them.
ROOMS = sorted({path.relative_to(PACKAGE).parts[0] for path in WITH_EXAMPLES})


@pytest.mark.parametrize("room", ROOMS)
def test_every_example_of_the_package_is_run_and_true(room: str) -> None:
    found = []
    for path in WITH_EXAMPLES:
        if path.relative_to(PACKAGE).parts[0] == room:
            found += wrongs(importlib.import_module(module_name(path)), SOURCES[path])
    assert not found, "\n".join(found)


def test_an_example_that_is_false_or_not_run_would_be_seen() -> None:
    right = ">>> 1 + 1\n2\n>>> lost()  # doctest: +SKIP\n"
    assert wrongs(ModuleType("invented", right), right) == []
    (false,) = wrongs(ModuleType("invented", ">>> 1 + 1\n3\n"), ">>> 1 + 1\n3\n")
    assert "Expected:\n    3\nGot:\n    2" in false
    assert wrongs(ModuleType("invented", right), right + "# >>> 1 + 2\n    >>> 1 + 2\n") == [
        "invented: 1 of 2 examples were run"
    ]
    assert wrongs(ModuleType("invented"), right) == ["invented: 0 of 1 examples were run"]
