"""Makes the package's reader of what `teach_reader.py` wrote.

    python benchmarks/package_reader.py --weights reader.npz --data-dir DIR --output DIR

--data-dir is that of `sample_questions.py`. OUTPUT gets a model directory, "model",
with MiniLM's towers, and the answers by which its confidence is fitted: to 747
questions of dev about Wikipedia, and to those of organisations and products of
organisations.py that are dev, with questions that cannot be answered. Writes
trained_reader.npz, and prints how well confidence tells right answers from near
misses: of each corpus, fitted to the others.
"""

import dataclasses
import json
import pathlib

import numpy as np
import organisations
import runs
import sample_questions
import scipy.special
import tyro

import realm_tf as realm
from realm_tf.answering import calibration
from realm_tf.answering import retrieve_and_answer
from realm_tf.artifacts.question_files import Questions
from realm_tf.checkpoints import trained_reader
from realm_tf.models import model_directory
from realm_tf.models.reader import Reader
from realm_tf.text import answers

_WIDTH, _LENGTH = 32, 320
_EPSILON = 1e-5
# Confidence is then the sigmoid of the reader's score.
_PLAIN = calibration.Calibration(0.0, 1.0, calibration.LOWEST)
# Name of a layer here to that of transformers.
_LAYERS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "self_attention_layer_norm": "attention.output.LayerNorm",
    "feedforward_intermediate_dense": "intermediate.dense",
    "feedforward_output_dense": "output.dense",
    "feedforward_layer_norm": "output.LayerNorm",
}


def main(*, weights: str, data_dir: str, output: str, wheel: str | None = None):
    """Writes the model and trained_reader.npz.

    Args:
        weights: what `teach_reader.py` wrote.
        data_dir: corpus and questions.
        output: where everything is kept.
        wheel: that of `realm init --wheel`.
    """
    steps = runs.Runs(output)
    start = steps.add(realm.Init, "start", from_="minilm", wheel=wheel)
    corpus = f"{data_dir}/corpus.jsonl.gz"
    blocks = steps.add(
        realm.Chunk, "blocks", input=corpus, vocab=start.vocabulary
    )
    index = steps.index(start, blocks)
    steps.graph.run()
    loaded = model_directory.load(start)
    with np.load(weights) as file:
        loaded.model.reader = make_reader(
            loaded.model.reader.encoder, dict(file)
        )
    plain = f"{output}/model"
    loaded = dataclasses.replace(loaded, calibration=dataclasses.asdict(_PLAIN))
    model_directory.save(loaded, plain, parameters={"weights": weights})
    asked = {"wikipedia": _wikipedia(plain, blocks, index, data_dir, output)}
    organisations.main(model=plain, output=f"{output}/asked")
    for name in ("organisations", "products"):
        path = pathlib.Path(output, "asked", name, "answers.jsonl")
        asked[name] = [
            (
                scipy.special.logit(np.clip(row["confidence"], 1e-9, 1 - 1e-7)),
                row["is_right"],
                "near_miss" not in row,
            )
            for row in map(json.loads, path.read_text().splitlines())
            if row["given"] and not ("near_miss" in row and row["is_right"])
        ]
    fitted = fit(asked)
    print(json.dumps(told(asked), indent=1))
    trained_reader.write(
        loaded.model.reader, dataclasses.asdict(fitted), trained_reader.FILE
    )
    return dataclasses.asdict(fitted)


