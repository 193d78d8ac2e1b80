"""What the operations that train have in common."""

import contextlib
import dataclasses
import functools
import os
from typing import ClassVar

from realm_tf.artifacts import artifact
from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import remove
from realm_tf.configs import recipes
from realm_tf.errors import InputError
from realm_tf.operations.computing import Computing
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import Repeated


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOperation(Operation):
    """An operation with the numbers of a recipe.

    In Python, `recipe` may be a recipe itself: it becomes the name and the
    `set` that make it.
    """

    # Name to recipe.
    recipes: ClassVar[dict[str, recipes.Recipe]]

    recipe: str
    """the recipe by name"""
    set: Repeated = ()
    """NAME=VALUE: change a setting of the recipe; several times if you like"""

    def __post_init__(self):
        if isinstance(self.recipe, recipes.Recipe):
            name, changes = recipes.nearest(
                self.recipes, self.recipe.parse(self.set)
            )
            object.__setattr__(self, "recipe", name)
            object.__setattr__(self, "set", changes)
        super().__post_init__()
        # A wrong name or number is refused before anything starts.
        self.settings  # noqa: B018

    @functools.cached_property
    def settings(self) -> recipes.Recipe:
        """The numbers to train with: the recipe, with `set`."""
        return self.recipes[self.recipe].parse(self.set)

    def parameters(self) -> dict:
        return self.settings.flat()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Computing, RecipeOperation):
    """An operation that trains a model on blocks.

    A run that was stopped goes on where it was when the same operation is run
    again; see `training.resume`.
    """

    makes = Model
    # Whether several processes may train together, see `training.hosts`.
    in_processes: ClassVar[bool] = False

    model: Model
    """model directory"""
    blocks: Blocks
    """directory of `realm chunk`"""
    output: str
    """the directory to make; on an object store, it also keeps the state of an
    interrupted run"""

    def check(self) -> None:
        """Refuses what cannot be trained, before anything is loaded.

        Raises:
            InputError: if `output` is remote and several processes train, the
                inputs do not match, or an encoder takes less than the recipe's lengths.
        """
        from realm_tf.training import hosts

        if is_remote(self.output) and hosts.count() > 1:
            raise InputError(
                f"{self.output} is on an object store, but processes that "
                "train together meet on a shared disk. Choose a directory on "
                "one and copy it after."
            )
        matching.check_vocabulary(self.blocks, self.model)
        matching.check_lengths(self.model, self.parameters())

    @contextlib.contextmanager
    def train(self):
        """Loads the model, and writes it to `output` when it is trained.

        Yields:
            (`LoadedModel`, `artifact.Stage`).

        Raises:
            InputError: as `check` and `write`.
        """
        import keras

        from realm_tf.models import model_directory
        from realm_tf.models.precision import computing_in
        from realm_tf.training import devices
        from realm_tf.training import hosts

        # Before anything is asked of the devices.
        if self.in_processes:
            hosts.join()
        else:
            hosts.stay_alone(self.command)
        self.check()
        with (
            computing_in(self.computes_in),
            devices.use_all(self.settings.batch_size),
        ):
            # Before the model, whose dropout draws its seeds when it is made.
            keras.utils.set_random_seed(self.settings.seed)
            loaded = model_directory.load(self.model)
            with self.write() as stage:
                yield loaded, stage
                if hosts.is_first():
                    model_directory.write_files(loaded, stage)

    @contextlib.contextmanager
    def write(self):
        """Opens `output` to be written over a long time.

        Stopped, the run leaves its state there and goes on with it. A mistake
        in the input leaves nothing where there is no state yet. What only the run needs is removed at the end.

        Of processes that train together, the first one does all that; the
        others come once it is open, and leave when it is complete.

        Yields:
            `artifact.Stage`.

        Raises:
            InputError: if `output` exists.
        """
        from realm_tf.training import hosts
        from realm_tf.training import resume
        from realm_tf.training import run_directory

        if not hosts.is_first():
            hosts.meet("output is open")
            yield artifact.Stage(artifact.unfinished(self.output), {})
            hosts.meet("output is complete")
            return
        with super().write(resumable=True) as stage:
            os.makedirs(stage.path(run_directory.WORK), exist_ok=True)
            hosts.meet("output is open")
            try:
                with resume.also_saving(stage.save):
                    yield stage
            except resume.Diverged:
                # Its log may be worth a look.
                raise
            except InputError:
                # A state may be worth hours, whatever was wrong now.
                states = (
                    os.path.join(stage.path(name), resume.STATE)
                    for name in run_directory.CHECKPOINTS
                )
                if not any(map(os.path.exists, states)):
                    remove(stage.directory)
                    if is_remote(self.output):
                        remove(self.output)
                raise
            remove(stage.path(run_directory.WORK))
        hosts.meet("output is complete")

    def report(self, result: Model) -> str:
        metadata = result.metadata
        # Without steps of its own, what came before.
        history = metadata.get("history") or metadata["masked_lm_history"]
        last = history[-1] if history else {}
        shown = ", ".join(f"{name} {v:.3f}" for name, v in last.items())
        return f"{self.output}: {shown}"
