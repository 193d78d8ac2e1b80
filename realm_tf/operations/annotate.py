"""`realm annotate`."""

import dataclasses
from typing import Literal

from realm_tf.articles import pages
from realm_tf.articles import readers
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.objects import Tagger
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.computing import Computing
from realm_tf.operations.operation import BeamOptions
from realm_tf.operations.operation import count_lines
from realm_tf.tagging import taggers

# A few seconds of work for rules, minutes for a model: what a killed run
# loses, and what the workers share out (our choice).
PASSAGES_PER_SHARD = 5_000

_BLOCKS = "blocks"
_NUM_SAMPLES = 3
# Fields that go on to `Chunk`.
CUTTING = (
    "vocab",
    "max_block_length",
    "format",
    "lowercase",
    "language",
    "keep_all_titles",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Annotate(Computing):
    """Marks the salient spans of passages: the corpus for pre-training.

      realm annotate --blocks DIR --output DIR --tagger rules [Beam options]
      realm annotate --input GLOB... --vocab FILE --output DIR --tagger rules

    The first annotates blocks that `realm chunk` made. The second takes
    articles of another corpus (news, say), cut in the same way; its passages
    have the block id -1, as none of them is a block of the knowledge corpus.

    Taggers: `rules` (English dates, numbers, capitalised names), `links` (wiki
    links and dates), `bert` (a model of `realm train-tagger`, and dates),
    `spacy` (a pipeline that you have installed). Dates are those of the
    language that the blocks were cut in (`realm chunk --language`).

    A Beam pipeline over ranges of passages. Each shard is complete by itself:
    a run that was killed, started again, computes only the shards that are
    missing. Unknown options go to Beam (e.g. --runner, --direct_num_workers).
    """

    command = "annotate"
    makes = Passages
    manner = ("batch_size",)

    blocks: Blocks | None = None
    """blocks directory; either this or --input"""
    input: tuple[str, ...] = ()
    """files of articles of another corpus, as for `realm chunk`"""
    output: str
    """the directory to make"""
    tagger: Literal[taggers.TAGGERS]
    """what finds the spans"""
    tagger_model: Tagger | None = None
    """for --tagger bert: what `realm train-tagger` made"""
    spacy_model: str | None = None
    """for --tagger spacy: a pipeline that is installed (if not given:
    en_core_web_sm)"""
    batch_size: int = 32
    """sentences that a model computes at once"""
    passages_per_shard: int = PASSAGES_PER_SHARD
    """passages of one file"""
    vocab: str | None = None
    """with --input, and needed there: vocab.txt of the model"""
    max_block_length: int | None = None
    """with --input: wordpieces of a passage (if not given: 288)"""
    format: Literal[readers.FORMATS] | None = None
    """with --input: format of all files (if not given: by content)"""
    lowercase: bool = True
    """with --input: lower-case and strip accents"""
    language: str = "en"
    """with --input: ISO 639 code, for the sentence boundaries and dates"""
    keep_all_titles: bool = False
    """with --input: keep lists, indices, outlines and disambiguations"""
    beam_options: BeamOptions = ()

    @property
    def tagger_arguments(self) -> dict:
        """Arguments of `taggers.make_tagger`, but for the batch size."""
        return {
            "name": self.tagger,
            "tagger_model": self.tagger_model and self.tagger_model.path,
            "spacy_model": self.spacy_model,
            "language": self.language
            if self.blocks is None
            else self.blocks.parameters.get("language", self.language),
        }

    def _chunk(self, output):
        return Chunk(
            input=self.input,
            output=output,
            beam_options=self.beam_options,
            **{name: getattr(self, name) for name in CUTTING},
        )

    def parameters(self) -> dict:
        found = {
            "tagger": self.tagger,
            "passages_per_shard": self.passages_per_shard,
        }
        if self.tagger == taggers.BERT:
            found["precision"] = self.computes_in
        if self.blocks is None:
            found |= self._chunk("").parameters()
        return found

    def parents(self) -> dict:
        found = {"tagger": taggers.identity(**self.tagger_arguments)}
        if self.blocks is not None:
            return {"blocks": self.blocks.fingerprint, **found}
        # Names, sizes and times say whether a run that broke off read the
        # same; at the end, the fingerprint of what was cut takes their place.
        inputs = self._chunk("").inputs_found
        states = [pages.file_state(each.path) for each in inputs]
        files = [f"{path} {size} {time}" for path, size, time in states]
        return {"articles": fingerprints.fingerprint(*files), **found}

    def run(self) -> Passages:
        """Annotates what an earlier run did not annotate.

        Returns:
            `Passages`: shards of `schema.AnnotatedPassage`,
            in the order of the blocks. `metadata` has `shard_rows` (passages
            of each file), a fingerprint of the content, which does not depend
            on the shards, and, with `input`, `chunk_counts`.

        Raises:
            InputError: if an argument, the blocks, the articles or the tagger
                is wrong, or no span is found at all.
        """
        self._check()
        self.parents()
        from realm_tf.beam_pipelines import annotate_spans
        from realm_tf.beam_pipelines import execution
        from realm_tf.beam_pipelines import resumable

        options = execution.pipeline_options(self.beam_options)
        with self.write(resumable=True) as stage:
            blocks = self.blocks
            if blocks is None:
                chunk = self._chunk(stage.path(_BLOCKS))
                blocks = chunk.result
                with resumable.nothing_left_of_a_mistake(stage):
                    if not blocks.is_complete:
                        chunk.run()
            stage.metadata.update(
                annotate_spans.write_passages(
                    stage,
                    blocks,
                    tagger={
                        **self.tagger_arguments,
                        "batch_size": self.batch_size,
                        "precision": self.computes_in,
                    },
                    passages_per_shard=self.passages_per_shard,
                    has_block_ids=self.blocks is not None,
                    options=options,
                )
            )
            if self.blocks is None:
                stage.metadata["parents"] = {
                    **self.parents(),
                    "articles": blocks.fingerprint,
                }
                stage.metadata["chunk_counts"] = blocks.counts
                remove(blocks.path)
        return self.result

    def _check(self):
        self.check_least(1, "batch_size", "passages_per_shard")
        if (self.blocks is None) == (not self.input):
            raise InputError(
                "either --blocks DIR or --input GLOB... is needed, and not "
                "both."
            )
        if self.blocks is None and self.vocab is None:
            raise InputError(
                "--input needs --vocab: the vocab.txt of the model to "
                "pre-train, for the lengths of passages."
            )
        if self.blocks is not None:
            for field in dataclasses.fields(self):
                name, value = field.name, getattr(self, field.name)
                if name in CUTTING and value != field.default:
                    raise InputError(
                        f"--{name.replace('_', '-')} belongs to --input: the "
                        f"blocks of {self.blocks} are cut already."
                    )

    def report(self, result: Passages) -> str:
        from realm_tf.tagging.page import sample_sentences

        counts = {**result.metadata.get("chunk_counts", {}), **result.counts}
        samples = sample_sentences(self.output, num_sentences=_NUM_SAMPLES)
        last = f"{result.num_passages:,} passages in {self.output}"
        return "\n\n".join([count_lines(counts), *samples, last])
