"""The processes of one training run, on one machine or several (JAX).

Each is started with the same command and with where it stands among them, by
Keras's environment variables: `KERAS_DISTRIBUTION_JOB_ADDRESSES` (host:port of
the first), `KERAS_DISTRIBUTION_NUM_PROCESSES` and
`KERAS_DISTRIBUTION_PROCESS_ID`, from 0. On TPU pods and with Slurm, JAX knows
these itself: `KERAS_DISTRIBUTION_NUM_PROCESSES=auto` alone is enough.

All compute the same steps, each on its own devices with its own part of every
batch. The first one also writes: states, logs, the index, the model. The
others read what it wrote, so that the directories must be on a disk that all
of them mount.
"""

import os

from realm_tf.errors import InputError

_ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
_NUM = "KERAS_DISTRIBUTION_NUM_PROCESSES"
_ID = "KERAS_DISTRIBUTION_PROCESS_ID"
VARIABLES = (_ADDRESSES, _NUM, _ID)
_AUTO = "auto"


def join() -> None:
    """Joins the other processes, if the environment says that there are any.

    Before anything is computed. Again, it does nothing.

    Raises:
        InputError: if the backend is not JAX, or a variable is missing.
    """
    if not any(map(os.environ.get, VARIABLES)) or count() > 1:
        return
    import keras

    if keras.backend.backend() != "jax":
        raise InputError(
            f"{_NUM} is set, but only JAX trains in several processes: set "
            "KERAS_BACKEND=jax, or unset it."
        )
    import jax

    if os.environ.get(_NUM) == _AUTO:
        jax.distributed.initialize()
        return
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        raise InputError(
            f"{', '.join(missing)} must be set, too, for several processes to "
            "train together."
        )
    if not jax.distributed.is_initialized():
        keras.distribution.initialize()


def stay_alone(what: str) -> None:
    """Refuses other processes.

    Args:
        what: str. The command that is for one alone.

    Raises:
        InputError: if the environment says that there are others.
    """
    if any(map(os.environ.get, VARIABLES)):
        raise InputError(
            f"{_NUM} is set, but `realm {what}` trains in one process: unset "
            f"{', '.join(VARIABLES)}."
        )


def count() -> int:
    """How many processes train together."""
    jax = _jax()
    return jax.process_count() if jax else 1


def number() -> int:
    """Which of them this is, from 0."""
    jax = _jax()
    return jax.process_index() if jax else 0


def is_first() -> bool:
    """Whether this is the one that writes."""
    return not number()


def meet(place: str) -> None:
    """Waits until all of them are at a place.

    Args:
        place: str. The same for all.
    """
    if count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(place)


def agree(*values: int) -> tuple[int, ...]:
    """What the first one says.

    Args:
        *values: int. As many for all.
    """
    if count() == 1:
        return values
    import numpy as np
    from jax.experimental import multihost_utils

    found = multihost_utils.broadcast_one_to_all(np.array(values, "int32"))
    return tuple(int(value) for value in found)


def _jax():
    """JAX, if processes have joined."""
    import keras

    if keras.backend.backend() != "jax":
        return None
    import jax

    return jax if jax.distributed.is_initialized() else None
