"""The pipeline of `realm chunk`: articles -> parts -> numbered shards."""

import collections
import functools
import json
import os

from realm_tf.articles import pages
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import record_files
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines import shards
from realm_tf.beam_pipelines import sources
from realm_tf.beam_pipelines import steps
from realm_tf.beam_pipelines import transforms
from realm_tf.errors import InputError
from realm_tf.progress import Progress

# About 15 MB a shard at 288 wordpieces (our choice): shards are also what
# workers share.
BLOCKS_PER_SHARD = 10_000
# Of all inputs, in bytes: so much is about one shard, and needs no engine (our
# choice).
MOST_WITHOUT_ENGINE = 1 << 24

_PARTS, _COUNTS = "parts-", "counts.json"


def write_blocks(
    stage: Stage,
    inputs: list[sources.Source],
    *,
    options=None,
    **reading,
) -> dict:
    """Writes the shards that no interrupted run has written.

    Args:
        stage: `Stage`. Removed again if the input holds a mistake.
        inputs: list of `Source`. See `sources.find`.
        options: of `engine.given_options`. Defaults to `None`.
        **reading: further arguments of `transforms.ChunkPages`.

    Returns:
        dict, the metadata of the blocks; see `shards.metadata`.

    Raises:
        InputError: if a worker found a mistake, or there is no block.
    """
    with resumable.nothing_left_of_a_mistake(stage):
        resumable.clean(stage.directory)
        directory = _prepare(stage, inputs)
        chunk_pages = transforms.ChunkPages(directory=directory, **reading)
        size = sum(pages.file_state(source.path)[1] for source in inputs)
        if options is None and size <= MOST_WITHOUT_ENGINE:
            _run_here(inputs, chunk_pages, stage.directory)
        else:
            _run_pipeline(inputs, chunk_pages, stage.directory, options)
        written = (
            each
            for each in Path(stage.directory).iterdir()
            if each.name.startswith(f"{shards.PREFIX}-")
        )
        metadata = shards.metadata(
            resumable.merge_summaries(sorted(map(str, written))),
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


def _later_steps(inputs, chunk_pages, output):
    """The steps after `chunk_pages`, see `transforms`."""
    directory = chunk_pages.directory
    keep_first = transforms.KeepFirst(
        directory=directory,
        paths={source.file_number: source.path for source in inputs},
    )
    write = shards.WriteBlocks(
        directory=directory,
        packing=chunk_pages.packing,
        unknown_id=chunk_pages.tokenizer.unk_id,
    )
    plan = functools.partial(
        shards.plan_shards,
        output=output,
        directory=directory,
        blocks_per_shard=BLOCKS_PER_SHARD,
    )
    return keep_first, plan, write


def _run_here(inputs, chunk_pages, output):
    """Takes the steps of `_run_pipeline` one after the other."""
    directory = chunk_pages.directory
    resumable.clean(directory)
    keep_first, plan, write = _later_steps(inputs, chunk_pages, output)
    chunked, counted = steps.run_here(chunk_pages, inputs)
    buckets = collections.defaultdict(list)
    for bucket, rows in chunked:
        buckets[bucket].append(rows)
    kept, found = steps.run_here(keep_first, buckets.items())
    counts, num_blocks = collections.Counter(), collections.Counter()
    for name, amount in counted["counts"] + found["counts"]:
        counts[name] += amount
    for part, number in kept:
        num_blocks[part] += number
    _write_json(counts, os.path.join(directory, _COUNTS))
    steps.run_here(write, plan(None, num_blocks, found["dropped"]))
    resumable.raise_error(directory)


def _run_pipeline(inputs, chunk_pages, output, options):
    from realm_tf.beam_pipelines import execution

    options = options or execution.pipeline_options()
    if execution.is_on_dask(options):
        raise InputError(
            "chunk cannot run on Dask, whose runner drops what a step gives "
            "beside its rows: leave --runner out or name another one. What "
            "comes after (annotate, embed, index) can."
        )
    elements = sources.make_sources(
        inputs, execution.num_local_workers(options)
    )
    execution.run_pipeline(
        lambda pipeline: _build(
            pipeline,
            elements,
            chunk_pages,
            *_later_steps(inputs, chunk_pages, output),
        ),
        options,
        chunk_pages.directory,
        lambda: resumable.watching(
            lambda: _show(chunk_pages.directory, output)
        ),
    )


def _show(directory, output):
    num_parts, num_shards = (
        len(list(Path(folder).glob(f"*{record_files.ENDING}")))
        for folder in (directory, output)
    )
    text = f"{num_parts:,} parts of {sources.PAGES_PER_PART:,} pages are read"
    Progress("chunk", "parts").print(f"{text}, {num_shards:,} shards written")


def _build(pipeline, elements, chunk_pages, keep_first, plan, write):
    import apache_beam as beam
    from apache_beam.pvalue import AsDict
    from apache_beam.pvalue import AsList

    from realm_tf.beam_pipelines.execution import DoStep

    chunked = (
        pipeline
        | "Files" >> beam.Create(elements)
        | "Share files" >> beam.Reshuffle()
        | "Chunk pages"
        >> beam.ParDo(DoStep(chunk_pages)).with_outputs("counts", main="pages")
    )
    found = (
        chunked.pages
        | "Group by id" >> beam.GroupByKey()
        | "Keep first"
        >> beam.ParDo(DoStep(keep_first)).with_outputs(
            "counts", "dropped", main="kept"
        )
    )
    counts = (
        (chunked.counts, found.counts)
        | "All counts" >> beam.Flatten()
        | "Count pages" >> beam.CombinePerKey(sum)
        | "Join counts" >> beam.combiners.ToDict()
        | "Write counts"
        >> beam.Map(_write_json, os.path.join(chunk_pages.directory, _COUNTS))
    )
    num_blocks = found.kept | "Count blocks" >> beam.CombinePerKey(sum)
    written = (
        pipeline
        | "Start" >> beam.Create([None])
        | "Plan shards"
        >> beam.FlatMap(
            # Beam counts the arguments of plain functions alone.
            lambda start, *of_pages: plan(start, *of_pages),
            AsDict(num_blocks),
            AsList(found.dropped),
        )
        | "Share shards" >> beam.Reshuffle()
        | "Write blocks" >> beam.ParDo(DoStep(write))
    )
    return counts, written


def _write_json(value, path):
    write_text(path, json.dumps(value))
