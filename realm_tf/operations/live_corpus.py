"""`realm corpus create`, `sync`, `add`, `remove` and `status`."""

import collections
import dataclasses
import fnmatch
import os
from typing import Literal

import tyro

from realm_tf.articles import collecting
from realm_tf.artifacts.disk import locked
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.models.precision import Precision
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.embed import Embed
from realm_tf.operations.export import Export
from realm_tf.operations.graph import Graph
from realm_tf.operations.operation import Operation

# Of the changes that are listed, each kind.
_NUM_SHOWN = 5
# Settings that are no argument of `CreateCorpus`'s steps.
_PLACES = ("documents", "output")


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
    """of the index; brute_force is exact, and built at once"""
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
        settings = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _PLACES
        }
        settings = {
            name: os.path.abspath(value)
            if isinstance(value, os.PathLike)
            else value
            for name, value in settings.items()
        }
        settings["documents"] = [os.path.abspath(p) for p in self.documents]
        rows, counts = collecting.collect(
            self.documents, base_url=self.base_url
        )
        with locked(os.path.join(self.output, "corpus")):
            return _make_state(self.result, 0, settings, rows, counts)

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
            settings, number = manifest["settings"], manifest["state"]
            before = corpus.state(number).documents()
            rows, counts = self.changed(before, settings)
            kinds = _differences(before, rows)
            for line in _of_differences(kinds, before):
                print(line, flush=True)
            if self.dry_run or not any(kinds.values()):
                return manifest["counts"]
            return _make_state(corpus, number, settings, rows, counts)

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
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddToCorpus(_Change):
    """Adds documents to a corpus; one whose id is there is replaced."""

    command = "corpus add"

    documents: tuple[str, ...]
    """files, folders or globs"""

    def changed(self, before, settings):
        rows, counts = collecting.collect(
            self.documents, base_url=settings["base_url"]
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
class CorpusStatus(Operation):
    """Says what a corpus holds, and which state is current."""

    command = "corpus status"

    corpus: tyro.conf.Positional[str]
    """directory of `realm corpus create`"""
    list: bool = False
    """the ids of all documents, too"""

    def run(self) -> dict:
        """Returns dict: the manifest, and with `list` its `ids`."""
        corpus = LiveCorpus(self.corpus)
        found = corpus.manifest()
        if self.list:
            found["ids"] = sorted(corpus.current.documents())
        return found

    def report(self, result: dict) -> str:
        settings = result["settings"]
        lines = [
            f"state {result['state']}: {_of_counts(result['counts'])}",
            f"model {settings['model']}, retriever {settings['retriever']}",
            f"documents {' '.join(settings['documents'])}",
        ]
        return "\n".join([*lines, *result.get("ids", [])])


def _make_state(corpus, current, settings, rows, counts):
    """Makes a state, and then current; returns its counts.

    `current` is the number of the state before, 0 for none.
    """
    if not rows:
        raise InputError(
            "No document is left, and a corpus needs one: expected text in "
            f"{' '.join(settings['documents'])}."
        )
    state = corpus.begin(rows, current)
    model = Model(settings["model"])
    graph = Graph()
    blocks = graph.add(
        Chunk(
            input=(state.documents_path,),
            format="jsonl",
            keep_all_titles=True,
            vocab=model.vocabulary,
            lowercase=model.config["lowercase"],
            max_block_length=settings["max_block_length"],
            output=state.blocks.path,
        )
    )
    known = {}
    if current:
        before = corpus.state(current)
        known = {"known": before.embeddings, "known_blocks": before.blocks}
    embeddings = graph.add(
        Embed(
            model=model,
            blocks=blocks,
            output=state.embeddings.path,
            precision=settings["precision"],
            **known,
        )
    )
    index = graph.add(
        BuildIndex(
            embeddings=embeddings,
            kind=settings["kind"],
            output=state.index.path,
        )
    )
    graph.run()
    if not state.saved_model.is_complete:
        print("[4/4] saved_model", flush=True)
        Export(
            model=model,
            blocks=blocks,
            index=index,
            output=corpus.saved_model,
            retriever=settings["retriever"],
            calibration=settings["calibration"],
            evidence_license=settings["evidence_license"],
            precision=settings["precision"],
        ).write_version(number=state.number)
    counts = {
        "documents": len(rows),
        "blocks": blocks.num_blocks,
        "blocks_embedded": blocks.num_blocks
        - embeddings.counts.get("blocks_known", 0),
        **counts,
    }
    corpus.commit(state.number, settings, counts, before=current)
    return counts


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
