"""The pipeline of `realm index`: embeddings -> a search index, its recall."""

# What of this is parallel. ScaNN learns its tree and codebooks, and ivf its
# partitions, from all embeddings on one machine: one step on one worker, so
# that nothing large passes through the machine that starts the pipeline. The
# exact search that recall is measured against is shared out: each shard gives
# its best blocks for every query, and the best of these are the best of all.

import json
import math
import os
import sys
from collections.abc import Iterable
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList

from realm_tf.artifacts import index_files
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.beam_pipelines.execution import pipeline_options
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.beam_pipelines.transforms import has_error
from realm_tf.beam_pipelines.transforms import raise_error
from realm_tf.beam_pipelines.transforms import report_error
from realm_tf.errors import InputError
from realm_tf.retrieval.index import index_class

# Queries, and neighbours of each, that recall is measured with (our choice).
NUM_QUERIES = 200
NUM_NEIGHBORS = 5

_RECALL = "recall.json"


def build(
    embeddings: Embeddings,
    directory: str,
    parameters: dict,
    *,
    beam_options: Sequence[str] = (),
) -> tuple[float, int]:
    """Writes an index's files and measures its recall.

    Args:
        embeddings: `Embeddings`.
        directory: str. Index directory that is being written.
        parameters: dict. `kind`, and the arguments of `build` of that kind.
        beam_options: sequence of str. Options of Beam.

    Returns:
        `(recall, num_queries)`: recall@5 against exact search, and how many
        blocks it was measured with; 1.0 and 0 where the kind is exact.

    Raises:
        InputError: if a worker found that the embeddings are damaged.
    """
    num_blocks = embeddings.num_blocks
    options = pipeline_options(beam_options)
    is_exact = index_class(parameters["kind"]).ALWAYS_EXACT
    query_ids = [] if is_exact else _draw(num_blocks)

    def apply(pipeline):
        return build_pipeline(
            pipeline,
            embeddings=embeddings,
            shards=embeddings.shards,
            directory=directory,
            parameters=parameters,
            query_ids=query_ids,
            num_neighbors=min(NUM_NEIGHBORS, num_blocks),
        )

    try:
        run_pipeline(apply, options)
    finally:
        # Clearer than what a runner makes of a worker's exception.
        raise_error(directory)
    path = os.path.join(directory, _RECALL)
    recall = json.loads(Path(path).read_text())
    remove(path)
    return recall, len(query_ids)


def _draw(num_blocks):
    order = np.random.default_rng(0).permutation(num_blocks)
    return sorted(order[:NUM_QUERIES].tolist())


def build_pipeline(
    pipeline: beam.Pipeline,
    *,
    embeddings: Embeddings,
    shards: Sequence[tuple[str, int]],
    directory: str,
    parameters: dict,
    query_ids: Sequence[int],
    num_neighbors: int,
) -> beam.PCollection:
    """Applies the transforms that build and measure an index.

    Args:
        pipeline: `beam.Pipeline`.
        embeddings: `Embeddings`.
        shards: sequence of (path, first block id). What it holds.
        directory: str. Index directory that is being written; workers report
            there what the user must mend.
        parameters: dict. `kind`, and the arguments of `build` of that kind.
        query_ids: sequence of int. Blocks to measure recall with.
        num_neighbors: int. Blocks to find for each.

    Returns:
        PCollection of the recall, which is also written to `directory`.
    """
    paths = (
        pipeline
        | "Shards" >> beam.Create(shards)
        | "Share shards" >> beam.Reshuffle()
    )
    queries = AsList(
        paths | "Pick queries" >> beam.ParDo(PickQueries(directory, query_ids))
    )
    exact = (
        paths
        | "Search shards"
        >> beam.ParDo(SearchShard(directory, num_neighbors), queries)
        | "Best of all shards"
        >> beam.combiners.Top.SmallestPerKey(num_neighbors)
    )
    found = (
        pipeline
        | "Start" >> beam.Create([None])
        | "Build index"
        >> beam.ParDo(
            BuildIndex(embeddings, directory, parameters, num_neighbors),
            queries,
        )
    )
    return (
        {"exact": exact, "found": found}
        | "Join" >> beam.CoGroupByKey()
        | "Compare" >> beam.FlatMap(compare)
        | "Recall" >> beam.combiners.Mean.Globally()
        | "Write recall" >> beam.Map(write_recall, directory)
    )


