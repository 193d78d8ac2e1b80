"""The export of a corpus that changes, and the next one of the same graph.

Tables have room for more blocks than there are. So the next state's tables are
of the same shapes, and its export is the one before with other variables:
nothing is traced, and no model is loaded.
"""

import dataclasses
import os
import shutil

import numpy as np
import tensorflow as tf

from realm_tf.answering import corpus as corpora
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.corpus import load_model
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import SavedModel
from realm_tf.export import card
from realm_tf.export import field_table as field_tables
from realm_tf.export import runtime
from realm_tf.export import saved_model
from realm_tf.export.corpus_part import CorpusPart
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.index import index_class
from realm_tf.text.tokenizer import Tokenizer

# What comes on top of what is there, as a share and at least: of blocks, and in
# proportion of all that they hold (our choice).
_SPARE = 1 / 8
_LEAST_SPARE = 256
_LEAST_SPARE_NUMBERS = 4096
# Whose search leaves rows out without a graph of its own.
_WITH_ROOM = "brute_force"


def write(stage: Stage, model: Model, state, *, kind, fields, **facts) -> None:
    """Writes an export of a state, with a new graph.

    Args:
        stage: `artifact.Stage`. As of `saved_model.write`.
        model: `Model`.
        state: `State`.
        kind: str. Of the index.
        fields: sequence of str. Names of fields that a filter can name.
        **facts: of `saved_model.write`.

    Raises:
        InputError: if a block is too long for the model, or the disk is full.
    """
    weight = stage.parameters.get("lexical_weight")
    corpus = Corpus(
        load_model(model, precision=stage.parameters["precision"]),
        state.records(),
        _index(kind, state.embeddings()),
    )
    room = None
    if kind == _WITH_ROOM:
        room = _room(state, corpus, fields, with_postings=weight is not None)
    # Later blocks may be as long as there are any.
    dataclasses.replace(
        corpus, records=state.records(capacity=room and room["blocks"])
    ).check()
    part = _part(
        state,
        index=None if room else corpus.index,
        tokenizer=corpus.loaded.tokenizer,
        reads_titles=corpus.loaded.model.reader.reads_titles,
        is_hybrid=weight is not None,
        fields=fields,
        room=room,
    )
    saved_model.write(
        stage,
        corpus,
        kind,
        part=part,
        room=room,
        fields=list(fields),
        **facts,
    )


class NoRoom(Exception):
    """The tables of a graph are too small for a state."""


def write_next(
    stage: Stage, before: SavedModel, model: Model, state, *, fields
) -> None:
    """Writes an export of a state with the graph of another one.

    Args:
        stage: `artifact.Stage`.
        before: `SavedModel`. Of another state of the corpus.
        model: `Model`. Its vocabulary and configuration are read.
        state: `State`.
        fields: as of `write`.

    Raises:
        NoRoom: if a table needs more room than that graph has, or the index has
            partitions of its blocks.
    """
    facts = card.read(before.path)
    if not facts.get("room"):
        raise NoRoom
    part = _part(
        state,
        index=None,
        tokenizer=Tokenizer.from_file(
            model.vocabulary, lowercase=model.config["lowercase"]
        ),
        reads_titles=model.config["reader"].get("reads_titles", False),
        is_hybrid=facts.get("lexical_weight") is not None,
        fields=fields,
        room=facts["room"],
    )
    _write_variables(stage, before, part)
    for name in ("saved_model.pb", "fingerprint.pb", "assets", "assets.extra"):
        source = before.file(name)
        if os.path.isdir(source):
            shutil.copytree(source, stage.path(name))
        elif os.path.exists(source):
            shutil.copy(source, stage.path(name))
    stage.metadata["num_blocks"] = state.num_blocks
    card.write(
        stage.directory,
        {
            **facts,
            "num_blocks": state.num_blocks,
            "example_titles": saved_model.spread(state.records().titles),
        },
    )


