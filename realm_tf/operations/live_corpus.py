"""`realm corpus create`, `sync`, `add`, `remove`, `compact` and `status`."""

import collections
import contextlib
import dataclasses
import fnmatch
import os
import sys
from typing import Literal

import numpy as np
import tyro

from realm_tf.answering.calibration import Calibration
from realm_tf.answering.calibration import lexical_weight_of
from realm_tf.answering.calibration import of_best_spans
from realm_tf.answering.predict import NUM_READER_BLOCKS
from realm_tf.articles import collecting
from realm_tf.artifacts import artifact
from realm_tf.artifacts.disk import locked
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.live_corpus import Manifest
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import SavedModel
from realm_tf.errors import InputError
from realm_tf.models.precision import Precision
from realm_tf.models.precision import resolve
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.embed import Embed
from realm_tf.operations.operation import Operation

# Of the changes that are listed, each kind.
_NUM_SHOWN = 5
# Of the blocks on the disk, those of documents that are gone, and of segments:
# from there on a change ends with compacting (our choice).
_MOST_OF_NO_USE = 0.2
_MOST_SEGMENTS = 32


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
    such as quickstart-output/evaluation-dev (if not given: confidences are
    shares, and every question counts as answered)"""
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
        if self.result.exists:
            raise InputError(
                f"{self.output} is a corpus already: change it with `realm "
                "corpus sync`, or choose another --output."
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
        fitted = of_best_spans(self.calibration, self.model, self.retriever)
        settings.update(
            model=os.path.abspath(self.model),
            documents=[os.path.abspath(path) for path in self.documents],
            # The evaluation may go.
            calibration=fitted and dataclasses.asdict(fitted),
        )
        rows, counts = collecting.collect(
            self.documents, base_url=self.base_url, fields=self.fields
        )
        if not rows:
            raise _nothing_left(settings)
        with locked(os.path.join(self.output, "corpus")):
            start = Manifest(0, settings, {}, [], 0)
            return _change(self.result, start, rows, counts)

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
        """`(rows, counts)`, the documents after the change."""
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
            rows, counts = self.changed(before, manifest.settings)
            kinds = _differences(before, rows)
            for line in _of_differences(kinds, before):
                print(line, flush=True)
            if self.dry_run or not any(kinds.values()):
                return manifest.counts
            if not rows:
                raise _nothing_left(manifest.settings)
            return _change(corpus, manifest, rows, counts)

    def report(self, result: dict) -> str:
        return "" if self.dry_run else _of_counts(result)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyncCorpus(_Change):
    """Makes a corpus equal to its documents as they are now.

    What was added, changed or removed is said before it is done. A server of
    CORPUS/saved_model takes the new state by itself, without a failed request.
    """

    command = "corpus sync"

    documents: tuple[str, ...] = ()
    """files, folders or globs (if not given: those of `realm corpus create`)"""

    def changed(self, before, settings):
        return collecting.collect(
            self.documents or settings["documents"],
            base_url=settings["base_url"],
            fields=settings["fields"],
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddToCorpus(_Change):
    """Adds documents to a corpus; one whose id is there is replaced."""

    command = "corpus add"

    documents: tuple[str, ...]
    """files, folders or globs"""

    def changed(self, before, settings):
        rows, counts = collecting.collect(
            self.documents,
            base_url=settings["base_url"],
            fields=settings["fields"],
        )
        # Sections of a file that are no longer in it go.
        files = {row["file"] for row in rows.values()} - {""}
        kept = {
            name: row
            for name, row in before.items()
            if row["file"] not in files
        }
        return dict(sorted({**kept, **rows}.items())), counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoveFromCorpus(_Change):
    """Removes documents from a corpus."""

    command = "corpus remove"

    ids: tuple[str, ...]
    """ids of documents, or paths of files below the folder they came from; * and
    ? stand for what they do in a shell"""

    def changed(self, before, settings):
        unknown = [
            pattern
            for pattern in self.ids
            if not any(_matches(row, pattern) for row in before.values())
        ]
        if unknown:
            raise InputError(
                f"{self.corpus} has no document {', '.join(unknown)}: `realm "
                "corpus status --list` shows them."
            )
        kept = {
            name: row
            for name, row in before.items()
            if not any(_matches(row, pattern) for pattern in self.ids)
        }
        return kept, collections.Counter()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompactCorpus(Operation):
    """Writes what a corpus holds anew, without what has been removed from it.

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
        corpus = LiveCorpus(self.corpus)
        corpus.manifest()
        with locked(os.path.join(self.corpus, "corpus")):
            manifest = corpus.manifest()
            _compact(corpus, manifest)
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
            "blocks_on_disk": state.num_kept,
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


