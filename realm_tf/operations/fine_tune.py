"""`realm finetune`."""

import dataclasses
from typing import Literal

from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.question_files import Questions
from realm_tf.artifacts.question_files import read_questions
from realm_tf.artifacts.ranking_file import RankingFile
from realm_tf.configs import dpr
from realm_tf.configs import finetune
from realm_tf.errors import InputError
from realm_tf.operations.training import Training


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTune(Training):
    """Fine-tunes retriever and reader on questions with answers.

    The query tower and the reader learn; the block tower and the index stay
    fixed. With --set refresh_every=N, both towers learn; embed and index the
    blocks again afterwards. With a recipe of dpr, only the towers learn, with
    BM25's blocks as hard negatives; afterwards embed and index the blocks, and
    fine-tune the reader. Run an interrupted command again to continue.
    """

    command = "finetune"
    recipes = {**finetune.RECIPES, **dpr.RECIPES}

    recipe: Literal[*finetune.RECIPES, *dpr.RECIPES] = "laptop"
    """recipe by name; those of dpr train only the towers"""
    index: Index | None = None
    """index directory over these blocks, made with this model's block tower;
    not with a recipe of dpr"""
    questions: tuple[Questions, ...]
    """JSONL with question and answer; several files follow each other, each for
    num_epochs (dpr mixes them); "answer": [] means that no block answers"""
    teacher: tuple[Model, ...] = ()
    """models of the same vocabulary, usually larger; the reader also learns the
    mean of their probabilities; not with a recipe of dpr (if not given: none)"""
    ranking: RankingFile | None = None
    """with --set retriever=file: a run of trec_eval or the JSON of DPR's
    retriever, whose documents are block ids; in a run, questions without ids are
    numbered over all files and then --dev"""
    dev: Questions | None = None
    """questions that choose the best epoch, none of them in --questions (if not
    given: the last epoch)"""

    @property
    def _is_dpr(self):
        return isinstance(self.settings, dpr.DprRecipe)

    def check(self) -> None:
        if self._is_dpr:
            names = ("index", "teacher", "ranking")
            self.refuse_given(names, "a recipe of dpr")
        elif self.index is None:
            raise InputError(
                "--index is needed: make one with `realm embed` and `realm "
                "index`."
            )
        elif (self.settings.candidates.retriever == "file") != bool(
            self.ranking
        ):
            raise InputError(
                "--set retriever=file reads what --ranking names: give both or "
                "neither."
            )
        elif not self.settings.train_reader:
            self.refuse_given(["teacher"], "--set train_reader=false")
        for teacher in self.teacher:
            matching.check_teacher(
                teacher, model=self.model, candidates=self.settings.candidates
            )
        super().check()

    def run(self, **fit) -> Model:
        """Trains and writes a new model directory.

        Args:
            **fit: `verbose`, `callbacks` and `every_seconds` of
                `training.resume.fit`.

        Returns:
            `Model`; its metadata hold `history`, the metrics of each epoch;
            those on dev as `dev_...`.

        Raises:
            InputError: if the inputs do not match, no question has a block
                that answers it (dpr), or training diverges.
        """
        # Before the model is loaded: a line may be damaged.
        asked = [
            read_questions(each, need_answers="key") for each in self.questions
        ]
        dev = self.dev.questions if self.dev else []
        (self._train_towers if self._is_dpr else self._train)(asked, dev, fit)
        return self.result

    def _train_towers(self, asked, dev, fit):
        from realm_tf.training import dense_retrieval

        asked = {"questions": [each for file in asked for each in file]}
        if dev:
            asked["dev"] = dev
        with self.train() as (loaded, stage):
            dense_retrieval.train(
                loaded, self.blocks, asked, self.settings, stage, **fit
            )

    def _train(self, asked, dev, fit):
        import keras

        from realm_tf.answering.corpus import Corpus
        from realm_tf.models import model_directory
        from realm_tf.training import devices
        from realm_tf.training import fine_tuning
        from realm_tf.training import hosts

        hosts.stay_alone(self.command)
        self.check()
        with devices.use_all(self.settings.batch_size), self.write() as stage:
            # Before the model, whose dropout draws its seeds when it is made.
            keras.utils.set_random_seed(self.settings.seed)
            corpus = Corpus.load(
                self.model,
                self.blocks,
                self.index,
                precision=self.computes_in,
                for_training=True,
            )
            fine_tuning.check(self.settings, corpus.loaded.model, self.model)
            run = fine_tuning.FineTuning(
                corpus,
                self.settings,
                stage,
                model=self.model,
                blocks=self.blocks,
                index=self.index,
                ranking=self.ranking,
                teachers=[
                    model_directory.load(
                        each, precision=self.computes_in
                    ).model.reader
                    for each in self.teacher
                ],
            )
            run.train(asked, dev, **fit)
            model_directory.write_files(run.trained(), stage)

    def report(self, result: Model) -> str:
        text = super().report(result)
        if self._is_dpr or self.settings.index.refresh_every:
            text += (
                "\nThe block tower has moved: run `realm embed` and `realm "
                "index` with the new model."
            )
        return text
