"""The pipeline of `realm index`: embeddings -> a search index, its recall.

ScaNN learns its tree and codebooks, and ivf its partitions, from all
embeddings on one machine: one step on one worker, which measures the recall as
well, so that nothing large passes through the machine that starts the
pipeline.
"""

import dataclasses
import json
import os

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts.objects import EMBEDDINGS
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.paths import writing
from realm_tf.beam_pipelines import engine
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines import steps
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.index import index_class

# Queries, and neighbours of each, that recall is measured with (our choice).
NUM_QUERIES = 200
NUM_NEIGHBORS = 5

_RECALL = "recall.json"


def build(
    embeddings: Embeddings,
    directory: str,
    parameters: dict,
    options=None,
) -> tuple[float, int]:
    """Writes an index's files and measures its recall.

    Args:
        embeddings: `Embeddings`.
        directory: str. Index directory that is being written.
        parameters: dict. `kind`, and the arguments of `build` of that kind.
        options: of `engine.given_options`. Defaults to `None`: in this
            process, without an engine.

    Returns:
        `(recall, num_queries)`: recall@5 against exact search, and how many
        blocks it was measured with; 1.0 and 0 where the kind is exact.

    Raises:
        InputError: if a worker found that the embeddings are damaged.
    """
    step = BuildIndex(
        embeddings=embeddings, directory=directory, parameters=parameters
    )
    path = os.path.join(directory, _RECALL)
    whole = resumable.Shard(path, 0, embeddings.num_blocks)
    engine.run_on_shards(step, [whole], options)
    found = json.loads(Path(path).read_text())
    remove(path)
    return tuple(found)


@dataclasses.dataclass(eq=False, kw_only=True)
class BuildIndex(steps.ShardStep):
    """Writes the files of the index, and what `build` returns.

    Args:
        embeddings: `Embeddings`.
        parameters: dict. See `build`.
    """

    command = "index"
    what = "blocks"

    embeddings: Embeddings
    parameters: dict

    def make(self, shard):
        rows = write_embeddings(self.embeddings, self.directory)
        found = 1.0, 0
        if not index_class(self.parameters["kind"]).ALWAYS_EXACT:
            found = self._build(rows)
        write_text(shard.path, json.dumps(found))

    def _build(self, rows):
        parameters = dict(self.parameters)
        kind = parameters.pop("kind")
        index = index_class(kind).build(rows, **parameters)
        write_state(kind, index.state(), self.directory)
        order = np.random.default_rng(0).permutation(len(rows))
        own = np.sort(order[:NUM_QUERIES])
        queries = np.array(rows[own])
        num_neighbors = min(NUM_NEIGHBORS, len(rows) - 1)
        if not num_neighbors:
            return 1.0, 0
        # A query finds its own block besides.
        scores, found = map(
            np.asarray, index.search(queries, num_neighbors + 1)
        )
        found = np.where(np.isfinite(scores), found, -1)
        # Frees its memory: another copy of all embeddings may not fit.
        del index
        true = np.asarray(
            BruteForce(rows).search(queries, num_neighbors + 1)[1]
        )
        found, true = (_without(own, each) for each in (found, true))
        # Of equal blocks, any is right.
        scores, lowest = (
            np.einsum("qd,qnd->qn", queries, rows[each])
            for each in (found, true[:, -1:])
        )
        is_found = (found >= 0) & (scores >= lowest)
        return float(is_found.mean()), len(queries)


def _without(own, found):
    """The best of each row but for one id, one fewer than there are."""
    order = np.argsort(found == own[:, None], axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1)[:, :-1]


def write_embeddings(embeddings: Embeddings, directory: str) -> np.ndarray:
    """Joins the shards of embeddings to the file that an index holds.

    One shard is in memory at a time.

    Args:
        embeddings: `Embeddings`.
        directory: str. Index directory that is being written.

    Returns:
        float32 array `(num_blocks, embedding_dim)`; memory-mapped.

    Raises:
        InputError: as `Embeddings.shards`.
    """
    path = os.path.join(directory, EMBEDDINGS)
    with writing(path) as temporary, open(temporary, "wb") as file:
        for number, rows in enumerate(embeddings.shards()):
            if not number:
                header = np.lib.format.header_data_from_array_1_0(rows)
                header["shape"] = (embeddings.num_blocks, *rows.shape[1:])
                np.lib.format.write_array_header_1_0(file, header)
            file.write(rows.tobytes())
    return array_files.load_array(path)


def write_state(
    kind: str, state: dict[str, np.ndarray], directory: str
) -> None:
    """Writes what an index keeps beside the embeddings, its `state()`.

    Args:
        kind: str. `"ivf"` or `"scann"`.
        state: dict of name to array.
        directory: str. Index directory that is being written.
    """
    for name, array in state.items():
        path = os.path.join(directory, f"{kind}-{name}.npy")
        array_files.write_array(path, array)
