"""Compiled Keras models of each stage of training, for `fit`."""

import dataclasses

from realm_tf.configs.pretrain import PretrainRecipe
from realm_tf.configs.recipes import Optimizer


def make_towers_trainer(kind, open_qa, recipe, num_steps: int):
    """The towers as a retriever that learns from the rest of its batch.

    Args:
        kind: `IctModel`, for `fit` with `data.inverse_cloze`, or `DprModel`,
            with `data.hard_negatives`.
        open_qa: `OpenQa`. What the recipe says is frozen.
        recipe: `IctRecipe` or `DprRecipe`.
        num_steps: int. Of the whole run.

    Returns:
        `kind`; training it trains the towers of `open_qa`.
    """
    towers = open_qa.query_embedder, open_qa.block_embedder
    for tower in towers:
        set_up(tower, recipe, recipe.encoders.num_frozen_layers)
    trainer = kind(*towers, score_scale=open_qa.score_scale)
    compile_trainer(trainer, recipe.optimizer, num_steps)
    return trainer


def prepare(open_qa, recipe: PretrainRecipe) -> None:
    """Makes a model ready for what the recipe says.

    It gets a masked-LM head, if need be; layers are frozen; dropout and
    gradient checkpointing are set.

    Args:
        open_qa: `OpenQa`.
        recipe: `PretrainRecipe`.
    """
    from realm_tf.models.knowledge_augmented_encoder import (
        KnowledgeAugmentedEncoder,
    )

    reader = open_qa.reader
    if open_qa.knowledge_augmented_encoder is None:
        open_qa.knowledge_augmented_encoder = KnowledgeAugmentedEncoder(
            reader.encoder
        )
    encoders = recipe.encoders
    for part, num_frozen in (
        (reader, 0),
        (open_qa.query_embedder, encoders.num_frozen_layers),
        (open_qa.block_embedder, encoders.num_frozen_layers),
    ):
        set_up(part, recipe, num_frozen)


def make_masked_lm_trainer(loaded, recipe: PretrainRecipe):
    """The encoder alone, for `fit` with `data.masked_lm_warm_up`.

    Args:
        loaded: `LoadedModel`, after `prepare`.
        recipe: `PretrainRecipe`.

    Returns:
        `MaskedLmModel`; training it trains the encoder and its head.
    """
    from realm_tf.data.masked_lm_warm_up import KINDS
    from realm_tf.models.knowledge_augmented_encoder import MaskedLmModel

    trainer = MaskedLmModel(
        loaded.model.knowledge_augmented_encoder,
        sep_id=loaded.tokenizer.sep_id,
        block_kinds=KINDS,
    )
    compile_trainer(
        trainer,
        dataclasses.replace(
            recipe.optimizer,
            learning_rate=recipe.masked_lm.masked_lm_learning_rate,
        ),
        recipe.masked_lm.masked_lm_steps,
    )
    return trainer


def make_realm_trainer(loaded, blocks, recipe: PretrainRecipe, *, embeddings):
    """The whole of retriever and encoder, for `fit` with `data.masked_queries`.

    Args:
        loaded: `LoadedModel`, after `prepare`.
        blocks: `BlockRecords`.
        recipe: `PretrainRecipe`.
        embeddings: float32 array `(num_blocks, embedding_dim)`. Of the blocks
            (`index_builder.embed_blocks`).

    Returns:
        `RealmModel`; training it trains the parts of `loaded.model`.
    """
    from realm_tf.models.realm import RealmModel
    from realm_tf.retrieval.brute_force import BruteForce

    open_qa = loaded.model
    trainer = RealmModel(
        open_qa.query_embedder,
        open_qa.block_embedder,
        open_qa.knowledge_augmented_encoder,
        BruteForce(embeddings),
        _block_table(blocks, recipe.lengths.max_block_length),
        cls_id=loaded.tokenizer.cls_id,
        sep_id=loaded.tokenizer.sep_id,
        block_segment_ids=loaded.block_segment_ids,
        score_scale=open_qa.score_scale,
        num_retrieved=recipe.num_retrieved,
        max_block_length=recipe.lengths.max_block_length,
        max_joint_length=recipe.lengths.max_joint_length,
        marginalization=recipe.marginalization,
    )
    compile_trainer(trainer, recipe.optimizer, recipe.num_steps)
    return trainer


def set_up(part, recipe, num_frozen):
    """What a recipe says of a part of a model, a tower or a reader.

    Saying it twice changes nothing.
    """
    part.set_dropout(recipe.encoders.dropout)
    encoder = part.encoder
    encoder.freeze(
        embeddings=recipe.encoders.freeze_word_embeddings, num_layers=num_frozen
    )
    encoder.set_recompute(recipe.optimizer.gradient_checkpointing)


def compile_trainer(
    trainer, settings: Optimizer, num_steps: int, **arguments
) -> None:
    """Compiles a model with BERT's optimizer.

    Args:
        trainer: `keras.Model`.
        settings: `Optimizer`. Of the recipe.
        num_steps: int. Of the run, whose rate ends at 0.
        **arguments: more of `keras.Model.compile`, such as `loss`.
    """
    import keras

    from realm_tf.models import cpu_operations
    from realm_tf.models.precision import with_values
    from realm_tf.training import optimizers

    with with_values():
        optimizer = optimizers.BertAdamW(
            optimizers.LinearWarmupAndDecay(settings.learning_rate, num_steps),
            bias_correction=settings.bias_correction,
            # Keras takes no 1.
            gradient_accumulation_steps=settings.gradient_accumulation_steps
            if settings.gradient_accumulation_steps > 1
            else None,
        )
    # TensorFlow traces a step that makes variables twice.
    optimizer.build(trainer.trainable_variables)
    trainer.compile(
        optimizer=optimizer,
        # XLA on a CPU is slower to compile than small runs are long.
        jit_compile=keras.backend.backend() == "jax",
        **arguments,
    )
    # Steps are traced when `fit` begins, or a batch of another shape comes.
    trainer.train_step = cpu_operations.only_for_this_process()(
        trainer.train_step
    )


def _block_table(blocks, max_length):
    from realm_tf.models.block_table import BlockTable

    token_ids, lengths = blocks.bodies(max_length)
    title_ids, title_lengths = blocks.title_table(max_length)
    return BlockTable(
        token_ids,
        lengths,
        title_ids=title_ids,
        title_lengths=title_lengths,
        article_numbers=blocks.article_numbers(),
    )
