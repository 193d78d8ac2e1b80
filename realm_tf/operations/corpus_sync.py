"""Making a corpus equal to its sources; and to what a feed says."""

import collections
import contextlib
import dataclasses
import functools
import os
import sys
import time
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Literal

from realm_tf.articles import collecting
from realm_tf.articles import sources as places
from realm_tf.articles.sources import Source
from realm_tf.artifacts.live_corpus import Article
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.live_corpus import Manifest
from realm_tf.errors import InputError

# Of the documents of a source: the share that may go unasked (our choice).
_MOST_REMOVED = 0.2
ALL = "all"
# Of the changes that are listed, each kind.
_NUM_SHOWN = 5


@dataclasses.dataclass
class Changes:
    """How a corpus differs from its sources.

    Args:
        manifest: `Manifest`. Before, but with what was found in its sources.
        before: dict. Id to each `Article` of the corpus.
        after: dict. The same of the sources.
        rows: dict. Id to the row of each article that was read.
    """

    manifest: Manifest
    before: dict[str, Article]
    after: dict[str, Article]
    rows: dict[str, dict]

    @functools.cached_property
    def documents(self) -> dict[str, list[str]]:
        """The ids of the documents that are `added`, `changed`, `removed`, and
        `the same`."""
        before, after = _by_document(self.before), _by_document(self.after)
        both = before.keys() & after.keys()
        same = {name for name in both if before[name] == after[name]}
        found = {
            "added": after.keys() - both,
            "changed": both - same,
            "removed": before.keys() - both,
            "the same": same,
        }
        return {kind: sorted(names) for kind, names in found.items()}

    def __str__(self):
        lines = []
        for kind, names in self.documents.items():
            shown = ", ".join(names[: 0 if kind == "the same" else _NUM_SHOWN])
            more = ", ..." if shown and len(names) > _NUM_SHOWN else ""
            lines.append(f"{kind:<9}{len(names):>8,}  {shown}{more}".rstrip())
        return "\n".join(lines)

    def check(self, most: int | Literal["all"] | None, is_sure: bool) -> None:
        """Asks before much of a source that is still there is removed.

        Args:
            most: int. How many documents of a source may be removed; `ALL` for
                as many as there are; `None` for a fifth.
            is_sure: bool. Whether more may be, if not all.

        Raises:
            InputError: if the answer is no, or nobody can be asked.
        """
        owner = {each.document: each.source for each in self.before.values()}
        for source in self.manifest.sources:
            own = {
                name for name, label in owner.items() if label == source.label
            }
            removed = sorted(own.intersection(self.documents["removed"]))
            num, num_all = len(removed), len(own)
            limit = _MOST_REMOVED * num_all if most is None else most
            if most == ALL or not num:
                continue
            if num < num_all and (is_sure or num <= limit):
                continue
            shown = ", ".join(removed[:_NUM_SHOWN])
            word = ALL if num == num_all else "yes"
            text = (
                f"{num:,} of the {num_all:,} documents of {source.label} "
                f"({source.path}) would be removed: {shown}"
                f"{', ...' if num > _NUM_SHOWN else ''}"
            )
            asked = f"{text}.\nType {word} if they shall be: "
            is_asked = sys.stdin is not None and sys.stdin.isatty()
            with contextlib.suppress(EOFError):
                if is_asked and input(asked) == word:
                    continue
            either = "" if word == ALL else "--yes or "
            raise InputError(
                f"{text}; nothing was changed. Bring them back, or give "
                f"{either}--max-removed {num if either else ALL}."
            )

    def apply(self, corpus: LiveCorpus) -> Manifest:
        """Makes the state that is equal to the sources, and then current.

        Raises:
            InputError: if no document is left, or as of `corpus_change.change`.
        """
        if not self.after:
            raise nothing_left(self.manifest.sources)
        digests = {name: each.digest for name, each in self.before.items()}
        wanted = {name: each.digest for name, each in self.after.items()}
        if digests == wanted:
            corpus.write(self.manifest)
            return self.manifest
        # Only now, because this import takes seconds.
        from realm_tf.operations import corpus_change

        return corpus_change.change(
            corpus,
            self.manifest,
            {
                name: row
                for name, row in self.rows.items()
                if digests.get(name) != wanted[name]
            },
            gone={n for n, each in digests.items() if wanted.get(n) != each},
        )


