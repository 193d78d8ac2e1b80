"""`realm plan`."""

import dataclasses
import functools
import math
from typing import Literal

import tyro

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.configs import finetune
from realm_tf.configs import ict
from realm_tf.configs import pretrain
from realm_tf.configs import recipes
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import Repeated
from realm_tf.retrieval.index import KINDS

# Of English Wikipedia (REALM.md of 2018-12-20; Guu et al., 2020, section 4).
_NUM_BLOCKS = 13_353_718
# NQ-open's training questions.
_NUM_QUESTIONS = 79_168
_MAX_QUERY_LENGTH, _MAX_BLOCK_LENGTH = 32, 288
_EMBED_BATCH_SIZE = 256
# Name to GB of memory and peak TFLOP/s in bfloat16, without sparsity: NVIDIA's
# data sheets (SXM) and Google Cloud's pages on TPUs (v3: one of a chip's two
# cores).
DEVICES = {
    "h100": (80, 989),
    "a100": (80, 312),
    "tpu-v4": (32, 275),
    "tpu-v5e": (16, 197),
    "tpu-v3-core": (16, 61.5),
}
# Of recipes: epochs are as long in examples, whatever a step has.
_COUNTED_IN_STEPS = ("num_steps", "refresh_every")
# Of ScaNN: each is asked by every question.
_MOST_PARTS = 32
# What a runtime leaves (our choice).
_USABLE = 0.9
_RECIPES = {
    "ict": ict.RECIPES,
    "pretrain": pretrain.RECIPES,
    "finetune": finetune.RECIPES,
}
# Options, and what heeds them.
_HEEDED = {
    ("recipe", "set"): {*_RECIPES},
    ("num_questions",): {"finetune"},
    ("num_devices",): {"ict", "pretrain", "embed"},
    ("device", "share_of_peak"): {*_RECIPES, "embed"},
    ("kind", "host_memory"): {"index", "export"},
    ("num_parts",): {"index"},
    ("retriever",): {"export"},
}
_PAPERS = {"ict": "paper", "pretrain": "paper", "finetune": "orqa"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Operation):
    """Says what a command would need, before it is run.

      realm plan pretrain --num-devices 64 --set gradient_checkpointing=true
      realm plan index --kind scann --host-memory 32

    Of a training: memory of each device by what it is for, disk, floating-point
    operations and time, by arithmetic over the recipe and the model's sizes.
    Lengths are the recipe's, so that it is an upper bound. Of an index and an
    export: memory of the one machine that makes it, and disk. The status is 1
    where it does not fit, and the last line says what would.
    """

    command = "plan"

    what: tyro.conf.Positional[
        Literal["ict", "pretrain", "finetune", "embed", "index", "export"]
    ]
    """the command whose run is planned"""
    recipe: str | None = None
    """its recipe by name (if not given: the paper's)"""
    set: Repeated = ()
    """NAME=VALUE: change a number of the recipe; may be given several times"""
    model: Model | None = None
    """model whose sizes are taken (if not given: BERT-base, as the paper's)"""
    blocks: Blocks | None = None
    """blocks that are counted (if not given: --num-blocks)"""
    num_blocks: int = _NUM_BLOCKS
    """blocks of the knowledge corpus"""
    num_questions: int = _NUM_QUESTIONS
    """questions that fine-tuning learns from"""
    num_devices: int = 1
    """devices that share the work, of all hosts"""
    device: Literal[tuple(DEVICES)] = "h100"
    """what they are"""
    share_of_peak: float = 0.2
    """of the device's operations a second, what training reaches (an H100: 0.2)"""
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """in which encoders compute"""
    kind: Literal[tuple(KINDS)] = "scann"
    """index, export: kind of search"""
    num_parts: int | None = None
    """index: searchers of a scann index (if not given: as `realm index`)"""
    retriever: Literal["realm", "hybrid"] = "realm"
    """export: what finds the blocks"""
    host_memory: float = 64.0
    """index, export: GB of the machine"""

    def __post_init__(self):
        super().__post_init__()
        self.check_least(1, "num_blocks", "num_questions", "num_devices")
        if not 0 < self.share_of_peak <= 1:
            raise InputError(
                "--share-of-peak must be above 0 and at most 1. Received: "
                f"{self.share_of_peak}"
            )
        for names, heeding in _HEEDED.items():
            if self.what not in heeding:
                self.refuse_given(names, f"`realm plan {self.what}`")
        if self.kind != "scann":
            self.refuse_given(("num_parts",), f"--kind {self.kind}")
        if self.host_memory <= 0:
            raise InputError(
                f"--host-memory must be above 0. Received: {self.host_memory}"
            )

    @functools.cached_property
    def settings(self) -> recipes.Recipe | None:
        """The recipe, with `set`; `None` for what has none."""
        if self.what not in _RECIPES:
            return None
        name = self.recipe or _PAPERS[self.what]
        return recipes.get_recipe(_RECIPES[self.what], name, self.set)

    def run(self):
        """Adds it up.

        Returns:
            `training.footprint.Need`.

        Raises:
            InputError: if devices cannot share a batch evenly.
        """
        from realm_tf.training import footprint

        sizes, num_blocks = self._sizes(), self._counted()
        if self._is_of_a_machine:
            return self._made_with(self.kind, self._num_parts)
        if self.what == "embed":
            need = footprint.embed(
                sizes,
                num_blocks,
                batch_size=_EMBED_BATCH_SIZE,
                max_block_length=_MAX_BLOCK_LENGTH,
            )
            return dataclasses.replace(
                need, num_steps=math.ceil(need.num_steps / self.num_devices)
            )
        return self._need(self.settings, sizes, num_blocks)

    def _made_with(self, kind, num_parts):
        """What an index or an export of a kind needs."""
        from realm_tf.export import footprint

        sizes, num_blocks = self._sizes(), self._counted()
        if self.what == "index":
            return footprint.index(
                num_blocks, sizes.embedding_dim, kind, num_parts
            )
        return footprint.export(
            sizes,
            num_blocks,
            kind=kind,
            block_length=_MAX_BLOCK_LENGTH,
            is_hybrid=self.retriever == "hybrid",
        )

    @property
    def _num_parts(self):
        """Of a ScaNN index; others have one."""
        if self.kind != "scann":
            return 1
        from realm_tf.retrieval.scann import Scann

        options = Scann.resolve(self._counted(), num_parts=self.num_parts)
        return options["num_parts"]

    def _need(self, recipe, sizes, num_blocks):
        from realm_tf.training import footprint

        if recipe.batch_size % self.num_devices:
            raise InputError(
                f"{self.num_devices} devices share each batch: batch_size must "
                f"be a multiple of that. Received: {recipe.batch_size}"
            )
        if self.what == "finetune":
            return footprint.finetune(
                recipe,
                sizes,
                num_blocks,
                num_questions=self.num_questions,
                max_query_length=_MAX_QUERY_LENGTH,
                max_block_length=_MAX_BLOCK_LENGTH,
            )
        make = getattr(footprint, self.what)
        return make(recipe, sizes, num_blocks, self.num_devices)

    def _counted(self):
        return (
            self.num_blocks if self.blocks is None else self.blocks.num_blocks
        )

    def _sizes(self):
        from realm_tf.training import footprint

        sizes = footprint.Sizes(
            value_bytes=2 if self.precision == "bfloat16" else 4
        )
        if self.model is None:
            return sizes
        tower = self.model.config["query_embedder"]
        encoder = tower["encoder"]
        return dataclasses.replace(
            sizes,
            **{
                name: encoder[name]
                for name in (
                    "num_layers",
                    "hidden_dim",
                    "num_heads",
                    "intermediate_dim",
                    "vocabulary_size",
                )
            },
            num_positions=encoder["max_sequence_length"],
            embedding_dim=tower["projection_dim"] or encoder["hidden_dim"],
            share_embedders=self.model.config["share_embedders"],
        )

    @property
    def _is_of_a_machine(self):
        return self.what in ("index", "export")

    @property
    def _memory(self):
        """Bytes of a device, or of the machine, that can be used."""
        if self._is_of_a_machine:
            return _USABLE * 1e9 * self.host_memory
        return _USABLE * 1e9 * DEVICES[self.device][0]

    def _seconds(self, flop, num_devices):
        _, peak = DEVICES[self.device]
        return flop / (num_devices * peak * 1e12 * self.share_of_peak)

    def status(self, result) -> int:
        return int(result.device_bytes > self._memory)

    def report(self, result) -> str:
        recipe, where = "", f"{self.num_devices} x {self.device}"
        if self.settings is not None:
            recipe = f", recipe {self.recipe or _PAPERS[self.what]}"
        if self._is_of_a_machine:
            recipe = f", {self.kind}"
            where = (
                f"each {self._sizes().embedding_dim} numbers, a machine of "
                f"{self.host_memory:g} GB"
            )
        name = "the machine" if self._is_of_a_machine else "a device"
        lines = [
            f"{self.what}{recipe}, {self._counted():,} blocks, {where}",
            "",
            *_table(name, result.memory),
            *_table("disk", result.disk),
        ]
        if not self._is_of_a_machine:
            lines += self._times(result)
        if self.status(result):
            lines += ["", self._what_fits(result)]
        return "\n".join(lines)

    def _times(self, need):
        num_devices = 1 if self.settings is None else self.num_devices
        seconds = self._seconds(need.flop, num_devices)
        yield (
            f"{need.num_steps:,} steps of {_rounded(need.flop / 1e12)} TFLOP, "
            f"{_duration(seconds)} each at {self.share_of_peak:.0%} of the "
            f"peak: {_duration(need.num_steps * seconds)}"
        )
        if need.builder_flop:
            hours = self._seconds(need.builder_flop, 1)
            in_time = math.ceil(hours / (need.builder_steps * seconds))
            yield (
                f"builders: {_rounded(need.builder_flop / 1e15)} PFLOP an index; to "
                f"have one every {need.builder_steps} steps, {in_time} of these "
                "devices beside"
            )

    def _what_fits(self, need):
        have = self._memory / 1e9
        whose = "the machine" if self._is_of_a_machine else "a device"
        start = (
            f"It does not fit: {need.device_bytes / 1e9:,.1f} GB of {whose}'s "
            f"{have:,.1f}. "
        )
        if self._is_of_a_machine:
            return start + self._what_fits_a_machine()
        for changes in self._changes():
            recipe = self.settings.replace(**changes)
            found = self._need(recipe, self._sizes(), self._counted())
            if found.device_bytes <= self._memory:
                words = " ".join(recipe.overrides(self.settings))
                return (
                    f"{start}What fits ({found.device_bytes / 1e9:,.1f} GB): "
                    f"--set {words.replace(' ', ' --set ')}"
                )
        return (
            f"{start}Nor with one example a device and checkpointing: take "
            "more devices, or larger ones."
        )

    def _what_fits_a_machine(self):
        for kind, num_parts in self._other_indices():
            found = self._made_with(kind, num_parts).device_bytes
            if found <= self._memory:
                option = f"--kind {kind}"
                if num_parts > 1:
                    option = f"--num-parts {num_parts}"
                return f"What fits ({found / 1e9:,.1f} GB): {option}"
        return "Take a machine with more memory."

    def _other_indices(self):
        """Kinds and parts that take less memory, the fastest first."""
        if self.kind == "scann":
            if self.what == "index":
                for num_parts in range(self._num_parts + 1, _MOST_PARTS + 1):
                    yield "scann", num_parts
            yield "ivf", 1
        if self.kind != "brute_force":
            yield "brute_force", 1

    def _changes(self):
        """What takes less and less memory, and leaves what is learned."""
        if self.settings is None:
            return
        settings = self.settings
        size, optimizer = settings.batch_size, settings.optimizer
        # The others of its batch are what the Inverse Cloze Task learns from.
        most = 1 if self.what == "ict" else size // self.num_devices
        for checkpointing in sorted({optimizer.gradient_checkpointing, True}):
            for steps in range(1, most + 1):
                if size % (steps * self.num_devices) == 0:
                    yield {
                        "gradient_checkpointing": checkpointing,
                        "batch_size": size // steps,
                        "gradient_accumulation_steps": steps
                        * optimizer.gradient_accumulation_steps,
                        # As many changes of the weights from one index to
                        # the next, and in all.
                        **{
                            name: steps * value
                            for name, value in settings.flat().items()
                            if name in _COUNTED_IN_STEPS
                        },
                    }


def _table(title, parts):
    from realm_tf.evaluation import text_table

    rows = [[name, _gigabytes(value)] for name, value in parts.items()]
    rows.append(["together", _gigabytes(sum(parts.values()))])
    return [text_table.render([title, "GB"], rows)]


def _rounded(number):
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _gigabytes(number):
    return f"{number / 1e9:,.2f}"


def _duration(seconds):
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} s"