def make_reader(encoder, arrays) -> Reader:
    """A reader of the weights of `teach_reader.py`.

    Args:
        encoder: `BertEncoder`, whose weights become the reader's.
        arrays: dict. Name to array.
    """
    reader = Reader(
        encoder,
        max_span_width=_WIDTH,
        layer_norm_epsilon=_EPSILON,
        reads_titles=True,
        max_joint_length=_LENGTH,
        none_span=True,
    )
    values = {}
    for table, name in (
        ("token_embedding/embeddings", "word_embeddings"),
        ("position_embedding/embeddings", "position_embeddings"),
        ("segment_embedding/embeddings", "token_type_embeddings"),
    ):
        values[table] = arrays[f"encoder.embeddings.{name}.weight"]
    ours = {"embeddings_layer_norm": "encoder.embeddings.LayerNorm"}
    for number in range(encoder.num_layers):
        for name, theirs in _LAYERS.items():
            ours[f"transformer_layer_{number}/{name}"] = (
                f"encoder.encoder.layer.{number}.{theirs}"
            )
    for name, theirs in ours.items():
        weight, bias = arrays[f"{theirs}.weight"], arrays[f"{theirs}.bias"]
        is_norm = name.endswith("norm")
        values[f"{name}/{'gamma' if is_norm else 'kernel'}"] = weight.T
        values[f"{name}/{'beta' if is_norm else 'bias'}"] = bias
    for variable in encoder.weights:
        name = variable.path.replace("self_attention_layer/", "")
        # Nothing reads the pooled [CLS].
        if "pooled_dense" not in name:
            variable.assign(values.pop(name).reshape(variable.shape))
    assert not values, values.keys()
    scorer, none = reader.get_layer("span_scorer"), reader.get_layer("none")
    ends = [arrays["start.weight"].T, arrays["end.weight"].T]
    scorer.endpoints.kernel.assign(np.concatenate(ends, axis=1))
    biases = arrays["start.bias"], arrays["end.bias"]
    scorer.endpoints.bias.assign(np.concatenate(biases))
    scorer.layer_norm.gamma.assign(arrays["norm.weight"])
    scorer.layer_norm.beta.assign(arrays["norm.bias"])
    scorer.score.kernel.assign(arrays["out.weight"].T)
    none.kernel.assign(arrays["none.weight"].T)
    none.bias.assign(arrays["none.bias"])
    return reader


def _wikipedia(model, blocks, index, data_dir, output):
    """Reader's score, whether right, whether answerable: of dev."""
    folder = pathlib.Path(output, "questions")
    sample_questions.main(
        questions=pathlib.Path(data_dir, "questions"),
        corpus=pathlib.Path(data_dir, "corpus.jsonl.gz"),
        output=folder,
    )
    asked = [
        question
        for name in ("dev", "further_dev")
        for question in Questions(str(folder / f"{name}.jsonl")).questions
    ]
    answered = retrieve_and_answer.answer(
        realm.Model(model),
        blocks,
        index,
        asked,
        retriever="hybrid",
        num_reader_blocks=5,
        precision="auto",
        calibrate=True,
    )
    found = [
        (each.reader_score, _is_right(question, each), True)
        for question, each in zip(asked, answered.predictions, strict=True)
        if each.nbest
    ]
    missing = [
        (each.reader_score, False, False)
        for each in answered.unanswerable
        if each.nbest
    ]
    return found + missing


def _is_right(question, prediction):
    return answers.is_correct(
        prediction.answer,
        question.answers,
        question.answer_type,
        question.language,
    )


def fit(asked) -> calibration.Calibration:
    """A calibration of corpora that count alike.

    Args:
        asked: dict. Name to a list of `(score, is_right, is_answerable)`.
    """
    scores, is_right, is_answerable = zip(
        *(row for rows in asked.values() for row in rows), strict=True
    )
    return calibration.fit_scores(
        scores,
        is_right,
        is_answerable=is_answerable,
        groups=np.repeat(list(asked), [len(rows) for rows in asked.values()]),
    )


def told(asked) -> dict:
    """Of each corpus, with what is fitted to the others."""
    found = {}
    for name, rows in asked.items():
        fitted = fit({n: each for n, each in asked.items() if n != name})
        scores, is_right, is_answerable = map(np.array, zip(*rows, strict=True))
        is_given = fitted.confidence(scores) >= fitted.least_confidence
        near = scores[~is_answerable.astype(bool)]
        right = scores[is_right.astype(bool)]
        higher = np.sign(np.subtract.outer(right, near)).mean()
        found[name] = {
            "right": int(is_right.sum()),
            "near misses": len(near),
            "refused": float(1 - is_given[is_answerable == 0].mean()),
            "right refused": float(1 - is_given[is_right == 1].mean()),
            "area": float(0.5 + higher / 2),
        }
    return found


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=1))
