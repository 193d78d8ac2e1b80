"""The pipeline of `realm chunk`: articles -> parts -> numbered shards."""

import json
import os

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict
from apache_beam.pvalue import AsList

from realm_tf.articles import pages
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines import shards
from realm_tf.beam_pipelines import sources
from realm_tf.beam_pipelines import transforms
from realm_tf.beam_pipelines.execution import num_local_workers
from realm_tf.beam_pipelines.execution import run_pipeline

# About 15 MB a shard at 288 wordpieces (our choice): shards are also what
# workers share.
BLOCKS_PER_SHARD = 10_000

_PARTS, _COUNTS = "parts-", "counts.json"


def write_blocks(
    stage: Stage,
    inputs: list[sources.Source],
    *,
    options: PipelineOptions,
    **reading,
) -> dict:
    """Writes the shards that no interrupted run has written.

    Args:
        stage: `Stage`. Removed again if the input holds a mistake.
        inputs: list of `Source`. See `sources.find`.
        options: `PipelineOptions`.
        **reading: further arguments of `transforms.ChunkPages`.

    Returns:
        dict, the metadata of the blocks; see `shards.metadata`.

    Raises:
        InputError: if a worker found a mistake, or there is no block.
    """
    with resumable.nothing_left_of_a_mistake(stage):
        directory = _prepare(stage, inputs)
        chunk_pages = transforms.ChunkPages(directory=directory, **reading)
        elements = sources.make_sources(inputs, num_local_workers(options))
        run_pipeline(
            lambda pipeline: _build(
                pipeline, elements, chunk_pages, stage.directory
            ),
            options,
            directory,
        )
        written = sorted(Path(stage.directory).glob(f"{shards.PREFIX}-*"))
        metadata = shards.metadata(
            resumable.merge_summaries(map(str, written)),
            json.loads(Path(os.path.join(directory, _COUNTS)).read_text()),
            chunk_pages.packing,
        )
        remove(directory)
    return metadata


def _prepare(stage, inputs):
    """The directory of the parts, with those of an interrupted run.

    Its name depends on the inputs and the parameters. So no worker of a killed
    run can add a part to those of a run with other options or inputs, or of
    another version of the files.
    """
    states = [pages.file_state(source.path) for source in inputs]
    made_of = json.dumps([stage.parameters, states])
    name = f"{_PARTS}{fingerprints.fingerprint(made_of)}"
    directory = stage.path(name)
    there = sorted(each.name for each in Path(stage.directory).iterdir())
    if name not in there:
        # A new run, or the inputs have changed since.
        for other in there:
            if other.startswith((_PARTS, f"{shards.PREFIX}-")):
                remove(stage.path(other))
        Path(directory).mkdir(parents=True, exist_ok=True)
    return directory


def _build(pipeline, elements, chunk_pages, output):
    directory = chunk_pages.directory
    keep_first = transforms.KeepFirst(
        directory=directory,
        paths={source.file_number: source.path for source in elements},
    )
    write = shards.WriteBlocks(
        directory=directory,
        packing=chunk_pages.packing,
        unknown_id=chunk_pages.tokenizer.unk_id,
    )
    chunked = (
        pipeline
        | "Files" >> beam.Create(elements)
        | "Share files" >> beam.Reshuffle()
        | "Chunk pages"
        >> beam.ParDo(chunk_pages).with_outputs("counts", main="pages")
    )
    found = (
        chunked.pages
        | "Group by id" >> beam.GroupByKey()
        | "Keep first"
        >> beam.ParDo(keep_first).with_outputs("counts", "dropped", main="kept")
    )
    counts = (
        (chunked.counts, found.counts)
        | "All counts" >> beam.Flatten()
        | "Count pages" >> beam.CombinePerKey(sum)
        | "Join counts" >> beam.combiners.ToDict()
        | "Write counts"
        >> beam.Map(_write_json, os.path.join(directory, _COUNTS))
    )
    num_blocks = found.kept | "Count blocks" >> beam.CombinePerKey(sum)
    written = (
        pipeline
        | "Start" >> beam.Create([None])
        | "Plan shards"
        >> beam.FlatMap(
            shards.plan_shards,
            AsDict(num_blocks),
            AsList(found.dropped),
            output=output,
            directory=directory,
            blocks_per_shard=BLOCKS_PER_SHARD,
        )
        | "Share shards" >> beam.Reshuffle()
        | "Write blocks" >> beam.ParDo(write)
    )
    return counts, written


def _write_json(value, path):
    write_text(path, json.dumps(value))
