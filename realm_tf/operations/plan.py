"""`realm plan`."""

import dataclasses
import functools
import math
from typing import Literal

import tyro

from realm_tf.artifacts.objects import Model
from realm_tf.configs import pretrain
from realm_tf.configs import recipes
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import Repeated
from realm_tf.retrieval.index import KINDS

# Of English Wikipedia (REALM.md of 2018-12-20; Guu et al., 2020, section 4).
_NUM_BLOCKS = 13_353_718
_MAX_BLOCK_LENGTH = 288
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
# Share of the peak that training reaches on an H100
# (docs/measurements/training.md).
_SHARE_OF_PEAK = 0.2
# Share of a memory that a runtime leaves (our choice).
_USABLE = 0.9
# Options of pre-training, and of an index and an export.
_OF_TRAINING = ("recipe", "set", "num_devices", "device")
_OF_MACHINES = ("kind", "host_memory")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Operation):
    """Estimates what a command needs, before it is run.

      realm plan pretrain --num-devices 64 --set gradient_checkpointing=true
      realm plan index --kind scann --host-memory 32

    For pre-training: memory of each device, disk, floating-point operations and
    time, by arithmetic over the recipe and the model's sizes. Every text is as
    long as the recipe allows, so these are upper bounds. For an index and an
    export: memory and disk of the machine that makes it. The exit status is 1
    if it does not fit.
    """

    command = "plan"

    what: tyro.conf.Positional[Literal["pretrain", "index", "export"]]
    """the command to plan"""
    recipe: Literal[*pretrain.RECIPES] = "paper"
    """pretrain: recipe by name"""
    set: Repeated = ()
    """NAME=VALUE: change a number of the recipe; may be given several times"""
    model: Model | None = None
    """model whose sizes are used (if not given: BERT-base, as the paper's)"""
    num_blocks: int = _NUM_BLOCKS
    """blocks of the knowledge corpus"""
    num_devices: int = 1
    """pretrain: devices that share each batch, of all hosts"""
    device: Literal[tuple(DEVICES)] = "h100"
    """pretrain: kind of device"""
    kind: Literal[tuple(KINDS)] = "scann"
    """index, export: kind of search"""
    host_memory: float = 64.0
    """index, export: memory of the machine in GB"""

    def __post_init__(self):
        super().__post_init__()
        self.check_least(1, "num_blocks", "num_devices", "host_memory")
        unused = _OF_MACHINES if self.what == "pretrain" else _OF_TRAINING
        self.refuse_given(unused, f"`realm plan {self.what}`")

    @functools.cached_property
    def settings(self) -> recipes.Recipe | None:
        """The recipe, with `set`; `None` for an index or an export."""
        if self.what != "pretrain":
            return None
        return pretrain.RECIPES[self.recipe].parse(self.set)

    def run(self):
        """Adds it up.

        Returns:
            `training.footprint.Need`.

        Raises:
            InputError: if devices cannot share a batch evenly.
        """
        from realm_tf.export import footprint as machines
        from realm_tf.training import footprint

        sizes = self._sizes()
        if self.what == "index":
            return machines.index(
                self.num_blocks, sizes.embedding_dim, self.kind
            )
        if self.what == "export":
            return machines.export(
                sizes,
                self.num_blocks,
                kind=self.kind,
                block_length=_MAX_BLOCK_LENGTH,
            )
        if self.settings.batch_size % self.num_devices:
            raise InputError(
                f"{self.num_devices} devices share each batch: batch_size must "
                "be a multiple of that. Received: "
                f"{self.settings.batch_size}"
            )
        return footprint.pretrain(
            self.settings, sizes, self.num_blocks, self.num_devices
        )

    def _sizes(self):
        from realm_tf.training import footprint

        if self.model is None:
            return footprint.Sizes()
        tower = self.model.config["query_embedder"]
        encoder = tower["encoder"]
        return footprint.Sizes(
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
    def _memory(self):
        """Bytes of a device, or of the machine, that can be used."""
        if self.settings is None:
            return _USABLE * 1e9 * self.host_memory
        return _USABLE * 1e9 * DEVICES[self.device][0]

    def status(self, result) -> int:
        return int(result.device_bytes > self._memory)

    def report(self, result) -> str:
        blocks = f"{self.num_blocks:,} blocks"
        if self.settings is None:
            name = "the machine"
            title = (
                f"{self.what}, {self.kind}, {blocks}, each "
                f"{self._sizes().embedding_dim} numbers, a machine of "
                f"{self.host_memory:g} GB"
            )
            advice = "take another --kind, or a machine with more memory"
        else:
            name = "a device"
            title = (
                f"{self.what}, recipe {self.recipe}, {blocks}, "
                f"{self.num_devices} x {self.device}"
            )
            advice = (
                "add --set gradient_checkpointing=true, take a smaller "
                "batch_size with more gradient_accumulation_steps, or more "
                "devices"
            )
        lines = [
            title,
            "",
            _table(name, result.memory),
            _table("disk", result.disk),
        ]
        if self.settings is not None:
            lines += self._times(result)
        if self.status(result):
            lines += [
                "",
                f"It does not fit: {result.device_bytes / 1e9:,.1f} GB of "
                f"{self._memory / 1e9:,.1f}; {advice}.",
            ]
        return "\n".join(lines)

    def _times(self, need):
        _, peak = DEVICES[self.device]
        rate = peak * 1e12 * _SHARE_OF_PEAK
        seconds = need.flop / (self.num_devices * rate)
        yield (
            f"{need.num_steps:,} steps of {_rounded(need.flop / 1e12)} TFLOP, "
            f"{_duration(seconds)} each at {_SHARE_OF_PEAK:.0%} of the "
            f"peak: {_duration(need.num_steps * seconds)}"
        )
        if need.builder_flop:
            in_time = math.ceil(
                need.builder_flop / rate / (need.builder_steps * seconds)
            )
            yield (
                f"builders: {_rounded(need.builder_flop / 1e15)} PFLOP an index; to "
                f"have one every {need.builder_steps} steps, {in_time} of these "
                "devices beside"
            )


def _table(title, parts):
    from realm_tf.evaluation import text_table

    rows = [[name, f"{value / 1e9:,.2f}"] for name, value in parts.items()]
    rows.append(["together", f"{sum(parts.values()) / 1e9:,.2f}"])
    return text_table.render([title, "GB"], rows)


def _rounded(number):
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _duration(seconds):
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} s"
