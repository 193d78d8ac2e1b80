"""`realm embed`."""

import dataclasses

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import ROWS_PER_SHARD
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Model
from realm_tf.models.precision import FLOAT32
from realm_tf.operations.computing import Computing
from realm_tf.operations.operation import BeamOptions
from realm_tf.operations.operation import count_lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embed(Computing):
    """Computes the embeddings of all blocks.

    Run an interrupted command again to compute only the missing shards (.npy
    files). Unknown options go to Beam, such as --direct_num_workers.
    """

    command = "embed"
    makes = Embeddings
    manner = ("batch_size",)

    model: Model
    """model directory"""
    blocks: Blocks
    """blocks directory, cut with the model's vocabulary"""
    output: str
    """the directory to make"""
    batch_size: int = 32
    """blocks embedded at once; changes the result only by rounding"""
    rows_per_shard: int = ROWS_PER_SHARD
    """blocks in one shard"""
    beam_options: BeamOptions = ()

    def parents(self) -> dict:
        return {
            "block_tower": self.model.block_tower,
            "blocks": self.blocks.fingerprint,
        }

    def run(self) -> Embeddings:
        """Embeds all blocks that an earlier run did not embed.

        Returns:
            `Embeddings`: float32 rows in order of block id. `counts` are
            `shards`, and `shards_skipped` that an earlier run made.

        Raises:
            InputError: if model and blocks do not match, one of them is
                damaged, or a number is not positive.
        """
        from realm_tf.beam_pipelines import embed_blocks
        from realm_tf.beam_pipelines import engine

        self.check_least(1, "batch_size", "rows_per_shard")
        matching.check_vocabulary(self.blocks, self.model)
        options = engine.given_options(self.beam_options)
        with self.write(resumable=True, by_workers=True) as stage:
            names, counts = embed_blocks.write_shards(
                self.model,
                self.blocks,
                stage.directory,
                batch_size=self.batch_size,
                rows_per_shard=self.rows_per_shard,
                precision=self.computes_in,
                options=options,
            )
            self._describe(stage, names, counts)
        return self.result

    def write_rows(self, rows) -> Embeddings:
        """As `run`, of rows that were computed before.

        Args:
            rows: float32 array `(num_blocks, embedding_dim)`, or what has a
                length and slices as one.
        """
        from realm_tf.beam_pipelines import embed_blocks

        with self.write(resumable=True, by_workers=True) as stage:
            names = embed_blocks.write_rows(
                stage.directory,
                rows,
                self.rows_per_shard,
                norm=self.model.embedding_norm,
            )
            self._describe(stage, names, {"shards": len(names)})
        return self.result

    def _describe(self, stage, names, counts):
        stage.metadata.update(
            counts=counts,
            num_blocks=self.blocks.num_blocks,
            dtype="float32",
            norm=self.model.embedding_norm,
            shards=names,
            fingerprint=fingerprints.fingerprint(
                *self.parents().values(),
                # What was always so is no part of it.
                *({self.computes_in} - {FLOAT32}),
            ),
        )

    def report(self, result: Embeddings) -> str:
        return count_lines(result.counts)
