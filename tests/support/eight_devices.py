"""Code that runs on eight forced host devices, in a process of its own."""

import json
import os
import subprocess
import sys
import textwrap

_XLA_FLAGS = "--xla_force_host_platform_device_count=8"

# Of a retriever's in-batch loss: `make_model(tower)` and `batch` stand before.
_LOSSES = """
def _run():
    keras.utils.set_random_seed(0)
    tower = Embedder(
        BertEncoder(60, 1, 2, 8, 16), projection_dim=6, dropout=0.0
    )
    for v in tower.trainable_variables:
        if len(v.shape) > 1:
            v.assign(10.0 * v)
    model = make_model(tower)
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    metrics = model.evaluate(batch, batch_size=16, verbose=0)
    losses = model.fit(
        batch, batch_size=16, epochs=3, shuffle=False, verbose=0
    ).history["loss"]
    num_devices = len(tower.variables[0].value.sharding.device_set)
    return {"metrics": metrics, "losses": losses, "num_devices": num_devices}

_one = _run()
_devices = keras.distribution.list_devices()
with keras.distribution.DataParallel(devices=_devices).scope():
    print(json.dumps([_one, _run()]))
"""
_IMPORTS = """
import json
import keras, numpy as np
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
"""


def run(code, *arguments, xla_flags=""):
    """What the code prints, on JAX; an error of its own fails the test.

    Args:
        code: str. May be indented.
        *arguments: str. Its `sys.argv[1:]`.
        xla_flags: str. More of them. Defaults to none.
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "XLA_FLAGS": f"{_XLA_FLAGS} {xla_flags}",
        },
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def losses_of_one_and_of_eight(code):
    """Trains a retriever by its in-batch loss, on one device and on eight.

    Args:
        code: str. Sets `batch`, a dict of arrays, and `make_model`, which
            makes the model of a tower.

    Returns:
        Tuple of two dicts: `"metrics"` and `"losses"`, lists of floats, and
        `"num_devices"`.
    """
    return json.loads(run(_IMPORTS + textwrap.dedent(code) + _LOSSES))
