"""Cuts articles into blocks: a Wikipedia dump or any corpus of your own.

Input, told apart by content: MediaWiki XML dumps (.xml, .bz2), WikiExtractor
output (plain or --json), JSONL with "id", "title", "text" and, if you like,
"url", and DPR's TSV (id, text, title); bz2 and gzip are read as they are.

A multistream dump with its index beside it (...-multistream.xml.bz2 and
...-multistream-index.txt.bz2) is read by all workers at once.

Output: a directory of blocks, numbered from 0 by file name and position in
the file. Names are compared character by character: part 10 of a dump comes
before part 2. The order of the arguments, the number of workers and of shards
change nothing. Started again after an interruption, the command makes only
the parts (some 1000 pages) and shards that are missing. Options that it does
not know go to Beam, for instance --direct_num_workers=2
--direct_running_mode=multi_processing.
"""

import argparse
import contextlib
import functools
import json
import os
import re
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.pvalue import AsDict
from apache_beam.pvalue import AsList

from realm_tf.articles import pages
from realm_tf.articles import readers
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import shards
from realm_tf.beam_pipelines import sources
from realm_tf.beam_pipelines import transforms
from realm_tf.beam_pipelines.execution import num_local_workers
from realm_tf.beam_pipelines.execution import pipeline_options
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.errors import InputError
from realm_tf.text import blocks
from realm_tf.text.tokenizer import Tokenizer

# Beam has options of its own: cli.py passes on what we do not know.
ACCEPTS_EXTRA = True

VOCABULARY = "vocab.txt"
# About 15 MB a shard at 288 wordpieces (our choice): shards are also what
# workers share.
BLOCKS_PER_SHARD = 10_000

