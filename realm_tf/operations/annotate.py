"""`realm annotate`."""

import dataclasses
from typing import Literal

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.paths import absolute
from realm_tf.operations.computing import Computing
from realm_tf.operations.operation import BeamOptions
from realm_tf.operations.operation import count_lines
from realm_tf.tagging import taggers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Annotate(Computing):
    """Marks salient spans (names and dates) of blocks, for pre-training.

      realm annotate --blocks DIR --output DIR --tagger rules [Beam options]
      realm annotate --blocks DIR --other-corpus --output DIR --tagger rules

    The first annotates the blocks that will be retrieved. The second takes
    blocks of another corpus, such as news: pre-training predicts its sentences
    but retrieves none of its blocks.

    Taggers: rules (English dates, numbers, capitalised names), links (wiki
    links and dates), bert (a model of `realm train-tagger`, and dates), spacy
    with a pipeline that you have installed. Dates are those of the language of
    the blocks (`realm chunk --language`).

    Run an interrupted command again to make only the missing shards. Unknown
    options go to Beam, such as --runner and --direct_num_workers.
    """

    command = "annotate"
    makes = Passages

    blocks: Blocks
    """directory of `realm chunk`"""
    other_corpus: bool = False
    """the blocks are of another corpus than the one that is retrieved"""
    output: str
    """the directory to make"""
    tagger: Literal[taggers.TAGGERS]
    """what finds the spans"""
    tagger_model: str | None = None
    """for --tagger bert: directory of `realm train-tagger`; for --tagger spacy: a
    pipeline that is installed (if not given: en_core_web_sm)"""
    beam_options: BeamOptions = ()

    @property
    def tagger_arguments(self) -> dict:
        """Arguments of `taggers.make_tagger`, but for the precision."""
        return {
            "name": self.tagger,
            "tagger_model": self.tagger_model,
            "language": self.blocks.parameters.get("language", "en"),
        }

    def parameters(self) -> dict:
        found = {"tagger": self.tagger}
        if self.tagger == taggers.BERT:
            found["precision"] = self.computes_in
        return found

    def parents(self) -> dict:
        # Who has "blocks" among the parents says whose ids the passages have.
        name = "articles" if self.other_corpus else "blocks"
        return {
            name: self.blocks.fingerprint,
            "tagger": taggers.identity(**self.tagger_arguments),
        }

    def run(self) -> Passages:
        """Annotates what an earlier run did not annotate.

        Returns:
            `Passages`: shards of `schema.AnnotatedPassage`, in the order of
            the blocks. `metadata` has `shard_rows` (passages of each file) and
            a fingerprint of the content, which does not depend on the shards.

        Raises:
            InputError: if an argument, the blocks or the tagger is wrong, or
                no span is found at all.
        """
        self.parents()
        from realm_tf.beam_pipelines import annotate_spans
        from realm_tf.beam_pipelines import engine

        options = engine.given_options(self.beam_options)
        tagger = {**self.tagger_arguments, "precision": self.computes_in}
        if self.tagger == taggers.BERT:
            tagger["tagger_model"] = absolute(self.tagger_model)
        with self.write(resumable=True, by_workers=True) as stage:
            stage.metadata.update(
                annotate_spans.write_passages(
                    stage,
                    self.blocks,
                    tagger=tagger,
                    has_block_ids=not self.other_corpus,
                    options=options,
                )
            )
        return self.result

    def report(self, result: Passages) -> str:
        last = f"{result.num_passages:,} passages in {self.output}"
        return f"{count_lines(result.counts)}\n\n{last}"
