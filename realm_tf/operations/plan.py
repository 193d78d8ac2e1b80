"""`realm plan`."""

import dataclasses
import functools
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from typing import Literal

import tyro

from realm_tf.artifacts.objects import Model
from realm_tf.configs import finetune
from realm_tf.configs import ict
from realm_tf.configs import pretrain
from realm_tf.configs import recipes
from realm_tf.errors import InputError
from realm_tf.evaluation import text_table
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import Repeated
from realm_tf.retrieval.index import KINDS

# Of English Wikipedia (REALM.md of 2018-12-20; Guu et al., 2020, section 4).
_NUM_BLOCKS = 13_353_718
_MAX_BLOCK_LENGTH = 288
_TPUS = ("v4", "v5e", "v5p", "v6e")
# The memory of one machine, of which a runtime leaves this share (our choice).
_USABLE = 0.9
_STEP = "realm_tf.training.step_costs"
_STEPS = {
    "pretrain": pretrain.RECIPES,
    "ict": ict.RECIPES,
    "finetune": finetune.RECIPES,
    # Their blocks, and as many at once as builders of an index embed.
    "embed": {
        name: recipe.replace(batch_size=recipes.EMBEDDED_ON_ACCELERATORS)
        for name, recipe in pretrain.RECIPES.items()
    },
}
_OF_STEPS = ("recipe", "set", "topology")
_OF_MACHINES = ("kind", "host_memory")
_BERT_BASE = {
    "vocabulary_size": 30_522,
    "num_layers": 12,
    "num_heads": 12,
    "hidden_dim": 768,
    "intermediate_dim": 3072,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Operation):
    """Estimates what a command needs, before you run it.

      realm plan pretrain --recipe paper --topology v5e:4x8
      realm plan index --kind scann --host-memory 32

    pretrain, ict, finetune, embed: compiles the step for devices that you need
    not have, with texts as long as the recipe allows, and prints the memory,
    operations and messages that the compiler reports. index, export: estimates
    memory and disk of the machine that makes it. The exit status is 1 if it
    does not fit.
    """

    command = "plan"

    what: tyro.conf.Positional[Literal[*_STEPS, "index", "export"]]
    """the command to plan"""
    recipe: str | None = None
    """recipe by name, for embed one of pretrain (if not given: the command's
    first)"""
    set: Repeated = ()
    """NAME=VALUE: change a number of the recipe; may be given several times"""
    topology: str | None = None
    """devices that compute: v5e:4x8 and other TPUs (v4, v5p, v6e), cpu:8 for
    eight CPU devices, gpu for the GPUs of this machine (if not given: cpu:1)"""
    model: Model | None = None
    """model whose sizes are used (if not given: BERT-base, as in the paper)"""
    num_blocks: int = _NUM_BLOCKS
    """blocks of the knowledge corpus"""
    kind: Literal[tuple(KINDS)] = "scann"
    """index, export: kind of search"""
    host_memory: float = 64.0
    """index, export: memory of the machine in GB"""

    def __post_init__(self):
        super().__post_init__()
        self.check_least(1, "num_blocks", "host_memory")
        unused = _OF_MACHINES if self.what in _STEPS else _OF_STEPS
        self.refuse_given(unused, f"`realm plan {self.what}`")
        self.settings  # noqa: B018

    @functools.cached_property
    def settings(self) -> recipes.Recipe | None:
        """The recipe, with `set`; `None` for an index or an export."""
        if self.what not in _STEPS:
            return None
        known = _STEPS[self.what]
        if self._recipe not in known:
            raise InputError(
                f"--recipe of `realm plan {self.what}` must be one of "
                f"{', '.join(known)}. Received: {self.recipe!r}"
            )
        return known[self._recipe].parse(self.set)

    @property
    def _recipe(self):
        return self.recipe or next(iter(_STEPS[self.what]))

    @property
    def _config(self):
        """Of a model directory."""
        if self.model is not None:
            return self.model.config
        tower = {"encoder": _BERT_BASE, "projection_dim": 128}
        return {
            "query_embedder": tower,
            "block_embedder": tower,
            "share_embedders": True,
            "reader": {"encoder": _BERT_BASE},
            "masked_lm_head": False,
            "score_scale": 1.0,
        }

    def run(self) -> dict:
        """Compiles it, or adds it up.

        Returns:
            dict: of a step, as `training.step_costs.plan`; of an index and an
            export, `memory` and `disk`: what for to bytes.

        Raises:
            InputError: if devices are not known, or hosts cannot share a batch
                evenly, or the compiler for them is not installed.
        """
        if self.what in _STEPS:
            return self._compile()
        from realm_tf.export import footprint

        make = getattr(footprint, self.what)
        return make(
            self._config,
            self.num_blocks,
            kind=self.kind,
            block_length=_MAX_BLOCK_LENGTH,
        )

    def _compile(self):
        environment, topology = environment_of(self.topology or "cpu:1")
        task = {
            "what": self.what,
            "recipe": self.settings,
            "config": self._config,
            "num_blocks": self.num_blocks,
            "topology": topology,
        }
        done = subprocess.run(
            [sys.executable, "-m", _STEP],
            input=pickle.dumps(task),
            capture_output=True,
            env=environment,
        )
        if done.returncode:
            raise ChildProcessError(
                "The process that compiles ended with exit status "
                f"{done.returncode}: {done.stderr.decode()[-2000:]}"
            )
        found = json.loads(done.stdout.splitlines()[-1])
        if "error" in found:
            raise InputError(found["error"])
        return found

    def status(self, result) -> int:
        if self.what in _STEPS:
            return int(bool(result["refused"]))
        limit = _USABLE * 1e9 * self.host_memory
        return int(sum(result["memory"].values()) > limit)

    def report(self, result) -> str:
        blocks = f"{self.num_blocks:,} blocks"
        if self.what in _STEPS:
            title = (
                f"{self.what}, recipe {self._recipe}, {blocks}, batch_size "
                f"{result['batch_size']:,}, {result['devices']}"
            )
            numbers = result["numbers"].items()
            rows = [[name, f"{value:,.4g}"] for name, value in numbers]
            tables = [text_table.render(["a step, of one device", ""], rows)]
            reason = result["refused"]
            advice = (
                "add --set gradient_checkpointing=true, take a smaller "
                "batch_size with more gradient_accumulation_steps, or more "
                "devices"
            )
        else:
            title = (
                f"{self.what}, {self.kind}, {blocks}, a machine of "
                f"{self.host_memory:g} GB"
            )
            tables = [
                _table("the machine", result["memory"]),
                _table("disk", result["disk"]),
            ]
            reason = (
                f"{sum(result['memory'].values()) / 1e9:,.1f} GB of "
                f"{_USABLE * self.host_memory:,.1f}"
            )
            advice = "take another --kind, or a machine with more memory"
        lines = [title, "", *tables]
        if self.status(result):
            lines += ["", f"It does not fit: {reason}; {advice}."]
        return "\n".join(lines)


