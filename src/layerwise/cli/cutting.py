"""Learned wirings of trained models: drawn, their edges ranked and cut, what is left judged, and written out.

A model keeps its layer weights in a wiring that was attached to it (`layerwise train wiring-identity`) or in its own
architecture (ELC-BERT); both are asked alike. Edges are chosen on one set of examples and judged on another.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from layerwise.cli.alpha import alpha_map
from layerwise.cli.course import candidates_of, manifest_of
from layerwise.cli.materials import DIGITS, Material
from layerwise.cli.model import hush, open_model
from layerwise.cli.pretraining import documents_of
from layerwise.cli.screen import PartBar, output, write
from layerwise.cli.sitting import begin, speaker, stopped_in_peace
from layerwise.data.batches import IGNORED
from layerwise.data.corpus import read_corpus
from layerwise.data.documents import Document
from layerwise.data.segments import cut as cut_segments
from layerwise.data.segments import digest_of, encode
from layerwise.data.span_masking import FixedMasks, Padding, SpanMasking
from layerwise.data.splits import Splits, digest
from layerwise.errors import DataError, ModelError, RunError
from layerwise.measure.edges import (
    ALPHA,
    MEASURE,
    Ask,
    Ranked,
    Wired,
    alpha_rows,
    prune,
    pruned_rows,
    rank,
    ranking_rows,
    wired_as,
)
from layerwise.measure.held_out import HeldOut
from layerwise.measure.provenance import folder_of
from layerwise.models.elc.encoder import ElcPreTrainedModel
from layerwise.models.elc.wiring import ElcWiring
from layerwise.plan import Edges
from layerwise.results import Manifest, Run
from layerwise.results.pedigree import Pedigree
from layerwise.results.rows import Score
from layerwise.results.run import MANIFEST
from layerwise.stack import Stack, weight_hash
from layerwise.stack.load import EMBEDDED
from layerwise.train.trained import open_trained

FAMILY = "wiring"
"""What the manifest of a single model's edges calls itself."""

FILE = "wiring.json"
"""The sparse wiring beside the weights of a model that was pruned to it."""

MASKED_LENGTH = 128
TOLD = 8
"""Edges that are printed, of those with the largest effect."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with a learned wiring: what its rows are called, where it lies, and its weights as a `Wired`."""

    label: str
    folder: Path
    stack: Stack
    wired: Wired
    pedigree: Pedigree | None


