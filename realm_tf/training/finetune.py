"""Fine-tunes retriever and reader on questions with answers.

  realm finetune --recipe laptop --model DIR --blocks DIR --index DIR \\
      --questions train.jsonl [--dev dev.jsonl] --output DIR \\
      [--set num_epochs=1]
  realm finetune --retriever-loss dpr --model DIR --blocks DIR \\
      --questions train.jsonl --output DIR

The index stays fixed: the query tower and the reader learn, and the block
tower that made the index is kept in the new model beside them (with
--set refresh_every=N both towers move, and the index must be made anew
after). Several files of questions are learned from one after the other, such
as easy ones first. Answers may be patterns, as CuratedTREC's. With --dev, the
epoch that answers most of its questions is kept.

--retriever-loss dpr trains the towers alone, with BM25's blocks as hard
negatives; embed and index the blocks then, and fine-tune the reader.

A new model directory is written when the last step is done. A run that was
stopped goes on where it was with the same command.
"""

import dataclasses
import functools
import json
import os

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import question_files as data
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.configs import dpr as dpr_configs
from realm_tf.configs import finetune as configs
from realm_tf.configs import recipes
from realm_tf.data import feeding
from realm_tf.data import patterns
from realm_tf.data.question_batches import Curriculum
from realm_tf.data.question_batches import QuestionBatches
from realm_tf.errors import InputError
from realm_tf.training import run_directory

_RECIPES = {"marginal": configs.RECIPES, "dpr": dpr_configs.RECIPES}
# Blocks in which the strings of a pattern are looked for; as many candidates
# at least as a step has.
_PATTERN_BLOCKS = 1000
# What a search for patterns found, and the weights of the best epochs.
_STRINGS = "strings_of_patterns.json"
_SELECTION = "selection"
# Steps know how long an answer can be, and how many candidates there are.
_OF_ONE_WIDTH = ("answer_ids", "candidate_ids", "candidate_scores")


def add_arguments(parser):
    """Arguments of `realm finetune`."""
    recipes.add_arguments(parser, configs.RECIPES, default="laptop")
    parser.add_argument(
        "--retriever-loss",
        choices=tuple(_RECIPES),
        default="marginal",
        help="marginal: blocks that hold an answer, with the reader; dpr: the "
        f"towers alone (recipes {', '.join(dpr_configs.RECIPES)}) "
        "(default: marginal)",
    )
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--blocks", required=True, help="blocks directory")
    parser.add_argument(
        "--index", help="index directory; not with --retriever-loss dpr"
    )
    parser.add_argument(
        "--questions",
        nargs="+",
        required=True,
        metavar="FILE",
        help="JSONL with question and answer; several are learned from in "
        "this order, num_epochs each",
    )
    parser.add_argument(
        "--dev",
        metavar="FILE",
        help="questions that choose the best epoch (default: the last one)",
    )
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--tensorboard",
        metavar="DIR",
        help="write curves for TensorBoard there",
    )


def run(args, extra):
    """`realm finetune`."""
    recipe = recipes.get_recipe(
        _RECIPES[args.retriever_loss], args.recipe, args.overrides
    )
    if args.retriever_loss == "dpr":
        from realm_tf.training.dpr import train_dpr

        if args.index or args.tensorboard:
            raise InputError(
                "--retriever-loss dpr takes no --index and writes nothing for "
                "--tensorboard: leave them out."
            )
        history = train_dpr(
            args.model,
            args.blocks,
            args.questions,
            args.output,
            recipe=recipe,
            dev=args.dev,
        )
    elif not args.index:
        raise InputError(
            "--index is needed: make one with `realm embed` and `realm index`."
        )
    else:
        history = finetune(
            args.model,
            args.blocks,
            args.index,
            args.questions,
            args.output,
            recipe=recipe,
            dev=args.dev,
            tensorboard=args.tensorboard,
        )
    last = ", ".join(f"{k} {v:.3f}" for k, v in history[-1].items())
    print(f"{args.output}: {last}")
    if args.retriever_loss == "dpr" or recipe.refresh_every:
        print(
            "The block tower has moved: run `realm embed` and `realm index` "
            "with the new model."
        )


