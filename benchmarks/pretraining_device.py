"""The paper's pre-training on one accelerator: speed, memory, an index beside it.

    KERAS_BACKEND=jax python benchmarks/pretraining_device.py \
        --blocks DIR --passages DIR --output DIR [--peer-python python]

`realm pretrain --recipe paper` with BERT-base of random weights, blocks and
annotated passages; blocks are repeated until there are as many as asked for, of 288 wordpieces each, and the first index is drawn at random. TensorFlow
is not needed. A way of computing is BATCH or BATCH-checkpointing: examples of a
step, of which 512 make one change of the weights. In the first way, builders on
the same device make the index anew beside the steps, until it was exchanged.

For every way: seconds of a step, wordpieces a second (all that are computed,
padding with them), the share of what a product of two matrices of 8,192 reaches
on the device (operations that the method needs: with checkpointing none is
counted twice), and the most memory that the device held beside `realm plan`'s.
Of the steps, the median: one that changes the weights takes longer. The peer is
transformers' REALM, forward and backward alone, without a search, an optimizer
or an index (`torch_worker.py`, which tells what it needs); its batch is
--peer-batch-size.
"""

import dataclasses
import glob
import json
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
import pretraining_step
import tyro

from realm_tf.artifacts import artifact
from realm_tf.operations.plan import Plan
from realm_tf.operations.pretrain import Pretrain
from realm_tf.training import exchange

_RECIPE = "paper"
_CHECKPOINTING = "checkpointing"
# The first of a process compiles, the next waits for it.
_NUM_COLD = 2
_PRODUCT = 8_192
_PEER_STEPS = 5
_MEASURED = "measured: "


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What is measured, and where."""

    blocks: str
    """directory of `realm chunk`"""
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
    max_seconds: float = 7_200.0
    """of the whole run: then a way ends although its index is not there yet"""
    set: tuple[str, ...] = ()
    """NAME=VALUE of the recipe"""
    peer_python: str | None = None
    """interpreter of the peer's environment"""
    peer_batch_size: int = 8
    stage: str | None = None
    """be the process of a way"""
    with_index: bool = False
    """of a way: until an index was exchanged"""


def main(args):
    started = time.perf_counter()
    made = _Made(args)
    print(f"made in {made.seconds:.0f} s", file=sys.stderr, flush=True)
    if args.peer_python:
        _tell(args, "peer", _peer(args))
    for number, way in enumerate(args.ways):
        with_index = not number and args.num_builders > 0
        left = args.max_seconds - (time.perf_counter() - started)
        found = _in_a_process(
            dataclasses.replace(args, max_seconds=left),
            way,
            with_index=with_index,
        )
        _tell(args, way, found)


def _tell(args, name, found):
    """At once, as a lent device may be gone before the end."""
    line = json.dumps({name: found})
    print(line, flush=True)
    with open(f"{args.output}/found.jsonl", "a") as file:
        print(line, file=file)


class _Made:
    """The model, blocks and index of a run, made if they are not there."""

    def __init__(self, args):
        started = time.perf_counter()
        root = pathlib.Path(args.output)
        root.mkdir(parents=True, exist_ok=True)
        self.model = str(root / f"model-{args.num_layers}")
        self.blocks = str(root / f"blocks-{args.num_blocks}")
        self.index = str(root / f"index-{args.num_layers}-{args.num_blocks}")
        init = None
        if not artifact.is_complete(self.model):
            init = _init(args, self.model)
        if not artifact.is_complete(self.blocks):
            drawn.draw_blocks(
                args.blocks,
                self.blocks,
                args.num_blocks,
                pretraining_step.BLOCK_LENGTH,
            )
        if init is not None and init.wait():
            sys.exit(init.returncode)
        if not artifact.is_complete(self.index):
            drawn.draw_index(self.model, self.blocks, self.index)
        self.seconds = time.perf_counter() - started


def _init(args, output):
    sizes = {**pretraining_step.BERT_BASE, "num_layers": args.num_layers}
    del sizes["vocabulary_size"]
    options = [
        word
        for name, value in sizes.items()
        for word in ("--set", f"{name}={value}")
    ]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "realm_tf.cli", "init"),
            *("--from", "random", "--vocab", f"{args.blocks}/vocab.txt"),
            *("--output", output, *options),
        ],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
    )