def environment_of(topology):
    """Variables of a process that compiles for devices, and their name there.

    Args:
        topology: str. See `Plan`.

    Returns:
        (dict, str).

    Raises:
        InputError: if it is not known, or the compiler is not installed.
    """
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    kind, _, layout = topology.partition(":")
    if topology == "gpu":
        environment.pop("JAX_PLATFORMS", None)
        return environment, topology
    environment["JAX_PLATFORMS"] = "cpu"
    if kind == "cpu" and layout.isdecimal() and int(layout):
        flags = environment.get("XLA_FLAGS", "")
        environment["XLA_FLAGS"] = (
            f"{flags} --xla_force_host_platform_device_count={layout}"
        )
        return environment, kind
    if kind not in _TPUS or not layout:
        raise InputError(
            f"--topology {topology}: expected cpu:NUMBER, gpu, or a TPU with "
            f"its layout, such as v5e:4x8, of {', '.join(_TPUS)}."
        )
    libtpu = importlib.util.find_spec("libtpu")
    if libtpu is None:
        raise InputError(
            f"--topology {topology}: the TPU's compiler is not installed: run "
            "`pip install 'realm-tf[tpu]'`. It needs no TPU."
        )
    [folder] = libtpu.submodule_search_locations
    # It would ask the machine for a TPU, and let one process have it.
    environment["TPU_SKIP_MDS_QUERY"] = "1"
    environment["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    environment["TPU_LIBRARY_PATH"] = os.path.join(folder, "libtpu.so")
    return environment, topology


def _table(title, parts):
    parts = {**parts, "together": sum(parts.values())}
    rows = [[name, f"{value / 1e9:,.2f}"] for name, value in parts.items()]
    return text_table.render([title, "GB"], rows)