_PARTS = "parts-"
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
        metavar="N",
        help="longest block: wordpieces with its title, [CLS] and two [SEP] "
        f"(default: {blocks.MAX_BLOCK_LENGTH}), or with --unit words its "
        f"words (default: {blocks.WORDS_PER_PASSAGE}); with --unit rows, what "
        "models read of it",
    )
    parser.add_argument(
        "--unit",
        choices=blocks.UNITS,
        default=blocks.WORDPIECES,
        help="wordpieces: whole sentences, as many as fit, as REALM; words: "
        "so many words, wherever sentences end, as DPR; rows: each article is "
        "one block as it is, for passages that are cut already (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--overlap",
        type=int,
        default=0,
        metavar="N",
        help="sentences (with --unit words: words) that a block repeats of "
        "the one before, where they fit (default: 0, as REALM)",
    )
    parser.add_argument(
        "--multistream-index",
        metavar="FILE",
        help="index of the one multistream dump of --input (default: the one "
        "beside each dump, by its name)",
    )
    parser.add_argument(
        "--format",
        choices=readers.FORMATS,
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
    max_block_length: int | None = None,
    unit: str = blocks.WORDPIECES,
    overlap: int = 0,
    format: str | None = None,
    multistream_index: str | None = None,
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
        output: str. The directory to make. A run that was interrupted leaves
            `output.partial`, where the same command goes on; one that ends
            with a mistake in the input leaves nothing.
        vocab: str. A `vocab.txt`; a copy of it goes into `output`.
        max_block_length: int. Wordpieces, counting title, [CLS] and two
            [SEP]; with `unit="words"` words. Defaults to `None`: 288
            wordpieces or 100 words.
        unit: str. One of `blocks.UNITS`; see `blocks.split_articles`.
        overlap: int. Sentences, with `unit="words"` words, that a block
            repeats of the one before. Defaults to `0`, as in the paper.
        format: str. One of `readers.FORMATS`. Defaults to `None`: by
            content, file by file.
        multistream_index: str. Index of the dump, if `input` is one
            multistream dump. Defaults to `None`: the one beside each dump,
            if there is one.
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
        (blocks of each file), `max_block_length` (wordpieces, title and
        special ones included, that a model should read), `longest_block`
        (wordpieces of a text, without title), `tokenizer` and `fingerprint`
        of the content, which does not depend on the shards.

    Raises:
        InputError: if an argument, the vocabulary or an input file is wrong,
            or no block could be made.
    """
    packing = _packing(unit, max_block_length, overlap, language)
    _check(num_shards, format)
    tokenizer = Tokenizer.from_file(vocab, lowercase=lowercase)
    options = pipeline_options(beam_options)
    paths = sources.find_inputs([input] if isinstance(input, str) else input)
    formats = [format or readers.detect_format(path) for path in paths]
    indices = sources.find_indices(paths, formats, multistream_index)
    parameters = {
        "inputs": paths,
        "formats": sorted(set(formats)),
        "multistream_indices": [index for index in indices if index],
        "unit": unit,
        "max_block_length": packing.max_length,
        "overlap": overlap,
        "lowercase": lowercase,
        "language": language,
        "base_url": base_url,
        "keep_all_titles": keep_all_titles,
        "num_shards": num_shards,
        "tokenizer": tokenizer.fingerprint(),
    }
    with (
        artifact.write(
            output, kind=schema.BLOCKS, parameters=parameters, resumable=True
        ) as stage,
        _nothing_left_of_a_mistake(stage),
    ):
        directory = _prepare(
            stage, parameters, [*paths, *filter(None, indices)]
        )
        build = functools.partial(
            _build,
            elements=sources.make_sources(
                paths, formats, indices, num_local_workers(options)
            ),
            chunk_pages=transforms.ChunkPages(
                directory,
                vocabulary=tokenizer.vocabulary,
                lowercase=lowercase,
                packing=packing,
                base_url=base_url,
                keep_all_titles=keep_all_titles,
            ),
            keep_first=transforms.KeepFirst(
                directory, paths=paths, formats=formats
            ),
            plan_shards=shards.PlanShards(
                stage.directory,
                directory=directory,
                num_shards=num_shards,
                blocks_per_shard=BLOCKS_PER_SHARD,
            ),
            write_blocks=shards.WriteBlocks(directory, packing),
            summary_path=os.path.join(directory, "summary.json"),
        )
        run_pipeline(build, options)
        transforms.raise_error(directory)
        summary = json.loads(
            Path(os.path.join(directory, "summary.json")).read_text()
        )
        stage.metadata.update(shards.metadata(summary, packing))
        stage.metadata["tokenizer"] = tokenizer.fingerprint()
        write_text(
            stage.path(VOCABULARY),
            "".join(f"{piece}\n" for piece in tokenizer.vocabulary),
        )
        remove(directory)
    return stage.metadata


def _packing(unit, max_length, overlap, language):
    """The packing that the arguments ask for, if they agree."""
    if unit not in blocks.UNITS:
        raise InputError(
            f"--unit {unit} is unknown: expected one of "
            f"{', '.join(blocks.UNITS)}."
        )
    if unit == blocks.ROWS and overlap:
        raise InputError(
            f"--overlap {overlap}: rows are not cut, so none repeats another. "
            "Leave it out."
        )
    words = unit == blocks.WORDS
    if max_length is None:
        max_length = (
            blocks.WORDS_PER_PASSAGE if words else blocks.MAX_BLOCK_LENGTH
        )
    if words and max_length < 1:
        raise InputError(
            f"--max-block-length {max_length}: expected 1 word or more, such "
            f"as {blocks.WORDS_PER_PASSAGE}."
        )
    if not words and max_length <= blocks.NUM_SPECIAL:
        raise InputError(
            f"--max-block-length {max_length} leaves no room beside the "
            f"{blocks.NUM_SPECIAL} special wordpieces: expected "
            f"{blocks.NUM_SPECIAL + 1} or more, such as 288."
        )
    if overlap < 0 or (words and overlap >= max_length):
        most = f" and less than {max_length} words" if words else ""
        raise InputError(f"--overlap {overlap}: expected 0 or more{most}.")
    if not _LANGUAGE.fullmatch(language):
        raise InputError(
            f"--language {language!r} is not a code: expected one such as en "
            "or de."
        )
    return blocks.Packing(unit, max_length, overlap, language)


def _check(num_shards, format):
    if num_shards is not None and num_shards < 1:
        raise InputError(f"--num-shards {num_shards}: expected 1 or more.")
    if format is not None and format not in readers.FORMATS:
        raise InputError(
            f"--format {format} is unknown: expected one of "
            f"{', '.join(readers.FORMATS)}."
        )


@contextlib.contextmanager
def _nothing_left_of_a_mistake(stage):
    try:
        yield
    except InputError:
        # Nobody will go on with these.
        remove(stage.directory)
        raise


def _prepare(stage, parameters, inputs):
    """The directory of the parts, with those of an interrupted run.

    Its name says what they are made of. So no worker of a run that was killed
    can add a part to those of a run with other options or inputs.
    """
    state = json.dumps([parameters, [pages.file_state(p) for p in inputs]])
    name = f"{_PARTS}{fingerprints.fingerprint(state)}"
    directory = stage.path(name)
    if name not in sorted(
        each.name for each in Path(stage.directory).iterdir()
    ):
        # A new run, or the inputs have changed since.
        for other in sorted(
            each.name for each in Path(stage.directory).iterdir()
        ):
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
