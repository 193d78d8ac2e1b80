"""`realm chunk`."""

import dataclasses
import functools
import json
import os
import re
import sys
from typing import Literal

from realm_tf.articles import pages
from realm_tf.articles import readers
from realm_tf.artifacts import array_files
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.beam_pipelines import sources
from realm_tf.errors import InputError
from realm_tf.operations.operation import BeamOptions
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import count_lines
from realm_tf.text import blocks
from realm_tf.text.answers import base_language
from realm_tf.text.tokenizer import UNK
from realm_tf.text.tokenizer import Tokenizer

# Wordpieces of English Wikipedia are unknown to BERT's vocabulary in less
# than one of a thousand; of text in another script, in half (our choice).
MAX_UNKNOWN_SHARE = 0.05

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9-]+)?")


def check_language(code: str) -> None:
    """Raises `InputError` unless `--language` has the form of a code."""
    if not _LANGUAGE.fullmatch(code):
        raise InputError(
            f"--language {code!r} is not a code: expected one such as en or de."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk(Operation):
    """Cuts articles into blocks: a Wikipedia dump or any corpus of your own.

    Input: MediaWiki XML dumps, output of WikiExtractor, JSONL and Parquet with id,
    title, text and optionally url, DPR's TSV (id, text, title), HTML, PDF,
    Markdown, plain text, CSV and others, also in bz2 or gzip.

    Output: a directory of blocks, numbered from 0 by file name and position in
    the file. Names are compared character by character: part 10 of a dump
    comes before part 2. Order of arguments and number of workers change
    nothing. Run an interrupted command again to make only the missing parts.
    Unknown options go to Beam, such as --direct_num_workers.
    """

    command = "chunk"
    makes = Blocks

    input: tuple[str, ...]
    """files of articles, or globs; ** crosses folders"""
    output: str
    """the directory to make"""
    vocab: str
    """vocab.txt of the model; the model beside it, or its capital letters, decide
    whether text is lower-cased"""
    max_block_length: int | None = None
    """longest block, in wordpieces with its title, [CLS] and two [SEP] (if not
    given: 288); with --unit words in words (if not given: 100); with --unit rows,
    how much of a block models read"""
    unit: Literal[blocks.UNITS] = blocks.WORDPIECES
    """wordpieces: as many whole sentences as fit, as REALM; words: a fixed number
    of words, as DPR; rows: each article is one block, for passages that are cut
    already"""
    cut_sentences: bool = False
    """cut a sentence that is longer than a block between words; else models read
    only its beginning, as in the paper"""
    format: Literal[readers.FORMATS] | None = None
    """format of all files (if not given: by extension, else by content)"""
    language: str = "en"
    """ISO 639 code, for the sentence boundaries"""
    base_url: str | None = None
    """beginning of each page's URL, before the title (if not given: that of the
    dump)"""
    keep_all_titles: bool = False
    """keep "List of ...", "Index of ...", "Outline of ..." and
    "... (disambiguation)\""""
    keep_tables: bool = False
    """keep the rows of tables and infoboxes of MediaWiki dumps, each as a line with
    the names of its columns; those of documents are always kept"""
    beam_options: BeamOptions = ()

    @functools.cached_property
    def packing(self) -> blocks.Packing:
        """How articles are cut.

        Raises:
            InputError: if an argument is wrong.
        """
        words = self.unit == blocks.WORDS
        # One word, or one wordpiece beside the special ones.
        self.check_least(
            1 if words else blocks.NUM_SPECIAL + 1, "max_block_length"
        )
        check_language(self.language)
        usual = blocks.WORDS_PER_PASSAGE if words else blocks.MAX_BLOCK_LENGTH
        return blocks.Packing(
            self.unit,
            self.max_block_length or usual,
            base_language(self.language),
            self.cut_sentences,
        )

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of `vocab`, of whose model config.json is beside it."""
        config = Path(os.path.join(os.path.dirname(self.vocab), "config.json"))
        said = json.loads(config.read_text()) if config.exists() else {}
        return Tokenizer.from_file(self.vocab, lowercase=said.get("lowercase"))

    @functools.cached_property
    def inputs_found(self) -> list[sources.Source]:
        """The files of `input` with their formats."""
        return sources.find(self.input, self.format)

    def parameters(self) -> dict:
        found = self.inputs_found
        return {
            "inputs": [each.path for each in found],
            "formats": sorted({each.format for each in found}),
            "unit": self.unit,
            "max_block_length": self.packing.max_length,
            "cut_sentences": self.cut_sentences,
            "language": self.packing.language,
            "base_url": self.base_url,
            "keep_all_titles": self.keep_all_titles,
            "keep_tables": self.keep_tables,
            "tokenizer": self.tokenizer.fingerprint(),
        }

    def contents(self) -> str:
        states = [pages.file_state(each.path) for each in self.inputs_found]
        return fingerprints.fingerprint(*(_digest(*state) for state in states))

    def run(self) -> Blocks:
        """Cuts the articles that an earlier run did not cut.

        A run that was interrupted leaves `output.partial`, where the same
        operation goes on; one that ends with a mistake in the input leaves
        nothing.

        Returns:
            `Blocks`. In `counts`, every page read is either dropped under a
            name or kept. `metadata` has `shard_rows` (blocks of each file) and
            `max_block_length` (wordpieces that a model should read, title and
            special ones included).

        Raises:
            InputError: if an argument, the vocabulary or an input file is
                wrong, or no block could be made.
        """
        # Whatever is wrong shows here, before Beam and TensorFlow are loaded.
        self.parameters()
        from realm_tf.beam_pipelines import chunk_wikipedia
        from realm_tf.beam_pipelines import engine

        options = engine.given_options(self.beam_options)
        contents = self.contents()
        with self.write(resumable=True, by_workers=True) as stage:
            found = chunk_wikipedia.write_blocks(
                stage,
                self.inputs_found,
                options=options,
                tokenizer=self.tokenizer,
                packing=self.packing,
                base_url=self.base_url,
                keep_all_titles=self.keep_all_titles,
                keep_tables=self.keep_tables,
            )
            stage.metadata.update(
                found,
                tokenizer=self.tokenizer.fingerprint(),
                contents=contents,
            )
            array_files.write_vocabulary(
                stage.directory, self.tokenizer.vocabulary
            )
        counts = self.result.counts
        share = counts["unknown_wordpieces"] / max(1, counts["wordpieces"])
        if share > MAX_UNKNOWN_SHARE:
            print(
                f"realm chunk: {share:.0%} of the wordpieces are {UNK}: the "
                f"vocabulary {self.vocab} does not know the words or the "
                "script of these texts. Choose a model of their language.",
                file=sys.stderr,
            )
        return self.result

    def report(self, result: Blocks) -> str:
        lines = count_lines(result.counts)
        return f"{lines}\n{result.num_blocks:,} blocks in {self.output}"


@functools.lru_cache
def _digest(path, size, time):
    """Digest of a file; of a remote one, which may be large, its state."""
    return f"{size} {time}" if is_remote(path) else fingerprints.sha256(path)
