"""Marks the salient spans of passages: the corpus for pre-training.

  realm annotate --blocks DIR --output DIR --tagger rules [Beam options]
  realm annotate --input GLOB... --vocab FILE --output DIR --tagger rules

The first annotates blocks that `realm chunk` made. The second takes articles
of another corpus (news, say), cut in the same way; its passages have the
block id -1, as none of them is a block of the knowledge corpus.

Taggers: `rules` (dates, numbers, capitalised names), `links` (wiki links and
dates), `bert` (a model of `realm train-tagger`), `spacy` (a pipeline that you
have installed).

A Beam pipeline over ranges of passages. Each shard is complete by itself: a
run that was killed, started again, computes only the shards that are missing.
Unknown options go to Beam (e.g. --runner, --direct_num_workers).
"""

import argparse
from collections.abc import Sequence

import apache_beam as beam
import tensorflow as tf

from realm_tf.articles import readers
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import remove
from realm_tf.beam_pipelines import annotation
from realm_tf.beam_pipelines import chunk_wikipedia
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import sources
from realm_tf.beam_pipelines import transforms
from realm_tf.beam_pipelines.execution import pipeline_options
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.errors import InputError
from realm_tf.tagging import taggers
from realm_tf.tagging.page import sample_sentences
from realm_tf.text.blocks import MAX_BLOCK_LENGTH
from realm_tf.text.tokenizer import Tokenizer

ACCEPTS_EXTRA = True
# A few seconds of work for rules, minutes for a model: what a killed run
# loses, and what the workers share out (our choice).
PASSAGES_PER_SHARD = 5_000

_BLOCKS = "blocks"
_NUM_SAMPLES = 3


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
        help="sentences that a model computes at once (default: %(default)s)",
    )
    parser.add_argument(
        "--passages-per-shard",
        type=int,
        default=PASSAGES_PER_SHARD,
        metavar="N",
        help="passages of one file (default: %(default)s)",
    )
    _add_cutting_arguments(
        parser.add_argument_group("with --input, as for `realm chunk`")
    )