class PickQueries(beam.DoFn):
    """(path, first block id) of a shard to (block id, embedding) of some.

    Args:
        directory: str. Where errors are reported.
        query_ids: sequence of int. Block ids.
    """

    def __init__(self, directory: str, query_ids: Sequence[int]):
        self._directory = directory
        self._query_ids = np.array(query_ids, "int64")

    def process(self, shard):
        if not len(self._query_ids):
            return
        path, first = shard
        try:
            rows = index_files.load_shard(path)
        except InputError as error:
            report_error(self._directory, error)
            return
        is_here = (self._query_ids >= first) & (
            self._query_ids < first + len(rows)
        )
        for query_id in self._query_ids[is_here].tolist():
            yield query_id, np.array(rows[query_id - first])


class SearchShard(beam.DoFn):
    """A shard to (query id, (negated score, block id)) of its best blocks.

    Sorted, these are best first, and of equal scores the smaller id is first,
    as in an exact search over all blocks.

    Args:
        directory: str. Where errors have been reported.
        num_neighbors: int. How many for each query.
    """

    def __init__(self, directory: str, num_neighbors: int):
        self._directory = directory
        self._num_neighbors = num_neighbors

    def process(self, shard, queries):
        from realm_tf.retrieval.brute_force import BruteForce

        if not queries or has_error(self._directory):
            return
        path, first = shard
        index = BruteForce(index_files.load_shard(path))
        query_ids, vectors = zip(*queries, strict=True)
        scores, rows = index.search(
            np.stack(vectors), min(self._num_neighbors, index.num_blocks)
        )
        block_ids = np.asarray(rows) + first
        for query_id, *best in zip(
            query_ids,
            (-np.asarray(scores)).tolist(),
            block_ids.tolist(),
            strict=True,
        ):
            for item in zip(*best, strict=True):
                yield query_id, item


class BuildIndex(beam.DoFn):
    """Writes the files of the index; yields (query id, blocks it finds).

    Args:
        embeddings: `Embeddings`.
        directory: str. Index directory that is being written.
        parameters: dict. See `build_pipeline`.
        num_neighbors: int. Blocks to find for each query.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        directory: str,
        parameters: dict,
        num_neighbors: int,
    ):
        self._embeddings = embeddings
        self._directory = directory
        self._parameters = parameters
        self._num_neighbors = num_neighbors

    def process(self, _, queries):
        if has_error(self._directory):
            return
        try:
            rows = index_files.write_embeddings(
                self._embeddings, self._directory
            )
            if queries:
                yield from self._build(rows, queries)
        except InputError as error:
            report_error(self._directory, error)

    def _build(self, rows, queries):
        parameters = dict(self._parameters)
        kind = parameters.pop("kind")
        index = index_class(kind).build(rows, report=_report, **parameters)
        index_files.write_state(kind, index.state(), self._directory)
        query_ids, vectors = zip(*queries, strict=True)
        found = index.search(np.stack(vectors), self._num_neighbors)[1]
        index.close()
        yield from zip(query_ids, np.asarray(found).tolist(), strict=True)


def _report(text):
    print(f"index: {text}", file=sys.stderr, flush=True)


def compare(joined: tuple[int, dict[str, Iterable]]) -> Iterable[float]:
    """The share of the true best blocks that an index has found.

    Args:
        joined: (query id, `{"exact": [list of (negated score, block id)],
            "found": [list of block ids]}`).

    Yields:
        float; nothing if the index could not be built, which is reported.
    """
    _, both = joined
    for found in both["found"]:
        (exact,) = both["exact"]
        true = {block_id for _, block_id in exact}
        yield len(true.intersection(found)) / len(true)


def write_recall(recall: float, directory: str) -> float:
    """Writes the recall, which is NaN, to be 1, if nothing was compared."""
    recall = 1.0 if math.isnan(recall) else recall
    write_text(os.path.join(directory, _RECALL), json.dumps(recall))
    return recall
