"""Marks the salient spans of passages: the corpus for pre-training.

  realm annotate --blocks DIR --output DIR --tagger rules [Beam options]
  realm annotate --input GLOB... --vocab FILE --output DIR --tagger rules

The first annotates blocks that `realm chunk` made. The second takes articles
of another corpus (news, say), cut in the same way; the passages then have the
block id -1, as none of them is a block of the knowledge corpus.

Taggers: `rules` (dates, numbers, capitalised names), `links` (wiki links and
dates), `bert` (a model of `realm train-tagger`), `spacy` (a pipeline that you
have installed).

A Beam pipeline over ranges of passages. Each shard is complete by itself: a
run that was killed, started again, computes only the shards that are missing.
Unknown options go to Beam (e.g. --runner, --direct_num_workers).
"""

import argparse
import collections
import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.metrics import Metrics

from beam_pipelines import chunk_wikipedia
from beam_pipelines.execution import pipeline_options
from beam_pipelines.execution import run_pipeline
from beam_pipelines.transforms import SECONDS_BETWEEN_REPORTS
from beam_pipelines.transforms import clear_error
from beam_pipelines.transforms import has_error
from beam_pipelines.transforms import raise_error
from beam_pipelines.transforms import report_error
from realm_tf import stages
from realm_tf.data import articles
from realm_tf.data import pages
from realm_tf.data import schema
from realm_tf.errors import InputError
from realm_tf.tagging import taggers
from realm_tf.tagging.page import sample_passages
from realm_tf.text.blocks import MAX_BLOCK_LENGTH
from realm_tf.text.blocks import is_overlong
from realm_tf.text.tokenizer import Tokenizer

ACCEPTS_EXTRA = True
# A few seconds of work for rules, minutes for a model: what a killed run
# loses, and what workers share out (our choice).
PASSAGES_PER_SHARD = 10_000
# Blocks that a tagger gets at once (our choice): enough sentences to batch
# those of equal length.
BLOCKS_PER_CALL = 64
# The block id of a passage that is no block of the knowledge corpus.
NO_BLOCK_ID = -1

_BLOCKS = "blocks"
_SHARDS = "annotated-{:05d}-of-{:05d}"
_SUMMARIES = "summaries"
_NUM_SAMPLES = 3
_MODULUS = 1 << 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `realm annotate`."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--blocks", metavar="DIR", help="blocks directory")
    source.add_argument(
        "--input",
        nargs="+",
        metavar="GLOB",
        help="files of articles of another corpus, as for `realm chunk`",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="the directory to make"
    )
    parser.add_argument("--tagger", required=True, choices=taggers.TAGGERS)
    parser.add_argument(
        "--tagger-model",
        metavar="DIR",
        help="for --tagger bert: what `realm train-tagger` made",
    )
    parser.add_argument(
        "--spacy-model",
        metavar="NAME",
        help="for --tagger spacy: a pipeline that is installed (default: "
        f"{taggers.SPACY_MODEL})",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="N",
        help="sentences a model computes at once (default: %(default)s)",
    )
    parser.add_argument(
        "--passages-per-shard",
        type=int,
        default=PASSAGES_PER_SHARD,
        metavar="N",
        help="passages of one file (default: %(default)s)",
    )
    cutting = parser.add_argument_group("with --input, as for `realm chunk`")
    cutting.add_argument("--vocab", metavar="FILE", help="vocab.txt")
    cutting.add_argument(
        "--max-block-length",
        type=int,
        metavar="N",
        help=f"wordpieces of a passage (default: {MAX_BLOCK_LENGTH})",
    )
    cutting.add_argument(
        "--format",
        choices=articles.FORMATS,
        help="format of all files (default: by content)",
    )
    cutting.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        help="lower-case and strip accents (default: yes)",
    )
    cutting.add_argument(
        "--language",
        metavar="CODE",
        help="for the sentence boundaries (default: en)",
    )
    cutting.add_argument(
        "--keep-all-titles",
        action="store_true",
        default=None,
        help="keep lists, indices, outlines and disambiguations",
    )


def run(args: argparse.Namespace, extra: list[str]) -> None:
    """Runs `realm annotate`, prints its counters and three sentences."""
    metadata = annotate(**vars(args), beam_options=extra)
    counts = {**metadata.get("chunk_counts", {}), **metadata["counts"]}
    width = max(map(len, counts))
    for name, value in counts.items():
        print(f"{name:<{width}}  {value:>14,}")
    for sentence in sample_sentences(args.output):
        print(f"\n{sentence}")
    print(f"\n{metadata['num_passages']:,} passages in {args.output}")


