"""Only `layerwise.data.auto_classes` calls transformers' automatic classes: without its flag they ask to run code."""

import ast
import re
from collections.abc import Iterable

import pytest

from package_sources import PACKAGE, files, nodes, text

ONLY = PACKAGE / "data" / "auto_classes.py"
AUTOMATIC = re.compile(r"_?(Base)?Auto[A-Z]\w*")
OWN = frozenset({"ElcForMaskedLM", "PeftModel"})
"""Their `from_pretrained` reads no class from a checkpoint."""

LOADERS = ("from_pretrained", "from_config")
PACKAGES = ("transformers", "transformers.models.auto", "transformers.dynamic_module_utils", "transformers.pipelines")
LOOKUPS = ("getattr", "vars", "dir", "import_module", "__import__")


def name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_use(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = {alias.name for alias in node.names}
        if (node.module or "").startswith(PACKAGES[1:]):
            return names != {"CONFIG_MAPPING"}
        return bool(names & {"pipeline", "auto"}) or any(map(AUTOMATIC.fullmatch, names))
    if isinstance(node, ast.Import):
        return any(alias.name.startswith(PACKAGES[1:]) for alias in node.names)
    if isinstance(node, ast.Attribute):
        if node.attr in LOADERS:
            return name_of(node.value) not in OWN
        of_package = node.attr in ("pipeline", "__dict__") and name_of(node.value) == "transformers"
        return of_package or AUTOMATIC.fullmatch(node.attr) is not None
    if isinstance(node, ast.Call) and name_of(node.func) in LOOKUPS:
        constants = {each.value for each in node.args if isinstance(each, ast.Constant)}
        by_name = any(isinstance(each, str) and AUTOMATIC.fullmatch(each) for each in constants)
        return by_name or bool(constants & {*LOADERS, *PACKAGES}) or "transformers" in map(name_of, node.args)
    return False


def uses(syntax: Iterable[ast.AST]) -> list[str]:
    return [f"{getattr(node, 'lineno', 0)}: {ast.unparse(node)}" for node in syntax if is_use(node)]


def test_no_automatic_class_is_called_elsewhere() -> None:
    concerned = (path for path in files() if path != ONLY and re.search("transformers|Auto|from_[pc]", text(path)))
    found = {str(path.relative_to(PACKAGE)): uses(nodes(path)) for path in concerned}
    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from transformers import AutoConfig",
        "from transformers import AutoModelForCausalLM as Model",
        "import transformers\ntransformers.AutoTokenizer.from_pretrained('x')",
        "kind.from_pretrained(folder, trust_remote_code=False)",
        "type(model).from_config(config)",
        "getattr(transformers, name)",
        "getattr(kind, 'from_pretrained')(folder)",
        "vars(transformers)['AutoModel']",
        "transformers.__dict__[name]",
        "from transformers.models.auto import modeling_auto",
        "from transformers.models.auto.configuration_auto import CONFIG_MAPPING, AutoConfig",
        "import transformers.models.auto.modeling_auto as auto",
        "from transformers.dynamic_module_utils import get_class_from_dynamic_module",
        "from transformers import pipeline",
        "transformers.pipeline('text-generation')",
        "import_module('transformers')",
    ],
)
def test_a_call_would_be_seen(source: str) -> None:
    assert uses(ast.walk(ast.parse(source)))


def test_harmless_imports_are_allowed() -> None:
    harmless = (
        "from transformers.models.auto.configuration_auto import CONFIG_MAPPING\n"
        "from layerwise.data.auto_classes import from_pretrained\n"
        "from_pretrained('AutoConfig', folder)\nElcForMaskedLM.from_pretrained(folder)\n"
        "'AutoConfig' in settings['auto_map']\ngetattr(torch, name)\n"
    )
    assert uses(ast.walk(ast.parse(harmless))) == []


def unflagged(tree: ast.AST) -> list[str]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    loading = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in LOADERS)
    return [ast.unparse(call) for call in loading if "trust_remote_code" not in {key.arg for key in call.keywords}]


def test_every_call_of_the_module_passes_the_flag() -> None:
    source = text(ONLY)
    assert unflagged(ast.parse(source)) == []
    assert source.count("trust_remote_code: bool = False") == source.count("trust_remote_code: bool") == 2
    assert unflagged(ast.parse("kind.from_pretrained(location, **options)")) == [
        "kind.from_pretrained(location, **options)"
    ]
