"""Seconds and memory of one pre-training step at the size of BERT-base.

    python benchmarks/pretraining_step.py

A batch of one masked sentence and eight candidates (the null block is one), as
the paper's workers have it: queries of 96 wordpieces, blocks of 288, random
weights, dropout 0.1. Each way of computing is a process of its own, in turn,
`rounds` times: as it is, with gradient checkpointing, in bfloat16, with both.
Seconds are the least of the warm steps, memory the peak of the process. The
first way is what the others are compared with.
"""

import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tyro

_BERT_BASE = dict(
    vocabulary_size=30_522,
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3_072,
)
_NUM_BLOCKS, _QUERY, _BLOCK, _MASKED = 1_000, 96, 288, 10
_WAYS = {
    "float32": [],
    "checkpointing": ["--checkpointing"],
    "bfloat16": ["--precision", "bfloat16"],
    "bfloat16, checkpointing": ["--precision", "bfloat16", "--checkpointing"],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What is measured, and how often."""

    rounds: int = 3
    num_steps: int = 3
    """warm steps of each process"""
    ways: tuple[str, ...] = tuple(_WAYS)
    step: bool = False
    """measure one way in this process"""
    precision: str = "float32"
    checkpointing: bool = False


def main(args):
    found = {way: [] for way in args.ways}
    for _ in range(args.rounds):
        for way, results in found.items():
            results.append(_in_a_process(args, _WAYS[way]))
    summary = {}
    for way, results in found.items():
        summary[way] = {
            "seconds": round(
                statistics.median(each["seconds"] for each in results), 2
            ),
            "gigabytes": round(
                statistics.median(each["gigabytes"] for each in results), 2
            ),
            "loss": results[0]["loss"],
        }
    return {"cpu": _cpu_flags(), "ways": summary}


def _in_a_process(args, options):
    done = subprocess.run(
        [
            *(sys.executable, __file__, "--step"),
            *("--num-steps", str(args.num_steps), *options),
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def _step(args):
    """Seconds of a warm step, and the peak of memory."""
    from realm_tf.models.precision import computing_in

    with computing_in(args.precision):
        trainer = _trainer(args.checkpointing)
    batch = _batch()
    # It is traced, and the optimizer's moments are made.
    loss = trainer.train_on_batch(batch, return_dict=True)["loss"]
    seconds = []
    for _ in range(args.num_steps):
        started = time.monotonic()
        trainer.train_on_batch(batch)
        seconds.append(time.monotonic() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": min(seconds),
        "gigabytes": peak * 1024 / 1e9,
        "loss": round(float(loss), 4),
    }


def _trainer(checkpointing):
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
    tower = Embedder(BertEncoder(**_BERT_BASE))
    encoder = KnowledgeAugmentedEncoder(BertEncoder(**_BERT_BASE))
    for part in (tower.encoder, encoder.encoder):
        part.set_recompute(checkpointing)
    # With [CLS], a title of six wordpieces and two [SEP].
    length = _BLOCK - 9
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
        max_block_length=_BLOCK,
        max_joint_length=_QUERY + _BLOCK,
    )
    trainers.compile_trainer(trainer, Optimizer(), 100)
    return trainer


def _batch():
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


def _cpu_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        words = set(file.read().split())
    names = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
    return [name for name in names if name in words]


if __name__ == "__main__":
    arguments = tyro.cli(Arguments, description=__doc__)
    measured = _step(arguments) if arguments.step else main(arguments)
    print(json.dumps(measured, indent=None if arguments.step else 1))
