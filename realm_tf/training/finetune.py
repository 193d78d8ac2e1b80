"""Fine-tunes retriever and reader on questions with answers.

  realm finetune --recipe laptop --model DIR --blocks DIR --index DIR \\
      --questions train.jsonl --output DIR [--set num_epochs=1]

The index stays fixed: the query tower and the reader learn, and the block
tower that made the index is kept in the new model beside them. A new model
directory is written when the last step is done.
"""

import dataclasses

import numpy as np

from realm_tf import stages
from realm_tf.configs import open_qa as configs
from realm_tf.data import open_qa as data
from realm_tf.data import schema
from realm_tf.retrieval import index_store


def add_arguments(parser):
    """Arguments of `realm finetune`."""
    parser.add_argument(
        "--recipe",
        default="laptop",
        help=f"one of {', '.join(configs.RECIPES)} (default: laptop)",
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="change a number of the recipe; may be given several times",
    )
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--blocks", required=True, help="blocks directory")
    parser.add_argument("--index", required=True, help="index directory")
    parser.add_argument(
        "--questions", required=True, help="JSONL with question and answer"
    )
    parser.add_argument("--output", required=True, help="directory to make")


def run(args, extra):
    """`realm finetune`."""
    history = finetune(
        args.model,
        args.blocks,
        args.index,
        args.questions,
        args.output,
        recipe=configs.get_recipe(args.recipe, args.overrides),
    )
    last = ", ".join(f"{k} {v:.3f}" for k, v in history[-1].items())
    print(f"{args.output}: {last}")


def finetune(
    model: str,
    blocks: str,
    index: str,
    questions: str,
    output: str,
    *,
    recipe: configs.OpenQaRecipe,
    verbose: int | str = "auto",
    callbacks=(),
) -> list[dict]:
    """Fine-tunes a model directory and writes a new one.

    Args:
        model: str. Model directory to start from.
        blocks: str. Blocks directory.
        index: str. Index directory over these blocks, made with this model's
            block tower.
        questions: str. JSONL file with answers.
        output: str. Model directory to make.
        recipe: `OpenQaRecipe`.
        verbose: int or str. As `keras.Model.fit`. Defaults to `"auto"`.
        callbacks: list of `keras.callbacks.Callback`.

    Returns:
        list of dict, the metrics of each epoch.

    Raises:
        InputError: if the inputs do not belong together.
    """
    import keras

    from realm_tf.models import model_directory
    from realm_tf.retrieval.corpus import Corpus

    asked = data.read_questions(questions)
    corpus = Corpus.load(model, blocks, index)
    loaded = corpus.loaded
    parents = {
        "model": loaded.metadata["fingerprint"],
        "index": stages.read(index, kind=schema.INDEX)["fingerprint"],
        "questions": stages.fingerprint(stages.read_bytes(questions)),
    }
    with stages.write(
        output,
        kind=schema.MODEL,
        parameters=dataclasses.asdict(recipe),
        parents=parents,
    ) as stage:
        keras.utils.set_random_seed(recipe.seed)
        batches = data.QuestionBatches(
            asked,
            loaded.tokenizer,
            batch_size=recipe.batch_size,
            max_answer_length=loaded.model.reader.max_span_width,
            seed=recipe.seed,
        )
        trainer = _trainer(corpus, index, recipe)
        epochs = [batches.epoch(e) for e in range(recipe.num_epochs)]
        num_steps = sum(map(len, epochs))
        from realm_tf.training import optimizers

        trainer.compile(
            optimizer=optimizers.bert_adamw(recipe.learning_rate, num_steps),
            # XLA on a CPU is slower to compile than these runs are long.
            jit_compile=keras.backend.backend() == "jax",
        )
        history = trainer.fit(
            _dataset(epochs),
            epochs=recipe.num_epochs,
            steps_per_epoch=len(epochs[0]),
            verbose=verbose,
            callbacks=list(callbacks),
        ).history
        rows = [
            {name: float(values[e]) for name, values in history.items()}
            for e in range(recipe.num_epochs)
        ]
        _restore_trainable(trainer.open_qa)
        trained = model_directory.LoadedModel(
            trainer.open_qa, loaded.tokenizer, loaded.block_segment_ids
        )
        model_directory.write_files(trained, stage)
        stage.metadata.update(
            history=rows,
            counts={
                "questions": len(asked),
                "questions_left_out": batches.num_left_out,
                "steps": num_steps,
            },
        )
    return rows


def _trainer(corpus, index, recipe):
    model = corpus.loaded.model
    if recipe.train_query_tower:
        model = model.separate_towers()
        model.query_embedder.encoder.freeze(
            embeddings=recipe.freeze_word_embeddings
        )
    else:
        model.query_embedder.trainable = False
        model.block_embedder.trainable = False
    model.reader.encoder.freeze(
        embeddings=recipe.freeze_word_embeddings,
        num_layers=recipe.num_frozen_layers,
    )
    exact = hasattr(corpus.index, "embeddings")
    return corpus.retrieve_and_read(
        model=model,
        num_candidates=recipe.num_candidates,
        num_reader_blocks=recipe.num_reader_blocks,
        read_an_answer=recipe.read_an_answer,
        embeddings=None
        if exact
        else np.asarray(index_store.load_embeddings(index)),
    )


def _restore_trainable(model):
    """Freezing belongs to a run, not to the model it leaves."""
    for part in (model.query_embedder, model.block_embedder, model.reader):
        part.trainable = True


def _dataset(epochs):
    """All epochs' batches, one after the other, as a `tf.data.Dataset`."""
    import tensorflow as tf

    signature = {
        name: tf.TensorSpec([None] * array.ndim, tf.int32)
        for name, array in epochs[0][0].items()
    }
    # The number of answers and their length are the same in every batch.
    answer_shape = epochs[0][0]["answer_ids"].shape[1:]
    signature["answer_ids"] = tf.TensorSpec([None, *answer_shape], tf.int32)
    return tf.data.Dataset.from_generator(
        lambda: (batch for epoch in epochs for batch in epoch),
        output_signature=signature,
    )
