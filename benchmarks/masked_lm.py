"""How well a model predicts what is masked, with the blocks it retrieves."""

import itertools

import keras

from realm_tf.artifacts.objects import Model
from realm_tf.configs import pretrain as configs
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.models import model_directory

# Far beyond any training: masks that no step has seen.
_EPOCH = 1_000_000
# What models are compared by, batch by batch; each of a batch's sentences
# counts alike in it.
RECALLS = ("answer_recall", "article_recall")


def evaluate(
    model: Model,
    blocks,
    passages,
    *,
    recipe: configs.PretrainRecipe,
    num_batches: int,
    mode: str = "salient",
    seed: int = 0,
) -> dict:
    """Measures a model on masked sentences, over an index of its own.

    The masks are new ones; the sentences may be among those it was trained
    on.

    Args:
        model: `Model`.
        blocks: `BlockRecords`. What is retrieved.
        passages: `TokenizedPassages`. What is masked.
        recipe: `PretrainRecipe`. Lengths, candidates and batch size.
        num_batches: int.
        mode: str. What is masked. Defaults to `"salient"`.
        seed: int. Of the masks. Defaults to `0`.

    Returns:
        dict of float: `loss` and the metrics of `RealmModel`; and `batches`,
        dict of each of `RECALLS` to a list of float, that of each batch. The
        same seed masks the same sentences for each model:
        `bootstrap.paired_difference` takes two such lists.
    """
    from realm_tf.retrieval.block_embedder import BlockEmbedder
    from realm_tf.training import index_builder
    from realm_tf.training import trainers

    recipe = recipe.replace(num_steps=1)
    loaded = model_directory.load(model)
    trainers.prepare(loaded.model, recipe)
    embedder = BlockEmbedder(loaded, max_length=recipe.lengths.max_block_length)
    trainer = trainers.make_realm_trainer(
        loaded,
        blocks,
        recipe,
        embeddings=index_builder.embed_blocks(embedder, blocks),
    )
    examples = PretrainingExamples(
        passages,
        batch_size=recipe.batch_size,
        seed=seed,
        mode=mode,
        max_query_length=recipe.lengths.max_query_length,
        max_masked=recipe.masking.max_masked,
    )
    batches = itertools.islice(
        examples.batches(_EPOCH * examples.steps_per_epoch), num_batches
    )
    recalls = _BatchRecalls()
    metrics = trainer.evaluate(
        ((batch,) for batch in batches),
        steps=num_batches,
        callbacks=[recalls],
        return_dict=True,
        verbose=0,
    )
    return {**metrics, "batches": recalls.found}


class _BatchRecalls(keras.callbacks.Callback):
    """Each batch's recalls, of which Keras logs the mean so far."""

    def on_test_begin(self, logs=None):
        self.found = {name: [] for name in RECALLS}

    def on_test_batch_end(self, batch, logs=None):
        for name, values in self.found.items():
            total = logs[name] * (len(values) + 1)
            values.append(float(total - sum(values)))
