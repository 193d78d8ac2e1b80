"""Pre-training in two processes of four devices each, as on two hosts."""

import json
import os
import subprocess
import sys

import pytest
from engine_processes import free_port

from realm_tf.training import hosts
from realm_tf.training.training_log import read_log

pytestmark = pytest.mark.slow

_NUM_STEPS = 20

# Builders are waited for, so that indices come at the same steps; at the first
# one a builder is killed.
_DRIVER = """
import json, os, signal, sys, time

import training_runs

from realm_tf.operations.fine_tune import FineTune
from realm_tf.operations.inverse_cloze_task import InverseClozeTask
from realm_tf.operations.pretrain import Pretrain
from realm_tf.training import hosts
from realm_tf.training.index_refresh import IndexRefresh

given, stop_after = json.loads(sys.argv[1])
killed = []
end = IndexRefresh.on_train_batch_end

def end_with_the_builder(self, batch, logs=None):
    end(self, batch, logs)
    while self._thread is not None and self._thread.is_alive():
        builders = [each for each in self._build._processes if each]
        if not killed and len(builders) == 2:
            killed.append(builders[0].pid)
            os.kill(builders[0].pid, signal.SIGKILL)
        time.sleep(0.05)

IndexRefresh.on_train_batch_end = end_with_the_builder
callbacks = [training_runs.Stop(stop_after)] if stop_after else []
kinds = {"ict": InverseClozeTask, "pretrain": Pretrain, "finetune": FineTune}
operation = kinds[given.pop("operation")](**given)
try:
    operation.run(verbose=0, every_seconds=0, callbacks=callbacks)
except KeyboardInterrupt:
    assert stop_after
import jax
print(json.dumps([hosts.count(), len(jax.devices()), len(killed)]))
"""


@pytest.fixture(scope="module")
def given(model_dir, blocks_dir, annotated_dir, brute_force_index_dir):
    return {
        "operation": "pretrain",
        "recipe": "tiny",
        "model": model_dir,
        "blocks": blocks_dir,
        "corpus": annotated_dir,
        "index": brute_force_index_dir,
        "set": [
            *(f"num_steps={_NUM_STEPS}", "batch_size=8", "log_every=1"),
            *("refresh=process", "refresh_every=7", "num_builders=2"),
        ],
    }


def _run(given, output, *, num_processes, num_devices, stop_after=None):
    """What each process prints: how many they are, their devices, kills."""
    address = f"127.0.0.1:{free_port()}"
    processes = []
    for number in range(num_processes):
        environment = {
            **os.environ,
            "KERAS_BACKEND": "jax",
            "XLA_FLAGS": (
                f"--xla_force_host_platform_device_count={num_devices}"
            ),
            "PYTHONPATH": os.path.join(os.path.dirname(__file__), "../support"),
        }
        if num_processes > 1:
            values = (address, str(num_processes), str(number))
            environment |= zip(hosts.VARIABLES, values, strict=True)
        arguments = json.dumps([{**given, "output": str(output)}, stop_after])
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", _DRIVER, arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    printed = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, printed, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in printed]


def _losses(directory):
    lines = read_log(directory)
    assert [line["step"] for line in lines] == list(range(1, _NUM_STEPS + 1))
    return [line["loss"] for line in lines]


def _ages(directory):
    return [line["index_age"] for line in read_log(directory)]


def test_two_processes_of_four_devices_are_one_device(given, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    printed = _run(given, one, num_processes=1, num_devices=1)
    assert printed == [[1, 1, 1]]
    # Two refreshes, each searched from the next step on.
    assert _ages(one)[7:10] == [7, 1, 2]
    assert _ages(one)[14:17] == [7, 1, 2]
    stopped = _run(given, two, num_processes=2, num_devices=4, stop_after=13)
    assert stopped == [[2, 8, 1], [2, 8, 0]]
    # Another number of devices goes on with it.
    printed = _run(given, two, num_processes=1, num_devices=4)
    assert printed == [[1, 4, 1]]
    assert _losses(two) == pytest.approx(_losses(one), rel=1e-4)
    assert _ages(two) == _ages(one)


def test_the_inverse_cloze_task_in_two_processes(given, tmp_path):
    losses = []
    for num_processes, num_devices in ((1, 1), (2, 2)):
        output = tmp_path / str(num_processes)
        _run(
            {"operation": "ict", "recipe": "tiny", "set": ["log_every=1"]}
            | {name: given[name] for name in ("model", "blocks")},
            output,
            num_processes=num_processes,
            num_devices=num_devices,
        )
        losses.append([line["loss"] for line in read_log(output)])
    assert len(losses[0]) == 7
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_what_processes_cannot_do_together(given, tmp_path):
    for changes, message in (
        ({"index": None}, "name it with --index"),
        (
            {"set": [*given["set"], "tensorboard=true"]},
            "leave it out where several train",
        ),
    ):
        with pytest.raises(AssertionError, match=message):
            _run(
                {**given, **changes},
                tmp_path / "x",
                num_processes=2,
                num_devices=1,
            )