def _change(corpus, manifest, rows, counts):
    """Makes the state of these documents, and then current.

    Args:
        corpus: `LiveCorpus`.
        manifest: `Manifest` before.
        rows: dict. Id to the row of each document of the new state.
        counts: dict. What was counted when they were read.

    Returns:
        dict, the counts of the state.
    """
    settings = manifest.settings
    before = corpus.state(manifest).documents()
    for field in settings["fields"]:
        if not any(field in row["fields"] for row in rows.values()):
            print(f"warning: no document has {field}", file=sys.stderr)
    new = {name: row for name, row in rows.items() if before.get(name) != row}
    gone = {name for name in before if before[name] != rows.get(name)}
    segments = [
        {
            **each,
            "removed": sorted(
                gone.intersection(
                    row["id"] for row in corpus.segment(each["name"]).documents
                ).union(each["removed"])
            ),
        }
        for each in manifest.segments
    ]
    num_new, next_id = 0, manifest.next_id
    if new:
        segment = corpus.new_segment(new, manifest)
        _make_blocks(segment, settings)
        if not segment.is_finished:
            _embed(segment, settings)
            num_new = segment.blocks.num_blocks
            # Before anyone can see them: no other block will be called so.
            next_id += num_new
            if manifest.state:
                corpus.write(dataclasses.replace(manifest, next_id=next_id))
            segment.finish(np.arange(next_id - num_new, next_id))
        num_new = segment.blocks.num_blocks
        segments.append({"name": segment.name, "removed": []})
    manifest = dataclasses.replace(manifest, segments=segments, next_id=next_id)
    state, number = corpus.state(manifest), corpus.new_number()
    _export(corpus, state, manifest, number)
    counts = {
        "documents": len(rows),
        "blocks": state.num_blocks,
        "blocks_embedded": num_new,
        **counts,
    }
    manifest = dataclasses.replace(manifest, state=number, counts=counts)
    corpus.write(manifest)
    corpus.clean(manifest)
    of_no_use = state.num_kept - state.num_blocks
    if (
        of_no_use > _MOST_OF_NO_USE * state.num_kept
        or len(segments) > _MOST_SEGMENTS
    ):
        _compact(corpus, manifest)
    return counts


def _make_blocks(segment, settings):
    """Cuts the documents of a segment."""
    print("blocks", flush=True)
    if segment.blocks.is_complete:
        return
    model = Model(settings["model"])
    Chunk(
        input=(segment.documents_path,),
        format="jsonl",
        keep_all_titles=True,
        vocab=model.vocabulary,
        lowercase=model.config["lowercase"],
        max_block_length=settings["max_block_length"],
        output=segment.blocks.path,
    ).run()


def _embedding(segment, settings):
    return Embed(
        model=settings["model"],
        blocks=segment.blocks,
        output=segment.embeddings.path,
        precision=settings["precision"],
    )


def _embed(segment, settings):
    print("embeddings", flush=True)
    if not segment.embeddings.is_complete:
        _embedding(segment, settings).run()


def _export(corpus, state, manifest, number):
    """Writes the SavedModel of a state."""
    from realm_tf.export import live_version

    print(f"saved_model/{number}", flush=True)
    settings = manifest.settings
    model = Model(settings["model"])
    before = corpus.version(manifest.state)
    parameters = {
        "num_reader_blocks": NUM_READER_BLOCKS,
        "quantize": "none",
        "precision": resolve(settings["precision"]),
    }
    if settings["calibration"]:
        parameters["calibration"] = settings["calibration"]
    if settings["retriever"] == "hybrid":
        parameters["lexical_weight"] = lexical_weight_of(
            settings["calibration"] and Calibration(**settings["calibration"])
        )
    if before.is_complete:
        parameters = before.parameters
    parents = {"model": model.fingerprint}

    def stage():
        return artifact.write(
            corpus.version(number).path,
            kind=SavedModel.kinds[0],
            parameters=parameters,
            parents=parents,
        )

    if before.is_complete:
        with contextlib.suppress(_NoNextVersion), stage() as written:
            if not live_version.write_next(
                written, before, model, state, fields=settings["fields"]
            ):
                raise _NoNextVersion
            return
    with stage() as written:
        live_version.write(
            written,
            model,
            state,
            kind=settings["kind"],
            fields=settings["fields"],
            parents=parents,
            evidence_license=settings["evidence_license"],
        )


class _NoNextVersion(Exception):
    """The graph of the version before cannot be used again."""


def _compact(corpus, manifest):
    """Makes one segment of all, which says and is called the same."""
    state, settings = corpus.state(manifest), manifest.settings
    records, embeddings = state.records(), state.embeddings()
    segment = corpus.new_segment(state.documents(), manifest)
    _make_blocks(segment, settings)
    found = segment.blocks.records
    if (
        found.texts[:] != records.texts[:]
        or (found.token_ids() != records.token_ids()).any()
    ):
        raise InputError(
            f"{corpus} was made by a version of realm that cuts documents into "
            "other blocks: make it anew with `realm corpus create`."
        )
    operation = _embedding(segment, settings)
    if not segment.embeddings.is_complete:
        operation.write_rows(embeddings)
    segment.finish(state.block_ids())
    manifest = dataclasses.replace(
        manifest, segments=[{"name": segment.name, "removed": []}]
    )
    corpus.write(manifest)
    corpus.clean(manifest)


def _nothing_left(settings):
    return InputError(
        "No document is left, and a corpus needs one: expected text in "
        f"{' '.join(settings['documents'])}."
    )


def _differences(before, after):
    """Kind of change to the ids."""
    return {
        "added": [name for name in after if name not in before],
        "changed": [
            name
            for name, row in after.items()
            if name in before and before[name] != row
        ],
        "removed": [name for name in before if name not in after],
    }


def _of_differences(kinds, before):
    num_same = len(before) - len(kinds["changed"]) - len(kinds["removed"])
    for kind, names in kinds.items():
        shown = ", ".join(names[:_NUM_SHOWN])
        more = ", ..." if len(names) > _NUM_SHOWN else ""
        yield f"{kind:<9}{len(names):>8,}  {shown}{more}".rstrip()
    yield f"{'the same':<9}{num_same:>8,}"


def _of_counts(counts):
    names = ("documents", "blocks")
    text = ", ".join(f"{counts[name]:,} {name}" for name in names)
    text += f" ({counts['blocks_embedded']:,} of them embedded anew)"
    rest = [
        f"{name.replace('_', ' ')} {amount:,}"
        for name, amount in counts.items()
        if name not in (*names, "blocks_embedded")
    ]
    return "; ".join([text, *rest])


def _matches(row, pattern):
    names = (row["id"], row["file"])
    return any(fnmatch.fnmatchcase(name, pattern) for name in names if name)