def finetune(
    model: str,
    blocks: str,
    index: str,
    questions: str | list[str],
    output: str,
    *,
    recipe: configs.OpenQaRecipe,
    dev: str | None = None,
    tensorboard: str | None = None,
    verbose: int | str = "auto",
    callbacks=(),
    save_every_seconds: float = 300.0,
    save_every_steps: int | None = None,
) -> list[dict]:
    """Fine-tunes a model directory and writes a new one.

    Args:
        model: str. Model directory to start from.
        blocks: str. Blocks directory.
        index: str. Index directory over these blocks, made with this model's
            block tower.
        questions: str or list of str. JSONL files with answers, learned from
            in this order.
        output: str. Model directory to make, on a local disk.
        recipe: `OpenQaRecipe`.
        dev: str. JSONL file with answers, none of them learned from: the
            epoch with most exact matches on it is kept. Defaults to `None`:
            the last epoch.
        tensorboard: str. Directory for TensorBoard. Defaults to `None`.
        verbose: int or str. As `training.resume.fit`. Defaults to `"auto"`.
        callbacks: list of `keras.callbacks.Callback`.
        save_every_seconds: float. See `training.resume.fit`. Defaults to
            `300.0`.
        save_every_steps: int. See there. Defaults to `None`.

    Returns:
        list of dict, the metrics of each epoch; those on dev as `dev_...`.

    Raises:
        InputError: if the inputs do not belong together.
    """
    import keras

    from realm_tf.answering.corpus import Corpus
    from realm_tf.artifacts import model_directory
    from realm_tf.training.training_log import TensorBoardWriter

    # First: a mistake here must cost no run that waits to go on.
    writer = TensorBoardWriter(tensorboard) if tensorboard else None
    paths = [questions] if isinstance(questions, str) else list(questions)
    asked = [data.read_questions(path) for path in paths]
    asked_of_dev = data.read_questions(dev) if dev else []
    # Before the model, whose dropout draws its seeds when it is made.
    keras.utils.set_random_seed(recipe.seed)
    corpus = Corpus.load(model, blocks, index)
    _check(recipe, corpus.loaded.model, model)
    loaded = corpus.loaded
    read = [*paths, dev] if dev else paths
    with run_directory.write_model(
        output,
        parameters=dataclasses.asdict(recipe),
        parents={
            "model": loaded.metadata["fingerprint"],
            "index": artifact.read(index, kind=schema.INDEX)["fingerprint"],
            "questions": fingerprints.fingerprint(
                *(Path(path).read_bytes() for path in read)
            ),
        },
        own_files=(_STRINGS, _SELECTION),
    ) as stage:
        run = _Run(corpus, index, recipe, stage)
        files = run.read(asked)
        history = run.train(
            Curriculum(files, recipe.num_epochs),
            asked_of_dev,
            writer=writer,
            callbacks=callbacks,
            every_seconds=save_every_seconds,
            every_steps=save_every_steps,
            verbose=verbose,
        )
        trained = dataclasses.replace(loaded, model=run.trainer.open_qa)
        _restore_trainable(trained.model)
        model_directory.write_files(trained, stage)
        stage.metadata.update(
            history=history,
            counts={
                **{
                    name: sum(file.counts[name] for file in files)
                    for name in files[0].counts
                },
                "steps": int(run.trainer.optimizer.iterations),
            },
        )
    return history


def _check(recipe, model, directory):
    if recipe.retriever != "realm" and recipe.train_query_tower:
        raise InputError(
            f"retriever={recipe.retriever} finds the same blocks whatever the "
            "query tower does: add --set train_query_tower=false."
        )
    if recipe.refresh_every and not (
        model.share_embedders and recipe.train_query_tower
    ):
        raise InputError(
            "refresh_every needs one tower for queries and blocks, which "
            f"learns; {directory} has two, or train_query_tower is false: "
            "leave refresh_every at 0."
        )


