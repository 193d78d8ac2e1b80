"""Seconds and memory of one pre-training step at the size of BERT-base.

    python benchmarks/pretraining_step.py --peer-python PEER/bin/python

A batch of one masked sentence and eight candidates (the null block is one), as
the paper's workers have it: queries of 96 wordpieces, blocks of 288, random
weights, dropout 0.1. Each way of computing is a process of its own, three times
in turn: as it is, with gradient checkpointing, in bfloat16, with both.
Seconds are the least of the warm steps, memory the peak of the process.

With the interpreter of a peer's environment (`torch_worker.py`), transformers'
RealmScorer and RealmKnowledgeAugEncoder compute the forward and the backward
pass of the same sizes, without an optimizer's step, which ours takes. `ratio`
is the peer's seconds to those of a way, in each round: median, least and
highest.
"""

import dataclasses
import json
import os
import statistics
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pairs
import tyro

BERT_BASE = dict(
    vocabulary_size=30_522,
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3_072,
)
# [CLS] title [SEP] body [SEP].
BLOCK_LENGTH = 288
_NUM_BLOCKS, _QUERY, _MASKED = 1_000, 96, 10
_NUM_CANDIDATES = 8
_WAYS = {
    "float32": [],
    "checkpointing": ["--checkpointing"],
    "bfloat16": ["--precision", "bfloat16"],
    "bfloat16, checkpointing": ["--precision", "bfloat16", "--checkpointing"],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What is measured, and how often."""

    num_steps: int = 3
    """warm steps of each process"""
    ways: tuple[str, ...] = tuple(_WAYS)
    peer_python: str | None = None
    """interpreter of the peer's environment"""
    step: bool = False
    """be the process of one way"""
    precision: str = "float32"
    checkpointing: bool = False


def main(args):
    ours = [sys.executable, __file__, "--step"]
    commands = {way: ours + _WAYS[way] for way in args.ways}
    with tempfile.TemporaryDirectory() as directory:
        if args.peer_python:
            inputs = os.path.join(directory, "inputs.npz")
            np.savez(inputs, **peer_inputs())
            commands |= pairs.torch_workers(
                args.peer_python, "pretraining-step", inputs
            )
        found = {name: [] for name in commands}
        for _ in range(pairs.ROUNDS):
            for name, command in commands.items():
                found[name].append(_in_a_process(command, args.num_steps))
    return {"cpu": pairs.cpu_flags(), "ways": _summary(found, args.ways)}


def _in_a_process(command, num_steps):
    # Two of them do not fit into the memory of a small machine.
    worker = pairs.Worker(command)
    runs = [worker.run() for _ in range(num_steps)]
    worker.stop()
    return {**runs[-1], "seconds": min(run["seconds"] for run in runs)}


def _summary(found, ways):
    summary = {}
    for name, results in found.items():
        summary[name] = {
            each: round(statistics.median(run[each] for run in results), 2)
            for each in results[0]
        }
    for name in set(found) - set(ways):
        for way in ways:
            ratios = [
                theirs["seconds"] / ours["seconds"]
                for theirs, ours in zip(found[name], found[way], strict=True)
            ]
            summary[way][f"ratio to {name}"] = pairs.spread(ratios)
    return summary


def peer_inputs(batch_size=1):
    """Arrays of the same sizes, as the peer wants them.

    Args:
        batch_size: int. Of the same sentence. Defaults to `1`.
    """
    random = np.random.default_rng(1)
    batch = {
        name: np.repeat(rows, batch_size, axis=0)
        for name, rows in make_batch().items()
    }
    length = _QUERY + BLOCK_LENGTH
    shape = batch_size, _NUM_CANDIDATES
    candidates = random.integers(1_000, 30_000, (*shape, BLOCK_LENGTH))
    joint = random.integers(1_000, 30_000, (*shape, length))
    joint[:, :, :_QUERY] = batch["token_ids"][:, None]
    labels = np.full((batch_size, length), -100)
    labels[:, batch["mask_positions"][0]] = batch["mask_ids"]
    return {
        "query_ids": batch["token_ids"],
        "candidate_ids": candidates,
        "candidate_segments": np.ones_like(candidates),
        "joint_ids": joint,
        "joint_segments": np.broadcast_to(
            np.arange(length) >= _QUERY, joint.shape
        ),
        "labels": labels,
    }


def _step(args):
    from realm_tf.models.precision import computing_in

    with computing_in(args.precision):
        trainer = make_trainer(args.checkpointing)
    batch = make_batch()
    pairs.serve(
        lambda: trainer.train_on_batch(batch),
        gigabytes=pairs.peak_gigabytes,
        loss=lambda: float(trainer.get_metrics_result()["loss"]),
    )


def make_trainer(checkpointing):
    import keras

    from realm_tf.configs.recipes import Optimizer
    from realm_tf.models.bert_encoder import BertEncoder
    from realm_tf.models.block_table import BlockTable
    from realm_tf.models.embedder import Embedder
    from realm_tf.models.knowledge_augmented_encoder import (
        KnowledgeAugmentedEncoder,
    )
    from realm_tf.models.realm import RealmModel
    from realm_tf.retrieval.brute_force import BruteForce
    from realm_tf.training import trainers

    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    tower = Embedder(BertEncoder(**BERT_BASE))
    encoder = KnowledgeAugmentedEncoder(BertEncoder(**BERT_BASE))
    for part in (tower.encoder, encoder.encoder):
        part.set_recompute(checkpointing)
    # With [CLS], a title of six wordpieces and two [SEP].
    length = BLOCK_LENGTH - 9
    trainer = RealmModel(
        tower,
        tower,
        encoder,
        BruteForce(
            random.normal(size=(_NUM_BLOCKS, tower.embedding_dim)).astype(
                "float32"
            )
        ),
        BlockTable(
            random.integers(1_000, 30_000, (_NUM_BLOCKS, length)),
            np.full(_NUM_BLOCKS, length),
            title_ids=random.integers(1_000, 30_000, (_NUM_BLOCKS, 6)),
            title_lengths=np.full(_NUM_BLOCKS, 6),
        ),
        cls_id=101,
        sep_id=102,
        max_block_length=BLOCK_LENGTH,
        max_joint_length=_QUERY + BLOCK_LENGTH,
    )
    trainers.compile_trainer(trainer, Optimizer(), 100)
    return trainer


def make_batch():
    random = np.random.default_rng(1)
    token_ids = random.integers(1_000, 30_000, (1, _QUERY)).astype("int32")
    sentence = token_ids[:, 1:-1].copy()
    positions = np.sort(random.permutation(np.arange(1, _QUERY - 1))[:_MASKED])
    mask_ids = token_ids[:, positions]
    token_ids[:, [0, -1]] = 101, 102
    token_ids[:, positions] = 103
    return {
        "token_ids": token_ids,
        "padding_mask": np.ones_like(token_ids),
        "mask_positions": positions[None].astype("int32"),
        "mask_ids": mask_ids,
        "mask_weights": np.ones_like(mask_ids),
        "sentence_ids": sentence,
        "block_id": np.array([-1], "int32"),
    }


if __name__ == "__main__":
    arguments = tyro.cli(Arguments, description=__doc__)
    if arguments.step:
        _step(arguments)
    else:
        print(json.dumps(main(arguments), indent=1))
