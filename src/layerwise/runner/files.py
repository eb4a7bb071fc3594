"""YAML files that call a verb, or several verbs as stages. Files that come with layerwise are called recipes.

    takes: what the recipe needs, and how long it takes
    stages:
      train:  {experiment: train robust, model: google/vit-base-patch16-224, methods: [layershuffle]}
      survey: {experiment: robustness, model: "{runs}/train", run: null}

The results of a stage are stored in `{runs}/STAGE`. If `run` is null, the verb chooses the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.bounded import UnreadableError, decoded, read_bytes
from layerwise.errors import LayerwiseError, OptionError, near_matches
from layerwise.results import Run
from layerwise.results.run import is_run
from layerwise.runner.reporter import Reporter
from layerwise.runner.verb import Verb, VerbCall, from_command_line, load_verb

VERB = "experiment"

STAGES, TAKES = "stages", "takes"

RECIPES = tuple(sorted(path.stem for path in (Path(__file__).parent / "recipes").glob("*.yaml")))
"""Names of the recipes that come with layerwise."""

ALTERNATIVES = (
    ("minutes", "tokens"),
    ("steps", "epochs"),
    ("learning_rate", "learning_rates"),
    ("batch_size", "batch_sizes"),
)
"""Groups of options that cannot be combined. If the caller passes one, the others in the file are ignored."""

_RUNS = "{runs}"


@dataclass(frozen=True, slots=True)
class FileStage:
    """A stage of a file: its call of a verb, the stages (`after`) whose runs it reads, and the directory of runs."""

    name: str
    call: VerbCall
    after: tuple[str, ...] = ()
    runs: Path = Path("runs")

    def list_missing(self) -> tuple[str, ...]:
        return tuple(name for name in self.after if not is_run(self.runs / name))


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """The contents of a YAML file: the verb and options of each stage. A file without stages has one, named ""."""

    name: str
    stages: Mapping[str, Mapping[str, Any]]
    takes: str = ""

    @classmethod
    def read(cls, source: str | Path) -> ExperimentFile:
        """Read a recipe, a YAML file, or the options of a run directory to resume it."""
        path = Path(source)
        if str(source) in RECIPES:
            content = _read_yaml(Path(__file__).parent / "recipes" / f"{source}.yaml")
        elif path.is_dir():
            with Run.open(path) as run:
                content = {**run.manifest.experiment, "run": str(path)} if run.manifest.experiment else None
            if content and "tokens" in content:
                content.pop("minutes", None)  # the same text, regardless of the time
            if content is None:
                raise OptionError(f"{path} cannot be resumed, because its manifest does not contain its options.")
        elif not path.exists() and not path.suffix and path.name == str(source):
            suggestion = near_matches(str(source), RECIPES)
            raise OptionError(f"Unknown recipe, file or run: {str(source)[:60]!r}; {suggestion}")
        else:
            content = _read_yaml(path)
        stages = content.get(STAGES) if isinstance(content, Mapping) else None
        if isinstance(stages, Mapping) and all(isinstance(each, Mapping) for each in stages.values()):
            return cls(str(source), stages, str(content.get(TAKES, "")).strip())
        if not isinstance(content, Mapping) or not isinstance(content.get(VERB), str):
            raise OptionError(f"{source} must name a verb. Add `{VERB}: sweep` (or another verb) and its options.")
        return cls(str(source), {"": content})

    def select(self, names: Sequence[str] = ()) -> ExperimentFile:
        """Return a copy with only the named stages (default: all stages)."""
        for name in names:
            if name not in self.stages:
                raise OptionError(f"{self.name} has no stage {name[:60]!r}; {near_matches(name, self.stages)}")
        return replace(self, stages={name: each for name, each in self.stages.items() if not names or name in names})

    def load_verbs(self) -> dict[str, Verb]:
        return {name: load_verb(str(each.get(VERB))) for name, each in self.stages.items()}

    def list_calls(self, given: Mapping[str, Mapping[str, Any]] | None = None) -> list[FileStage]:
        """Return all stages with their calls. `given` maps a stage to the options that override those in the file.

        The runs of a file are stored in `runs/NAME`, or in the directory that is given as `run`.
        """
        options = given or {}
        return [self._read_stage(name, verb, dict(options.get(name, {}))) for name, verb in self.load_verbs().items()]

    def _read_stage(self, name: str, verb: Verb, given: dict[str, Any]) -> FileStage:
        content = self._content(name)
        runs = Path(given.pop("run", Path("runs") / Path(self.name).stem)) if name else Path()
        displaced = {
            other
            for options in ALTERNATIVES
            if not given.keys().isdisjoint(options)
            for other in options
            if other in content
        }
        # The model of a stage is not replaced if another selected stage trains it.
        given = {key: value for key, value in given.items() if not self._reads(content.get(key)) & self.stages.keys()}
        self._check_plan(name, content, given)
        content = {key: value for key, value in content.items() if key not in displaced} | given
        if name and verb.keeps_run:
            content = {"run": f"{_RUNS}/{name}", **content}
            content = {key: value for key, value in content.items() if (key, value) != ("run", None)}
        after = tuple(sorted(self._reads(content) - {name}))
        try:
            with from_command_line():
                call = verb(**{verb.name_of(key): value for key, value in _in_folder(content, str(runs)).items()})
        except LayerwiseError as refusal:
            if not name:
                raise OptionError(f"{self.name}: {refusal}") from refusal
            others = " ".join(other for other in self.stages if other != name)
            hint = f"\nTo skip this stage: layerwise run {self.name} {others}" if others else ""
            raise OptionError(f"stage {name}: {refusal}{hint}") from refusal
        return FileStage(name, call, after, runs)

    def _check_plan(self, name: str, content: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        model = content.get("model")
        if "plan" in content.keys() - options.keys() and options.get("model", model) != model:
            raise OptionError(
                f"stage {name}: the plan {content['plan']} belongs to {model}. Pass a plan for {options['model']} with "
                f"--{name}.plan PLAN."
            )

    def _content(self, stage: str) -> dict[str, Any]:
        return {str(key).replace("-", "_"): value for key, value in self.stages[stage].items() if key != VERB}

    @staticmethod
    def _reads(value: Any) -> set[str]:
        return set(re.findall(re.escape(_RUNS) + r"/([\w-]+)", _join_texts(value)))

    def parse_options(self, words: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Parse words of the command line into the options of each stage.

        `--STAGE.OPTION` applies to one stage. `--OPTION` applies to the first stage that sets the option, and to all
        stages that have the same value or none in the file. For example, `run painters --model X` does not change
        the stages of that recipe that use BERT.
        """
        verbs = self.load_verbs()
        given: dict[str, dict[str, list[str]]] = {name: {} for name in verbs}
        results: dict[str, dict[str, Any]] = {name: {} for name in verbs}
        rest = list(words)
        while rest:
            flag, equals, value = rest.pop(0).partition("=")
            stage, dot, option_name = flag.removeprefix("--").partition(".")
            if dot and stage in verbs:
                flag = f"--{option_name}"
                targets = {stage: key} if (key := _find_option(verbs[stage], flag)) else {}
            else:
                matches = {name: key for name, verb in verbs.items() if (key := _find_option(verb, flag))}
                targets = self._select_stages(matches)
            if not targets:
                searched = [verbs[stage]] if dot and stage in verbs else verbs.values()
                flags = {each for verb in searched for each in _list_flags(verb)}
                raise OptionError(f"{self.name} has no option {flag[:60]!r}; {near_matches(flag, flags)}")
            switches = {name for name, key in targets.items() if bool in verbs[name].arguments[key].kinds}
            if switches and not equals:
                for name in switches:
                    results[name][targets[name]] = not flag.startswith("--no-")
                continue
            if not equals and not rest:
                raise OptionError(f"{flag} must be followed by a value.")
            text = value if equals else rest.pop(0)
            for name, key in targets.items():
                given[name].setdefault(key, []).append(text)
        for name, texts in given.items():
            for key, several in texts.items():
                results[name][key] = verbs[name].arguments[key].parse(several, f"--{key}")
        return results

    def _select_stages(self, candidates: Mapping[str, str]) -> dict[str, str]:
        contents = {name: self._content(name) for name in candidates}
        values = {name: contents[name][key] for name, key in candidates.items() if key in contents[name]}
        values = {name: value for name, value in values.items() if not self._reads(value)}
        first = next(iter(values.values()), None)
        return {name: key for name, key in candidates.items() if values.get(name, first) == first}


