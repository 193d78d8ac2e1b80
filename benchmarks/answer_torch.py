"""Seconds from a question to its answer, beside transformers' REALM.

    python benchmarks/answer_torch.py --peer-python PEER/bin/python \
        --vocab vocab.txt --output DIR --num-blocks 100000

Both are of BERT-base's size with random weights, over the same blocks of 279
random words and the same embeddings, and read five blocks of some 312
wordpieces with each question, one question at a time. Ours searches with ScaNN,
the peer multiplies with all embeddings.
`torch_worker.py` says how the peer's environment is made. Model, blocks and
index stay in OUTPUT.

Ratios are a peer's seconds to ours: median, least and highest of the rounds.
"""

import dataclasses
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pairs
import tyro

_NUM_TEXTS, _NUM_WORDS = 400, 279
_QUESTIONS, _QUESTION_WORDS = 4, 29
_INDEX = "scann"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What is measured."""

    output: str
    vocab: str | None = None
    """vocab.txt of an uncased BERT"""
    peer_python: str = sys.executable
    """interpreter of the peer's environment"""
    num_blocks: int = 100_000
    worker: bool = False
    """be the worker of what is in OUTPUT"""


def main(args):
    folder = os.path.join(args.output, str(args.num_blocks))
    _make(args, folder)
    ours = [sys.executable, __file__, "--worker", "--output", args.output]
    ours += ["--num-blocks", str(args.num_blocks)]
    peers = pairs.torch_workers(args.peer_python, "answer", folder)
    found = pairs.measure({"ours": ours, **peers})
    for result in found.values():
        result["seconds_per_question"] = round(
            result["seconds"] / _QUESTIONS, 3
        )
    return {"cpu": pairs.cpu_flags(), "num_blocks": args.num_blocks, **found}


def _make(args, folder):
    """Model, blocks, embeddings and index, and what the peer reads."""
    import drawn

    import realm_tf as realm

    random = np.random.default_rng(0)
    vocabulary = pathlib.Path(args.vocab).read_text().splitlines()
    words = [w for w in vocabulary if w.isascii() and w.isalpha() and w[2:]]

    def text(num_words):
        return " ".join(random.choice(words, num_words))

    model = _once(
        realm.Init(
            from_="random",
            vocab=args.vocab,
            set=(
                *("num_layers=12", "num_heads=12"),
                *("hidden_dim=768", "intermediate_dim=3072"),
            ),
            output=os.path.join(args.output, "model"),
        )
    )
    os.makedirs(folder, exist_ok=True)
    lines = [
        {"id": str(number), "title": "", "text": f"{text(_NUM_WORDS)}."}
        for number in range(_NUM_TEXTS)
    ]
    articles = os.path.join(args.output, "articles.jsonl")
    with open(articles, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    texts = _once(
        realm.Chunk(
            input=[articles],
            vocab=args.vocab,
            unit="rows",
            output=os.path.join(args.output, "texts"),
        )
    )
    drawn.make_corpus(model.path, texts.path, folder, args.num_blocks, _INDEX)
    shards = sorted(pathlib.Path(folder, "embeddings").glob("*.npy"))
    np.save(f"{folder}/peer.npy", np.concatenate([*map(np.load, shards)]))
    content = {
        "vocab": os.path.abspath(args.vocab),
        "texts": [line["text"] for line in lines],
        "questions": [text(_QUESTION_WORDS) for _ in range(_QUESTIONS)],
    }
    pathlib.Path(folder, "peer.json").write_text(json.dumps(content))


def _once(operation):
    """The output of an operation, made where it is missing."""
    if not operation.result.is_complete:
        operation.run()
    return operation.result


def _work(args):
    from realm_tf.answering.corpus import Corpus
    from realm_tf.answering.predict import Predictor

    folder = os.path.join(args.output, str(args.num_blocks))
    corpus = Corpus.load(
        os.path.join(args.output, "model"),
        f"{folder}/blocks",
        f"{folder}/{_INDEX}",
        precision="auto",
    )
    predictor = Predictor(corpus, num_candidates=5)
    content = json.loads(pathlib.Path(folder, "peer.json").read_text())

    def answer():
        for question in content["questions"]:
            predictor.predict([question])

    return answer


if __name__ == "__main__":
    arguments = tyro.cli(Arguments, description=__doc__)
    if arguments.worker:
        pairs.serve(_work(arguments), gigabytes=pairs.peak_gigabytes)
    else:
        print(json.dumps(main(arguments), indent=1))
