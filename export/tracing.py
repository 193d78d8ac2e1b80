"""Traces the graph of a corpus that changes."""

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf

from realm_tf.answering import corpus as corpora
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.corpus import load_model
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.export import corpus_tables
from realm_tf.export import field_table
from realm_tf.export import runtime
from realm_tf.export import saved_model
from realm_tf.export import signatures
from realm_tf.export.corpus_part import CorpusPart
from realm_tf.export.corpus_tables import LEAST_ROWS
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.index import index_class


def write_whole(
    stage: Stage, model: Model, state, *, kind: str, fields, parents: dict
) -> None:
    """Writes an export of a state whose index has partitions of its blocks.

    Args:
        stage: `artifact.Stage`. As of `saved_model.write`.
        model: `Model`.
        state: `State`.
        kind: str. Of the index.
        fields: sequence of str. Names of fields that a filter can name.
        parents: dict. As of `saved_model.write`.

    Raises:
        InputError: if a block is too long for the model, or the disk is full.
    """
    _check_backend()
    embeddings, chosen = state.embeddings(), index_class(kind)
    corpus = Corpus(
        load_model(model, precision=stage.parameters["precision"]),
        state.records(),
        chosen.build(embeddings, **chosen.resolve(len(embeddings))),
    )
    corpus.check()
    is_hybrid = stage.parameters.get("lexical_weight") is not None
    part = CorpusPart(
        corpus.records,
        index=corpus.index,
        block_table=corpus.block_table,
        lexical=corpus.lexical if is_hybrid else None,
        block_ids=state.block_ids(),
        fields=_fields(fields, state.fields()),
    )
    saved_model.write(
        stage, corpus, kind, part=part, fields=list(fields), parents=parents
    )


def _check_backend():
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            "The graph of a corpus is made where Keras runs on TensorFlow, here "
            f"it is {keras.backend.backend()}: unset KERAS_BACKEND."
        )


def _fields(names, fields):
    return field_table.FieldTable(names, fields) if names else None


def write_template(
    stage: Stage,
    model: Model,
    state,
    *,
    kind: str,
    fields,
    wide: bool,
    parents: dict,
) -> None:
    """Writes a `live_version.template`; see there for the arguments."""
    _check_backend()
    corpus = Corpus(
        load_model(model, precision=stage.parameters["precision"]),
        BlockRecords.joined(
            [(state.segments[0][0].blocks, np.arange(0))], capacity=LEAST_ROWS
        ),
        None,
    )
    corpus.check()
    part = _empty_part(corpus, stage, fields, _of_any_length(wide))
    saved_model.write(
        stage,
        corpus,
        kind,
        part=part,
        fields=list(fields),
        parents=parents,
        tables={
            name: [variable.dtype.name, variable.shape[1:].as_list()]
            for name, variable in part.named().items()
        },
        write_more=_write_writer,
    )


def _of_any_length(wide):
    """A creator of variables of which only the number of rows may change."""

    def create(next_creator, **arguments):
        value = tf.convert_to_tensor(
            arguments["initial_value"], arguments.get("dtype")
        )
        if wide and value.dtype == tf.uint16:
            value = tf.cast(value, tf.int32)
        arguments |= {
            "initial_value": value,
            "dtype": value.dtype,
            "shape": [None, *value.shape[1:]],
        }
        return next_creator(**arguments)

    return create


def _empty_part(corpus, stage, fields, creator):
    """`CorpusPart` of no blocks, whose variables take others of any number."""
    records, tower = corpus.records, corpus.loaded.model.block_embedder
    reads_titles = corpus.loaded.model.reader.reads_titles
    shape = LEAST_ROWS, tower.embedding_dim
    layers = {
        "index": BruteForce(np.zeros(shape, "float32")),
        "block_table": corpora.block_table(
            records, [[]] * LEAST_ROWS if reads_titles else None
        ),
        "lexical": None,
    }
    if stage.parameters.get("lexical_weight") is not None:
        shape = LEAST_ROWS, corpus.loaded.tokenizer.vocabulary_size
        postings = scipy.sparse.csc_array(shape, dtype="float32")
        layers["lexical"] = corpora.lexical(postings)
    with tf.variable_creator_scope(creator):
        for layer in layers.values():
            for weight in getattr(layer, "variables", ()):
                # Keras makes none whose shape is not known.
                weight._value = tf.Variable(weight.value, trainable=False)
                weight._shape = tuple(weight._value.shape)
        return CorpusPart(
            records,
            **layers,
            block_ids=np.full(LEAST_ROWS, -1),
            fields=_fields(fields, [{}] * LEAST_ROWS),
            is_padded=True,
        )


def _write_writer(stage, part):
    """Writes the graph of `signatures.WRITER`."""
    variables = part.named()
    of_corpus = {
        name: f"{runtime.CORPUS}{name}/.ATTRIBUTES/VARIABLE_VALUE"
        for name in variables
    }
    reader = tf.train.load_checkpoint(stage.path(runtime.VARIABLES))
    dtypes = reader.get_variable_to_dtype_map()
    kept = sorted(set(dtypes) - set(of_corpus.values()))

    def save(target, source, **tables):
        weights = tf.raw_ops.RestoreV2(
            prefix=source[0],
            tensor_names=kept,
            shape_and_slices=[""] * len(kept),
            dtypes=[dtypes[key] for key in kept],
        )
        tables = [tables[corpus_tables.argument(name)] for name in of_corpus]
        keys = [*kept, *of_corpus.values()]
        saved = tf.raw_ops.SaveV2(
            prefix=target[0],
            tensor_names=keys,
            shape_and_slices=[""] * len(keys),
            tensors=[*weights, *tables],
        )
        with tf.control_dependencies([saved]):
            return {"target": tf.identity(target)}

    text = tf.TensorSpec([None], tf.string)
    tf.saved_model.save(
        tf.Module(),
        stage.path(signatures.WRITER),
        signatures={
            signatures.SAVE: tf.function(
                save, autograph=False
            ).get_concrete_function(
                target=text,
                source=text,
                **{
                    corpus_tables.argument(name): tf.TensorSpec(
                        variable.shape, variable.dtype
                    )
                    for name, variable in variables.items()
                },
            ),
            signatures.READ_FIELDS: tf.function(
                field_table.read, autograph=False
            ).get_concrete_function(
                keys=text, firsts=tf.TensorSpec([None, None], tf.string)
            ),
        },
    )
