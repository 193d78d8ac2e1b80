"""The pipeline of `realm annotate`: ranges of blocks -> annotated shards."""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.paths import remove
from realm_tf.beam_pipelines import annotation
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import transforms
from realm_tf.beam_pipelines.chunk_wikipedia import nothing_left_of_a_mistake
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.errors import InputError
from realm_tf.tagging import taggers


def write_passages(
    stage: Stage,
    blocks: Blocks,
    *,
    tagger: dict,
    passages_per_shard: int,
    has_block_ids: bool,
    options: PipelineOptions,
) -> dict:
    """Writes the shards that a directory does not hold yet.

    Args:
        stage: `Stage`. Removed again if no span is found.
        blocks: `Blocks`.
        tagger: dict. Arguments of `taggers.make_tagger`.
        passages_per_shard: int.
        has_block_ids: bool. Whether the passages are blocks of the knowledge
            corpus.
        options: `PipelineOptions`.

    Returns:
        dict: `counts`, `num_passages`, `shard_rows` and `fingerprint`.

    Raises:
        InputError: if a worker found a mistake, or there is no span at all.
    """
    # Those of an interrupted run.
    transforms.clear_error(stage.directory)
    parts.remove_temporary(stage.directory)
    plan = annotation.plan_shards(
        stage.directory,
        num_blocks=blocks.num_blocks,
        passages_per_shard=passages_per_shard,
    )
    annotate_range = annotation.AnnotateRange(
        blocks,
        stage.directory,
        plan,
        tagger=tagger,
        has_block_ids=has_block_ids,
    )
    missing = [shard for shard in plan if not shard.is_complete]

    def build(pipeline):
        return (
            pipeline
            | "Ranges" >> beam.Create(missing)
            | "Spread" >> beam.Reshuffle()
            | "Annotate" >> beam.ParDo(annotate_range)
        )

    run_pipeline(build, options)
    transforms.raise_error(stage.directory)
    counts, fingerprint = annotation.merge_summaries(plan)
    with nothing_left_of_a_mistake(stage):
        _check_spans(tagger["name"], counts)
    remove(stage.path(annotation.SUMMARIES))
    return {
        "counts": counts,
        "num_passages": counts["passages"],
        "shard_rows": [shard.limit - shard.start for shard in plan],
        "fingerprint": fingerprint,
    }


def _check_spans(tagger, counts):
    if tagger == taggers.LINKS and "spans_link" not in counts:
        raise InputError(
            f"--tagger links found no link in {counts['passages']:,} "
            "passages: only MediaWiki dumps have them. Choose another tagger."
        )
    if not counts["spans"]:
        raise InputError(
            f"--tagger {tagger} found no span in {counts['passages']:,} "
            "passages: is it made for their language? Choose another one."
        )