@dataclass(frozen=True, slots=True)
class Cutting:
    """How edges are chosen, on which material, and where the sparse model goes."""

    material: Material
    keep: float | None
    tolerance: float | None
    rounds: int
    save: Path | None
    _: KW_ONLY
    device: str
    dtype: str
    fresh: bool
    quiet: bool

    def of_run(self, folder: Path) -> None:
        """Every finished model of a run that has a wiring, into that run."""
        with Run.open(folder) as recorded:
            manifest = recorded.manifest
        candidates = [each for each in candidates_of(folder) if _has_wiring(each.folder)]
        if not candidates:
            raise RunError(f"{folder} holds no finished model with learned layer weights; {_HOW}")
        if self.save is not None and len(candidates) > 1:
            raise RunError(
                f"{folder} holds {len(candidates)} models with learned layer weights, and one is saved: give its "
                f"folder, such as {candidates[0].folder}"
            )
        rows: list[Score] = []
        with Run.resume_or_create(folder, manifest) as run, stopped_in_peace(run):
            for each in candidates:
                subject = self._opened(each.folder, each.label)
                subject.stack.source = replace(subject.stack.source, name=manifest.model)
                rows += self._asked(subject, task=each.label)[0]
            _store(run, rows)
        write(output, f"rows: {folder}")

    def of_model(self, model: str, folder: Path | None) -> None:
        """One model, into a run of its own."""
        place = Path(model).expanduser()
        if not _has_wiring(place):
            raise ModelError(f"{model} has no learned layer weights; {_HOW}")
        subject = self._opened(place, "all")
        rows, manifest = self._asked(subject, task="all")
        manifest = replace(manifest, families=(FAMILY,), seed=self.material.seed)
        folder = folder or folder_of(manifest)
        with begin(folder, manifest, self.fresh) as run:
            _store(run, rows)
        write(output, f"rows: {folder}")

    def _opened(self, folder: Path, label: str) -> Subject:
        hush()
        pedigree = Pedigree.read(folder)
        if _is_elc(folder):
            stack = open_model(str(folder), None, None, self.device, self.dtype, None, False)
            assert isinstance(stack.model, ElcPreTrainedModel)
            return Subject(label, folder, stack, ElcWiring(stack.model), pedigree)
        trained = open_trained(folder, device=self.device, dtype=self.dtype)
        assert trained.wiring is not None, "a pedigree that tells of a wiring is one of a model that has it"
        return Subject(label, folder, trained.stack, trained.wiring, pedigree)

    def _asked(self, subject: Subject, task: str) -> tuple[list[Score], Manifest]:
        """Draw, rank, prune and save one model; its rows, and what they are measured on."""
        choosing, judging, manifest = self._examples(subject)
        wired, seed = subject.wired, self.material.seed
        wiring = wired.edges()
        say = speaker(self.quiet)
        write(output, f"{subject.folder}: {len(wiring)} edges, {wiring.live_states()} live states")
        output.print(alpha_map(wiring))
        with PartBar(self.quiet) as bar:
            ranked = rank(
                wired, choosing, seed=seed, tell=lambda done, total: bar.update("cutting each edge", done / total)
            )
            rows = ranking_rows(ranked, choosing(), task=task, seed=seed, depth=wiring.depth)
            output.print(_table(ranked, wiring.depth))
            write(output, _agreement(rows))
            if self.keep is not None or self.tolerance is not None:
                say("choosing what to cut")
                pruned = prune(
                    wired, choosing, keep=self.keep, tolerance=self.tolerance, rounds=self.rounds, ranked=ranked,
                    seed=seed,
                )  # fmt: skip
                rows += pruned_rows(
                    wired, pruned, ranked, judging, task=task, seed=seed,
                    tell=lambda done, total: bar.update("cutting as many otherwise", done / total),
                )  # fmt: skip
                output.print(alpha_map(pruned))
                write(output, _verdict(rows))
                if self.save is not None:
                    self._write(subject, pruned)
        return [*rows, *alpha_rows(subject.label, wiring)], manifest

    # -- what is read ---------------------------------------------------------------------------------------------

    def _examples(self, subject: Subject) -> tuple[Ask, Ask, Manifest]:
        stack, material = subject.stack, self.material
        if type(stack.model).__name__.endswith("ForMaskedLM"):
            return self._masked(subject)
        known = subject.pedigree.data_name if subject.pedigree is not None else None
        if material.images is None and material.text is None:
            if known == DIGITS:
                material = replace(material, images=DIGITS)
            elif known in EMBEDDED:
                stack.source = replace(stack.source, name=str(known))
        splits = material.splits(stack, str(subject.folder), quiet=self.quiet)
        if subject.pedigree is not None and subject.pedigree.data != splits.digest:
            raise _learned(subject, subject.pedigree, splits.name, "--images or --text, --limit and --seed")
        choosing, judging = (_kept(part, splits) for part in (splits.validation, splits.test))
        manifest = manifest_of(stack, weight_hash(stack.model), splits)
        return lambda: choosing.ask(stack), lambda: judging.ask(stack), manifest

    def _masked(self, subject: Subject) -> tuple[Ask, Ask, Manifest]:
        """Tokens to fill in: in the documents that the training held out, or of a stranger in halves of a text."""
        stack = subject.stack
        if stack.tokenizer is None:
            raise DataError(f"{subject.folder} has no tokenizer beside it, so it cannot read text")
        name, content, parts = self._documents(subject)
        halves = [self._fill_ins(stack, part) for part in parts]
        manifest = Manifest(
            model=stack.source.name, revision=stack.source.revision, weight_hash=weight_hash(stack.model),
            dtype=str(stack.dtype).removeprefix("torch."), device=str(stack.device.type), corpus=name,
            corpus_hash=content, documents=sum(map(len, parts)), tokens=sum(map(_scored, halves)),
            window=self.material.length or MASKED_LENGTH, families=(FAMILY,), tasks=(), seed=0, layers=stack.path,
            command=tuple(sys.argv),
        )  # fmt: skip
        return lambda: halves[0].ask(stack), lambda: halves[1].ask(stack), manifest

    def _documents(self, subject: Subject) -> tuple[str, str, list[Sequence[Document]]]:
        """The name and the digest of a text, the documents that choose, and those that judge."""
        text = self.material.text
        if subject.pedigree is not None:
            name, parts = documents_of(text, self.material.seed)
            found = digest_of(parts)
            if subject.pedigree.data != found:
                raise _learned(subject, subject.pedigree, name, "--text and --seed")
            return name, found, [parts["validation"], parts["test"]]
        if text is None:
            raise DataError("a text that the model was not trained on is needed: --text FILE_OR_FOLDER")
        corpus = read_corpus(text)
        count = len(corpus.documents)
        if count < 4:
            raise DataError(
                f"{text} holds {count} document(s); edges are chosen on one half and judged on the other: "
                "give 4 or more"
            )
        content = digest((str(place % 2), "", each.text.encode()) for place, each in enumerate(corpus.documents))
        return corpus.name, content, [corpus.documents[start::2] for start in (0, 1)]

    def _fill_ins(self, stack: Stack, documents: Sequence[Document]) -> HeldOut:
        tokenizer = stack.tokenizer
        assert tokenizer is not None, "it was asked for above"
        segments = cut_segments(encode(tokenizer, documents), self.material.length or MASKED_LENGTH)
        masks = FixedMasks(segments, SpanMasking.of(tokenizer), tokenizer)
        padding = Padding(int(tokenizer.pad_token_id))
        return HeldOut.of(masks, padding, owners=masks.owners.tolist(), filled_in=True)

    # -- what is written ------------------------------------------------------------------------------------------

    def _write(self, subject: Subject, pruned: Edges) -> None:
        assert self.save is not None, "whoever writes was told where"
        if self.save.suffix == ".json":
            self.save.write_text(pruned.to_json())
            write(output, f"{self.save}: {len(pruned)} edges")
            return
        if self.save.exists() and not self.fresh:
            raise ModelError(f"{self.save} is there already; choose another folder, or replace it with --fresh")
        model: Any = subject.stack.model
        shutil.copytree(
            subject.folder, self.save, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors*", "survey-*")
        )
        with wired_as(subject.wired, pruned):
            model.save_pretrained(self.save)
        (self.save / FILE).write_text(pruned.to_json())
        again = self._opened(self.save, subject.label).wired.edges()
        if set(again) != set(pruned):
            raise ModelError(f"{self.save} does not hold the wiring that was written to it; save it elsewhere")
        write(
            output, f"{self.save}: {len(pruned)} edges, {pruned.live_states()} live states; opened again and compared"
        )


