"""`realm import`."""

import dataclasses
from typing import Literal

import tyro

from realm_tf.articles import published_texts
from realm_tf.artifacts import hubs
from realm_tf.artifacts.model_card import Card
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import absolute
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.embed import Embed
from realm_tf.operations.graph import is_done
from realm_tf.operations.operation import BeamOptions
from realm_tf.operations.operation import Operation

_BLOCK_RECORDS = "block_records.npy"
_BLOCKS_TFR = "blocks.tfr"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportCheckpoint(Operation):
    """Converts a published REALM or ORQA checkpoint to a model directory.

      realm import hf --source hf://google/realm-orqa-nq-openqa --output MODEL
      realm import hf --source DIR --output MODEL --blocks BLOCKS \\
          --embeddings OUT
      realm import tf1 --source DIR --vocab vocab.txt --output MODEL

    hf: directories that transformers (up to 4.40.2) wrote for RealmForOpenQA,
    RealmEmbedder, RealmScorer, RealmKnowledgeAugEncoder or RealmReader, or
    their addresses on the Hugging Face Hub, hf://OWNER/NAME. Neither torch nor
    transformers is needed, and no code in a file is run.

    tf1: the TF1 checkpoints and TF-Hub modules of REALM's and ORQA's authors.

    Several values of --source, such as an embedder and an encoder, make one
    model. If none of them has a reader, the reader begins with the BERT of the
    encoder or embedder and a random head, to be fine-tuned.

    With --blocks, the command also writes the published texts as blocks, and
    with --embeddings their published embeddings, ready for `realm index`. Run
    an interrupted import again to continue. Unknown options go to Beam, which
    writes the blocks.
    """

    command = "import"
    makes = Model

    kind: tyro.conf.Positional[Literal["hf", "tf1"]]
    """format of the sources; see above"""
    source: tuple[str, ...]
    """directories that hold the parts; hf: also hf://OWNER/NAME@REVISION"""
    output: str
    """model directory to make"""
    block_tower: str | None = None
    """source of the block embedder, if the other sources have only that of
    questions, as fine-tuned checkpoints do"""
    vocab: str | None = None
    """vocab.txt (if not given: that of a source)"""
    license: str | None = None
    """licence in the model's card (if not given: that of the source's README.md)"""
    texts: str | None = None
    """with --blocks: block_records.npy, or blocks.tfr with titles.tfr beside
    it (if not given: that of a source)"""
    blocks: str | None = None
    """also make a blocks directory"""
    max_block_length: int | None = None
    """with --blocks: most wordpieces of a block with its title, [CLS] and both
    [SEP], that models read (if not given: 288)"""
    embeddings: str | None = None
    """also make an embeddings directory; needs --blocks"""
    beam_options: BeamOptions = ()

    def parameters(self) -> dict:
        return {
            "from": f"import {self.kind}",
            "sources": [absolute(path) for path in self.source],
            "block_tower": self.block_tower and absolute(self.block_tower),
            "vocab": self.vocab and absolute(self.vocab),
            "license": self.license,
        }

    def run(self) -> list[str]:
        """Makes the model directory, and blocks and embeddings if asked for.

        Returns:
            list of str: what was read, what not and why, a line each.

        Raises:
            InputError: if parts are missing, damaged or do not fit each other,
                or a directory to make is there and not of this import.
        """
        from realm_tf.checkpoints.opening import open_source

        if self.embeddings and not self.blocks:
            raise InputError(
                "--embeddings needs --blocks: they are embeddings of blocks."
            )
        opened = [open_source(self.kind, path) for path in self.source]
        tower = self.block_tower and open_source(self.kind, self.block_tower)
        model = self.result
        if is_done(self):
            lines = [f"{model}: there already"]
        else:
            lines = self._write_model(opened, tower)
        rows = next(
            (o.block_embeddings for o in opened if o.block_embeddings), None
        )
        if self.blocks:
            lines.append(self._write_blocks(model, rows))
        if self.embeddings:
            lines += self._write_embeddings(model, rows)
        return lines

    def _write_model(self, opened, tower):
        """Makes the model directory; returns what there is to say."""
        import keras

        from realm_tf.checkpoints import initial
        from realm_tf.checkpoints import opening
        from realm_tf.checkpoints import published
        from realm_tf.checkpoints.tokenizer_files import find_tokenizer
        from realm_tf.models import model_directory

        # Of a random head.
        keras.utils.set_random_seed(0)
        model, lines = published.make_model(opened, tower)
        sources = [*opened, tower] if tower else opened
        directories = [each.directory for each in sources]
        tokenizer = find_tokenizer(directories, self.vocab)
        for part in (model.query_embedder, model.block_embedder, model.reader):
            initial.check_vocabulary(part.encoder, tokenizer)
        said = opening.find_header(directories)
        if self.license:
            said["license"] = self.license
        card = Card(
            origin=f"weights read with `realm import {self.kind}`.",
            **said,
            sources=sum((each.checksums() for each in sources), ()),
            notes=tuple(lines),
        )
        model_directory.save(
            model_directory.LoadedModel(model, tokenizer, card=card),
            self.output,
            parameters=self.parameters(),
        )
        number = f"{model.count_params():,} parameters"
        return [*lines, f"{self.output}: {number}, license {card.license}"]

    def _write_blocks(self, model, rows):
        """Writes the texts as blocks; returns what there is to say."""
        from realm_tf.checkpoints.tokenizer_files import find

        directories = [
            hubs.fetch(path, [_BLOCK_RECORDS])
            if hubs.is_address(path)
            else path
            for path in self.source
        ]
        texts = self.texts or find(directories, _BLOCK_RECORDS, _BLOCKS_TFR)
        if texts is None:
            raise InputError(
                f"No source holds {_BLOCK_RECORDS} or {_BLOCKS_TFR}: name the "
                "texts with --texts."
            )
        format = published_texts.ORQA
        if texts.endswith(".npy"):
            format = published_texts.BLOCK_RECORDS
        chunk = Chunk(
            input=texts,
            output=self.blocks,
            vocab=model.vocabulary,
            unit="rows",
            format=format.name,
            keep_all_titles=True,
            max_block_length=self.max_block_length,
            beam_options=self.beam_options,
        )
        blocks = chunk.result
        if is_done(chunk):
            return f"{blocks}: there already"
        chunk.run()
        if rows and blocks.num_blocks != len(rows):
            remove(self.blocks)
            raise InputError(
                f"{texts} holds {blocks.num_blocks:,} texts that are not "
                f"empty, the checkpoint {len(rows):,} embeddings: they are "
                "of different corpora."
            )
        return f"{blocks}: {blocks.num_blocks:,} blocks"

    def _write_embeddings(self, model, rows):
        """Writes the published embeddings; returns what there is to say."""
        from realm_tf.checkpoints import published

        blocks = Blocks(self.blocks)
        embed = Embed(
            model=model,
            blocks=blocks,
            output=self.embeddings,
            precision="float32",
        )
        made = embed.result
        if is_done(embed):
            return [f"{made}: there already"]
        lines = published.check_embeddings(model, blocks, rows)
        embed.write_rows(rows)
        return [f"{made}: {len(rows):,} embeddings", *lines]

    def report(self, result: list[str]) -> str:
        return "\n".join(result)
