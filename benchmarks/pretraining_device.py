"""The paper's pre-training on one accelerator: speed, memory, an index beside it.

    KERAS_BACKEND=jax python benchmarks/pretraining_device.py \
        --blocks DIR --passages DIR --output DIR [--peer-python python]

`realm pretrain --recipe paper` with BERT-base of random weights. The blocks are
repeated to the given number, and the first index is drawn at random. TensorFlow is
not needed. A way of computing is BATCH or BATCH-checkpointing: the
examples of a step, of which 512 make one update. In the first way, builders on the
same device make the index again beside the steps, until it is exchanged.

For every way: median seconds of a step, wordpieces a second (with padding), the
share of the operations a second that a product of two matrices of 8,192 reaches on
the device (with checkpointing no operation counts twice), and the peak of the
device's memory beside that of `realm plan`. The peer is transformers' REALM,
forward and backward pass alone, without a search, an optimizer or an index
(`torch_worker.py` describes its environment).
"""

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import drawn
import keras
import numpy as np
import pairs
import tyro

from realm_tf.artifacts import artifact
from realm_tf.operations.plan import Plan
from realm_tf.operations.pretrain import Pretrain

_RECIPE = "paper"
_SIZES = {"hidden_dim": 768, "intermediate_dim": 3_072, "num_heads": 12}
_BLOCK_LENGTH, _QUERY_LENGTH = 288, 96
_NUM_MASKED, _NUM_CANDIDATES = 10, 8
# The first step of a process compiles, the next one waits for it.
_NUM_COLD = 2
_PRODUCT = 8_192
_PEER_STEPS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Sizes, and paths of inputs and outputs."""

    blocks: str
    """directory of `realm chunk`, of up to 288 wordpieces"""
    passages: str
    """directory of `realm annotate`, of another corpus"""
    output: str
    """directory for all that is made"""
    ways: tuple[str, ...] = ("16-checkpointing",)
    num_blocks: int = 1_000_000
    num_layers: int = 12
    num_steps: int = 20
    """steps of a way, without an exchange"""
    num_builders: int = 2
    """processes that embed beside the steps; 0: no index is made"""
    peer_python: str | None = None
    """interpreter of the peer's environment"""
    peer_batch_size: int = 8

    @property
    def paths(self) -> dict[str, str]:
        """Model, blocks and index of the run."""
        names = {
            "model": f"model-{self.num_layers}",
            "blocks": f"blocks-{self.num_blocks}",
            "index": f"index-{self.num_layers}-{self.num_blocks}",
        }
        return {
            key: os.path.join(self.output, name) for key, name in names.items()
        }


def main(args):
    _make(args)
    if args.peer_python:
        _print(args, "peer", _peer(args))
    spawn = multiprocessing.get_context("spawn")
    for number, way in enumerate(args.ways):
        # Its end frees the device.
        with concurrent.futures.ProcessPoolExecutor(1, spawn) as process:
            found = process.submit(
                _way, args, way, 0 if number else args.num_builders
            )
            _print(args, way, found.result())


def _print(args, name, found):
    """At once, because a lent device may be gone before the end."""
    line = json.dumps({name: found})
    print(line, flush=True)
    with open(f"{args.output}/found.jsonl", "a") as file:
        print(line, file=file)


def _make(args):
    """Makes the model, blocks and index that are missing."""
    os.makedirs(args.output, exist_ok=True)
    model, blocks, index = args.paths.values()
    if not artifact.is_complete(model):
        sizes = {**_SIZES, "num_layers": args.num_layers}
        subprocess.run(
            [
                *(sys.executable, "-m", "realm_tf.cli", "init"),
                *("--from", "random", "--vocab", f"{args.blocks}/vocab.txt"),
                *("--output", model),
                *(f"--set={name}={value}" for name, value in sizes.items()),
            ],
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            check=True,
        )
    drawn.repeat_blocks(args.blocks, blocks, args.num_blocks)
    drawn.draw_index(model, blocks, index)


def _way(args, way, num_builders):
    """Measures a way of computing, in this process."""
    import jax

    batch_size, _, checkpointing = way.partition("-")
    examples = Pretrain.recipes[_RECIPE].batch_size
    settings = (
        f"batch_size={batch_size}",
        f"gradient_accumulation_steps={max(1, examples // int(batch_size))}",
        f"gradient_checkpointing={str(bool(checkpointing)).lower()}",
        "num_steps=1000000",
        "log_every=1",
    )
    plan = Plan(
        what="pretrain",
        recipe=_RECIPE,
        set=settings,
        model=args.paths["model"],
        num_blocks=args.num_blocks,
        topology="gpu",
    )
    # Before this process takes the device.
    planned = plan.run()["numbers"]
    # Operations that checkpointing repeats do not count.
    needed = dataclasses.replace(
        plan, set=(*settings, "gradient_checkpointing=false")
    ).run()["numbers"]
    refresh_every = args.num_steps if num_builders else 0
    with tempfile.TemporaryDirectory(dir=args.output) as directory:
        output = os.path.join(directory, "trained")
        steps = _Steps(args, num_builders, f"{output}.partial")
        Pretrain(
            **args.paths,
            corpus=args.passages,
            output=output,
            recipe=_RECIPE,
            set=(*settings, "num_builders=0", f"refresh_every={refresh_every}"),
        ).run(callbacks=[steps], every_seconds=1e9)
    device = jax.devices()[0]
    # CPUs report no memory.
    memory = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
    return {
        "device": device.device_kind,
        **steps.summary(
            flop=1e12 * needed["TFLOP of products"],
            most=_product(),
            wordpieces=_num_wordpieces(plan.settings),
        ),
        "gigabytes": round(memory / 1e9, 2),
        "planned_gigabytes": round(planned["GB together"], 2),
    }