def _add_cutting_arguments(group):
    group.add_argument(
        "--vocab", metavar="FILE", help="vocab.txt of the model; needed"
    )
    group.add_argument(
        "--max-block-length",
        type=int,
        metavar="N",
        help=f"wordpieces of a passage (default: {MAX_BLOCK_LENGTH})",
    )
    group.add_argument(
        "--format",
        choices=readers.FORMATS,
        help="format of all files (default: by content)",
    )
    group.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        help="lower-case and strip accents (default: yes)",
    )
    group.add_argument(
        "--language",
        metavar="CODE",
        help="ISO 639 code, for the sentence boundaries (default: en)",
    )
    group.add_argument(
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
    for sentence in sample_sentences(args.output, num_sentences=_NUM_SAMPLES):
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
        input: str or sequence of str. Paths or globs of articles, to be cut
            as by `chunk_wikipedia.chunk`; the blocks are removed at the end.
        tagger_model: str. For `bert`: the model's directory.
        spacy_model: str. For `spacy`: the pipeline. Defaults to `None`:
            `en_core_web_sm`.
        batch_size: int. Sentences that a model computes at once. Defaults to
            `32`.
        passages_per_shard: int. Passages of one file. Defaults to `5,000`.
        vocab: str. With `input`, and needed there: a `vocab.txt`.
        max_block_length: int. With `input`; `None` is 288 wordpieces.
        format: str. With `input`; `None` is by content.
        lowercase: bool. With `input`; `None` is `True`.
        language: str. With `input`; `None` is `"en"`.
        keep_all_titles: bool. With `input`; `None` is `False`.
        beam_options: sequence of str. Command-line arguments for Beam.

    Returns:
        dict, what this adds to `metadata.json`: `counts`, with `input` also
        `chunk_counts`, `num_passages`, `shard_rows` (passages of each file)
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
    cutting = _given(
        vocab=vocab,
        max_block_length=max_block_length,
        format=format,
        lowercase=lowercase,
        language=language,
        keep_all_titles=keep_all_titles,
    )
    parameters, parents = _source(blocks, input, cutting)
    which = _given(tagger_model=tagger_model, spacy_model=spacy_model)
    parents["tagger"] = taggers.identity(tagger, **which)
    parameters |= {"tagger": tagger, "passages_per_shard": passages_per_shard}
    options = pipeline_options(beam_options)
    with artifact.write(
        output,
        kind=schema.ANNOTATED,
        parameters=parameters,
        parents=parents,
        resumable=True,
    ) as stage:
        # That of an interrupted run.
        transforms.clear_error(stage.directory)
        parts.remove_temporary(stage.directory)
        if input:
            blocks = _chunk(stage, input, cutting, beam_options)
        block_metadata = artifact.read(blocks, kind=schema.BLOCKS)
        plan = annotation.plan_shards(
            stage.directory,
            num_blocks=block_metadata["num_blocks"],
            passages_per_shard=passages_per_shard,
        )
        annotate_range = annotation.AnnotateRange(
            blocks,
            tagger={"name": tagger, "batch_size": batch_size, **which},
            has_block_ids=not input,
            progress=annotation.Progress.start(stage.directory, plan),
        )
        counts, fingerprint = _run(stage, plan, annotate_range, options)
        _check_spans(stage, tagger, counts)
        stage.metadata.update(
            counts=counts,
            num_passages=counts["passages"],
            shard_rows=[shard.limit - shard.start for shard in plan],
            fingerprint=fingerprint,
        )
        if input:
            # By content now: when and where the files lay says less.
            stage.metadata["parents"] = {
                **parents,
                "articles": block_metadata["fingerprint"],
            }
            stage.metadata["chunk_counts"] = block_metadata["counts"]
            remove(blocks)
        remove(stage.path(annotation.SUMMARIES))
    return stage.metadata


def _given(**arguments):
    return {n: value for n, value in arguments.items() if value is not None}


def _source(blocks, input, cutting):
    """Parameters and parents of the job, for blocks or for articles."""
    if (blocks is None) == (not input):
        raise InputError(
            "either --blocks DIR or --input GLOB... is needed, and not both."
        )
    if blocks is not None:
        for name in cutting:
            raise InputError(
                f"--{name.replace('_', '-')} belongs to --input: the blocks "
                f"of {blocks} are cut already."
            )
        metadata = artifact.read(blocks, kind=schema.BLOCKS)
        return {}, {"blocks": metadata["fingerprint"]}
    if "vocab" not in cutting:
        raise InputError(
            "--input needs --vocab: the vocab.txt of the model to pre-train, "
            "for the lengths of passages."
        )
    tokenizer = Tokenizer.from_file(
        cutting["vocab"], lowercase=cutting.get("lowercase", True)
    )
    paths = sources.find_inputs([input] if isinstance(input, str) else input)
    parameters = {
        **cutting,
        "inputs": paths,
        "vocab": tokenizer.fingerprint(),
    }
    # Names, sizes and times say whether a run that broke off read the same.
    found = [(path, tf.io.gfile.stat(path)) for path in paths]
    files = [f"{path} {s.length} {s.mtime_nsec}" for path, s in found]
    return parameters, {"articles": fingerprints.fingerprint(*files)}


def _chunk(stage, input, cutting, beam_options):
    blocks = stage.path(_BLOCKS)
    if not artifact.is_complete(blocks):
        try:
            chunk_wikipedia.chunk(
                input, blocks, beam_options=beam_options, **cutting
            )
        except InputError:
            # There is nothing yet to go on from.
            remove(stage.directory)
            raise
    return blocks


def _run(stage, plan, annotate_range, options):
    """Computes the missing shards; counts and fingerprint of all."""
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
    return annotation.merge_summaries(plan)


def _check_spans(stage, tagger, counts):
    reason = ""
    if tagger == taggers.LINKS and "spans_link" not in counts:
        reason = (
            f"--tagger links found no link in {counts['passages']:,} "
            "passages: only MediaWiki dumps have them. Choose another tagger."
        )
    elif not counts["spans"]:
        reason = (
            f"--tagger {tagger} found no span in {counts['passages']:,} "
            "passages: is it made for their language? Choose another one."
        )
    if reason:
        remove(stage.directory)
        raise InputError(reason)
