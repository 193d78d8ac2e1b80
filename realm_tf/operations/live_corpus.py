"""`realm corpus create`, `sync`, `compact` and `status`."""

import contextlib
import dataclasses
import os
from typing import Literal

import tyro

from realm_tf.articles import collecting
from realm_tf.artifacts.artifact import locked
from realm_tf.artifacts.live_corpus import Document
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.live_corpus import Manifest
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.models.precision import resolve_for_graphs
from realm_tf.operations.operation import Operation

# Of the changes that are listed, each kind.
_NUM_SHOWN = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateCorpus(Operation):
    """Makes a corpus of your documents that answers questions and can change.

      realm corpus create --documents handbook/ --output corpus
      realm ask --saved-model corpus/saved_model "how many days of leave are there"
      realm corpus sync corpus                   after something has changed

    Nothing is trained: MODEL has learned to read from other texts. Documents
    are files, folders or globs of Markdown, HTML, PDF, plain text, CSV,
    Parquet, JSONL with "id", "title" and "text", or dumps of a wiki. Every
    section of a document is found, read and shown under its headings.

      realm corpus create --documents handbook/ --output corpus --fields tags date
      realm ask --saved-model corpus/saved_model --filter "tags=hr" "..."

    asks documents alone whose front matter, meta elements, columns or keys say
    so.
    """

    command = "corpus create"

    documents: tuple[str, ...]
    """files, folders or globs"""
    output: str
    """the corpus to make"""
    model: Model = Model("quickstart-output/model")
    """a fine-tuned model; that of `realm quickstart` is for trying out"""
    calibration: Evaluation | None = None
    """an evaluation of this model made with --calibrate and --retriever hybrid,
    best of questions about these documents: confidences are probabilities, and
    low ones are not `answered` (if not given: the calibration that the model
    comes with; without one confidences are shares)"""
    retriever: Literal["realm", "hybrid"] = "hybrid"
    """realm: the model's own towers; hybrid: BM25 beside them"""
    max_block_length: int = 128
    """longest block, in wordpieces with its title"""
    kind: Literal["brute_force", "ivf", "scann"] = "brute_force"
    """of the index; brute_force is exact, and the only one that takes changes
    in seconds: the others are built again, with a new graph"""
    fields: tuple[str, ...] = ()
    """names of what a filter can choose documents by, such as date or tags"""
    base_url: str | None = None
    """what comes before a file's path in the URL that is shown (if not given:
    the path alone)"""

    @property
    def result(self) -> LiveCorpus:
        return LiveCorpus(self.output)

    def run(self) -> dict:
        """Makes the first state.

        Returns:
            dict, the counts of the state: `documents`, `blocks`, ...

        Raises:
            InputError: if there is a corpus already, or no document.
        """
        from realm_tf.answering.calibration import for_model
        from realm_tf.operations import corpus_change

        if self.result.exists:
            raise InputError(
                f"{self.output} is a corpus already: change it with `realm "
                "corpus sync`, or choose another --output."
            )
        if not self.model.is_complete:
            raise InputError(
                f"{self.model} is no model: name one with --model, or run "
                "`realm quickstart`, which makes one for trying out."
            )
        if self.fields and self.kind == "scann":
            raise InputError(
                "--kind scann cannot leave blocks out of a search, so that "
                "--fields would be of no use: expected brute_force or ivf."
            )
        settings = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "output"
        }
        fitted = for_model(self.calibration, self.model, self.retriever)
        settings.update(
            model=os.path.abspath(self.model.directory),
            model_fingerprint=self.model.fingerprint,
            # Of all documents, whatever machine adds them.
            precision=resolve_for_graphs(),
            documents=[os.path.abspath(path) for path in self.documents],
            # The evaluation may go.
            calibration=fitted and dataclasses.asdict(fitted),
        )
        rows, counts, _ = collecting.collect(
            self.documents, base_url=self.base_url, fields=self.fields
        )
        if not rows:
            raise _nothing_left(settings, counts)
        with locked(os.path.join(self.output, "corpus")):
            start = Manifest(0, settings, {}, [], 0)
            return corpus_change.change(
                self.result, start, rows, gone=set(), counts=counts
            )

    def report(self, result: dict) -> str:
        return (
            f"{_of_counts(result)}\n\nGo on with:\n"
            f'  realm ask --saved-model {self.result.saved_model} "..."\n'
            f"  realm serve --saved-model {self.result.saved_model}\n"
            f"  realm corpus sync {self.output}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyncCorpus(Operation):
    """Makes a corpus equal to its documents as they are now.

    The command prints what was added, changed and removed before it makes the
    next state. A server of CORPUS/saved_model takes the new state by itself,
    without a failed request. A file that cannot be read at the moment keeps its
    sections and rows (a row belongs to the file that it was first in).
    """

    command = "corpus sync"

    corpus: tyro.conf.Positional[str]
    """directory of `realm corpus create`"""
    dry_run: bool = False
    """print what would change, and change nothing"""
    documents: tuple[str, ...] = ()
    """files, folders or globs (if not given: those of `realm corpus create`)"""

    def run(self) -> dict:
        """Makes the new state, if something changes.

        Only blocks with new text are embedded.

        Returns:
            dict, the counts of the state.

        Raises:
            InputError: if the directory is no corpus, or no document is left.
        """
        with _opened(self.corpus) as (corpus, manifest):
            settings = manifest.settings
            before = corpus.state(manifest).documents()
            rows, counts, unread = collecting.collect(
                self.documents or settings["documents"],
                base_url=settings["base_url"],
                fields=settings["fields"],
            )
            kept = {
                name for name, each in before.items() if each.file in unread
            }
            new = {
                name: row
                for name, row in rows.items()
                if name not in before
                or before[name].digest != Document.of(row).digest
            }
            kinds = {
                "added": [name for name in new if name not in before],
                "changed": [name for name in new if name in before],
                "removed": [
                    name
                    for name in before
                    if name not in rows and name not in kept
                ],
            }
            _print_changes(kinds, len(before))
            if self.dry_run or not any(kinds.values()):
                return manifest.counts
            if not rows and not kept:
                raise _nothing_left(settings, counts)
            # Only now, because this import takes seconds.
            from realm_tf.operations import corpus_change

            return corpus_change.change(
                corpus,
                manifest,
                new,
                gone={*kinds["changed"], *kinds["removed"]},
                counts=counts,
            )

    def report(self, result: dict) -> str:
        return "" if self.dry_run else _of_counts(result)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompactCorpus(Operation):
    """Rewrites a corpus without its removed documents.

    Answers stay as they are, and so do what blocks are called. Changes do it by
    themselves when a fifth of the blocks on the disk is of no use.
    """

    command = "corpus compact"

    corpus: tyro.conf.Positional[str]
    """directory of `realm corpus create`"""

    def run(self) -> dict:
        """Makes one segment of all.

        Returns:
            dict, the counts of the state.

        Raises:
            InputError: if the directory is no corpus, or this version cuts
                documents into other blocks than the one that made it.
        """
        from realm_tf.operations import corpus_change

        with _opened(self.corpus) as (corpus, manifest):
            corpus_change.compact(corpus, manifest)
        return manifest.counts

    def report(self, result: dict) -> str:
        return _of_counts(result)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusStatus(Operation):
    """Says what a corpus holds, and which state is current."""

    command = "corpus status"

    corpus: tyro.conf.Positional[str]
    """directory of `realm corpus create`"""
    list: bool = False
    """the ids of all documents, too"""

    def run(self) -> dict:
        """Returns dict: `state`, `settings`, `counts`, `segments`, how many,
        `blocks_on_disk`, and with `list` the `ids` of all documents."""
        corpus = LiveCorpus(self.corpus)
        manifest = corpus.manifest()
        state = corpus.state(manifest)
        found = {
            "state": manifest.state,
            "settings": manifest.settings,
            "counts": manifest.counts,
            "segments": len(manifest.segments),
            "blocks_on_disk": state.num_on_disk,
        }
        if self.list:
            found["ids"] = sorted(state.documents())
        return found

    def report(self, result: dict) -> str:
        settings = result["settings"]
        lines = [
            f"state {result['state']}: {_of_counts(result['counts'])}",
            f"model {settings['model']}, retriever {settings['retriever']}, "
            f"index {settings['kind']}",
            f"documents {' '.join(settings['documents'])}",
            f"{result['blocks_on_disk']:,} blocks on the disk, in "
            f"{result['segments']} segments",
        ]
        if settings["fields"]:
            lines.append(f"fields {' '.join(settings['fields'])}")
        return "\n".join([*lines, *result.get("ids", [])])


@contextlib.contextmanager
def _opened(path):
    """Yields a corpus and its manifest, which nobody else changes meanwhile."""
    corpus = LiveCorpus(path)
    # A directory that is no corpus gets no lock.
    corpus.manifest()
    with locked(os.path.join(path, "corpus")):
        yield corpus, corpus.manifest()


def _print_changes(kinds, num_before):
    num_same = num_before - len(kinds["changed"]) - len(kinds["removed"])
    for kind, names in kinds.items():
        shown = ", ".join(names[:_NUM_SHOWN])
        more = ", ..." if len(names) > _NUM_SHOWN else ""
        line = f"{kind:<9}{len(names):>8,}  {shown}{more}"
        print(line.rstrip(), flush=True)
    print(f"{'the same':<9}{num_same:>8,}", flush=True)


def _nothing_left(settings, counts):
    return InputError(
        "No document is left, and a corpus needs one: expected text in "
        f"{' '.join(settings['documents'])} ({_shown(counts)})."
    )


def _of_counts(counts):
    rest = dict(counts)
    documents, blocks = rest.pop("documents"), rest.pop("blocks")
    return (
        f"{documents:,} documents, {blocks:,} blocks "
        f"({rest.pop('blocks_embedded'):,} of them embedded); {_shown(rest)}"
    )


def _shown(counts):
    return "; ".join(f"{n.replace('_', ' ')} {c:,}" for n, c in counts.items())
