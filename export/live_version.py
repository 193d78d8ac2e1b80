"""The exports of a corpus that changes: one graph, variables of any length.

The graph is traced once for a model and kept, without blocks (`template`). The
export of a state is that graph with other variables: nothing is traced, and no
model is loaded. A small graph beside it, `WRITER`, writes the variables.
"""

import concurrent.futures
import functools
import importlib.metadata
import json
import os
import shutil
import time

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import SavedModel
from realm_tf.artifacts.paths import cache_folder
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError
from realm_tf.export import card
from realm_tf.export import corpus_tables
from realm_tf.export import runtime
from realm_tf.export.signatures import EMBED_BLOCK
from realm_tf.export.signatures import READ_FIELDS
from realm_tf.export.signatures import SAVE
from realm_tf.export.signatures import WRITER
from realm_tf.progress import Progress
from realm_tf.text.tokenizer import Tokenizer

# Its search leaves rows out, so that a table may have more rows than blocks;
# other kinds have partitions of their blocks, and so graphs of their own.
KIND = "brute_force"
# Blocks embedded at once, and batches of them (our choice).
_BATCH_SIZE, _BATCHES_AT_ONCE = 32, 2
# A graph that no corpus was made with for so long is removed (our choice).
_KEPT_SECONDS = 30 * 24 * 3600
# Packages that decide a graph.
_MAKERS = ("tensorflow", "tensorflow-text", "keras", "realm-tf")


class OtherGraph(Exception):
    """The tables of a state are not those that a graph takes."""


def template(
    model: Model, state, *, parameters: dict, fields, wide: bool = False
) -> SavedModel:
    """The export of no blocks; traced if this machine has none.

    It is kept in `paths.cache_folder` under a digest of all that decides the
    graph, and made again where a file is not as it was written. One that was
    not used for 30 days goes when another one is made.

    Args:
        model: `Model`.
        state: `State`. Its blocks say how long they may be.
        parameters: dict. As of `saved_model.write`.
        fields: sequence of str. Names of fields that a filter can name.
        wide: bool. Whether places in texts take four bytes, not two. Defaults
            to `False`.

    Raises:
        InputError: if a block may be too long for the model, or Keras runs on
            another backend than TensorFlow.
    """
    decides = {
        "model": model.fingerprint,
        "config": model.config,
        "parameters": parameters,
        "fields": fields,
        "max_block_length": state.max_block_length,
        "wide": wide,
        "made by": {n: importlib.metadata.version(n) for n in _MAKERS},
    }
    key = fingerprints.fingerprint(json.dumps(decides, sort_keys=True))
    folder = os.path.join(cache_folder(), "graphs")
    found = SavedModel(os.path.join(folder, key))
    if is_whole(found):
        return found
    # Another process may be making it.
    with artifact.locked(folder, wait=True):
        if not is_whole(found):
            from realm_tf.export import tracing

            remove(found.path)
            _remove_unused(folder)
            print("graph, once for this model: half a minute", flush=True)
            parents = {"model": model.fingerprint}
            with artifact.write(
                found.path,
                kind=found.kind,
                parameters=parameters,
                parents=parents,
            ) as stage:
                tracing.write_template(
                    stage,
                    model,
                    state,
                    kind=KIND,
                    fields=fields,
                    wide=wide,
                    parents=parents,
                )
    return found


def is_whole(version: SavedModel) -> bool:
    """Whether an export is there, with all files as they were written."""
    try:
        return version.is_complete and bool(
            version.metadata and card.read(version.path)
        )
    except InputError:
        return False


