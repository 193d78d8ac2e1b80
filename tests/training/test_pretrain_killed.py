"""A trainer killed with SIGKILL at random moments."""

import json

import pytest
import python_code

from realm_tf.artifacts import artifact
from realm_tf.training.training_log import read_log

pytestmark = pytest.mark.slow

_NUM_KILLS = 20

# Each run is a child that kills itself some time after its first step.
_DRIVER = """
import json, os, random, signal, sys, threading, time

import keras

from realm_tf.operations.pretrain import Pretrain

model, blocks, corpus, output, num_kills = json.loads(sys.argv[1])


class Pace(keras.callbacks.Callback):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def on_train_batch_begin(self, batch, logs=None):
        if self.seconds is not None:
            threading.Timer(
                self.seconds, os.kill, (os.getpid(), signal.SIGKILL)
            ).start()
            self.seconds = None
        time.sleep(0.05)


def run(output, seconds):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    Pretrain(
        recipe="tiny", set=["num_steps=40", "refresh_every=7", "log_every=1"], model=model,
        blocks=blocks, corpus=corpus, output=output,
    ).run(verbose=0, callbacks=[Pace(seconds)], every_seconds=0)
    os._exit(0)


assert run(f"{output}-whole", None) == 0
moments = random.Random(0)
kills, outputs = 0, []
while kills < num_kills:
    outputs.append(f"{output}-{len(outputs)}")
    # In the end each is allowed to finish.
    for _ in range(num_kills):
        status = run(outputs[-1], moments.uniform(0, 1.5))
        if status == 0:
            break
        assert status == -signal.SIGKILL, status
        kills += 1
        assert not os.path.exists(outputs[-1])
    else:
        assert run(outputs[-1], None) == 0
print(json.dumps([kills, outputs]))
"""


def test_a_killed_trainer_goes_on_as_if_never_stopped(
    tmp_path, model_dir, blocks_dir, annotated_dir
):
    output = str(tmp_path / "trained")
    arguments = json.dumps(
        [model_dir, blocks_dir, annotated_dir, output, _NUM_KILLS]
    )
    printed = python_code.run(_DRIVER, arguments)
    kills, outputs = json.loads(printed.splitlines()[-1])
    assert kills >= _NUM_KILLS
    whole = f"{output}-whole"
    curve = _curve(whole)
    assert [line["step"] for line in curve] == list(range(1, 41))
    assert len({line["loss"] for line in curve}) == 40
    for path in outputs:
        assert _curve(path) == curve
        for name in ("fingerprint", "history"):
            assert artifact.read(path)[name] == artifact.read(whole)[name]


def _curve(directory):
    return [{**line, "seconds": None} for line in read_log(directory)]
