"""The pipeline of `realm chunk`: articles -> parts -> numbered shards."""

import contextlib
import functools
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
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import shards
from realm_tf.beam_pipelines import sources
from realm_tf.beam_pipelines import transforms
from realm_tf.beam_pipelines.execution import num_local_workers
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.errors import InputError
from realm_tf.text.blocks import Packing
from realm_tf.text.tokenizer import Tokenizer

# About 15 MB a shard at 288 wordpieces (our choice): shards are also what
# workers share.
BLOCKS_PER_SHARD = 10_000

_PARTS = "parts-"


def write_blocks(
    stage: Stage,
    inputs: sources.Inputs,
    tokenizer: Tokenizer,
    packing: Packing,
    *,
    base_url: str | None,
    keep_all_titles: bool,
    num_shards: int | None,
    options: PipelineOptions,
) -> dict:
    """Writes the shards of a blocks directory.

    Args:
        stage: `Stage`. Removed again if the input holds a mistake, so that
            nobody goes on with it.
        inputs: `sources.Inputs`.
        tokenizer: `Tokenizer`.
        packing: `Packing`.
        base_url: str or None. What comes before the title in a page's URL.
        keep_all_titles: bool. Keep lists and disambiguations.
        num_shards: int or None. Files to write, at most one a block. `None`:
            one per `BLOCKS_PER_SHARD` blocks.
        options: `PipelineOptions`.

    Returns:
        dict, what the metadata say of the blocks; see `shards.metadata`.

    Raises:
        InputError: if a worker found a mistake, or there is no block.
    """
    with nothing_left_of_a_mistake(stage):
        directory = _prepare(stage, inputs)
        summary_path = os.path.join(directory, "summary.json")
        build = functools.partial(
            _build,
            elements=sources.make_sources(inputs, num_local_workers(options)),
            chunk_pages=transforms.ChunkPages(
                directory,
                vocabulary=tokenizer.vocabulary,
                lowercase=tokenizer.lowercase,
                packing=packing,
                base_url=base_url,
                keep_all_titles=keep_all_titles,
            ),
            keep_first=transforms.KeepFirst(directory, inputs),
            plan_shards=shards.PlanShards(
                stage.directory,
                directory=directory,
                num_shards=num_shards,
                blocks_per_shard=BLOCKS_PER_SHARD,
            ),
            write_blocks=shards.WriteBlocks(directory, packing),
            summary_path=summary_path,
        )
        run_pipeline(build, options)
        transforms.raise_error(directory)
        summary = json.loads(Path(summary_path).read_text())
        metadata = shards.metadata(summary, packing)
        remove(directory)
    return metadata


@contextlib.contextmanager
def nothing_left_of_a_mistake(stage: Stage):
    """Removes a stage's directory if an `InputError` is raised."""
    try:
        yield
    except InputError:
        # Nobody will go on with it.
        remove(stage.directory)
        raise


def _prepare(stage, inputs):
    """The directory of the parts, with those of an interrupted run.

    Its name says what they are made of. So no worker of a run that was killed
    can add a part to those of a run with other options or inputs.
    """
    files = [*inputs.paths, *filter(None, inputs.indices)]
    state = json.dumps([stage.parameters, [pages.file_state(p) for p in files]])
    name = f"{_PARTS}{fingerprints.fingerprint(state)}"
    directory = stage.path(name)
    there = sorted(each.name for each in Path(stage.directory).iterdir())
    if name not in there:
        # A new run, or the inputs have changed since.
        for other in there:
            if other.startswith((_PARTS, shards.PREFIX)):
                remove(stage.path(other))
        Path(directory).mkdir(parents=True, exist_ok=True)
    parts.remove_temporary(stage.directory)
    parts.remove_temporary(directory)
    transforms.clear_error(directory)
    return directory


def _build(
    pipeline,
    *,
    elements,
    chunk_pages,
    keep_first,
    plan_shards,
    write_blocks,
    summary_path,
):
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
    num_blocks = found.kept | "Count blocks" >> beam.CombinePerKey(sum)
    counts = (
        (chunked.counts, found.counts)
        | "All counts" >> beam.Flatten()
        | "Count pages" >> beam.CombinePerKey(sum)
    )
    return (
        pipeline
        | "Start" >> beam.Create([None])
        | "Plan shards"
        >> beam.ParDo(plan_shards, AsDict(num_blocks), AsList(found.dropped))
        | "Share shards" >> beam.Reshuffle()
        | "Write blocks" >> beam.ParDo(write_blocks)
        | "Sum up" >> beam.CombineGlobally(shards.merge_summaries)
        | "Write summary"
        >> beam.Map(shards.write_summary, summary_path, AsDict(counts))
    )
