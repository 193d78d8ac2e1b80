"""Fine-tuning of retriever and reader on questions with answers."""

import contextlib
import dataclasses
import functools
import itertools

import keras
import numpy as np

from realm_tf.answering import recall
from realm_tf.answering.oracle import Given
from realm_tf.answering.predict import Predictor
from realm_tf.data import feeding
from realm_tf.data.question_batches import Curriculum
from realm_tf.data.question_batches import QuestionBatches
from realm_tf.data.question_batches import pattern_strings
from realm_tf.errors import InputError
from realm_tf.models.block_reading import Teachers
from realm_tf.retrieval import hybrid
from realm_tf.retrieval import retrievers
from realm_tf.text import answers
from realm_tf.training import index_builder
from realm_tf.training import resume
from realm_tf.training import run_directory
from realm_tf.training import trainers
from realm_tf.training.index_refresh import IndexVersions
from realm_tf.training.selection import SelectBest
from realm_tf.training.training_log import LOG
from realm_tf.training.training_log import steps_done

# Blocks in which the strings of a pattern are looked for; as many candidates
# at least as a step has.
_PATTERN_BLOCKS = 1000
# Blocks of another retriever that are kept for a question (our choice): its
# order is not learned, and few of them are read. All questions are in memory.
_KEPT_BLOCKS = 100
# The part of a saved state that says which embeddings were searched.
_REFRESH = "index_refresh"
_EXACT_MATCH = "dev_exact_match"
# Steps know how long an answer can be, and how many candidates there are.
_OF_ONE_WIDTH = ("answer_ids", "candidate_ids", "candidate_scores")


def check(recipe, model, directory) -> None:
    """Refuses a recipe that does not fit a model.

    Args:
        recipe: `OpenQaRecipe`.
        model: `OpenQa`.
        directory: `Model`. Its directory.

    Raises:
        InputError: as `OpenQaRecipe.check`, or if towers shall learn that
            cannot.
    """
    recipe.check()
    if recipe.index.refresh_every and not (
        model.share_embedders and recipe.train_query_tower
    ):
        raise InputError(
            "refresh_every needs one tower for queries and blocks, which "
            f"learns; {directory} has two, or train_query_tower is false: "
            "leave refresh_every at 0."
        )