def annotate(
    output: str,
    tagger: str,
    *,
    blocks: str | None = None,
    input: str | Sequence[str] | None = None,
    tagger_model: str | None = None,
    spacy_model: str | None = None,
    batch_size: int = 32,
    passages_per_shard: int = PASSAGES_PER_SHARD,
    vocab: str | None = None,
    max_block_length: int | None = None,
    format: str | None = None,
    lowercase: bool | None = None,
    language: str | None = None,
    keep_all_titles: bool | None = None,
    beam_options: Sequence[str] = (),
) -> dict:
    """Marks the salient spans of blocks, or of articles of another corpus.

    Args:
        output: str. The directory to make: TFRecord shards (gzip) of
            `schema.AnnotatedPassage`, in the order of the blocks.
        tagger: str. One of `taggers.TAGGERS`.
        blocks: str. A blocks directory. Either this or `input`.
        input: str or sequence of str. Paths or globs of articles, cut as
            `chunk_wikipedia.chunk` does; what it makes is removed at the
            end.
        tagger_model: str. For `bert`: the model's directory.
        spacy_model: str. For `spacy`: the pipeline. Defaults to `None`:
            `en_core_web_sm`.
        batch_size: int. Sentences that a model computes at once. Defaults to
            `32`.
        passages_per_shard: int. Passages of one file. Defaults to `10,000`.
        vocab: str. With `input`, and needed there.
        max_block_length: int. With `input`; defaults to `None`: 288.
        format: str. With `input`; defaults to `None`: by content.
        lowercase: bool. With `input`; defaults to `None`: `True`.
        language: str. With `input`; defaults to `None`: `"en"`.
        keep_all_titles: bool. With `input`; defaults to `None`: `False`.
        beam_options: sequence of str. Command-line arguments for Beam.

    Returns:
        dict, what this adds to `metadata.json`: `counts`, with `input` also
        `chunk_counts`, `num_passages`, `shard_rows` (passages of each file),
        and `fingerprint` of the content, which does not depend on the shards.

    Raises:
        InputError: if an argument, the blocks, the articles or the tagger is
            wrong, or no span is found at all.
    """
    for name, value in (
        ("--batch-size", batch_size),
        ("--passages-per-shard", passages_per_shard),
    ):
        if value < 1:
            raise InputError(f"{name} {value}: expected 1 or more.")
    cutting = {
        "max_block_length": max_block_length,
        "format": format,
        "lowercase": lowercase,
        "language": language,
        "keep_all_titles": keep_all_titles,
    }
    cutting = {n: value for n, value in cutting.items() if value is not None}
    source = _Source.find(blocks, input, vocab, cutting)
    tagger_arguments = {
        "tagger_model": tagger_model,
        "spacy_model": spacy_model,
    }
    tagger_identity = taggers.identity(tagger, **tagger_arguments)
    options = pipeline_options(beam_options)
    with stages.write(
        output,
        kind=schema.ANNOTATED,
        parameters={
            **source.parameters,
            "tagger": tagger,
            "passages_per_shard": passages_per_shard,
        },
        parents={source.name: source.identity, "tagger": tagger_identity},
        resumable=True,
    ) as stage:
        # That of an interrupted run.
        clear_error(stage.directory)
        stages.make_directory(stage.path(_SUMMARIES))
        blocks = source.blocks(stage, beam_options)
        plan = _plan(stage, blocks, passages_per_shard)
        done = set(stages.list_names(stage.path(_SUMMARIES)))
        missing = [shard for shard in plan if shard.summary_name not in done]
        annotate_range = AnnotateRange(
            stage.directory,
            blocks,
            tagger={"name": tagger, "batch_size": batch_size}
            | tagger_arguments,
            has_block_ids=source.has_block_ids,
            progress=_Progress.of(stage.directory, plan, missing),
        )

        def build(pipeline):
            return (
                pipeline
                | "Ranges" >> beam.Create(missing)
                | "Spread" >> beam.Reshuffle()
                | "Annotate" >> beam.ParDo(annotate_range)
            )

        run_pipeline(build, options)
        raise_error(stage.directory)
        counts, fingerprint = _merge(stage, plan)
        if not counts["spans"]:
            stages.remove(stage.directory)
            raise InputError(_no_span(tagger, counts["passages"]))
        stage.metadata.update(
            counts=counts,
            num_passages=counts["passages"],
            shard_rows=[shard.limit - shard.start for shard in plan],
            fingerprint=fingerprint,
            parents={
                source.name: stages.read(blocks, kind=schema.BLOCKS)[
                    "fingerprint"
                ],
                "tagger": tagger_identity,
            },
        )
        source.finish(stage, blocks)
        stages.remove(stage.path(_SUMMARIES))
    return stage.metadata
