"""Where the time of one training step goes, by TensorFlow's own profiler.

    python benchmarks/step_profile.py
    python benchmarks/step_profile.py --model DIR --blocks DIR --index DIR --questions FILE

Without a model, the step is that of `pretraining_step.py` (BERT-base, one
sentence, eight candidates), with gradient checkpointing; with one, a step of
`realm finetune` over 8 questions. Operations run one after the other, on all
processors, so that their times add up to that of the step.
"""

import collections
import dataclasses
import glob
import json
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tyro
from tensorflow.tsl.profiler.protobuf import xplane_pb2

# Beginnings of names, then of types; the first that fits.
_PARTS = {
    "optimizer": ("bert_adam_w",),
    "products of matrices": ("_MklMatMul", "_MklNativeFusedMatMul", "MatMul"),
    "products of attention": ("_MklBatchMatMul", "BatchMatMul"),
    "random numbers of dropout": ("StatelessRandom",),
    "softmax": ("_MklSoftmax", "Softmax"),
    "casts": ("Cast",),
    "transpositions": ("_MklTranspose", "Transpose"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What is profiled."""

    model: str | None = None
    blocks: str | None = None
    index: str | None = None
    questions: str | None = None


def main(args):
    tf.config.threading.set_inter_op_parallelism_threads(1)
    make = _fine_tuning if args.model else _pretraining
    trainer, batch = make(args)
    for _ in range(2):
        trainer.train_on_batch(batch)
    with tempfile.TemporaryDirectory() as directory:
        with tf.profiler.experimental.Profile(directory):
            started = time.perf_counter()
            trainer.train_on_batch(batch)
            seconds = time.perf_counter() - started
        shares = collections.Counter()
        for name, kind, duration in _operations(directory):
            shares[_part(name, kind)] += duration
    total = sum(shares.values())
    return {
        "seconds": round(seconds, 3),
        "shares": {
            part: round(duration / total, 3)
            for part, duration in shares.most_common()
        },
    }


def _operations(directory):
    """Name, type and seconds of each operation."""
    for path in glob.glob(f"{directory}/**/*.xplane.pb", recursive=True):
        space = xplane_pb2.XSpace()
        with open(path, "rb") as file:
            space.ParseFromString(file.read())
        for plane in space.planes:
            for line in plane.lines:
                for event in line.events:
                    name = plane.event_metadata[event.metadata_id].name
                    name, _, kind = name.rpartition(":")
                    # TensorFlow's own functions are named with two colons.
                    if name and name[-1] != ":" and kind.isidentifier():
                        yield name, kind, event.duration_ps / 1e12


def _part(name, kind):
    for part, beginnings in _PARTS.items():
        if name.startswith(beginnings) or kind.startswith(beginnings):
            return part
    return "other"


def _pretraining(args):
    import pretraining_step

    from realm_tf.models.precision import computing_in

    with computing_in("auto"):
        trainer = pretraining_step.make_trainer(checkpointing=True)
    return trainer, pretraining_step.make_batch()


def _fine_tuning(args):
    from realm_tf.answering.corpus import Corpus
    from realm_tf.artifacts import question_files
    from realm_tf.artifacts.objects import Index
    from realm_tf.configs.finetune import RECIPES
    from realm_tf.data.question_batches import QuestionBatches
    from realm_tf.training import fine_tuning
    from realm_tf.training import trainers

    corpus = Corpus.load(
        args.model,
        args.blocks,
        args.index,
        precision="auto",
        for_training=True,
    )
    recipe = RECIPES["laptop"].replace(batch_size=8)
    trainer = fine_tuning.make_trainer(
        corpus, Index(args.index).embeddings, recipe
    )
    trainers.compile_trainer(trainer, recipe.optimizer, 1000)
    batches = QuestionBatches(
        question_files.read_questions(args.questions),
        corpus.loaded.tokenizer,
        batch_size=8,
    )
    return trainer, next(batches.epoch(0))


if __name__ == "__main__":
    print(json.dumps(main(tyro.cli(Arguments, description=__doc__)), indent=1))
