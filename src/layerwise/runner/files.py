"""Read experiments from YAML files (packaged ones are recipes): a single one, or several as stages.

    takes: what the recipe needs, and how long it takes
    stages:
      train:  {experiment: train robust, model: google/vit-base-patch16-224, methods: [layershuffle]}
      survey: {experiment: robustness, model: "{runs}/train", run: null}

The rows of a stage go into `{runs}/STAGE`; with `run: null` the experiment names its folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.bounded import Unreadable, decoded, read_bytes
from layerwise.errors import LayerwiseError, OptionError, near_matches
from layerwise.results import Run
from layerwise.results.run import is_run
from layerwise.runner.catalogue import configuration
from layerwise.runner.experiment import Configuration, Experiment, unread_values
from layerwise.runner.option import converted, flag_of, from_text, is_switch, options_of, plain, split_settings
from layerwise.runner.spelling import in_flags, refusals
from layerwise.runner.verb import Verb, VerbCall

VERB = "experiment"

STAGES, TAKES = "stages", "takes"

RECIPES = tuple(sorted(path.stem for path in (Path(__file__).parent / "recipes").glob("*.yaml")))
"""The recipes that ship with layerwise, by name."""

_RUNS = "{runs}"


@dataclass(frozen=True, slots=True)
class FileStage:
    """One experiment of a file, ready to be carried out: its name, its configuration, and the stages it reads."""

    name: str
    config: Configuration
    after: tuple[str, ...] = ()
    runs: Path = Path("runs")

    def waits_for(self) -> tuple[str, ...]:
        return tuple(name for name in self.after if not is_run(self.runs / name))


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """The experiments of a file by stage, as plain values, and its requirements; a single one has no stage name."""

    name: str
    stages: Mapping[str, Mapping[str, Any]]
    takes: str = ""

    @classmethod
    def read(cls, source: str | Path) -> ExperimentFile:
        """Read a recipe, a YAML file, or a run folder to resume; raises `OptionError` for anything else."""
        path = Path(source)
        if str(source) in RECIPES:
            content = _yaml(Path(__file__).parent / "recipes" / f"{source}.yaml")
        elif path.is_dir():
            with Run.open(path) as run:
                content = {**run.manifest.experiment, "run": str(path)} if run.manifest.experiment else None
            if content and "tokens" in content:
                content.pop("minutes", None)  # as much as it has read, whatever that takes
            if content is None:
                raise OptionError(f"{path} was not made by an experiment that can be run again")
        elif not path.exists() and not path.suffix and path.name == str(source):
            known = near_matches(str(source), RECIPES)
            raise OptionError(f"there is no recipe, file or run {str(source)[:60]!r}; {known}")
        else:
            content = _yaml(path)
        stages = content.get(STAGES) if isinstance(content, Mapping) else None
        if isinstance(stages, Mapping) and all(isinstance(each, Mapping) for each in stages.values()):
            return cls(str(source), stages, str(content.get(TAKES, "")).strip())
        if not isinstance(content, Mapping) or not isinstance(content.get(VERB), str):
            raise OptionError(f"{source} names no experiment: write `{VERB}: sweep` (or another verb) and its options")
        return cls(str(source), {"": content})

    def chosen(self, names: Sequence[str] = ()) -> ExperimentFile:
        """The same with the stages that are named, in the file's order, or all of them. Raises `OptionError`."""
        for name in names:
            if name not in self.stages:
                raise OptionError(f"{self.name} has no stage {name[:60]!r}; {near_matches(name, self.stages)}")
        return replace(self, stages={name: each for name, each in self.stages.items() if not names or name in names})

    def kinds(self) -> dict[str, type[Configuration]]:
        return {name: configuration(str(each.get(VERB))) for name, each in self.stages.items()}

    def configurations(self, given: Mapping[str, Mapping[str, Any]] | None = None) -> list[FileStage]:
        """Return every stage with its configuration; `given` options, by stage, replace those of the file.

        They also replace their `ALTERNATIVES`. Runs of stages are in `runs/NAME` or in the given `run`. Options that a
        stage would not read are left out if there are several. Raises `OptionError`, which names the stage.
        """
        made = []
        for name, kind in self.kinds().items():
            content = self._content(name)
            mine = dict((given or {}).get(name, {}))
            runs = Path(mine.pop("run", Path("runs") / Path(self.name).stem)) if name else Path()
            displaced = {
                other
                for each in kind.ALTERNATIVES
                if not mine.keys().isdisjoint(each.options)
                for other in each.options
            }
            # A model that another stage makes stays, where that stage is carried out too.
            mine = {key: value for key, value in mine.items() if not self._reads(content.get(key)) & self.stages.keys()}
            if "plan" in content.keys() - mine.keys() and mine.get("model", content.get("model")) != content.get(
                "model"
            ):
                raise OptionError(
                    f"the stage {name}: its plan, {content['plan']}, is of {content['model']}; give a plan of "
                    f"{mine['model']} with --{name}.plan PLAN"
                )
            content = {key: value for key, value in content.items() if key not in displaced} | mine
            if name and (kind.keeps_run if isinstance(kind, Verb) else issubclass(kind, Experiment)):
                content = {"run": f"{_RUNS}/{name}", **content}
                content = {key: value for key, value in content.items() if (key, value) != ("run", None)}
            after = tuple(sorted(self._reads(content) - {name}))
            try:
                values = converted(kind, _in_folder(content, str(runs)), f"{self.name} {name}".strip())
                idle = unread_values(kind, values) if len(self.stages) > 1 and not isinstance(kind, Verb) else ()
                with refusals(kind, in_flags):
                    config = kind(**{key: value for key, value in values.items() if key not in idle})
            except LayerwiseError as refusal:
                if not name:
                    raise
                others = " ".join(other for other in self.stages if other != name)
                hint = f"; without this stage: layerwise run {self.name} {others}" if others else ""
                raise OptionError(f"the stage {name}: {refusal}{hint}") from refusal
            made.append(FileStage(name, config, after, runs))
        return made

    def _content(self, stage: str) -> dict[str, Any]:
        return {str(key).replace("-", "_"): value for key, value in self.stages[stage].items() if key != VERB}

    @staticmethod
    def _reads(value: Any) -> set[str]:
        return set(re.findall(re.escape(_RUNS) + r"/([\w-]+)", _texts(value)))

    def options(self, words: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Parse command-line words by stage; raises `OptionError` for an option that no stage has.

        `--OPTION` applies to every stage that has the option, except those whose value in the file differs from that of
        the first stage that sets it: `run painters --model X` leaves BERT to the stages of BERT. `--STAGE.OPTION`
        applies to one stage.
        """
        kinds = self.kinds()
        given: dict[str, dict[str, list[str]]] = {name: {} for name in kinds}
        results: dict[str, dict[str, Any]] = {name: {} for name in kinds}
        rest = list(words)
        while rest:
            flag, equals, value = rest.pop(0).partition("=")
            stage, dot, option_name = flag.removeprefix("--").partition(".")
            if dot and stage in kinds:
                flag = f"--{option_name}"
                named = {stage: key} if (key := _named(kinds[stage], flag)) else {}
            else:
                named = self._same_setting({name: key for name, kind in kinds.items() if (key := _named(kind, flag))})
            if not named:
                known = [kinds[stage]] if dot and stage in kinds else kinds.values()
                flags = {each for kind in known for each in _flags(kind)}
                raise OptionError(f"{self.name} has no option {flag[:60]!r}; {near_matches(flag, flags)}")
            switches = {name for name, key in named.items() if is_switch(kinds[name], key)}
            if switches and not equals:
                for name in switches:
                    results[name][named[name]] = not flag.startswith("--no-")
                continue
            if not equals and not rest:
                raise OptionError(f"{flag} needs a value behind it")
            text = value if equals else rest.pop(0)
            for name, key in named.items():
                given[name].setdefault(key, []).append(text)
        for name, texts in given.items():
            for key, several in texts.items():
                kind = kinds[name]
                results[name] |= split_settings(kind, several) if key == "set" else {key: from_text(kind, key, several)}
        return results

    def _same_setting(self, named: Mapping[str, str]) -> dict[str, str]:
        written = {name: self._content(name) for name in named}
        values = {name: written[name][key] for name, key in named.items() if key in written[name]}
        values = {name: value for name, value in values.items() if not self._reads(value)}
        first = next(iter(values.values()), None)
        return {name: key for name, key in named.items() if values.get(name, first) == first}


def _flags(kind: type[Configuration]) -> Iterator[str]:
    for name, (_, each) in options_of(kind).items():
        if not each.setting:
            yield f"--{name.replace('_', '-')}" if each.positional else flag_of(kind, name)


def _named(kind: type[Configuration], flag: str) -> str | None:
    if flag == "--set":
        return "set"
    names = [name for name, (_, each) in options_of(kind).items() if not each.setting]
    by_flag = dict(zip(_flags(kind), names, strict=True))
    return by_flag.get(flag) or by_flag.get(flag.replace("--no-", "--", 1))


def _texts(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(_texts(each) for each in value.values())
    return "\n".join(_texts(each) for each in value) if isinstance(value, list | tuple) else str(value)


def _in_folder(value: Any, runs: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _in_folder(each, runs) for key, each in value.items()}
    if isinstance(value, list):
        return [_in_folder(each, runs) for each in value]
    return value.replace(_RUNS, runs) if isinstance(value, str) else value


def _yaml(path: Path) -> Any:
    from layerwise.data.plain_yaml import SIZE, parse_yaml  # help does not wait for it

    try:
        return parse_yaml(decoded(read_bytes(path, SIZE)))
    except Unreadable as error:
        raise OptionError(f"{path} {error}") from error


def read_experiment(path: str | Path) -> Experiment:
    """Read the single experiment of a YAML file or a run folder, which is then resumed.

    Raises `OptionError` for an unreadable file, one with stages, an unknown verb or unknown options.
    """
    file = ExperimentFile.read(path)
    stages = file.configurations()
    if len(stages) > 1 or not isinstance(stages[0].config, Experiment | VerbCall):
        raise OptionError(f"{file.name} is no single experiment; write layerwise run {file.name}")
    return stages[0].config


def to_yaml(config: Experiment) -> str:
    """The experiment as YAML: its verb, and the options that differ from their defaults."""
    import yaml

    content: dict[str, Any] = {VERB: config.VERB, **plain(config)}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
