"""`realm corpus create`, `sync`, `add`, `remove`, `compact` and `status`."""

import collections
import dataclasses
import fnmatch
import os
from typing import Literal

import tyro

from realm_tf.articles import collecting
from realm_tf.artifacts.disk import locked
from realm_tf.artifacts.live_corpus import Document
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.live_corpus import Manifest
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.models.precision import Precision
from realm_tf.models.precision import resolve
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
    such as quickstart-output/evaluation-dev: confidences are probabilities, and
    `answered` is what scores more than nearly all that this corpus answers to
    the evaluation's questions (if not given: confidences are shares, and every
    question counts as answered)"""
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
    evidence_license: str | None = None
    """a line that is shown with the evidence"""
    precision: Precision = "auto"
    """in which encoders compute, see `realm embed`"""

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
        from realm_tf.answering import foreign_questions
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
            precision=resolve(self.precision),
            documents=[os.path.abspath(path) for path in self.documents],
            # The evaluation may go.
            calibration=fitted and dataclasses.asdict(fitted),
            foreign=foreign_questions.of(self.calibration),
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
class _Change(Operation):
    """A new state of a corpus."""

    corpus: tyro.conf.Positional[str]
    """directory of `realm corpus create`"""
    dry_run: bool = False
    """say what would change, and change nothing"""

    def changed(self, before: dict, settings: dict):
        """What there is after the change.

        Args:
            before: dict. Id to each `Document`.
            settings: dict. Those of `CreateCorpus`.

        Returns:
            `(rows, kept, counts)`: of documents that were read, id to row; ids
            of those that stay as they were; counts of `collecting.collect`.
        """
        raise NotImplementedError

    def run(self) -> dict:
        """Makes the new state, if something changes.

        Only blocks with new text are embedded.

        Returns:
            dict, the counts of the state.

        Raises:
            InputError: if the directory is no corpus, or no document is left.
        """
        corpus = LiveCorpus(self.corpus)
        corpus.manifest()
        with locked(os.path.join(self.corpus, "corpus")):
            manifest = corpus.manifest()
            before = corpus.state(manifest).documents()
            rows, kept, counts = self.changed(before, manifest.settings)
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
            for line in _told(kinds, before):
                print(line, flush=True)
            if self.dry_run or not any(kinds.values()):
                return manifest.counts
            if not rows and not kept:
                raise _nothing_left(manifest.settings, counts)
            # Only now, as it takes seconds: often nothing has changed.
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
class SyncCorpus(_Change):
    """Makes a corpus equal to its documents as they are now.

    What was added, changed or removed is said before it is done. A server of
    CORPUS/saved_model takes the new state by itself, without a failed request.
    Of a file that cannot be read at the moment, sections and rows stay as they
    were (rows that have moved are known by the file that they were in at first);
    what `realm corpus add` brought from elsewhere goes, unless it is given, too.
    """

    command = "corpus sync"

    documents: tuple[str, ...] = ()
    """files, folders or globs (if not given: those of `realm corpus create`)"""

    def changed(self, before, settings):
        rows, counts, unread = collecting.collect(
            self.documents or settings["documents"],
            base_url=settings["base_url"],
            fields=settings["fields"],
        )
        kept = {name for name, each in before.items() if each.file in unread}
        return rows, kept, counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddToCorpus(_Change):
    """Adds documents to a corpus; one whose id is there is replaced."""

    command = "corpus add"

    documents: tuple[str, ...]
    """files, folders or globs"""

    def changed(self, before, settings):
        rows, counts, _ = collecting.collect(
            self.documents,
            base_url=settings["base_url"],
            fields=settings["fields"],
            within=settings["documents"],
        )
        # Sections of a file that are no longer in it go.
        files = {row["file"] for row in rows.values()}
        kept = {
            name
            for name, each in before.items()
            if not each.is_named_after_file or each.file not in files
        }
        return rows, kept, counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoveFromCorpus(_Change):
    """Removes documents from a corpus."""

    command = "corpus remove"

    ids: tuple[str, ...]
    """ids of documents, or paths of files below the folder they came from; * and
    ? stand for what they do in a shell"""

    def changed(self, before, settings):
        found = {
            pattern: {n for n, e in before.items() if _matches(e, pattern)}
            for pattern in self.ids
        }
        if unknown := [pattern for pattern in self.ids if not found[pattern]]:
            raise InputError(
                f"{self.corpus} has no document {', '.join(unknown)}: `realm "
                "corpus status --list` shows them."
            )
        kept = set(before).difference(*found.values())
        return {}, kept, collections.Counter()


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

        corpus = LiveCorpus(self.corpus)
        corpus.manifest()
        with locked(os.path.join(self.corpus, "corpus")):
            manifest = corpus.manifest()
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


def _told(kinds, before):
    """Lines that say what has changed."""
    num_same = len(before) - len(kinds["changed"]) - len(kinds["removed"])
    for kind, names in kinds.items():
        shown = ", ".join(names[:_NUM_SHOWN])
        more = ", ..." if len(names) > _NUM_SHOWN else ""
        yield f"{kind:<9}{len(names):>8,}  {shown}{more}".rstrip()
    yield f"{'the same':<9}{num_same:>8,}"


def _nothing_left(settings, counts):
    why = "; ".join(_told_counts(counts))
    return InputError(
        "No document is left, and a corpus needs one: expected text in "
        f"{' '.join(settings['documents'])}{why and f' ({why})'}."
    )


def _of_counts(counts):
    names = ("documents", "blocks")
    text = ", ".join(f"{counts[name]:,} {name}" for name in names)
    text += f" ({counts['blocks_embedded']:,} of them embedded)"
    rest = {n: c for n, c in counts.items() if n not in names}
    rest.pop("blocks_embedded")
    return "; ".join([text, *_told_counts(rest)])


def _told_counts(counts):
    return [f"{n.replace('_', ' ')} {c:,}" for n, c in counts.items()]


def _matches(document, pattern):
    # A bracket is a part of a name: "[1.2] - fixes".
    pattern = pattern.replace("[", "[[]")
    names = (document.id, document.file)
    return any(fnmatch.fnmatchcase(name, pattern) for name in names if name)
