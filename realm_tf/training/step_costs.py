"""What XLA's compiler says of a step on devices that need not be there.

A process of its own, because devices are chosen before JAX starts:

    python -m realm_tf.training.step_costs < task.pickle
"""

import functools
import json
import math
import pickle
import re
import sys
import time
import types

import jax
import numpy as np
from jax.experimental import topologies
from jax.extend.core import jaxprs_in_params

from realm_tf.answering.corpus import MAX_TITLE_LENGTH
from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts.question_files import MAX_QUERY_LENGTH
from realm_tf.data.question_batches import MAX_ANSWER_LENGTH
from realm_tf.data.question_batches import NUM_ANSWERS
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.models import precision
from realm_tf.models import row_shards
from realm_tf.models.block_table import BlockTable
from realm_tf.models.in_batch_retriever import IctModel
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.training import devices
from realm_tf.training import fine_tuning
from realm_tf.training import trainers

# Wordpieces of a block, where the recipe does not cut blocks.
_BLOCK_LENGTH = 288
_COLLECTIVES = re.compile(
    r"= (.+?) (all-reduce|all-gather|reduce-scatter|all-to-all|"
    r"collective-permute)(?:-start)?\("
)
_ARRAY = re.compile(r"\b[a-z]+(\d+)\[([\d,]*)\]")
# JAX's name of a device to 10^12 operations in bfloat16 and 10^9 bytes a second:
# Google Cloud's pages on TPUs (JAX's v4 is one of a chip's two cores), NVIDIA's
# data sheets.
_PEAKS = {
    "TPU v4": (137.5, 614),
    "TPU v5 lite": (197, 819),
    "TPU v5": (459, 2765),
    "TPU v6 lite": (918, 1640),
    "NVIDIA H100 80GB HBM3": (989, 3350),
    "NVIDIA H200": (989, 4800),
}
TFLOP = "TFLOP of products"
TRAFFIC = "GB read and written, by products and for weights"
PEAK = "GB together"
_TEXT = ("token_ids", "segment_ids", "padding_mask")
# Any numbers give the same step.
_IDS = {"cls_id": 101, "sep_id": 102, "pad_id": 0}


def main() -> None:
    """Reads a task, prints what was found as a line of JSON."""
    try:
        found = plan(**pickle.load(sys.stdin.buffer))
    except InputError as error:
        found = {"error": str(error)}
    print(json.dumps(found))


