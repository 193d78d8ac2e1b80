"""Making the next state of a corpus: what is new is cut, embedded and exported."""

import dataclasses
import functools
import os
import sys

import numpy as np

from realm_tf.answering.calibration import from_json
from realm_tf.answering.calibration import lexical_weight_of
from realm_tf.answering.corpus import NUM_READER_BLOCKS
from realm_tf.artifacts import artifact
from realm_tf.artifacts.live_corpus import State
from realm_tf.artifacts.objects import SavedModel
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError
from realm_tf.export import live_version
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.embed import Embed
from realm_tf.operations.graph import is_done

# Of the blocks on the disk, those of documents that are gone, and of segments:
# from there on a change ends with compacting (our choice).
_MOST_OF_NO_USE = 0.2
_MOST_SEGMENTS = 32


def change(corpus, manifest, new, *, gone):
    """Makes the state after a change, and then current.

    Args:
        corpus: `LiveCorpus`.
        manifest: `Manifest` before, with the sources of the new state.
        new: dict. Id to the row of each article that is added or has changed.
        gone: set of str. Ids of articles that have changed or are removed.

    Returns:
        `Manifest` of the state.

    Raises:
        InputError: if the model has changed, articles cannot be cut, or no
            graph is kept and Keras runs on another backend than TensorFlow.
    """
    settings = manifest.settings
    # Before anything else.
    corpus.model(settings)
    # What is damaged would be in the new state.
    corpus.state(manifest).check()
    manifest = dataclasses.replace(
        manifest, segments=_without(corpus, manifest.segments, gone)
    )
    num_new = 0
    if new:
        manifest, num_new = _with_segment(corpus, manifest, new)
    state, number = corpus.state(manifest), corpus.new_number()
    articles = state.articles().values()
    for field in settings["fields"]:
        if not any(field in each.fields for each in articles):
            print(f"warning: no document has {field}", file=sys.stderr)
    _export(corpus, state, manifest, number)
    counts = {
        "documents": len({each.document for each in articles}),
        "blocks": state.num_blocks,
        "blocks_embedded": num_new,
    }
    manifest = dataclasses.replace(manifest, state=number, counts=counts)
    corpus.write(manifest)
    corpus.clean(manifest)
    of_no_use = state.num_on_disk - state.num_blocks
    if (
        of_no_use > _MOST_OF_NO_USE * state.num_on_disk
        or len(manifest.segments) > _MOST_SEGMENTS
    ):
        return compact(corpus, manifest)
    return manifest


def _without(corpus, segments, gone):
    """Segments of a manifest, with these ids among what they no longer hold."""
    return [
        {
            **each,
            "removed": sorted(
                gone.intersection(
                    article.id
                    for article in corpus.segment(each["name"]).articles
                ).union(each["removed"])
            ),
        }
        for each in segments
    ]


def _with_segment(corpus, manifest, new):
    """`(manifest, num_blocks)` with a segment of these articles, and its."""
    segment, settings = corpus.new_segment(new, manifest), manifest.settings
    chunking, embedding = (
        each(corpus, segment, settings) for each in (_chunking, _embedding)
    )

    def embed():
        if settings["kind"] != live_version.KIND:
            return embedding.run()
        version = _graph(corpus, manifest, State([(segment, frozenset())]))
        records = segment.blocks.records
        return embedding.write_rows(live_version.Embeddings(version, records))

    made = [_make(chunking, chunking.run), _make(embedding, embed)]
    if any(made) or not segment.is_finished:
        next_id = manifest.next_id + segment.blocks.num_blocks
        # Before anyone can see them: no other block will be called so.
        corpus.reserve(next_id)
        segment.finish(np.arange(manifest.next_id, next_id))
    next_id = 1 + segment.block_ids.max(initial=manifest.next_id - 1).item()
    added = {"name": segment.name, "removed": []}
    manifest = dataclasses.replace(
        manifest, segments=[*manifest.segments, added], next_id=next_id
    )
    return manifest, segment.blocks.num_blocks