def run(source: str | Path, *stages: str, reporter: Reporter | None = None, **options: object) -> dict[str, Any]:
    """Run a recipe or a YAML file, or resume a run, and return the result of each stage.

    Args:
        source: Name of a recipe, path of a YAML file, or a run directory to resume.
        stages: Stages to run (default: all).
        reporter: Where progress goes (default: the terminal or the notebook).
        options: Options that override those in the file, in every stage that has them.

    Returns:
        The result of each stage by its name. If the file has no stages, the name of its only result is empty.

    Raises:
        OptionError: If no stage has one of the options.

    Example:
        layerwise.run("painters", "curves", model="demo", families=["painters"])
    """
    file = ExperimentFile.read(source).select(stages)
    verbs = file.load_verbs()
    for name in options:
        if not any(name in verb.arguments for verb in verbs.values()):
            raise OptionError(f"{file.name} has no option {name!r}.")
    given = {
        stage: {name: value for name, value in options.items() if name in verb.arguments}
        for stage, verb in verbs.items()
    }
    return {stage.name: stage.call.call(reporter) for stage in file.list_calls(given)}


def _list_flags(verb: Verb) -> Iterator[str]:
    for name, each in verb.listed.items():
        yield f"--{name.replace('_', '-')}" if each.is_positional else each.flag


def _find_option(verb: Verb, flag: str) -> str | None:
    by_flag = dict(zip(_list_flags(verb), verb.listed, strict=True))
    return by_flag.get(flag) or by_flag.get(flag.replace("--no-", "--", 1))


def _join_texts(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(_join_texts(each) for each in value.values())
    return "\n".join(_join_texts(each) for each in value) if isinstance(value, list | tuple) else str(value)


def _in_folder(value: Any, runs: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _in_folder(each, runs) for key, each in value.items()}
    if isinstance(value, list):
        return [_in_folder(each, runs) for each in value]
    return value.replace(_RUNS, runs) if isinstance(value, str) else value


def _read_yaml(path: Path) -> Any:
    from layerwise.data.plain_yaml import SIZE, parse_yaml  # slow to import

    try:
        return parse_yaml(decoded(read_bytes(path, SIZE)))
    except UnreadableError as error:
        raise OptionError(f"{path} {error}. Pass a YAML file in UTF-8.") from error