class _Run:
    """The parts of one run, put together."""

    def __init__(self, corpus, index, recipe, stage):
        from realm_tf.artifacts import index_files

        self._corpus = corpus
        self._recipe = recipe
        self._stage = stage
        # Before the query tower moves.
        self.trainer = make_trainer(
            corpus, index_files.load_embeddings(index), recipe
        )

    def read(self, asked):
        """`QuestionBatches` of each file."""
        recipe = self._recipe
        strings = self._strings(asked)
        retriever = None
        if recipe.retriever != "realm":
            retriever = self._retriever(recipe.retriever)
        files = []
        for questions in asked:
            questions = [strings.get(_key(q), q) for q in questions]
            files.append(
                QuestionBatches(
                    questions,
                    self._corpus.loaded.tokenizer,
                    batch_size=recipe.batch_size,
                    seed=recipe.seed,
                    candidates=retriever
                    and retriever.search(
                        [q.question for q in questions],
                        self.trainer.num_candidates,
                    ),
                )
            )
        return files

    def _retriever(self, name):
        from realm_tf.retrieval import retrievers

        return retrievers.make(name, self._corpus)

    def _strings(self, asked):
        """Questions with strings, of those with patterns; kept in a file."""
        with_patterns = {
            _key(question): question
            for questions in asked
            for question in questions
            if question.answer_type == "regex"
        }
        if not with_patterns:
            return {}
        path = self._stage.path(_STRINGS)
        if not os.path.exists(path):
            texts = self._corpus.records.texts
            num_blocks = max(_PATTERN_BLOCKS, self.trainer.num_candidates)
            questions = list(with_patterns.values())
            _, block_ids = self._retriever("realm").search(
                [q.question for q in questions], min(num_blocks, len(texts))
            )
            found = {
                key: patterns.literal(
                    question, [texts[block_id] for block_id in of_question]
                ).answers
                for (key, question), of_question in zip(
                    with_patterns.items(), block_ids, strict=True
                )
            }
            write_text(path, json.dumps(found, ensure_ascii=False))
        return {
            key: dataclasses.replace(
                with_patterns[key], answers=tuple(found), answer_type="string"
            )
            for key, found in json.loads(Path(path).read_text()).items()
            if found
        }

    def train(self, curriculum, dev, *, writer, callbacks, **arguments):
        """Trains, and leaves the weights of the epoch to keep."""
        from realm_tf.training import resume
        from realm_tf.training import trainers
        from realm_tf.training.index_refresh import SyncIndexRefresh
        from realm_tf.training.training_log import LOG
        from realm_tf.training.training_log import TrainingLog

        recipe = self._recipe
        steps = curriculum.steps_of_epochs
        trainers.compile_trainer(
            self.trainer,
            recipe.learning_rate,
            sum(steps),
            bias_correction=recipe.bias_correction,
        )
        parts = {}
        if recipe.refresh_every:
            parts["index_refresh"] = SyncIndexRefresh(
                self.trainer, self._embed, every_steps=recipe.refresh_every
            )
        parts["training_log"] = TrainingLog(
            self._stage.path(LOG),
            every_steps=recipe.log_every,
            num_steps=sum(steps),
            on_line=[writer.scalars] if writer else [],
        )
        selection = None
        if dev:
            parts["selection"] = selection = self._selection(dev)
        history = resume.fit(
            self.trainer,
            curriculum.batches,
            num_steps=sum(steps),
            steps_per_epoch=steps,
            directory=self._stage.path(run_directory.CHECKPOINT),
            parts=parts,
            callbacks=[*parts.values(), *callbacks],
            feed=functools.partial(feeding.varying, of_one_width=_OF_ONE_WIDTH),
            **arguments,
        )
        if selection:
            selection.restore_best()
            self._stage.metadata["best_epoch"] = selection.best_epochs[-1] + 1
            self._stage.metadata["best"] = selection.best
        return history

    def _selection(self, dev):
        from realm_tf.answering.predict import Predictor
        from realm_tf.text import answers
        from realm_tf.training.selection import SelectBest

        if self._recipe.num_dev_questions:
            step = max(1, len(dev) // self._recipe.num_dev_questions)
            dev = dev[::step][: self._recipe.num_dev_questions]
        retriever = None
        if self._recipe.retriever != "realm":
            retriever = self._retriever(self._recipe.retriever).search
        predictor = Predictor(self._corpus, model=self.trainer.open_qa)

        def evaluate():
            if self._recipe.refresh_every:
                self.trainer.swap(self._embed())
            predictions = predictor.predict(
                [q.question for q in dev], search=retriever
            )
            correct = [
                answers.is_correct(p.answer, q.answers, q.answer_type)
                for p, q in zip(predictions, dev, strict=True)
            ]
            return {"exact_match": float(np.mean(correct))}

        return SelectBest(
            evaluate,
            self.trainer.open_qa,
            self._stage.path(_SELECTION),
            metric="exact_match",
            patience=self._recipe.patience,
        )

    def _embed(self):
        """All blocks, with the tower as it is."""
        from realm_tf.retrieval.block_embedder import BlockEmbedder
        from realm_tf.training import index_builder

        loaded = dataclasses.replace(
            self._corpus.loaded, model=self.trainer.open_qa
        )
        limit = loaded.model.block_embedder.encoder.max_sequence_length
        length = min(self._corpus.records.metadata["max_block_length"], limit)
        return index_builder.embed_blocks(
            BlockEmbedder(loaded, max_length=length),
            run_directory.open_blocks(
                self._corpus.records.directory, self._stage, max_length=length
            ),
        )


def _key(question):
    return json.dumps([question.question, question.answers])


def make_trainer(corpus, embeddings, recipe):
    """`RetrieveAndRead`, with what the recipe says frozen.

    Args:
        corpus: `Corpus`. The parts of its model are trained, but for the
            block tower, which is copied if it is the query tower, too.
        embeddings: float array `(num_blocks, embedding_dim)`. Of the index;
            not read if it is a `BruteForce`.
        recipe: `OpenQaRecipe`.
    """
    model = corpus.loaded.model
    if not recipe.train_query_tower:
        model.query_embedder.trainable = False
        model.block_embedder.trainable = False
    else:
        if not recipe.refresh_every:
            model = model.separate_towers()
        model.query_embedder.encoder.freeze(
            embeddings=recipe.freeze_word_embeddings
        )
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
        match_whole_words=recipe.match_whole_words,
        num_length_groups=_num_length_groups(
            recipe.batch_size * recipe.num_reader_blocks
        ),
        embeddings=None if exact else np.asarray(embeddings),
    )


def _num_length_groups(num_rows):
    """Groups of four rows and more, at most eight."""
    return max(1, min(8, num_rows // 4))


def _restore_trainable(model):
    """Freezing belongs to a run, not to the model it leaves."""
    for part in (model.query_embedder, model.block_embedder, model.reader):
        part.trainable = True
