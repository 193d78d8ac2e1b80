"""Cuts articles into blocks: a Wikipedia dump or any corpus of your own.

Input, told apart by content: MediaWiki XML dumps (.xml, .bz2), WikiExtractor
output (plain or --json), JSONL with "id", "title", "text" and, if you like,
"url", and DPR's TSV (id, text, title); bz2 and gzip are read as they are.

Output: a directory of blocks, numbered from 0 by file name and position in
the file. The order of the arguments, the number of workers and of shards
change nothing. Options that this command does not know go to Beam, for
instance --direct_num_workers=2 --direct_running_mode=multi_processing.
"""

import argparse
import functools
import json
import re
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.pvalue import AsDict
from apache_beam.pvalue import AsList

from beam_pipelines import shards
from beam_pipelines import transforms
from beam_pipelines.execution import num_local_workers
from beam_pipelines.execution import pipeline_options
from beam_pipelines.execution import run_pipeline
from realm_tf import stages
from realm_tf.data import articles
from realm_tf.data import pages
from realm_tf.data import schema
from realm_tf.errors import InputError
from realm_tf.text import blocks
from realm_tf.text.tokenizer import Tokenizer

# Beam has options of its own: cli.py passes on what we do not know.
ACCEPTS_EXTRA = True

VOCABULARY = "vocab.txt"
# About 60 MB a shard at 288 wordpieces (our choice).
BLOCKS_PER_SHARD = 50_000