class FineTuning:
    """One run of fine-tuning.

    Args:
        corpus: `Corpus`. Its model is trained.
        recipe: `OpenQaRecipe`.
        stage: `artifact.Stage`. Its metadata get what the run measures.
        model: `Model`. What the corpus's model was loaded from.
        blocks: `Blocks`. What the corpus's records were read from.
        index: `Index`. What the corpus's index was loaded from.
        ranking: `RankingFile`. Of `retriever="file"`. Defaults to `None`.
        teachers: list of `Reader`. Defaults to none.
    """

    def __init__(
        self,
        corpus,
        recipe,
        stage,
        *,
        model,
        blocks,
        index,
        ranking=None,
        teachers=(),
    ):
        self._model = model
        self._blocks = blocks
        self._corpus = corpus
        self._index = index
        self._recipe = recipe
        self._stage = stage
        self._ranking = ranking
        # What finds the blocks, if it is not the model that is trained.
        self._retriever = None
        if recipe.candidates.retriever == "bm25":
            self._retriever = retrievers.make("bm25", corpus)
        # Before the query tower moves.
        self._trainer = make_trainer(corpus, index.embeddings, recipe, teachers)

    def train(self, asked, dev, *, callbacks=(), **fit) -> None:
        """Trains, and leaves the weights of the epoch to keep.

        Args:
            asked: list of lists of `Question`, learned from in this order.
            dev: list of `Question`. The epoch with most exact matches on them
                is kept; empty: the last one.
            callbacks: list of `keras.callbacks.Callback`.
            **fit: more arguments of `resume.fit`.
        """
        recipe, metadata = self._recipe, self._stage.metadata
        if self._ranking:
            self._retriever = Given(
                self._ranking,
                [*itertools.chain(*asked), *dev],
                num_blocks=len(self._corpus.records),
            )
        files = self._read(asked)
        curriculum = Curriculum(files, recipe.num_epochs)
        epoch_ends = curriculum.epoch_ends
        num_steps = epoch_ends[-1]
        trainers.compile_trainer(self._trainer, recipe.optimizer, num_steps)
        parts = {}
        with contextlib.ExitStack() as stack:
            refresh = None
            if recipe.index.refresh_every:
                parts[_REFRESH] = refresh = self._refresh(stack)
            if dev:
                parts["selection"] = self._selection(dev, epoch_ends, refresh)
            metadata["history"] = resume.fit(
                self._trainer,
                curriculum.batches,
                epoch_ends=epoch_ends,
                directory=self._stage.path(run_directory.CHECKPOINT),
                parts=parts,
                callbacks=callbacks,
                feed=functools.partial(
                    feeding.ahead, varying=True, of_one_width=_OF_ONE_WIDTH
                ),
                **run_directory.logs(recipe, self._stage, LOG),
                **fit,
            )
        if dev:
            metadata.update(parts["selection"].restore_best())
        metadata["counts"] = {
            **{
                name: sum(file.counts[name] for file in files)
                for name in files[0].counts
            },
            "steps": steps_done(self._trainer),
        }

    def trained(self):
        """`LoadedModel` to be written."""
        model = self._trainer.open_qa
        # Freezing belongs to a run, not to the model it leaves.
        for part in (model.query_embedder, model.block_embedder, model.reader):
            part.trainable = True
        return dataclasses.replace(self._corpus.loaded, model=model)

    def _read(self, asked):
        """`QuestionBatches` of each file."""
        recipe = self._recipe
        strings = self._strings(asked)
        retriever = self._retriever
        files = []
        for questions in asked:
            questions = [strings.get(q, q) for q in questions]
            files.append(
                QuestionBatches(
                    questions,
                    self._corpus.loaded.tokenizer,
                    batch_size=recipe.batch_size,
                    seed=recipe.seed,
                    candidates=retriever
                    and retriever.search(
                        [q.question for q in questions],
                        min(self._trainer.num_candidates, _KEPT_BLOCKS),
                    ),
                    gold_ids=None
                    if recipe.candidates.gold == "ignore"
                    else recall.gold_blocks(questions, self._corpus.records),
                    near_miss_share=recipe.candidates.near_miss_share,
                    keep_unanswerable=recipe.none_weight > 0,
                    few_shapes=keras.backend.backend() != "tensorflow",
                )
            )
        return files

    def _strings(self, asked):
        """Questions with patterns to the same with strings."""
        questions = [
            question
            for questions in asked
            for question in questions
            if question.answer_type == "regex"
        ]
        if not questions:
            return {}
        questions = list(dict.fromkeys(questions))
        texts = self._corpus.records.texts
        num_blocks = max(_PATTERN_BLOCKS, self._trainer.num_candidates)
        _, block_ids = retrievers.Dense(self._corpus).search(
            [q.question for q in questions], min(num_blocks, len(texts))
        )
        strings = {}
        for question, of_question in zip(questions, block_ids, strict=True):
            found = pattern_strings(
                question, [texts[block_id] for block_id in of_question]
            )
            if found.answers:
                strings[question] = found
        return strings

    def _refresh(self, stack):
        versions = IndexVersions(self._stage.path(run_directory.INDEX))
        directory = self._stage.path(run_directory.CHECKPOINT)
        state = resume.state_of(directory, _REFRESH)
        if state is None:
            versions.write(0, self._index.embeddings)
        else:
            self._trainer.prepare(versions.read(state["index_step"]))()
        loaded = self._corpus.loaded
        length = min(
            self._corpus.records.metadata["max_block_length"],
            loaded.model.block_embedder.max_length,
        )
        return index_builder.keep_index(
            self._recipe.index,
            self._trainer,
            loaded,
            run_directory.open_blocks(self._blocks, length),
            versions=versions,
            max_block_length=length,
            model=self._model,
            stage=self._stage,
            stack=stack,
        )

    def _selection(self, dev, epoch_ends, refresh):
        retriever = self._retriever
        predictor = Predictor(
            self._corpus,
            model=self._trainer.open_qa,
            lexical_weight=_lexical_weight(self._recipe),
        )

        def evaluate():
            if refresh is not None:
                refresh.refresh()
            predictions = predictor.predict(
                [q.question for q in dev], search=retriever and retriever.search
            )
            correct = [
                answers.is_correct(p.answer, *q.accepted)
                for p, q in zip(predictions, dev, strict=True)
            ]
            return {_EXACT_MATCH: np.mean(correct)}

        return SelectBest(
            evaluate,
            self._trainer.open_qa,
            self._stage.path(run_directory.SELECTION),
            at=epoch_ends,
            metric=_EXACT_MATCH,
            patience=self._recipe.patience,
        )


def make_trainer(corpus, embeddings, recipe, teachers=()):
    """`RetrieveAndRead`, with what the recipe says frozen.

    Args:
        corpus: `Corpus`. The parts of its model are trained, but for the
            block tower, which is copied if it is the query tower, too.
        embeddings: float array `(num_blocks, embedding_dim)`. Of the index;
            not read if it is a `BruteForce`.
        recipe: `OpenQaRecipe`.
        teachers: list of `Reader`. Defaults to none.
    """
    model, candidates = corpus.loaded.model, recipe.candidates
    if recipe.train_reader:
        model.reader.max_joint_length = candidates.max_joint_length or None
        num_frozen = recipe.encoders.num_frozen_layers
        trainers.set_up(model.reader, recipe, num_frozen)
    else:
        model.reader.trainable = False
    if candidates.read_titles:
        corpus.read_titles()
    if not recipe.train_query_tower:
        model.query_embedder.trainable = False
        model.block_embedder.trainable = False
    else:
        if not recipe.index.refresh_every:
            model = model.separate_towers()
        trainers.set_up(model.query_embedder, recipe, num_frozen=0)
    exact = hasattr(corpus.index, "embeddings")
    num_rows = recipe.batch_size * candidates.num_reader_blocks
    return corpus.retrieve_and_read(
        model=model,
        lexical_weight=_lexical_weight(recipe),
        num_candidates=candidates.num_candidates,
        num_reader_blocks=candidates.num_reader_blocks,
        read_an_answer=candidates.read_an_answer,
        gold=candidates.gold,
        match_whole_words=candidates.match_whole_words,
        # Of eight rows and more, at most eight.
        num_length_groups=max(1, min(8, num_rows // 8)),
        embeddings=None if exact else np.asarray(embeddings),
        none_weight=recipe.none_weight,
        teachers=Teachers(
            teachers, recipe.teacher_weight, recipe.teacher_temperature
        )
        if teachers
        else None,
    )


def _lexical_weight(recipe):
    """Of BM25 beside f(x, z), or `None`."""
    is_hybrid = recipe.candidates.retriever == "hybrid"
    return hybrid.LEXICAL_WEIGHT if is_hybrid else None
