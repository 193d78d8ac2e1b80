"""Who builds the indices of a trainer: a thread or a process of its own."""

import abc
import dataclasses
import os
import subprocess
import sys
import threading

from realm_tf.training.index_builder import TowerBuild
from realm_tf.training.index_builder import build_indices

# What a process of its own runs.
_PROCESS = "realm_tf.operations.rebuild_index"
_LOG = "builder.log"
# Of the log's end, in a message.
_SHOWN_BYTES = 2000


class Worker(abc.ABC):
    """Who builds the indices."""

    @abc.abstractmethod
    def start(self) -> None:
        """Begins, or begins again after it died."""

    @abc.abstractmethod
    def death(self) -> str | None:
        """Why it is not at work; `None` while it is."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends it, whatever it is doing."""


class _Stopped(Exception):
    """The trainer ended its thread."""


class ThreadWorker(Worker):
    """A thread of the trainer's process.

    It shares the processor's time with the trainer: for a small corpus, or
    where a step leaves the processor idle.

    Args:
        exchange: `IndexExchange`.
        loaded: `LoadedModel`. The trainer's; the thread copies its tower.
        blocks: `PackedBlocks`.
        max_block_length: int. As the trainer's.
    """

    def __init__(self, exchange, loaded, blocks, *, max_block_length: int):
        from realm_tf.models.open_qa import OpenQa

        tower = loaded.model.block_embedder.copy()
        own = OpenQa(tower, tower, loaded.model.reader)
        self._exchange = exchange
        self._build = TowerBuild(
            exchange,
            dataclasses.replace(loaded, model=own),
            blocks,
            max_block_length=max_block_length,
        )
        self._build.before_batch = self._raise_if_stopped
        self._stopped = threading.Event()
        self._thread = None
        self._error = None

    def start(self):
        self._stopped.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            build_indices(
                self._exchange, self._build, should_stop=self._stopped.is_set
            )
        except _Stopped:
            return
        # Whatever it was, the trainer says it and starts another.
        except Exception as error:
            self._error = error

    def _raise_if_stopped(self):
        if self._stopped.is_set():
            raise _Stopped

    def death(self):
        if self._thread.is_alive():
            return None
        return f"{type(self._error).__name__}: {self._error}"

    def stop(self):
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()


class ProcessWorker(Worker):
    """A process of its own, at a low priority, on the processor.

    Its output goes to `builder.log` in the exchange's directory. It ends when
    the trainer ends, however that ends.

    Args:
        exchange: `IndexExchange`.
        arguments: list of str. Of `operations.rebuild_index`, less
            `--exchange`.
    """

    def __init__(self, exchange, arguments):
        self._exchange = exchange
        self._command = [
            *(sys.executable, "-m", _PROCESS),
            *("--exchange", exchange.directory),
            *arguments,
        ]
        self._log = os.path.join(exchange.directory, _LOG)
        self._process = None

    @property
    def process_id(self) -> int:
        """Of the process that was started last."""
        return self._process.pid

    def start(self):
        import keras

        # What is left of one that died.
        self.stop()
        environment = dict(
            os.environ,
            KERAS_BACKEND=keras.backend.backend(),
            # The accelerator is the trainer's.
            JAX_PLATFORMS="cpu",
            CUDA_VISIBLE_DEVICES="",
        )
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                # Closed by the system when the trainer is gone.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def death(self):
        status = self._process.poll()
        if status is None:
            return None
        with open(self._log, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log) - _SHOWN_BYTES))
            lines = log.read().decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"exit status {status}; {self._log} ends with {last.strip()!r}"

    def stop(self):
        if self._process is not None:
            # Versions appear whole or not at all: nothing can be torn.
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
