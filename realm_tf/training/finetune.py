"""Fine-tunes retriever and reader on questions with answers.

  realm finetune --recipe laptop --model DIR --blocks DIR --index DIR \\
      --questions train.jsonl --output DIR [--set num_epochs=1]

The index stays fixed: the query tower and the reader learn, and the block
tower that made the index is kept in the new model beside them. Several files
of questions are learned from one after the other, such as easy ones first. A
new model directory is written when the last step is done.
"""

import dataclasses
import sys

import numpy as np

from realm_tf import stages
from realm_tf.configs import open_qa as configs
from realm_tf.configs import overrides
from realm_tf.data import open_qa as data
from realm_tf.data import schema
from realm_tf.retrieval import index_store


def add_arguments(parser):
    """Arguments of `realm finetune`."""
    overrides.add_arguments(parser, configs.RECIPES, default="laptop")
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--blocks", required=True, help="blocks directory")
    parser.add_argument("--index", required=True, help="index directory")
    parser.add_argument(
        "--questions",
        nargs="+",
        required=True,
        metavar="FILE",
        help="JSONL with question and answer; several are learned from in "
        "this order, num_epochs each",
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
    questions: str | list[str],
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
        questions: str or list of str. JSONL files with answers, learned from
            in this order.
        output: str. Model directory to make.
        recipe: `OpenQaRecipe`.
        verbose: int or str. As `keras.Model.fit`; `"auto"` is a bar on a
            terminal and a line now and then elsewhere. Defaults to `"auto"`.
        callbacks: list of `keras.callbacks.Callback`.

    Returns:
        list of dict, the metrics of each epoch.

    Raises:
        InputError: if the inputs do not belong together.
    """
    import keras

    from realm_tf.models import model_directory
    from realm_tf.retrieval.corpus import Corpus

    paths = [questions] if isinstance(questions, str) else list(questions)
    asked = [data.read_questions(path) for path in paths]
    # Before the model, whose dropout draws its seeds when it is made.
    keras.utils.set_random_seed(recipe.seed)
    corpus = Corpus.load(model, blocks, index)
    loaded = corpus.loaded
    parents = {
        "model": loaded.metadata["fingerprint"],
        "index": stages.read(index, kind=schema.INDEX)["fingerprint"],
        "questions": stages.fingerprint(*map(stages.read_bytes, paths)),
    }
    with stages.write(
        output,
        kind=schema.MODEL,
        parameters=dataclasses.asdict(recipe),
        parents=parents,
    ) as stage:
        files = [
            data.QuestionBatches(
                questions_of_file,
                loaded.tokenizer,
                batch_size=recipe.batch_size,
                max_answer_length=loaded.model.reader.max_span_width,
                seed=recipe.seed,
            )
            for questions_of_file in asked
        ]
        trainer = _trainer(corpus, index, recipe)
        epochs = []
        for batches in files:
            for _ in range(recipe.num_epochs):
                epochs.append(batches.epoch(len(epochs)))
        rows = _fit(trainer, epochs, recipe, verbose, list(callbacks))
        _restore_trainable(trainer.open_qa)
        trained = dataclasses.replace(loaded, model=trainer.open_qa)
        model_directory.write_files(trained, stage)
        stage.metadata.update(
            history=rows,
            counts={
                "questions": sum(map(len, asked)),
                "questions_left_out": sum(b.num_left_out for b in files),
                "steps": sum(map(len, epochs)),
            },
        )
    return rows


def _fit(trainer, epochs, recipe, verbose, callbacks):
    import keras

    from realm_tf.training import optimizers
    from realm_tf.training.callbacks import ProgressLines

    num_steps = sum(map(len, epochs))
    optimizer = optimizers.bert_adamw(
        recipe.learning_rate, num_steps, bias_correction=recipe.bias_correction
    )
    # TensorFlow traces a step that makes variables twice.
    optimizer.build(trainer.trainable_variables)
    trainer.compile(
        optimizer=optimizer,
        # XLA on a CPU is slower to compile than these runs are long.
        jit_compile=keras.backend.backend() == "jax",
    )
    if verbose == "auto" and not sys.stdout.isatty():
        verbose = 0
        callbacks = [*callbacks, ProgressLines(num_steps)]
    rows = []
    for number, epoch in enumerate(epochs):
        history = trainer.fit(
            _dataset(epoch),
            initial_epoch=number,
            epochs=number + 1,
            steps_per_epoch=len(epoch),
            verbose=verbose,
            # The batches come shuffled.
            shuffle=False,
            callbacks=callbacks,
        ).history
        rows.append({name: values[-1] for name, values in history.items()})
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


def _dataset(batches):
    """Batches of one epoch as a `tf.data.Dataset`.

    Dimensions are left open where they vary, so that no epoch is traced
    again.
    """
    import tensorflow as tf

    signature = {
        name: tf.TensorSpec([None] * array.ndim, tf.int32)
        for name, array in batches[0].items()
    }
    answer_length = batches[0]["answer_ids"].shape[-1]
    signature["answer_ids"] = tf.TensorSpec(
        [None, None, answer_length], tf.int32
    )
    return tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=signature
    )
