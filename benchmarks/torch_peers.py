"""Embedding and answering, beside PyTorch in the same run.

    python benchmarks/torch_peers.py embedding --peer-python PEER/bin/python \
        --model MODEL --corpus corpus.jsonl
    python benchmarks/torch_peers.py answer --peer-python PEER/bin/python \
        --vocab vocab.txt --output DIR --num-blocks 100000

Peers compute in float32, and in bfloat16 by torch.autocast; `torch_worker.py`
describes their environment. Ratios are a peer's seconds to ours: median, least and
highest of the rounds.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pairs
import tyro

_LENGTH, _NUM_BLOCKS = 288, 16
_BATCH_SIZE = 32
_NUM_PASSAGES = 1_500
_NUM_TEXTS, _NUM_WORDS = 400, 279
_QUESTIONS, _QUESTION_WORDS = 4, 29
_INDEX = "scann"


def embedding(*, peer_python: str, model: str, corpus: str):
    """Blocks embedded in a second.

    `minilm`: from texts to embeddings, of passages of natural length spread
    evenly over the corpus; the peer is sentence-transformers. `bert-base`: 16
    blocks of 288 wordpieces through a BERT of random weights with REALM's
    projection; the peer is transformers' RealmEmbedder.

    Args:
        model: directory of `realm init --from minilm`.
        corpus: passages, JSONL.
    """
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        for work, number in (
            ("minilm", _NUM_PASSAGES),
            ("bert-base", _NUM_BLOCKS),
        ):
            inputs = os.path.join(directory, work)
            if work == "minilm":
                _write_texts(corpus, inputs)
            else:
                _write_ids(inputs)
            found[work] = _measure(peer_python, work, inputs, model)
            for result in found[work].values():
                result["blocks_per_second"] = number / result["seconds"]
    return found


def answer(
    *, peer_python: str, vocab: str, output: str, num_blocks: int = 100_000
):
    """Seconds from a question to its answer, one question at a time.

    Both sides are of BERT-base's size with random weights, over the same blocks
    of 279 random words and the same embeddings, and read five blocks with each
    question. Ours searches with ScaNN; the peer, transformers' RealmForOpenQA,
    multiplies with all embeddings.

    Args:
        vocab: vocab.txt of an uncased BERT.
        output: where model, blocks and index stay.
    """
    folder = os.path.join(output, str(num_blocks))
    model = _make_corpus(vocab, output, folder, num_blocks)
    found = _measure(peer_python, "answer", folder, model)
    for result in found.values():
        result["seconds_per_question"] = result["seconds"] / _QUESTIONS
    return found


def _measure(peer_python, work, inputs, model):
    ours = [sys.executable, __file__, "worker", "--work", work]
    ours += ["--inputs", inputs, "--model", model]
    peers = pairs.torch_workers(peer_python, work, inputs)
    return pairs.measure({"ours": ours, **peers})


def worker(*, work: str, inputs: str, model: str):
    """Our process of a measurement."""
    make = {
        "minilm": _embed_texts,
        "bert-base": _embed_ids,
        "answer": _answer,
    }[work]
    pairs.serve(make(inputs, model))


def _write_texts(corpus, path):
    from realm_tf.articles import readers

    pages = [(p.title, p.text) for p in readers.read_pages(corpus)]
    places = np.linspace(0, len(pages) - 1, _NUM_PASSAGES).astype(int)
    with open(path, "w", encoding="utf-8") as file:
        json.dump([pages[place] for place in places], file)


def _write_ids(path):
    random = np.random.default_rng(0)
    token_ids = random.integers(1_000, 30_000, (_NUM_BLOCKS, _LENGTH))
    segment_ids = np.zeros_like(token_ids)
    segment_ids[:, 13:] = 1
    with open(path, "wb") as file:
        np.savez(
            file,
            token_ids=token_ids,
            segment_ids=segment_ids,
            padding_mask=np.ones_like(token_ids),
        )


def _make_corpus(vocab, output, folder, num_blocks):
    """Makes model, blocks and index, and the peer's files; returns the model."""
    import drawn
    import runs

    import realm_tf as realm

    random = np.random.default_rng(0)
    vocabulary = pathlib.Path(vocab).read_text().splitlines()
    words = [w for w in vocabulary if w.isascii() and w.isalpha() and w[2:]]

    def text(num_words):
        return " ".join(random.choice(words, num_words))

    os.makedirs(folder, exist_ok=True)
    lines = [
        {"id": str(number), "title": "", "text": f"{text(_NUM_WORDS)}."}
        for number in range(_NUM_TEXTS)
    ]
    articles = os.path.join(output, "articles.jsonl")
    with open(articles, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    steps = runs.Runs(output)
    sizes = ("num_layers=12", "num_heads=12", "hidden_dim=768")
    model = steps.add(
        realm.Init,
        "model",
        from_="random",
        vocab=vocab,
        set=(*sizes, "intermediate_dim=3072"),
    )
    texts = steps.add(
        realm.Chunk, "texts", input=[articles], vocab=vocab, unit="rows"
    )
    steps.graph.run()
    drawn.make_corpus(model.path, texts.path, folder, num_blocks, _INDEX)
    shards = sorted(pathlib.Path(folder, "embeddings").glob("*.npy"))
    np.save(f"{folder}/peer.npy", np.concatenate([*map(np.load, shards)]))
    content = {
        "vocab": os.path.abspath(vocab),
        "texts": [line["text"] for line in lines],
        "questions": [text(_QUESTION_WORDS) for _ in range(_QUESTIONS)],
    }
    pathlib.Path(folder, "peer.json").write_text(json.dumps(content))
    return model.path


def _embed_texts(inputs, model):
    from realm_tf.models import model_directory
    from realm_tf.retrieval.block_embedder import BlockEmbedder

    with open(inputs, encoding="utf-8") as file:
        texts = json.load(file)
    loaded = model_directory.load(model, precision="auto")
    embedder = BlockEmbedder(loaded, max_length=256)

    def embed():
        titles, bodies = (
            [loaded.tokenizer.tokenize_text(text)[0] for text in column]
            for column in zip(*texts, strict=True)
        )
        lengths = np.array([*map(len, titles)]) + [*map(len, bodies)]
        embedder.embed_all(
            lengths,
            lambda places: (
                [titles[place] for place in places],
                [bodies[place] for place in places],
            ),
            batch_size=_BATCH_SIZE,
        )

    return embed


def _embed_ids(inputs, _):
    from realm_tf.models.bert_encoder import BertEncoder
    from realm_tf.models.embedder import Embedder
    from realm_tf.models.precision import computing_in
    from realm_tf.retrieval.block_embedder import predict

    with computing_in("auto"):
        tower = Embedder(BertEncoder(30_522, 12, 12, 768, 3_072))
    with np.load(inputs) as arrays:
        ids = {name: array.astype("int32") for name, array in arrays.items()}
    return lambda: predict(tower, ids)


def _answer(folder, model):
    from realm_tf.answering.corpus import Corpus
    from realm_tf.answering.predict import Predictor

    corpus = Corpus.load(
        model, f"{folder}/blocks", f"{folder}/{_INDEX}", precision="auto"
    )
    predictor = Predictor(corpus, num_candidates=5)
    content = json.loads(pathlib.Path(folder, "peer.json").read_text())

    def answer_all():
        for question in content["questions"]:
            predictor.predict([question])

    return answer_all


if __name__ == "__main__":
    commands = {"embedding": embedding, "answer": answer, "worker": worker}
    found = tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
    if found:
        print(json.dumps(found, indent=1))