_PARTS = "parts"
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9-]+)?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `realm chunk`."""
    parser.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="GLOB",
        help="files of articles; ** crosses folders",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="the directory to make"
    )
    parser.add_argument(
        "--vocab",
        required=True,
        metavar="FILE",
        help="vocab.txt of the model, one wordpiece a line",
    )
    parser.add_argument(
        "--max-block-length",
        type=int,
        default=blocks.MAX_BLOCK_LENGTH,
        metavar="N",
        help="wordpieces of a block with its title, [CLS] and two [SEP] "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--format",
        choices=articles.FORMATS,
        help="format of all files (default: by content)",
    )
    parser.add_argument(
        "--num-shards",
        type=int,
        metavar="N",
        help=f"files to write (default: one per {BLOCKS_PER_SHARD:,} blocks)",
    )
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="lower-case and strip accents, as uncased BERT (default: yes)",
    )
    parser.add_argument(
        "--language",
        default="en",
        metavar="CODE",
        help="ISO 639 code, for the sentence boundaries (default: en)",
    )
    parser.add_argument(
        "--base-url",
        metavar="URL",
        help="what comes before the title in a page's URL (default: what the "
        "dump says)",
    )
    parser.add_argument(
        "--keep-all-titles",
        action="store_true",
        help='keep "List of ...", "Index of ...", "Outline of ..." and '
        '"... (disambiguation)"',
    )


def run(args: argparse.Namespace, extra: list[str]) -> None:
    """Runs `realm chunk` and prints its counters."""
    metadata = chunk(**vars(args), beam_options=extra)
    counts = metadata["counts"]
    width = max(map(len, counts))
    for name, value in counts.items():
        print(f"{name:<{width}}  {value:>14,}")
    print(f"{metadata['num_blocks']:,} blocks in {args.output}")


def chunk(
    input: str | Sequence[str],
    output: str,
    vocab: str,
    *,
    max_block_length: int = blocks.MAX_BLOCK_LENGTH,
    format: str | None = None,
    num_shards: int | None = None,
    lowercase: bool = True,
    language: str = "en",
    base_url: str | None = None,
    keep_all_titles: bool = False,
    beam_options: Sequence[str] = (),
) -> dict:
    """Cuts articles into blocks.

    Args:
        input: str or sequence of str. Paths or globs.
        output: str. The directory to make; nothing is left there if the run
            does not end well.
        vocab: str. A `vocab.txt`; a copy of it goes into `output`.
        max_block_length: int. Wordpieces, counting title, [CLS] and two
            [SEP]. Defaults to 288.
        format: str. One of `articles.FORMATS`. Defaults to `None`: by
            content, file by file.
        num_shards: int. Files to write, at most one a block. Defaults to
            `None`: one per `BLOCKS_PER_SHARD` blocks.
        lowercase: bool. Defaults to `True`, as uncased BERT.
        language: str. ISO 639 code, for the sentence boundaries.
        base_url: str. What comes before the title in a page's URL. Defaults
            to `None`: what the dump says.
        keep_all_titles: bool. Keep pages titled as lists, indices, outlines
            and disambiguations. Defaults to `False`, as in the paper.
        beam_options: sequence of str. Command-line arguments for Beam.

    Returns:
        dict, what this adds to `metadata.json`: `counts` (every page read is
        either dropped under a name or kept), `num_blocks`, `shard_rows`
        (blocks of each file), `max_block_length`, `longest_block` (wordpieces
        of a text, without title), `tokenizer` and `fingerprint` of the
        content, which does not depend on the shards.

    Raises:
        InputError: if an argument, the vocabulary or an input file is wrong,
            or no block could be made.
    """
    _check(max_block_length, num_shards, language, format)
    tokenizer = Tokenizer.from_file(vocab, lowercase=lowercase)
    options = pipeline_options(beam_options)
    paths = pages.find_files([input] if isinstance(input, str) else input)
    formats = [format or articles.detect_format(path) for path in paths]
    parameters = {
        "inputs": paths,
        "formats": sorted(set(formats)),
        "max_block_length": max_block_length,
        "lowercase": lowercase,
        "language": language,
        "base_url": base_url,
        "keep_all_titles": keep_all_titles,
        "tokenizer": tokenizer.fingerprint(),
    }
    with stages.write(
        output, kind=schema.BLOCKS, parameters=parameters
    ) as stage:
        parts = stage.path(_PARTS)
        stages.make_directory(parts)
        chunk_pages = transforms.ChunkPages(
            parts,
            vocabulary=tokenizer.vocabulary,
            lowercase=lowercase,
            max_block_length=max_block_length,
            language=language,
            base_url=base_url,
            keep_all_titles=keep_all_titles,
        )
        plan_shards = shards.PlanShards(
            stage.directory,
            directory=parts,
            num_shards=num_shards,
            blocks_per_shard=BLOCKS_PER_SHARD,
        )
        summary_path = stages.join(parts, "summary.json")
        build = functools.partial(
            _build,
            sources=_sources(paths, formats, num_local_workers(options)),
            chunk_pages=chunk_pages,
            keep_first=transforms.KeepFirst(parts, paths=paths),
            plan_shards=plan_shards,
            write_blocks=shards.WriteBlocks(max_block_length),
            summary_path=summary_path,
        )
        counters = run_pipeline(build, options)
        transforms.raise_error(parts)
        summary = json.loads(stages.read_text(summary_path))
        stage.metadata.update(_metadata(counters, summary))
        stage.metadata["max_block_length"] = max_block_length
        stage.metadata["tokenizer"] = tokenizer.fingerprint()
        stages.write_text(
            stage.path(VOCABULARY),
            "".join(f"{piece}\n" for piece in tokenizer.vocabulary),
        )
        stages.remove(parts)
    return stage.metadata


def _check(max_block_length, num_shards, language, format):
    if max_block_length <= blocks.NUM_SPECIAL:
        raise InputError(
            f"--max-block-length {max_block_length} leaves no room beside the "
            f"{blocks.NUM_SPECIAL} special wordpieces: expected "
            f"{blocks.NUM_SPECIAL + 1} or more, such as 288."
        )
    if num_shards is not None and num_shards < 1:
        raise InputError(f"--num-shards {num_shards}: expected 1 or more.")
    if not _LANGUAGE.fullmatch(language):
        raise InputError(
            f"--language {language!r} is not a code: expected one such as en "
            "or de."
        )
    if format is not None and format not in articles.FORMATS:
        raise InputError(
            f"--format {format} is unknown: expected one of "
            f"{', '.join(articles.FORMATS)}."
        )


def _sources(paths, formats, num_workers):
    stride = -(-num_workers // len(paths))
    return [
        transforms.Source(number, path, format, stride, remainder)
        for number, (path, format) in enumerate(
            zip(paths, formats, strict=True)
        )
        for remainder in range(stride)
    ]


def _build(
    pipeline,
    *,
    sources,
    chunk_pages,
    keep_first,
    plan_shards,
    write_blocks,
    summary_path,
):
    found = (
        pipeline
        | "Files" >> beam.Create(sources)
        | "Share files" >> beam.Reshuffle()
        | "Chunk pages" >> beam.ParDo(chunk_pages)
        | "Group by article" >> beam.GroupByKey()
        | "Keep first"
        >> beam.ParDo(keep_first).with_outputs("dropped", main="kept")
    )
    counts = found.kept | "Count blocks" >> beam.CombinePerKey(sum)
    return (
        pipeline
        | "Start" >> beam.Create([None])
        | "Plan shards"
        >> beam.ParDo(plan_shards, AsDict(counts), AsList(found.dropped))
        | "Share shards" >> beam.Reshuffle()
        | "Write blocks" >> beam.ParDo(write_blocks)
        | "Sum up" >> beam.CombineGlobally(shards.merge_summaries)
        | "Write summary" >> beam.Map(shards.write_summary, summary_path)
    )


def _metadata(counters, summary):
    counts = {name: counters.get(name, 0) for name in transforms.COUNTERS}
    bad_records = {
        name: value
        for name, value in sorted(counters.items())
        if name.startswith("dropped_bad_record_")
    }
    if not summary["shard_rows"]:
        reasons = ", ".join(
            f"{name} {value:,}"
            for name, value in {**counts, **bad_records}.items()
            if value
        )
        raise InputError(
            "no block was made: the input holds no article that is kept "
            f"({reasons or 'no page at all'})."
        )
    return {
        "counts": {**counts, **bad_records},
        "num_blocks": sum(summary["shard_rows"]),
        "shard_rows": summary["shard_rows"],
        "longest_block": summary["longest_block"],
        "fingerprint": stages.fingerprint(summary["digest"]),
    }