def compare(corpus: LiveCorpus, manifest: Manifest) -> Changes:
    """Reads the sources of a manifest; changes nothing.

    A source that cannot be read has the articles that it had, and so has a file
    that cannot be understood.
    """
    before = corpus.state(manifest).articles()
    rows, kept, sources = {}, {}, []
    for source in manifest.sources:
        own = {n: e for n, e in before.items() if e.source == source.label}
        found, started = None, time.time()
        if source.kind in ("folder", "glob") and os.path.realpath(
            source.root
        ) == os.path.realpath(corpus.path):
            raise InputError(
                f"{corpus} is the folder of its documents: choose a directory of "
                "its own for the corpus."
            )
        if source.kind != places.FEED:
            try:
                found = collecting.collect(
                    source,
                    without=os.path.realpath(corpus.path),
                    base_url=manifest.settings["base_url"],
                    fields=manifest.settings["fields"],
                )
            except OSError as error:
                source = dataclasses.replace(source, error=str(error))
        if found is None:
            kept.update(own)
        else:
            rows.update(found.rows)
            unread = found.unread.items()
            files = {f for f, why in unread if why != collecting.NO_TEXT}
            archives = tuple(
                f"{f}/" for f in files if f.lower().endswith(".zip")
            )
            kept.update(
                {
                    name: each
                    for name, each in own.items()
                    if each.file in files or each.file.startswith(archives)
                }
            )
            source = dataclasses.replace(
                source,
                mounts=found.mounts,
                unread=places.grouped(found.unread),
                warnings=places.grouped(found.warnings),
                dropped=dict(found.dropped),
                synced=started,
                error="",
            )
        sources.append(source)
    return _changes(manifest, sources, before, kept, rows)


def _changes(manifest, sources, before, kept, rows):
    manifest = dataclasses.replace(manifest, sources=sources)
    new = {name: Article.of(row) for name, row in rows.items()}
    return Changes(manifest, before, {**kept, **new}, rows)


def _by_document(articles):
    """Document to the digest of each of its articles."""
    found = collections.defaultdict(dict)
    for name, each in articles.items():
        found[each.document][name] = each.digest
    return found


def with_paths(
    sources: list[Source], paths: Iterable[str], **filters
) -> list[Source]:
    """Some sources and those of paths, each path once; see `Source.of`."""
    found = list(sources)
    for path in paths:
        new = Source.of(path, labels=[e.label for e in found], **filters)
        if new.path not in {each.path for each in found}:
            found.append(new)
    return found


def nothing_left(sources: Iterable[Source]) -> InputError:
    """The error that no document is left."""
    reasons = [
        reason
        for each in sources
        for reason in (each.error, *(e["reason"] for e in each.unread))
        if reason
    ]
    return InputError(
        "No document is left, and a corpus needs one: expected text in "
        f"{' '.join(each.path or each.label for each in sources)}"
        + (f" ({'; '.join(reasons[:_NUM_SHOWN])})." if reasons else ".")
    )


class Corpus(LiveCorpus):
    """A directory of `realm corpus`, which a feed can change, too.

    Args:
        path: str or path.

    Example:

        corpus = realm.Corpus("corpus")
        corpus.update(
            [{"id": "17", "title": "Leave", "text": "Leave is 30 days."}],
            deletes=["16"],
        )
    """

    def update(
        self, upserts: Iterable[Mapping] = (), deletes: Iterable[str] = ()
    ) -> dict:
        """Adds, replaces and removes documents of the feed of this corpus.

        They are a source of their own, which `realm corpus sync` leaves alone.
        The same call may come twice, so an id that is not there is no error.

        Args:
            upserts: iterable of mappings. `id`, `title`, `text` and, if it has
                them, `url` and fields. Defaults to none.
            deletes: iterable of str. Ids. Defaults to none.

        Returns:
            dict: `documents`, `blocks` and `blocks_embedded` of the state.

        Raises:
            InputError: if the directory is no corpus, a mapping lacks one of
                these, or no document is left.
        """
        with self.changing() as manifest:
            others = [e for e in manifest.sources if e.kind != places.FEED]
            feeds = [e for e in manifest.sources if e.kind == places.FEED]
            label = places.unique("feed", [e.label for e in others])
            new = Source(label=label, kind=places.FEED, path="")
            feed = dataclasses.replace([*feeds, new][0], synced=time.time())
            rows = {}
            for number, record in enumerate(upserts, start=1):
                row = collecting.row_of(
                    record,
                    feed.label,
                    manifest.settings["fields"],
                    f"upsert {number}",
                )
                rows[row["id"]] = row
            gone = {f"{feed.label}#{each}" for each in deletes}
            before = self.state(manifest).articles()
            kept = {n: e for n, e in before.items() if n not in gone}
            changes = _changes(manifest, [*others, feed], before, kept, rows)
            return changes.apply(self).counts
