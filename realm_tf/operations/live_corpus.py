"""`realm corpus create`, `sync`, `compact` and `status`."""

import dataclasses
import datetime
import os
import time
from collections import Counter
from typing import Annotated
from typing import Literal

import tyro

from realm_tf.articles.sources import FEED
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.live_corpus import Manifest
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.models.precision import resolve_for_graphs
from realm_tf.operations import corpus_sync
from realm_tf.operations.chunk import check_language
from realm_tf.operations.init import packaged
from realm_tf.operations.operation import Operation
from realm_tf.text.printable import printable

# Exit statuses.
UNREAD_FILES = 3
UNREADABLE_SOURCE = 4
_CORPUS = tyro.conf.arg(metavar="CORPUS")
_Corpus = Annotated[tyro.conf.Positional[str], _CORPUS]


class _Change(Operation):
    """What reads sources: its report and status say what is missing."""

    def report(self, result: dict) -> str:
        return "\n".join([_of_counts(result), *_of_sources(result)])

    def status(self, result: dict) -> int:
        """3 if files were not read, 4 if a source could not be read."""
        if any(each["error"] for each in result["sources"]):
            return UNREADABLE_SOURCE
        is_whole = not any(each["unread"] for each in result["sources"])
        return 0 if is_whole else UNREAD_FILES


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateCorpus(_Change):
    """Makes a corpus of your documents, to ask and to keep up to date.

      realm corpus create corpus --documents handbook/
      realm ask --corpus corpus "how many days of leave are there"
      realm corpus sync corpus                   after something has changed

    Nothing is trained: the model learned from other texts. Documents are files
    of Markdown, HTML, PDF, plain text, CSV, Parquet, JSONL with "id", "title"
    and "text", or dumps of a wiki. Every section of a document is found, read
    and shown under its headings.

    With --fields, a filter limits a question to documents whose front matter,
    meta elements, columns or keys have a value:

      realm corpus create corpus --documents handbook/ --fields tags date
      realm ask --corpus corpus --filter "tags=hr" "..."

    The exit status is 3 if some files were not read, 4 if a source was not.
    """

    command = "corpus create"

    output: _Corpus
    """the corpus to make"""
    documents: tuple[str, ...]
    """its sources: files, folders or globs"""
    exclude: tuple[str, ...] = ()
    """files to leave out: patterns as in .gitignore"""
    all: bool = False
    """also read hidden files and those that a .gitignore names"""
    model: Model | None = None
    """a fine-tuned model (if not given: MiniLM with the packaged reader, which is
    made once on this machine)"""
    calibration: Evaluation | None = None
    """evaluation of this model with --calibrate and --retriever hybrid, best on
    questions about these documents: sets confidences and the threshold of
    `answered` (if not given: the model's calibration; without one, confidences
    are shares)"""
    retriever: Literal["realm", "hybrid"] = "hybrid"
    """realm: the model's own towers; hybrid: BM25 beside them"""
    max_block_length: int = 128
    """longest block, in wordpieces with its title"""
    language: str = "en"
    """ISO 639 code, for the sentence boundaries"""
    kind: Literal["brute_force", "ivf", "scann"] = "brute_force"
    """kind of the index; brute_force is exact and takes changes in seconds; the
    others are built again for each change"""
    fields: tuple[str, ...] = ()
    """fields of the documents for filters, such as date or tags"""
    base_url: str | None = None
    """beginning of the URL of a document, before its path (if not given: the path
    alone)"""

    @property
    def result(self) -> LiveCorpus:
        return LiveCorpus(self.output)

    def run(self) -> dict:
        """Makes the first state.

        Returns:
            dict, as of `CorpusStatus`.

        Raises:
            InputError: if there is a corpus already, or no document.
        """
        from realm_tf.answering.calibration import for_model

        if self.result.exists:
            # First: a damaged one is said to be so.
            self.result.manifest()
            raise InputError(
                f"{self.output} is a corpus already: change it with `realm "
                "corpus sync`, or choose another directory."
            )
        if self.model and not self.model.is_complete:
            raise InputError(f"--model: {self.model} is no model.")
        check_language(self.language)
        if self.fields and self.kind == "scann":
            raise InputError(
                "--kind scann cannot leave blocks out of a search, so that "
                "--fields would be of no use: expected brute_force or ivf."
            )
        of_sources = ("output", "documents", "exclude", "all")
        settings = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in of_sources
        }
        used = self.model or packaged()
        fitted = for_model(self.calibration, used, self.retriever)
        model = os.path.abspath(used.directory)
        settings.update(
            model=model,
            model_from_corpus=os.path.relpath(model, self.output),
            model_fingerprint=used.fingerprint,
            # Of all documents, whatever machine adds them.
            precision=resolve_for_graphs(),
            # The evaluation may go.
            calibration=fitted and dataclasses.asdict(fitted),
        )
        sources = corpus_sync.with_paths(
            [], self.documents, exclude=list(self.exclude), all=self.all
        )
        empty = Manifest(0, settings, sources, {}, [], 0)
        changes = corpus_sync.compare(self.result, empty)
        if not changes.after:
            raise corpus_sync.nothing_left(changes.manifest.sources)
        with self.result.locked():
            return summary(self.result, changes.apply(self.result))

    def report(self, result: dict) -> str:
        return (
            f"{super().report(result)}\n\nGo on with:\n"
            f'  realm ask --corpus {self.output} "..."\n'
            f"  realm serve --corpus {self.output}\n"
            f"  realm corpus sync {self.output}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyncCorpus(_Change):
    """Makes a corpus equal to its sources as they are now.

    The command prints which documents are added, changed and removed before it
    makes the next state. A server of the corpus loads the new state by itself,
    without a failed request. If part of a source cannot be read, all its
    documents stay and the exit status is 4. If a file cannot be understood, its
    documents stay and the exit status is 3. More than a fifth of the documents
    of a source are removed only with --yes or --max-removed.
    """

    command = "corpus sync"

    corpus: _Corpus
    """directory of `realm corpus create`"""
    add: tuple[str, ...] = ()
    """more sources: files, folders or globs"""
    drop: tuple[str, ...] = ()
    """labels of sources that are removed with all their documents"""
    exclude: tuple[str, ...] = ()
    """files to leave out: patterns as in .gitignore, for the sources of --add, or
    without --add for all"""
    all: bool = False
    """also read hidden files and those of a .gitignore, in the same sources"""
    dry_run: bool = False
    """only print the changes"""
    yes: bool = False
    """remove more than a fifth of a source without asking, but not all of it"""
    max_removed: int | Literal["all"] | None = None
    """number of documents of a source that may be removed without asking (if not
    given: a fifth)"""

    def run(self) -> dict:
        """Makes the new state, if something changes.

        Only blocks with new text are embedded.

        Returns:
            dict, as of `CorpusStatus`.

        Raises:
            InputError: if the directory is no corpus, no document is left, or
                more are gone than may be removed.
        """
        corpus = LiveCorpus(self.corpus)
        with corpus.changing() as manifest:
            manifest = dataclasses.replace(
                manifest, sources=self._sources(manifest.sources)
            )
            changes = corpus_sync.compare(corpus, manifest)
            print(printable(str(changes)), flush=True)
            if self.dry_run:
                print("--dry-run: nothing is changed in the corpus, which has")
                return summary(corpus, changes.manifest)
            changes.check(self.max_removed, self.yes)
            return summary(corpus, changes.apply(corpus))

    def _sources(self, sources):
        labels = [each.label for each in sources]
        for label in self.drop:
            if label not in labels:
                raise InputError(
                    f"--drop {label}: expected the label of a source: "
                    f"{', '.join(labels)}."
                )
        kept = [each for each in sources if each.label not in self.drop]
        if not self.add:
            kept = [
                dataclasses.replace(
                    each,
                    exclude=list(dict.fromkeys([*each.exclude, *self.exclude])),
                    all=each.all or self.all,
                )
                for each in kept
            ]
        return corpus_sync.with_paths(
            kept, self.add, exclude=list(self.exclude), all=self.all
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompactCorpus(Operation):
    """Rewrites a corpus without its removed documents.

    Answers and block ids stay the same. Changes of a corpus do this by
    themselves when a fifth of the stored blocks is unused.
    """

    command = "corpus compact"

    corpus: _Corpus
    """directory of `realm corpus create`"""

    def run(self) -> dict:
        """Makes one segment of all.

        Returns:
            dict, as of `CorpusStatus`.

        Raises:
            InputError: if the directory is no corpus, or this version cuts
                documents into other blocks than the one that made it.
        """
        from realm_tf.operations import corpus_change

        corpus = LiveCorpus(self.corpus)
        with corpus.changing() as manifest:
            return summary(corpus, corpus_change.compact(corpus, manifest))

    def report(self, result: dict) -> str:
        return _of_counts(result)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusStatus(Operation):
    """Lists what a corpus holds, and which files were not read."""

    command = "corpus status"

    corpus: _Corpus
    """directory of `realm corpus create`"""
    list: bool = False
    """also print the ids of all documents"""
    check: bool = False
    """compare all files with their checksums"""

    def run(self) -> dict:
        """Reads corpus and names of files; changes nothing.

        Returns:
            dict: `state`, `settings`, `documents`, `blocks`, `blocks_embedded`,
            `segments`, how many, `blocks_on_disk`, and `sources`: of each the
            fields of `Source`, `documents`, `blocks` and `newer`, how many files
            changed since the last sync. With `list` the `ids` of all documents.

        Raises:
            InputError: if the directory is no corpus, or with `check` a file is
                damaged.
        """
        corpus = LiveCorpus(self.corpus)
        manifest = corpus.manifest()
        found = summary(corpus, manifest)
        for source, each in zip(
            manifest.sources, found["sources"], strict=True
        ):
            each["newer"] = 0
            if source.kind == FEED:
                continue
            try:
                paths, _ = source.find(os.path.realpath(self.corpus))
                times = [os.stat(path).st_ctime for path in paths]
            except OSError as error:
                each["error"] = str(error)
            else:
                synced = source.synced or 0
                each["newer"] = sum(changed > synced for changed in times)
        if self.list:
            articles = corpus.state(manifest).articles().values()
            found["ids"] = sorted({each.document for each in articles})
        if self.check:
            from realm_tf.export import card

            corpus.state(manifest).check()
            card.read(corpus.version(manifest.state).path)
        return found

    def report(self, result: dict) -> str:
        settings = result["settings"]
        lines = [
            f"state {result['state']}: {_of_counts(result)}",
            f"model {settings['model']}, retriever {settings['retriever']}, "
            f"index {settings['kind']}",
            f"{result['blocks_on_disk']:,} blocks on the disk, in "
            f"{result['segments']} segments",
        ]
        if settings["fields"]:
            lines.append(f"fields {' '.join(settings['fields'])}")
        if self.check:
            lines.append("every file is as it was written")
        lines += _of_sources(result)
        return "\n".join([*lines, *result.get("ids", [])])


def summary(corpus: LiveCorpus, manifest: Manifest) -> dict:
    """What a corpus holds; see `CorpusStatus.run`."""
    state = corpus.state(manifest)
    articles = state.articles()
    blocks = Counter(articles[name].source for name in state.owners())
    documents = {(e.source, e.document) for e in articles.values()}
    num_documents = Counter(label for label, _ in documents)
    return {
        "state": manifest.state,
        "settings": manifest.settings,
        **manifest.counts,
        "segments": len(manifest.segments),
        "blocks_on_disk": state.num_on_disk,
        "sources": [
            {
                **dataclasses.asdict(each),
                "documents": num_documents[each.label],
                "blocks": blocks[each.label],
            }
            for each in manifest.sources
        ],
    }


def _of_counts(counts):
    return (
        f"{counts['documents']:,} documents, {counts['blocks']:,} blocks "
        f"({counts['blocks_embedded']:,} of them new)"
    )


def _of_sources(result):
    """Lines about each source."""
    for each in result["sources"]:
        line = (
            f"{each['label']} ({each['path'] or each['kind']}): "
            f"{each['documents']:,} documents, {each['blocks']:,} blocks"
        )
        # A change has just read the others.
        if each["synced"] is not None and ("newer" in each or each["error"]):
            line += f", synced {_when(each['synced'])}"
        if each.get("newer"):
            line += f", {each['newer']:,} files changed since then"
        yield line
        if each["error"]:
            yield (
                f"  cannot be read: {each['error']}. It keeps the documents "
                "that it had. Bring it back, leave out what cannot be read "
                f"with --exclude, or remove it with --drop {each['label']}."
            )
        groups = [("not read", group) for group in each["unread"]]
        groups += [("read", group) for group in each["warnings"]]
        for kind, group in groups:
            more = ", ..." if group["files"] > len(group["examples"]) else ""
            yield (
                f"  {group['files']:,} {kind} ({group['reason']}): "
                f"{', '.join(group['examples'])}{more}"
            )
        if each["dropped"]:
            shown = (
                f"{n.replace('_', ' ')} {c:,}"
                for n, c in each["dropped"].items()
            )
            yield f"  records left out: {'; '.join(shown)}"


def _when(seconds):
    """A time, and how long ago it was."""
    local = datetime.datetime.fromtimestamp(seconds).astimezone()
    ago = datetime.timedelta(seconds=max(0, round(time.time() - seconds)))
    return f"{local:%Y-%m-%d %H:%M} ({ago} ago)"