def plan(*, what, recipe, config, num_blocks, topology) -> dict:
    """Compiles a step, and finds the largest batch that fits.

    Args:
        what: str. One of `STEPS`.
        recipe: `Recipe` of that command.
        config: dict. Of a model directory.
        num_blocks: int. Of the knowledge corpus.
        topology: str. `"cpu"`, `"gpu"` or a name of libtpu's.

    Returns:
        dict: `devices` and `batch_size`; `refused`, what the compiler says of
        a step that does not fit, or `""`; `numbers`, name with unit to number,
        see `costs`.
    """
    all_devices = devices_of(topology)
    used = devices.sharing(recipe.batch_size, all_devices)

    @functools.cache
    def costs_of(batch_size):
        changed = recipe.replace(batch_size=batch_size)
        return costs(STEPS[what], changed, config, num_blocks, all_devices)

    numbers, refused = costs_of(recipe.batch_size)
    if peaks := _PEAKS.get(all_devices[0].device_kind):
        seconds = max(numbers[TFLOP] / peaks[0], numbers[TRAFFIC] / peaks[1])
        numbers["seconds at the device's peaks"] = seconds
        steps = getattr(recipe, "num_steps", 0)
        if what == "embed":
            steps = -(-num_blocks // recipe.batch_size)
        if steps:
            numbers[f"hours of {steps:,} steps"] = steps * seconds / 3600
    if topology != "cpu":
        numbers["largest batch_size that fits"] = _largest(
            lambda size: not costs_of(size)[1],
            recipe.batch_size,
            len(used),
        )
    return {
        "devices": f"{len(used)} x {all_devices[0].device_kind}",
        "batch_size": recipe.batch_size,
        "refused": refused,
        "numbers": numbers,
    }


def devices_of(topology: str) -> list:
    """The `jax.Device`s of a topology; see `plan`."""
    if topology in ("cpu", "gpu"):
        return jax.devices(topology)
    try:
        return topologies.get_topology_desc(topology, "tpu").devices
    except jax.errors.JaxRuntimeError as error:
        raise InputError(
            f"--topology {topology}: the TPU's compiler does not know it: "
            f"{error}"
        ) from error


def _largest(fits, batch_size, unit):
    """The largest multiple of `unit` that fits, to an eighth, by bisection.

    At most eight batches at once: a step takes minutes to compile.
    """
    fitting, number, refused = 0, batch_size // unit, None
    while 0 < number * unit <= 8 * batch_size:
        if fits(number * unit):
            fitting = number
        else:
            refused = number
        if refused is None:
            number = 2 * fitting
        elif refused - fitting > max(1, fitting // 8):
            number = (fitting + refused) // 2
        else:
            break
    return fitting * unit


def costs(make, recipe, config, num_blocks, all_devices):
    """Lowers and compiles a step.

    Args:
        make: function of `STEPS`.
        recipe: a recipe with `batch_size`.
        config: dict. Of a model directory.
        num_blocks: int.
        all_devices: list of `jax.Device`. They share each batch, or as many as
            divide it.

    Returns:
        dict of numbers of one device, and what the compiler says if the step
        does not fit, or `""`.
    """
    used = devices.sharing(recipe.batch_size, all_devices)
    with (
        precision.only_compiled(used[0].platform),
        precision.computing_in("auto"),
        devices.use_all(recipe.batch_size, used),
    ):
        open_qa = model_directory.make(config)
        function, state, batch = make(open_qa, recipe, num_blocks)
        whole, split = _shardings(used[0])
        state = jax.tree.map(
            lambda variable: jax.ShapeDtypeStruct(
                variable.shape,
                variable.dtype,
                sharding=getattr(variable, "layout", None) or whole,
            ),
            state,
        )
        batch = {
            name: jax.ShapeDtypeStruct(
                (recipe.batch_size, *shape), dtype, sharding=split
            )
            for name, (shape, dtype) in batch.items()
        }
        # As Keras does.
        places = jax.tree.map(lambda each: each.sharding, state)
        traced = jax.jit(
            function, donate_argnums=0, out_shardings=(None, places)
        ).trace(state, batch)
        lowered = traced.lower()
        flop, traffic = _products(traced.jaxpr.jaxpr)
        own = sum(
            math.prod(each.sharding.shard_shape(each.shape))
            * each.dtype.itemsize
            for each in jax.tree.leaves(state)
        )
        numbers = {
            TFLOP: flop / len(used) / 1e12,
            TRAFFIC: (traffic / len(used) + 2 * own) / 1e9,
        }
        started = time.perf_counter()
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return numbers, str(error).partition("\n")[0]
        numbers["seconds to compile"] = time.perf_counter() - started
    return _add_memory(numbers, compiled, used[0])


def _shardings(device):
    """Of what each device holds, and of what they share by rows."""
    split = row_shards.sharding()
    if split is None:
        return [jax.sharding.SingleDeviceSharding(device)] * 2
    whole = jax.sharding.PartitionSpec()
    return jax.sharding.NamedSharding(split.mesh, whole), split


def _add_memory(numbers, compiled, device):
    sizes = compiled.memory_analysis()
    parts = {
        "GB of arguments": sizes.argument_size_in_bytes,
        "GB of temporaries": sizes.temp_size_in_bytes,
        "GB of other results": sizes.output_size_in_bytes
        - sizes.alias_size_in_bytes,
        "GB of code": sizes.generated_code_size_in_bytes,
    }
    parts[PEAK] = sum(parts.values())
    numbers = {name: size / 1e9 for name, size in parts.items()} | numbers
    for results, name in _COLLECTIVES.findall(compiled.as_text()):
        for bits, shape in _ARRAY.findall(results):
            size = math.prod(int(each) for each in shape.split(",") if each)
            name_with_unit = f"GB of {name} (in a loop: of one pass)"
            numbers[name_with_unit] = (
                numbers.get(name_with_unit, 0) + size * int(bits) / 8e9
            )
    # The TPU's compiler refuses what does not fit, others do not.
    limit = math.inf
    if device.platform == "gpu":
        limit = device.memory_stats()["bytes_limit"]
    if parts[PEAK] > limit:
        return numbers, f"{parts[PEAK] / 1e9:.1f} GB of {limit / 1e9:.1f}"
    return numbers, ""


def _products(jaxpr):
    """Operations of all products of a program, and bytes they read and write.

    XLA's own counts pass a loop's body once. What is between products it
    joins to them, so their operands and results are what moves.
    """
    flop = traffic = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            depth = math.prod(shape[axis] for axis in contracted)
            flop += 2 * depth * equation.outvars[0].aval.size
            for each in (*equation.invars, *equation.outvars):
                traffic += each.aval.size * each.aval.dtype.itemsize
        times = equation.params.get("length", 1)
        if equation.primitive.name == "shard_map":
            times = equation.params["mesh"].size
        for inner in jaxprs_in_params(equation.params):
            found = _products(inner)
            flop += times * found[0]
            traffic += times * found[1]
    return flop, traffic


class _Blocks:
    """What trainers read of `BlockRecords`; no row takes memory."""

    def __init__(self, num_blocks, length):
        self._num_blocks = num_blocks
        self.longest = length

    def _rows(self, value, *shape):
        return np.broadcast_to(np.uint16(value), (self._num_blocks, *shape))

    def bodies(self, max_length):
        return self._rows(1, max_length), self._rows(max_length)

    def title_table(self, max_length):
        length = min(MAX_TITLE_LENGTH, max_length)
        return self._rows(1, length), self._rows(length)

    def article_numbers(self):
        return np.broadcast_to(np.int32(2**16), (self._num_blocks,))

    def embeddings(self, embedding_dim):
        return np.broadcast_to(np.float32(0), (self._num_blocks, embedding_dim))


class _Corpus(Corpus):
    """A corpus of `_Blocks`."""

    @property
    def block_table(self):
        rows = self.records.bodies(self.records.longest)
        titles = (None, None)
        if self.loaded.model.reader.reads_titles:
            titles = self.records.title_table(MAX_TITLE_LENGTH)
        return BlockTable(*rows, title_ids=titles[0], title_lengths=titles[1])


def _pretrain(open_qa, recipe, num_blocks):
    blocks = _Blocks(num_blocks, recipe.lengths.max_block_length)
    trainers.prepare(open_qa, recipe)
    trainer = trainers.make_realm_trainer(
        _loaded(open_qa),
        blocks,
        recipe,
        embeddings=blocks.embeddings(open_qa.embedding_dim),
    )
    length = recipe.lengths.max_query_length
    masks = "mask_positions", "mask_ids", "mask_weights"
    return _training(
        trainer,
        {
            **_rows(length, "token_ids", "padding_mask"),
            **_rows(recipe.masking.max_masked, *masks),
            **_rows(length - 2, "sentence_ids"),
            "block_id": ((), "int32"),
        },
    )


def _ict(open_qa, recipe, num_blocks):
    trainer = trainers.make_towers_trainer(
        IctModel, open_qa, recipe, recipe.num_steps
    )
    lengths = recipe.lengths
    query = "query_token_ids", "query_padding_mask"
    return _training(
        trainer,
        {
            **_rows(lengths.max_query_length, *query),
            **_rows(
                lengths.max_block_length, *(f"block_{name}" for name in _TEXT)
            ),
            "removed": ((), "int32"),
            "block_id": ((), "int32"),
        },
    )


def _finetune(open_qa, recipe, num_blocks):
    candidates = recipe.candidates
    if candidates.retriever != "realm":
        raise InputError(
            "`realm plan finetune` is of the model's own retriever: leave "
            f"--set retriever={candidates.retriever} out."
        )
    blocks = _Blocks(num_blocks, _BLOCK_LENGTH)
    embeddings = blocks.embeddings(open_qa.embedding_dim)
    corpus = _Corpus(_loaded(open_qa), blocks, BruteForce(embeddings))
    trainer = fine_tuning.make_trainer(corpus, embeddings, recipe)
    # One step or another, sizes are the same.
    trainers.compile_trainer(trainer, recipe.optimizer, 1)
    batch = {
        **_rows(MAX_QUERY_LENGTH, "token_ids", "padding_mask"),
        "answer_ids": ((NUM_ANSWERS[-2], MAX_ANSWER_LENGTH), "int32"),
    }
    if candidates.gold != "ignore":
        batch["gold_ids"] = ((), "int32")
    if candidates.near_miss_share:
        batch["is_near_miss"] = ((), "bool")
    return _training(trainer, batch)


def _embed(open_qa, recipe, num_blocks):
    tower = open_qa.block_embedder
    variables = tower.trainable_variables, tower.non_trainable_variables

    def embed(state, batch):
        outputs, _ = tower.predict_step(state, batch)
        return outputs, state

    return embed, variables, _rows(recipe.lengths.max_block_length, *_TEXT)


def _training(trainer, batch):
    # Its parts are: it has no weights of its own.
    trainer.built = True
    state = (
        trainer.trainable_variables,
        trainer.non_trainable_variables,
        trainer.optimizer.variables,
        trainer.metrics_variables,
    )
    return trainer.train_step, state, batch


def _loaded(open_qa):
    size = open_qa.reader.encoder.vocabulary_size
    tokenizer = types.SimpleNamespace(vocabulary=[""] * size, **_IDS)
    return model_directory.LoadedModel(open_qa, tokenizer)


def _rows(length, *names):
    """Name to shape of a row, and type."""
    return {name: ((length,), "int32") for name in names}


STEPS = {
    "pretrain": _pretrain,
    "ict": _ict,
    "finetune": _finetune,
    "embed": _embed,
}


if __name__ == "__main__":
    main()
