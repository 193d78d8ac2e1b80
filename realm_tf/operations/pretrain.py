"""`realm pretrain`."""

import dataclasses
from typing import Literal

from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import Passages
from realm_tf.configs import pretrain
from realm_tf.operations.training import Training


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrain(Training):
    """Pre-trains retriever and encoder: retrieve, then predict masked words.

    The index is built again from time to time (--set refresh_every=N steps).
    Shared towers stay shared; the reader of the new model begins with the
    pre-trained encoder. A model without a masked-LM head gets a new one. Run
    an interrupted command again to continue.
    """

    command = "pretrain"
    recipes = pretrain.RECIPES
    in_processes = True
    # It is of the model and the blocks.
    manner = ("index",)

    recipe: Literal[*pretrain.RECIPES] = "wiki-small"
    """the recipe by name"""
    corpus: Passages
    """directory of `realm annotate`: sentences to mask, of these blocks or of
    another corpus"""
    index: Index | None = None
    """first index, of this model and these blocks (if not given: the blocks are
    embedded first)"""

    def check(self) -> None:
        super().check()
        matching.check_passages(self.corpus, blocks=self.blocks)
        if self.index is not None:
            matching.check_index(
                self.index, blocks=self.blocks, model=self.model
            )

    def run(self, *, callbacks=(), **fit) -> Model:
        """Pre-trains and writes a new model directory.

        Args:
            callbacks: list of `keras.callbacks.Callback`. Of the steps after
                the masked-LM warm-up.
            **fit: `verbose` and `every_seconds` of `training.resume.fit`.

        Returns:
            `Model`; its metadata hold `history`, the metrics of each epoch,
            and `masked_lm_history`, those of the masked-LM warm-up.

        Raises:
            InputError: if the inputs do not match, or training diverges.
        """
        from realm_tf.training import pretraining

        with self.train() as (loaded, stage):
            pretraining.check_processes(self.settings, index=self.index)
            run = pretraining.Pretraining(
                self.settings,
                loaded,
                stage,
                blocks=self.blocks,
                passages=self.corpus,
                fit=fit,
            )
            run.train_masked_lm()
            if self.settings.num_steps:
                run.train(self.model, self.index, callbacks=callbacks)
        return self.result
