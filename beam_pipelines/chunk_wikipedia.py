"""The pipelines of `realm chunk`: articles -> parts -> numbered shards.

The first cuts every `PAGES_PER_PART` pages of a file to a part and keeps a table
of the pages: 36 bytes each. Which pages are duplicates, and how many blocks come
before a part, is then decided here from these tables. The second copies the
parts to the final shards. So neither the runner nor this process holds the texts
of a corpus, and the ids follow from file and position alone.
"""

import json

from realm_tf.articles import pages
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import plans
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines import shards
from realm_tf.beam_pipelines import sources
from realm_tf.beam_pipelines import transforms
from realm_tf.beam_pipelines.engine import run_on_shards

# About 15 MB a shard at 288 wordpieces (our choice): shards are also what
# workers share.
BLOCKS_PER_SHARD = 10_000

_PARTS = "parts-"


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
        InputError: if a worker found a mistake, two articles have one id, or
            there is no block.
    """
    with resumable.nothing_left_of_a_mistake(stage):
        resumable.clean(stage.directory)
        directory = _prepare(stage, inputs)
        chunk_pages = transforms.ChunkPages(directory=directory, **reading)
        num_workers = 1
        if options is not None:
            from realm_tf.beam_pipelines import execution

            num_workers = execution.num_local_workers(options)
        shares = sources.make_shares(inputs, num_workers, directory)
        run_on_shards(chunk_pages, shares, options)
        found, counts = parts.read_tables([share.path for share in shares])
        is_kept = plans.is_first(found, [source.path for source in inputs])
        counts["articles_kept"] = int(is_kept.sum())
        counts["dropped_duplicate"] = len(found) - counts["articles_kept"]
        planned = plans.plan_shards(
            found,
            is_kept,
            output=stage.path(shards.PREFIX),
            blocks_per_shard=BLOCKS_PER_SHARD,
        )
        write = shards.WriteBlocks(
            directory=directory,
            packing=chunk_pages.packing,
            unknown_id=chunk_pages.tokenizer.unk_id,
        )
        run_on_shards(write, planned, options)
        metadata = shards.metadata(
            resumable.merge_summaries(shard.path for shard in planned),
            counts,
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
    made_of = json.dumps([stage.parameters, states, parts.PAGES.descr])
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