def _make(operation, run) -> bool:
    """Makes what is not there, or was made of something else; whether it did.

    A run that was killed may have been of another model.
    """
    print(os.path.basename(operation.output), flush=True)
    try:
        if is_done(operation):
            return False
    except InputError:
        remove(operation.output)
        remove(artifact.unfinished(operation.output))
    run()
    return True


def _chunking(corpus, segment, settings):
    return Chunk(
        input=(segment.documents_path,),
        format="jsonl",
        keep_all_titles=True,
        vocab=corpus.model(settings).vocabulary,
        max_block_length=settings["max_block_length"],
        language=settings["language"],
        # Lists and tables may have no end of a sentence.
        cut_sentences=True,
        output=segment.blocks.path,
    )


def _embedding(corpus, segment, settings):
    return Embed(
        model=corpus.model(settings),
        blocks=segment.blocks,
        output=segment.embeddings.path,
        precision=settings["precision"],
    )


def _export(corpus, state, manifest, number):
    """Writes the SavedModel of a state."""
    print(f"saved_model/{number}", flush=True)
    settings = manifest.settings
    model, fields = corpus.model(settings), settings["fields"]
    parents = {"model": model.fingerprint}
    write = functools.partial(
        artifact.write,
        corpus.version(number).path,
        kind=SavedModel.kind,
        parameters=_parameters(corpus, manifest),
        parents=parents,
    )
    if settings["kind"] != live_version.KIND:
        from realm_tf.export import tracing

        with write() as stage:
            tracing.write_whole(
                stage,
                model,
                state,
                kind=settings["kind"],
                fields=fields,
                parents=parents,
            )
        return
    for find in (_graph, _template, functools.partial(_template, wide=True)):
        graph = find(corpus, manifest, state)
        try:
            with write() as stage:
                live_version.write(stage, graph, model, state, fields=fields)
            return
        except live_version.OtherGraph as error:
            unfit = error
    raise unfit


@functools.lru_cache(maxsize=1)
def _before(corpus, number):
    """The export of a state; `None` if there is none, or it is damaged."""
    version = corpus.version(number)
    return version if live_version.is_whole(version) else None


def _graph(corpus, manifest, state):
    """The current export, or the `template` where there is none."""
    before = _before(corpus, manifest.state)
    return before or _template(corpus, manifest, state)


def _template(corpus, manifest, state, **options):
    return live_version.template(
        corpus.model(manifest.settings),
        state,
        parameters=_parameters(corpus, manifest),
        fields=manifest.settings["fields"],
        **options,
    )


def _parameters(corpus, manifest):
    """Parameters of all exports: those of the current one, or of the first."""
    before, settings = _before(corpus, manifest.state), manifest.settings
    if before:
        return before.parameters
    found = {
        "num_reader_blocks": NUM_READER_BLOCKS,
        "quantize": "none",
        "precision": settings["precision"],
    }
    fitted = settings["calibration"]
    if fitted:
        found["calibration"] = fitted
    if settings["retriever"] == "hybrid":
        found["lexical_weight"] = lexical_weight_of(
            fitted and from_json(fitted, "The corpus")
        )
    return found


def compact(corpus, manifest):
    """Makes one segment of all, which says and is called the same.

    Returns:
        `Manifest` of it.
    """
    state, settings = corpus.state(manifest), manifest.settings
    state.check()
    records, embeddings = state.records(), state.embeddings()
    segment = corpus.new_segment(state.rows(), manifest)
    chunking = _chunking(corpus, segment, settings)
    _make(chunking, chunking.run)
    found = segment.blocks.records
    if found.texts[:] != records.texts[:] or not np.array_equal(
        found.token_ids(), records.token_ids()
    ):
        raise InputError(
            f"{corpus} was made by a version of realm that cuts documents into "
            "other blocks: make it again with `realm corpus create`."
        )
    operation = _embedding(corpus, segment, settings)
    if not segment.embeddings.is_complete:
        operation.write_rows(embeddings)
    segment.finish(state.block_ids())
    manifest = dataclasses.replace(
        manifest, segments=[{"name": segment.name, "removed": []}]
    )
    corpus.write(manifest)
    corpus.clean(manifest)
    return manifest
