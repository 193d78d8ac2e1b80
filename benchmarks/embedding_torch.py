"""Blocks embedded in a second, beside PyTorch in the same run.

    python benchmarks/embedding_torch.py --peer-python PEER/bin/python \
        --model MODEL --corpus corpus.jsonl

`minilm`: texts to embeddings of passages of natural length, spread evenly over
a corpus, tokenizing included; MODEL is what `realm init --from minilm` makes,
the peer is sentence-transformers. `bert-base`: 16 blocks of 288 wordpieces
through a BERT of random weights with REALM's projection; the peer is
transformers' RealmEmbedder. Peers compute in float32, and in bfloat16 by
torch.autocast; `torch_worker.py` says how their environment is made.

Ratios are a peer's seconds to ours: median, least and highest of the rounds.
"""

import dataclasses
import json
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pairs
import tyro

_LENGTH, _NUM_BLOCKS = 288, 16
_BATCH_SIZE = 32
_NUM_PASSAGES = 1_500
_WORK = ("minilm", "bert-base")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What is measured."""

    peer_python: str = sys.executable
    """interpreter of the peer's environment"""
    model: str | None = None
    """MiniLM's directory"""
    corpus: str | None = None
    """passages, JSONL"""
    worker: str | None = None
    """be the worker of these inputs"""


def main(args):
    found = {"cpu": pairs.cpu_flags()}
    with tempfile.TemporaryDirectory() as directory:
        for work in _WORK:
            is_texts = work == "minilm"
            inputs = os.path.join(directory, f"{work}.npz")
            (_write_texts if is_texts else _write_ids)(args, inputs)
            ours = [sys.executable, __file__, "--worker", inputs]
            ours += ["--model", args.model] if is_texts else []
            peers = pairs.torch_workers(args.peer_python, work, inputs)
            found[work] = pairs.measure({"ours": ours, **peers})
            number = _NUM_PASSAGES if is_texts else _NUM_BLOCKS
            for result in found[work].values():
                result["blocks_per_second"] = round(
                    number / result["seconds"], 2
                )
    return found


def _write_texts(args, path):
    from realm_tf.articles import readers

    pages = [(p.title, p.text) for p in readers.read_pages(args.corpus)]
    places = np.linspace(0, len(pages) - 1, _NUM_PASSAGES).astype(int)
    with open(path, "w", encoding="utf-8") as file:
        json.dump([pages[place] for place in places], file)


def _write_ids(args, path):
    random = np.random.default_rng(0)
    token_ids = random.integers(1_000, 30_000, (_NUM_BLOCKS, _LENGTH))
    segment_ids = np.zeros_like(token_ids)
    segment_ids[:, 13:] = 1
    np.savez(
        path,
        token_ids=token_ids,
        segment_ids=segment_ids,
        padding_mask=np.ones_like(token_ids),
    )


def _work_on_texts(args):
    from realm_tf.models import model_directory
    from realm_tf.retrieval.block_embedder import BlockEmbedder

    with open(args.worker, encoding="utf-8") as file:
        texts = json.load(file)
    loaded = model_directory.load(args.model, precision="auto")
    embedder = BlockEmbedder(loaded, max_length=256)
    tokenizer = loaded.tokenizer

    def embed():
        titles, bodies = (
            [tokenizer.tokenize_text(text)[0] for text in column]
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


def _work_on_ids(args):
    from realm_tf.models.bert_encoder import BertEncoder
    from realm_tf.models.embedder import Embedder
    from realm_tf.models.precision import computing_in
    from realm_tf.retrieval.block_embedder import predict

    with computing_in("auto"):
        tower = Embedder(
            BertEncoder(
                vocabulary_size=30_522,
                num_layers=12,
                num_heads=12,
                hidden_dim=768,
                intermediate_dim=3_072,
            )
        )
    with np.load(args.worker) as arrays:
        inputs = {name: array.astype("int32") for name, array in arrays.items()}
    return lambda: predict(tower, inputs)


if __name__ == "__main__":
    arguments = tyro.cli(Arguments, description=__doc__)
    if arguments.worker:
        make = _work_on_texts if arguments.model else _work_on_ids
        pairs.serve(make(arguments))
    else:
        print(json.dumps(main(arguments), indent=1))
