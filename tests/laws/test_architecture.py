"""Packages import downwards only, including imports inside functions, and the light packages stay light."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import layerwise
from layerwise.catalogue import VERBS
from package_sources import PACKAGE, files, nodes, tree

# DESIGN draws the same arrows. A package may always import itself, `errors` and `bounded`.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "bounded": set(),
    "results": set(),
    "plan": set(),
    "data": set(),
    "gguf": set(),
    "stack": {"plan", "data", "gguf"},
    "measure": {"results", "plan", "data", "stack"},
    "models": {"plan", "data", "stack"},
    "catalogue": {"runner", "studies"},
    "page": {"catalogue", "results", "plan"},
    "swarm": {"results", "plan", "data", "stack"},
    "checkpoint": {"plan", "data", "gguf", "stack"},
    "search": {"results", "plan", "data", "stack", "measure"},
    "train": {"results", "plan", "data", "stack", "measure", "models"},
    "runner": {
        *("results", "plan", "data", "gguf", "stack", "measure", "models", "checkpoint", "search", "train", "page")
    },
    "studies": {
        *("results", "plan", "data", "gguf", "stack", "measure", "models", "checkpoint", "search", "train", "page"),
        *("runner", "swarm"),
    },
    "cli": {"catalogue", "results", "plan", "data", "stack", "page", "checkpoint", "train", "runner", "studies"},
    "__main__": {"cli"},
}
MOST_FILES = 25


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for each in body:
        yield each
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(each, name, None)
            if isinstance(inner, list):
                yield from statements(inner)


def imported_modules(path: Path) -> Iterator[str]:
    for node in statements(tree(path).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}: relative imports hide which way an arrow points"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def upward_imports(path: Path) -> list[str]:
    room = room_of(path)
    found = []
    for name in imported_modules(path):
        first, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if (
            first == "layerwise"
            and target in MAY_IMPORT
            and target not in MAY_IMPORT[room] | {room, "errors", "bounded"}
        ):
            found.append(name)
    return found


FILES = [path for path in files() if room_of(path) != "__init__"]


def test_every_room_is_on_the_map() -> None:
    assert {room_of(path) for path in FILES} == set(MAY_IMPORT)


def test_imports_point_down() -> None:
    upward = {str(path.relative_to(PACKAGE)): upward_imports(path) for path in FILES}
    assert {path: found for path, found in upward.items() if found} == {}


def imported_studies(path: Path) -> set[str]:
    """Return the studies other than its own that a file of a study imports."""
    own = path.relative_to(PACKAGE).parts[1].removesuffix(".py")
    names = (name.split(".") for name in imported_modules(path))
    return {name[2] for name in names if name[:2] == ["layerwise", "studies"] and name[2:] and name[2] != own}


def test_studies_do_not_import_each_other() -> None:
    studies = [path for path in FILES if room_of(path) == "studies"]
    assert {str(path.relative_to(PACKAGE)): found for path in studies if (found := imported_studies(path))} == {}


def without_the_study_of_times(folder: Path) -> None:
    """Delete a study in a copy of the package: its folder, and its line of the catalogue."""
    shutil.rmtree(folder / "studies" / "time")
    table = folder / "catalogue.py"
    lines = table.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "layerwise.studies.time." not in line]
    assert len(kept) == len(lines) - 1
    table.write_text("".join(kept))


UNREAD = shutil.ignore_patterns("__pycache__", "*.gz", "*.safetensors")


def test_a_study_is_one_folder_and_one_line_of_the_catalogue(tmp_path: Path) -> None:
    """Outside its folder no study is named but in the catalogue, and the others work without it."""
    studies = {path.name for path in (PACKAGE / "studies").iterdir() if (path / "verb.py").exists()}
    named = {
        path.relative_to(PACKAGE).as_posix()
        for path in files()
        if room_of(path) != "studies"
        for study in studies
        if any(f"{name}.".startswith(f"layerwise.studies.{study}.") for name in imported_modules(path))
    }
    assert named == {"catalogue.py"}
    copy = tmp_path / "layerwise"
    shutil.copytree(PACKAGE, copy, ignore=UNREAD)
    without_the_study_of_times(copy)
    code = (
        "import layerwise; from layerwise.cli.app import build; from layerwise.page.kinds import load_kinds\n"
        "from layerwise.runner.verb import VERBS\n"
        "assert not hasattr(layerwise, 'time'); build(word='--install-completion'); load_kinds()\n"
        "print(layerwise.__file__, len(VERBS))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert ended.stdout.split() == [str(copy / "__init__.py"), str(len(VERBS) - 1)]


def test_an_upward_import_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan").mkdir()
    wrong = tmp_path / "plan" / "wrong.py"
    wrong.write_text("def later():\n    from layerwise.stack import load\n")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    assert upward_imports(wrong) == ["layerwise.stack", "layerwise.stack.load"]


def crowded(package: Path) -> list[str]:
    folders = {path.parent for path in package.rglob("*.py")}
    return sorted(str(each.relative_to(package)) for each in folders if len([*each.glob("*.py")]) > MOST_FILES)


def test_no_folder_is_crowded() -> None:
    assert crowded(PACKAGE) == []


def test_a_crowded_folder_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    for number in range(MOST_FILES):
        (tmp_path / "full" / f"m{number}.py").touch()
    assert crowded(tmp_path) == []
    (tmp_path / "full" / "more.py").touch()
    assert crowded(tmp_path) == ["full"]


DRAWS = {"random", "secrets", "scipy", "numpy.random", "statistics.quantiles", "statistics.NormalDist"}
DRAWING = {"random", "quantile", "percentile", "nanquantile", "nanpercentile", "quantiles", "inv_cdf", "ppf"}


def own_intervals(path: Path) -> set[str]:
    """Return the imports and calls of a module that draw random numbers or compute quantiles."""
    imported = {name for name in imported_modules(path) if name in DRAWS or name.partition(".")[0] in DRAWS}
    return imported | {
        node.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute) and node.attr in DRAWING
    }


def test_a_page_computes_no_interval_of_its_own(tmp_path: Path) -> None:
    """Rendering code prints stored intervals; it draws no random numbers and computes no quantiles."""
    rendering = [path for path in FILES if room_of(path) in ("page", "cli")]
    assert {str(path.relative_to(PACKAGE)): found for path in rendering if (found := own_intervals(path))} == {}
    wrong = tmp_path / "wrong.py"
    for line in ("import numpy as np\nnp.quantile([1], 0.5)", "from scipy import stats", "import random"):
        wrong.write_text(line)
        assert own_intervals(wrong)


HEAVY = ("torch", "transformers")
LIGHT = {
    "layerwise": HEAVY,
    "layerwise.errors": HEAVY,
    "layerwise.bounded": HEAVY,
    "layerwise.gguf": (*HEAVY, "numpy"),
    "layerwise.plan": (*HEAVY, "numpy", "yaml"),
    "layerwise.plan.schedule": HEAVY,
    "layerwise.results": (*HEAVY, "pyarrow"),
    "layerwise.page": HEAVY,
}
"""Modules that each light package must not import, the lightest first: one process imports them in this order."""


def heavy_imports(light: Mapping[str, tuple[str, ...]]) -> list[str]:
    code = (
        f"import sys\nfor room, heavy in {dict(light)!r}.items():\n    __import__(room)\n"
        "    for name in heavy:\n        if name in sys.modules: print(room, 'imports', name)"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()


def test_light_rooms_stay_light() -> None:
    assert heavy_imports(LIGHT) == []


def test_a_heavy_import_would_be_seen() -> None:
    assert heavy_imports({"layerwise.plan": ("re", "torch")}) == ["layerwise.plan imports re"]


def test_plans_and_schedules_are_standard_library_only() -> None:
    allowed = sys.stdlib_module_names | {"layerwise"}
    light = [path for path in FILES if room_of(path) == "plan"]
    for path in light:
        names = {name.partition(".")[0] for name in imported_modules(path)}
        assert names <= allowed | ({"yaml"} if path.parent.name == "dialects" else set()), path


def of_run_folders(path: Path) -> list[str]:
    pure = tuple(f"layerwise.results.{name}" for name in ("estimate", "rows", "selection", "vocabulary"))
    return [
        name for name in imported_modules(path) if name.startswith("layerwise.results") and not name.startswith(pure)
    ]


def test_measurements_know_no_run_folder(tmp_path: Path) -> None:
    measures = {path: of_run_folders(path) for path in FILES if room_of(path) == "measure"}
    assert {path: names for path, names in measures.items() if names} == {}
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from layerwise.results import Run\nfrom layerwise.results.rows import Score\n")
    assert of_run_folders(wrong) == ["layerwise.results", "layerwise.results.Run"]


def test_every_public_name_resolves() -> None:
    assert layerwise.__all__ == sorted(layerwise.__all__, key=str)
    assert all(getattr(layerwise, name) is not None for name in layerwise.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        layerwise.nothing  # noqa: B018


def test_no_pickle_anywhere() -> None:
    unsafe = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for path in FILES:
        assert unsafe.isdisjoint(name.partition(".")[0] for name in imported_modules(path)), path
        assert careless_loads(nodes(path)) == [], path


def careless_loads(source: Iterable[ast.AST]) -> list[str]:
    calls = [node for node in source if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "load"]
    loads = [call for call in named if ast.unparse(call.func) == "torch.load"]
    return [
        ast.unparse(call)
        for call in loads
        if not any(each.arg == "weights_only" and ast.unparse(each.value) == "True" for each in call.keywords)
    ]


def test_a_careless_load_would_be_seen() -> None:
    text = "torch.load(file)\ntorch.load(file, weights_only=False)\ntorch.load(file, weights_only=True)"
    assert careless_loads(ast.walk(ast.parse(text))) == ["torch.load(file)", "torch.load(file, weights_only=False)"]