def _part(
    state, *, index, tokenizer, reads_titles, is_hybrid, fields, room
) -> CorpusPart:
    """The `CorpusPart` of a state, with tables of the sizes of `room`, or more."""

    def size_of(name, number):
        return room and max(room[name], number)

    records = state.records(capacity=size_of("blocks", state.num_blocks))
    size = len(records)
    title_ids = corpora.title_ids(records, tokenizer)
    if index is None:
        embeddings = state.embeddings()
        padded = np.zeros((size, embeddings.shape[1]), "float32")
        padded[: len(embeddings)] = embeddings
        index = _index(_WITH_ROOM, padded)
    block_ids = np.full(size, -1, "int64")
    block_ids[: state.num_blocks] = state.block_ids()
    lexical = field_table = None
    if is_hybrid:
        postings = corpora.postings(records, title_ids, tokenizer)
        lexical = corpora.lexical(
            postings, capacity=size_of("postings", postings.nnz)
        )
    if fields:
        values = state.fields()
        field_table = field_tables.FieldTable(
            fields,
            values,
            num_rows=size,
            num_entries=size_of("entries", field_tables.count(fields, values)),
        )
    return CorpusPart(
        records,
        index=index,
        block_table=corpora.block_table(
            records, title_ids if reads_titles else None
        ),
        lexical=lexical,
        block_ids=block_ids,
        fields=field_table,
        num_wordpieces=size_of("wordpieces", int(records.first_wordpieces[-1])),
    )


def _index(kind, embeddings):
    if kind == _WITH_ROOM:
        return BruteForce(embeddings)
    chosen = index_class(kind)
    return chosen.build(embeddings, **chosen.resolve(len(embeddings)))


def _room(state, corpus, fields, *, with_postings):
    """Sizes of tables with room for a state and for what will be added to it.

    Tables of one size can take each other's place in a graph.

    Returns:
        dict of `blocks`; `wordpieces`, of all bodies; `postings`, of
        `WordpieceBm25`; `entries`, of `FieldTable`.
    """
    blocks = state.num_blocks + max(
        _LEAST_SPARE, int(_SPARE * state.num_blocks)
    )
    growth = blocks / state.num_blocks
    num_entries = field_tables.count(fields, state.fields())
    num_postings = corpus.lexical.num_postings if with_postings else 0

    def more(number):
        return int(growth * number) + _LEAST_SPARE_NUMBERS

    return {
        "blocks": blocks,
        "wordpieces": more(int(corpus.records.first_wordpieces[-1])),
        "postings": more(num_postings),
        "entries": more(num_entries),
    }


def _write_variables(stage, before, part):
    """Writes the variables of `before`, those of the corpus replaced."""
    reader = tf.train.load_checkpoint(before.file(runtime.VARIABLES))
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    found = {
        f"{runtime.CORPUS}{path}/.ATTRIBUTES/VARIABLE_VALUE": value
        for path, value in _named(part)
    }
    of_corpus = {name for name in shapes if name.startswith(runtime.CORPUS)}
    if of_corpus != set(found):
        raise NoRoom
    tensors = {}
    for name in shapes:
        if name not in found:
            tensors[name] = reader.get_tensor(name)
            continue
        value = found[name]
        if value.shape.as_list() != shapes[name] or value.dtype != dtypes[name]:
            raise NoRoom
        tensors[name] = value
    os.makedirs(os.path.dirname(stage.path(runtime.VARIABLES)))
    tf.raw_ops.SaveV2(
        prefix=stage.path(runtime.VARIABLES),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.convert_to_tensor(value) for value in tensors.values()],
    )


def _named(part):
    """(path from the part, variable) of each of its variables.

    The path is the shortest, as in a checkpoint.
    """
    view = tf.train.TrackableView(part)
    seen, left = {id(part)}, [("", part)]
    while left:
        path, node = left.pop(0)
        if isinstance(node, tf.Variable):
            yield path, node
            continue
        for name, child in view.children(node).items():
            if id(child) not in seen:
                seen.add(id(child))
                left.append((f"{path}/{name}".lstrip("/"), child))