def _in_a_process(args, stage, *, with_index=False):
    """What a process finds, of which the device is free at its end."""
    options = [
        word
        for field in dataclasses.fields(args)
        for value in [getattr(args, field.name)]
        if field.name not in ("stage", "with_index") and value not in (None, ())
        for word in (
            f"--{field.name.replace('_', '-')}",
            *map(str, value if isinstance(value, tuple) else (value,)),
        )
    ]
    process = subprocess.run(
        [
            *(sys.executable, __file__, "--stage", stage, *options),
            *(("--with-index",) if with_index else ()),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    (line,) = (
        line
        for line in process.stdout.splitlines()
        if line.startswith(_MEASURED)
    )
    return json.loads(line.removeprefix(_MEASURED))


def _stage(args):
    print(_MEASURED + json.dumps(_way(args)), flush=True)


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


def _way(args):
    import jax

    made = _Made(args)
    batch_size, _, checkpointing = args.stage.partition("-")
    examples = Pretrain.recipes[_RECIPE].batch_size
    settings = [
        f"batch_size={batch_size}",
        f"gradient_accumulation_steps={max(1, examples // int(batch_size))}",
        f"gradient_checkpointing={str(bool(checkpointing)).lower()}",
        "num_steps=1000000",
        "log_every=1",
        *args.set,
    ]
    plan = Plan(
        what="pretrain",
        recipe=_RECIPE,
        set=tuple(settings),
        model=made.model,
        blocks=made.blocks,
    )
    if args.with_index:
        settings += ["num_builders=0", f"refresh_every={args.num_steps}"]
    else:
        settings += ["refresh_every=0"]
    with tempfile.TemporaryDirectory(dir=args.output) as directory:
        output = os.path.join(directory, "trained")
        steps = _Steps(args, output)
        Pretrain(
            model=made.model,
            blocks=made.blocks,
            corpus=args.passages,
            index=made.index,
            output=output,
            recipe=_RECIPE,
            set=tuple(settings),
        ).run(callbacks=[steps], every_seconds=1e9)
    # Of a CPU nothing is known.
    device = jax.devices()[0]
    memory = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
    planned = plan.run()
    # What is computed again is no work done.
    needed = dataclasses.replace(
        plan, set=(*plan.set, "gradient_checkpointing=false")
    ).run()
    return {
        "device": device.device_kind,
        **steps.summary(
            flop=needed.flop,
            most=_product(),
            wordpieces=_wordpieces(plan.settings),
        ),
        "gigabytes": round(memory / 1e9, 2),
        "planned_gigabytes": round(planned.device_bytes / 1e9, 2),
        "planned": {k: round(v / 1e9, 2) for k, v in planned.memory.items()},
    }


def _wordpieces(recipe):
    """Those that encoders compute in a step."""
    lengths, found = recipe.lengths, recipe.num_retrieved
    return recipe.batch_size * (
        lengths.max_query_length
        + found * lengths.max_block_length
        + (1 + found) * lengths.max_joint_length
    )


class _Steps(keras.callbacks.Callback):
    """Times steps; builders begin when the first weights are offered."""

    def __init__(self, args, output):
        super().__init__()
        self._args = args
        self._exchange = f"{output}.partial/run/index_exchange"
        self._builders = []
        self._ended = []
        # Of the first step that searched a new index.
        self._exchanged = None
        self._began = None
        self._made = []
        self._stop_at = time.perf_counter() + args.max_seconds

    def on_train_batch_end(self, batch, logs=None):
        # What was dispatched is done: the loss is read.
        float(logs["loss"])
        self._ended.append(time.perf_counter())
        done, age = len(self._ended), logs["index_age"]
        if not self._args.with_index:
            self.model.stop_training = done >= self._args.num_steps
            return
        if self._exchanged is None and done - 1 - age > 0:
            self._exchanged = done - 1
        if self._exchanged is not None or self._is_late():
            self.model.stop_training = True
        # Before the copy, so that starting them is not counted.
        if done == self._args.num_steps:
            self._start()

    def _start(self):
        self._began = time.perf_counter()
        command = [
            *(sys.executable, "-m", "realm_tf.operations.rebuild_index"),
            *("--exchange", self._exchange),
        ]
        environment = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false")
        for number in range(self._args.num_builders):
            path = pathlib.Path(self._args.output, f"builder-{number}.txt")
            with path.open("w") as log:
                builder = subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment
                )
            self._builders.append(builder)

    def _is_late(self):
        return time.perf_counter() > self._stop_at

    def on_train_end(self, logs=None):
        self._made = glob.glob(f"{self._exchange}/*/*.npy")
        for builder in self._builders:
            builder.kill()
            builder.wait()

    def summary(self, *, flop, most, wordpieces):
        seconds = np.diff(self._ended)
        alone = slice(_NUM_COLD - 1, self._args.num_steps - 1)

        def of(part):
            if not len(seconds[part]):
                return {"steps": 0}
            median = float(np.median(seconds[part]))
            return {
                "steps": len(seconds[part]),
                "step_seconds": round(median, 4),
                "wordpieces_a_second": round(wordpieces / median),
                "teraflops": round(flop / median / 1e12, 1),
                "share_of_product": round(flop / median / most, 3),
            }

        found = {"product_teraflops": round(most / 1e12, 1), **of(alone)}
        if self._began is None:
            return found
        # The step with the exchange, or the last.
        last = (self._exchanged or len(self._ended) - 1) - 1
        found["beside_builders"] = of(slice(self._args.num_steps, last))
        took = self._ended[last] - self._began
        if self._exchanged is None:
            rows = len(self._made) * exchange.rows_of_ranges(
                self._args.num_blocks
            )
            found["rows_embedded"] = rows
        else:
            rows = self._args.num_blocks
            found["exchange_step_seconds"] = round(float(seconds[last]), 4)
        found["index_seconds"] = round(took, 1)
        found["blocks_a_second"] = round(rows / took)
        return found


def _peer(args):
    inputs = f"{args.output}/peer.npz"
    arrays = pretraining_step.peer_inputs(args.peer_batch_size)
    np.savez(inputs, **arrays)
    worker = pairs.Worker(
        [
            *(
                args.peer_python,
                str(pathlib.Path(__file__).parent / "torch_worker.py"),
            ),
            *("pretraining-step", "--inputs", inputs),
            *("--precision", "bfloat16", "--device", "cuda"),
            *("--num-layers", str(args.num_layers)),
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
        "batch_size": args.peer_batch_size,
        "seconds": round(median, 4),
        "wordpieces_a_second": round(wordpieces / median),
    }


if __name__ == "__main__":
    arguments = tyro.cli(Arguments, description=__doc__)
    (_stage if arguments.stage else main)(arguments)