_HOW = (
    "train some into a model with `layerwise train wiring-identity --model MODEL`, or give an ELC-BERT other than the "
    "variant ltg"
)


def _learned(subject: Subject, pedigree: Pedigree, name: str, options: str) -> RunError:
    return RunError(
        f"{subject.folder} was trained on {pedigree.data_name} with other splits than these ({name}), so its edges "
        f"would be judged on examples that it learned from. Give the {options} of its training"
    )


def _scored(held_out: HeldOut) -> int:
    return sum(int((batch["labels"] != IGNORED).sum()) for batch in held_out.batches)


def _kept(examples: object, splits: Splits) -> HeldOut:
    windows = getattr(examples, "windows", None)
    owners = None if windows is None else [(window.task, window.document) for window in windows]
    return HeldOut.of(examples, splits.collate, owners=owners)


def _is_elc(folder: Path) -> bool:
    return _config(folder).get("model_type") == "layerwise-elc"


def _has_wiring(folder: Path) -> bool:
    if _is_elc(folder):
        return _config(folder).get("variant") != "ltg"
    pedigree = Pedigree.read(folder)
    return pedigree is not None and pedigree.recipe.get("variant") == "wiring"


def _config(folder: Path) -> dict[str, object]:
    path = folder / "config.json"
    found: dict[str, object] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def is_run(place: str) -> bool:
    """Whether a run folder lies at `place`."""
    return (Path(place).expanduser() / MANIFEST).is_file()


def _store(run: Run, rows: Sequence[Score]) -> None:
    for measure in (MEASURE, ALPHA):
        run.store.replace_scores(measure, [row for row in rows if row.measure == measure])


def _table(ranked: Ranked, depth: int) -> Table:
    table = Table("edge", "weight", "effect (nats)", "95 %", "p", box=None, padding=(0, 2, 0, 0))
    for place in ranked.effect.value.argsort()[::-1][:TOLD]:
        low, high = ranked.effect.low[place], ranked.effect.high[place]
        table.add_row(
            ranked.edges[place].name(depth), f"{ranked.weights[place]:.3f}", f"{ranked.effect.value[place]:+.4f}",
            f"{low:+.4f} to {high:+.4f}", f"{ranked.p_adjusted[place]:.2g}",
        )  # fmt: skip
    return table


def _agreement(rows: Sequence[Score]) -> str:
    found = next((row for row in rows if row.metric == "rank_correlation"), None)
    if found is None:
        return "too few edges to say whether size tells effect"
    return f"size and effect: rank correlation {found.value:.2f} ({found.low:.2f} to {found.high:.2f}, p {found.p:.2g})"


def _verdict(rows: Sequence[Score]) -> str:
    found = {row.metric: row for row in rows if row.subject == "pruned"}
    lost, random, sized = (found[name] for name in ("difference", "difference@random", "difference@size"))
    return "\n".join(
        (
            f"kept {found['edges'].value:.0f} edges ({found['kept'].value:.0%}), live states "
            f"{found['live_before'].value:.0f} -> {found['live_after'].value:.0f}, "
            f"{found['unheard'].value:.0f} layers need not run",
            f"loss {lost.value:+.4f} nats ({lost.low:+.4f} to {lost.high:+.4f}) on examples that did not choose",
            f"as many cut by size {sized.value:+.4f}, at random {random.value:+.4f} ({random.low:+.4f} to "
            f"{random.high:+.4f}, p {random.p:.2g})",
        )
    )