def _remove_unused(folder):
    """Removes graphs that no corpus was made with for a while."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            used = os.stat(os.path.join(path, card.FILE))
        except (FileNotFoundError, NotADirectoryError):
            continue
        if max(used.st_atime, used.st_mtime) < time.time() - _KEPT_SECONDS:
            remove(path)


def write(
    stage: Stage, before: SavedModel, model: Model, state, *, fields
) -> None:
    """Writes an export of a state with the graph of another one.

    Args:
        stage: `artifact.Stage`.
        before: `SavedModel`. A `template`, or of another state of the corpus;
            its files are not checked.
        model: `Model`. Its vocabulary and configuration are read.
        state: `State`.
        fields: as of `template`.

    Raises:
        OtherGraph: if that graph takes other tables.
    """
    facts = card.read(before.path, check_files=False)
    if "tables" not in facts:
        raise OtherGraph
    # Each signature is run once.
    with runtime.Runtime(before.file(WRITER), optimized=False) as writer:
        tables = corpus_tables.of_state(
            state,
            tokenizer=Tokenizer.from_file(
                model.vocabulary, lowercase=model.config["lowercase"]
            ),
            reads_titles=model.config["reader"].get("reads_titles", False),
            is_hybrid=facts.get("lexical_weight") is not None,
            field_names=fields,
            read_fields=lambda keys, firsts: writer.run(
                READ_FIELDS, {"keys": keys, "firsts": firsts}
            ),
        )
        tables = _fitting(tables, facts["tables"])
        _copy_graph(before, stage)
        writer.run(
            SAVE,
            {
                "target": [stage.path(runtime.VARIABLES)],
                "source": [before.file(runtime.VARIABLES)],
                **{
                    corpus_tables.argument(name): array
                    for name, array in tables.items()
                },
            },
        )
    stage.metadata["num_blocks"] = state.num_blocks
    sizes = {n: corpus_tables.num_bytes(t) for n, t in tables.items()}
    card.write(
        stage.directory,
        {
            **facts,
            "num_blocks": state.num_blocks,
            "example_titles": card.spread(state.records().titles),
            # Those of the weights stay.
            "parts": facts["parts"] | corpus_tables.sizes(sizes),
        },
    )


def _copy_graph(before, stage):
    for name in ("saved_model.pb", "assets", "assets.extra"):
        source = before.file(name)
        if os.path.isdir(source):
            shutil.copytree(source, stage.path(name))
        elif os.path.exists(source):
            shutil.copy(source, stage.path(name))
    os.makedirs(os.path.dirname(stage.path(runtime.VARIABLES)))


class Embeddings:
    """Embeddings of blocks by an export, computed where they are sliced.

    Args:
        version: `SavedModel`. Of any state, or a `template`.
        records: `BlockRecords`.
    """

    def __init__(self, version: SavedModel, records):
        self._version = version
        self._records = records

    def __len__(self):
        return len(self._records)

    def __getitem__(self, rows: slice) -> np.ndarray:
        """float32 array `(num_rows, embedding_dim)`."""
        rows = np.arange(len(self))[rows]
        # Of like length: little of what is computed is padding.
        lengths = self._records.count_wordpieces()[rows]
        order = rows[np.argsort(lengths, kind="stable")]
        batches = np.split(order, range(_BATCH_SIZE, len(order), _BATCH_SIZE))

        def embed(graph, batch):
            texts = {
                "title": [self._records.titles[row] for row in batch],
                "text": [self._records.texts[row] for row in batch],
            }
            return graph.run(EMBED_BLOCK, texts)["embedding"]

        found = []
        with (
            runtime.Runtime(self._version.path, optimized=False) as graph,
            Progress("embed", "blocks", len(rows)) as progress,
            # One batch uses the cores that the other leaves idle.
            concurrent.futures.ThreadPoolExecutor(_BATCHES_AT_ONCE) as pool,
        ):
            for each in pool.map(functools.partial(embed, graph), batches):
                found.append(each)
                progress.add(len(each))
        return np.concatenate(found)[np.argsort(order)]


def _fitting(tables, expected):
    """The tables in the types of a graph's variables."""
    if set(tables) != set(expected):
        raise OtherGraph
    found = {}
    for name, (dtype, shape) in expected.items():
        array = tables[name]
        dtype = np.dtype(object if dtype == "string" else dtype)
        if list(array.shape[1:]) != shape or not np.can_cast(
            array.dtype, dtype
        ):
            raise OtherGraph
        found[name] = array.astype(dtype, copy=False)
    return found
