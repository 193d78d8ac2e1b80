"""Builds a search index over block embeddings.

  realm index --embeddings DIR --output DIR --kind scann [Beam options]

`brute_force` is exact; `ivf` scores the best partitions alone; both run
everywhere. `scann` is ScaNN's op, for CPU. Of an index that may miss blocks,
recall@5 against exact search is measured, with blocks as queries. Unknown
options go to Beam (e.g. --runner).
"""

# What of this is parallel. ScaNN learns its tree and codebooks, and ivf its
# partitions, from all embeddings on one machine: one step on one worker, so
# that nothing large passes through the machine that starts the pipeline. The
# exact search that recall is measured against is shared out: each shard gives
# its best blocks for every query, and the best of these are the best of all.

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import index_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.beam_pipelines.execution import pipeline_options
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.beam_pipelines.transforms import has_error
from realm_tf.beam_pipelines.transforms import raise_error
from realm_tf.beam_pipelines.transforms import report_error
from realm_tf.errors import InputError
from realm_tf.retrieval import partitions
from realm_tf.retrieval.index import KINDS

ACCEPTS_EXTRA = True
# Queries, and neighbours of each, that recall is measured with (our choice).
NUM_QUERIES = 200
NUM_NEIGHBORS = 5

_RECALL = "recall.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `realm index`."""
    parser.add_argument(
        "--embeddings",
        required=True,
        metavar="DIR",
        help="what `realm embed` wrote",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="the directory to make"
    )
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="scann",
        help="kind of search (default: %(default)s)",
    )
    parser.add_argument(
        "--reordering",
        choices=("float32", "int8"),
        default="float32",
        help="scann: what the best candidates are scored with; int8 takes a "
        "third of the memory and costs some recall (default: %(default)s)",
    )
    parser.add_argument(
        "--num-reordered",
        type=int,
        default=200,
        metavar="N",
        help="scann, from 20,000 blocks on: candidates that are scored again "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--num-partitions",
        type=int,
        metavar="N",
        help="ivf: parts of the blocks (default: 4 sqrt(number of blocks))",
    )
    parser.add_argument(
        "--num-probed",
        type=int,
        metavar="N",
        help="ivf: partitions searched; more find more (default: 48)",
    )


def run(args: argparse.Namespace, extra: list[str]) -> None:
    """Runs `realm index` and prints the recall."""
    metadata = build(**vars(args), beam_options=extra)
    text = f"{args.output}: {args.kind} over {metadata['num_blocks']:,} blocks"
    if metadata["recall_queries"]:
        text += (
            f", recall@5 against exact search {metadata['recall@5']:.3f} "
            f"({metadata['recall_queries']} queries)"
        )
    print(text)


def build(
    embeddings: str,
    output: str,
    *,
    kind: str = "scann",
    reordering: str = "float32",
    num_reordered: int = 200,
    num_partitions: int | None = None,
    num_probed: int | None = None,
    beam_options: Sequence[str] = (),
) -> dict:
    """Builds an index directory.

    Args:
        embeddings: str. Directory that `realm embed` wrote.
        output: str. Directory to make.
        kind: str. One of `KINDS`. Defaults to `"scann"`.
        reordering: str. Of ScaNN; see `Scann.build`.
        num_reordered: int. Of ScaNN, from 20,000 on. Defaults to `200`.
        num_partitions, num_probed: int. Of ivf; see `Ivf.build`.
        beam_options: sequence of str. Options of Beam.

    Returns:
        dict, the metadata, with the measured `recall@5` and the number of
        `recall_queries` (none, and 1.0, where the kind is exact).

    Raises:
        InputError: if the embeddings are damaged, `output` exists, or an
            argument is wrong.
    """
    metadata = artifact.read(embeddings, kind=schema.EMBEDDINGS)
    shards = index_files.embedding_shards(embeddings)
    num_blocks = metadata["num_blocks"]
    options = pipeline_options(beam_options)
    parameters = {"kind": kind}
    if kind == "scann":
        parameters.update(reordering=reordering, num_reordered=num_reordered)
    elif kind == "ivf":
        parameters.update(
            partitions.resolve(num_blocks, num_partitions, num_probed)
        )
    query_ids = [] if kind == "brute_force" else _draw(num_blocks)
    with artifact.write(
        output,
        kind=schema.INDEX,
        parameters=parameters,
        parents=metadata["parents"],
    ) as stage:

        def apply(pipeline):
            return build_pipeline(
                pipeline,
                embeddings=embeddings,
                shards=shards,
                directory=stage.directory,
                parameters=parameters,
                query_ids=query_ids,
                num_neighbors=min(NUM_NEIGHBORS, num_blocks),
            )

        try:
            run_pipeline(apply, options)
        finally:
            # Clearer than what a runner makes of a worker's exception.
            raise_error(stage.directory)
        recall = json.loads(Path(stage.path(_RECALL)).read_text())
        remove(stage.path(_RECALL))
        stage.metadata.update(
            num_blocks=num_blocks,
            embedding_dim=index_files.load_shard(shards[0][0]).shape[1],
            fingerprint=fingerprints.fingerprint(
                metadata["fingerprint"], str(sorted(parameters.items()))
            ),
            recall_queries=len(query_ids),
            **{"recall@5": round(recall, 4)},
        )
    return artifact.read(output, kind=schema.INDEX)


def _draw(num_blocks):
    order = np.random.default_rng(0).permutation(num_blocks)
    return sorted(order[:NUM_QUERIES].tolist())


def build_pipeline(
    pipeline: beam.Pipeline,
    *,
    embeddings: str,
    shards: Sequence[tuple[str, int]],
    directory: str,
    parameters: dict,
    query_ids: Sequence[int],
    num_neighbors: int,
) -> beam.PCollection:
    """Applies the transforms that build and measure an index.

    Args:
        pipeline: `beam.Pipeline`.
        embeddings: str. Embeddings directory.
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
        embeddings: str. Embeddings directory.
        directory: str. Index directory that is being written.
        parameters: dict. See `build_pipeline`.
        num_neighbors: int. Blocks to find for each query.
    """

    def __init__(
        self,
        embeddings: str,
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
            if self._parameters["kind"] != "brute_force":
                yield from self._build(rows, queries)
        except InputError as error:
            report_error(self._directory, error)

    def _build(self, rows, queries):
        kind = self._parameters["kind"]
        index = _build_index(rows, **self._parameters)
        index_files.write_state(kind, index.state(), self._directory)
        query_ids, vectors = zip(*queries, strict=True)
        found = index.search(np.stack(vectors), self._num_neighbors)[1]
        if kind == "scann":
            index.close()
        yield from zip(query_ids, np.asarray(found).tolist(), strict=True)


def _build_index(rows, *, kind, **arguments):
    if kind == "scann":
        from realm_tf.retrieval.scann import Scann

        return Scann.build(rows, **arguments)
    from realm_tf.retrieval.ivf import Ivf

    return Ivf.build(rows, **arguments, report=_report)


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


if __name__ == "__main__":
    from realm_tf import cli

    sys.exit(cli.main(["index", *sys.argv[1:]]))