def _product():
    """Operations a second of one large product."""
    import jax
    import jax.numpy as jnp

    shape = _PRODUCT, _PRODUCT
    first, second = (
        jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)
        for seed in (0, 1)
    )
    multiply = jax.jit(jnp.matmul)
    seconds = []
    for _ in range(20):
        started = time.perf_counter()
        multiply(first, second).block_until_ready()
        seconds.append(time.perf_counter() - started)
    return 2 * _PRODUCT**3 / statistics.median(seconds[_NUM_COLD:])


def _num_wordpieces(recipe):
    """Those that the encoders compute in a step."""
    lengths, found = recipe.lengths, recipe.num_retrieved
    return recipe.batch_size * (
        lengths.max_query_length
        + found * lengths.max_block_length
        + (1 + found) * lengths.max_joint_length
    )


class _Steps(keras.callbacks.Callback):
    """Times steps; with builders, until they have exchanged an index."""

    def __init__(self, args, num_builders, folder):
        super().__init__()
        self._args = args
        self._num_builders = num_builders
        self._exchange = f"{folder}/run/index_exchange"
        self._builders = []
        self._ended = []

    def on_train_batch_end(self, batch, logs=None):
        # Waits until the step is done.
        float(logs["loss"])
        self._ended.append(time.perf_counter())
        done = len(self._ended)
        if self._num_builders:
            self.model.stop_training = done - 1 > logs["index_age"]
        else:
            self.model.stop_training = done >= self._args.num_steps
        if self._num_builders and done == self._args.num_steps:
            self._start()

    def _start(self):
        command = [
            *(sys.executable, "-m", "realm_tf.operations.rebuild_index"),
            *("--exchange", self._exchange),
        ]
        environment = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false")
        for number in range(self._num_builders):
            path = pathlib.Path(self._args.output, f"builder-{number}.txt")
            with path.open("w") as log:
                builder = subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment
                )
            self._builders.append(builder)

    def on_train_end(self, logs=None):
        for builder in self._builders:
            builder.kill()
            builder.wait()

    def summary(self, *, flop, most, wordpieces):
        """Numbers of the steps before the builders, and beside them."""
        seconds = np.diff(self._ended)
        begin = self._args.num_steps - 1
        median = float(np.median(seconds[_NUM_COLD - 1 : begin]))
        found = {
            "step_seconds": round(median, 4),
            "wordpieces_a_second": round(wordpieces / median),
            "product_teraflops": round(most / 1e12, 1),
            "share_of_product": round(flop / median / most, 3),
        }
        if self._num_builders:
            took = self._ended[-2] - self._ended[begin]
            found |= {
                "index_seconds": round(took, 1),
                "blocks_a_second": round(self._args.num_blocks / took),
                "step_seconds_beside_builders": round(
                    float(np.median(seconds[begin + 1 : -1])), 4
                ),
                "exchange_step_seconds": round(float(seconds[-1]), 4),
            }
        return found


def _peer(args):
    inputs = f"{args.output}/peer.npz"
    arrays = _peer_inputs(args.peer_batch_size)
    np.savez(inputs, **arrays)
    worker = pairs.Worker(
        [
            *(args.peer_python, pairs.TORCH_WORKER, "pretraining-step"),
            *("--inputs", inputs, "--precision", "bfloat16"),
            *("--device", "cuda", "--num-layers", str(args.num_layers)),
        ]
    )
    runs = [worker.run() for _ in range(_PEER_STEPS)]
    worker.stop()
    median = statistics.median(run["seconds"] for run in runs)
    wordpieces = sum(
        arrays[name].size
        for name in ("query_ids", "candidate_ids", "joint_ids")
    )
    return {
        **runs[-1],
        "seconds": round(median, 4),
        "wordpieces_a_second": round(wordpieces / median),
    }


def _peer_inputs(batch_size):
    """Arrays of the paper's sizes, in the peer's form."""
    random = np.random.default_rng(1)
    shape = batch_size, _NUM_CANDIDATES
    length = _QUERY_LENGTH + _BLOCK_LENGTH

    def draw(*shape):
        return random.integers(1_000, 30_000, shape)

    candidates, joint = draw(*shape, _BLOCK_LENGTH), draw(*shape, length)
    labels = np.full((batch_size, length), -100)
    labels[:, 1 : 1 + _NUM_MASKED] = draw(_NUM_MASKED)
    return {
        "query_ids": joint[:, 0, :_QUERY_LENGTH],
        "candidate_ids": candidates,
        "candidate_segments": np.ones_like(candidates),
        "joint_ids": joint,
        "joint_segments": np.broadcast_to(
            np.arange(length) >= _QUERY_LENGTH, joint.shape
        ),
        "labels": labels,
    }


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
