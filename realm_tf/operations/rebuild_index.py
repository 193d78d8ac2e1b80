"""The process that builds indices for a trainer in another process.

`realm pretrain` and `realm finetune` start them. More may join, on other
machines that mount the same directories or on other accelerators, whenever it
runs:

  python -m realm_tf.operations.rebuild_index --exchange OUTPUT.partial/run/index_exchange

Each embeds ranges of the blocks, whichever are free, with the weights that the
trainer left last, on the devices that it finds. It ends when the run has ended.
What it opens is what the trainer's `task.json` names: `model`, `blocks`,
`max_block_length` and `precision`.
"""

import contextlib
import os
import sys
import threading
import time

import tyro

from realm_tf.artifacts.objects import Blocks
from realm_tf.errors import InputError
from realm_tf.training.exchange import Exchange
from realm_tf.training.index_builder import embed_blocks

# A tenth of the trainer's share of a busy core (our choice).
_NICENESS = 10
_SECONDS_BETWEEN_LOOKS = 0.2


class _Obsolete(Exception):
    """There are newer weights."""


class _Builder:
    """Embeds ranges with the weights that come, again and again."""

    def __init__(self, meeting, task):
        from realm_tf.models import model_directory
        from realm_tf.retrieval.block_embedder import BlockEmbedder

        self._exchange = meeting
        self._loaded = model_directory.load(
            task["model"], precision=task["precision"]
        )
        self._embedder = BlockEmbedder(
            self._loaded, max_length=task["max_block_length"]
        )
        self._blocks = Blocks(task["blocks"]).records
        # Of the weights that the tower has.
        self._weights = None

    def work(self) -> bool:
        """Embeds one range, if there is one."""
        name = self._exchange.current()
        if name is None:
            return False
        with self._exchange.claim(name) as number:
            if number is None:
                return False
            if name != self._weights:
                weights = self._exchange.weights(name)
                if weights is None:
                    return True
                self._loaded.model.block_embedder.set_weights(weights)
                self._weights = name
            with contextlib.suppress(_Obsolete):
                found = self._embed(name, number)
                self._exchange.deliver(name, number, found)
        return True

    def _embed(self, name, number):
        def check():
            if self._exchange.current() != name:
                raise _Obsolete

        return embed_blocks(
            self._embedder,
            self._blocks,
            numbers=self._exchange.rows(number),
            after_batch=check,
        )


def build(*, exchange: str, with_trainer: bool = False) -> int:
    """Embeds blocks for a training with refresh=process.

    Args:
        exchange: the run's directory OUTPUT.partial/run/index_exchange
        with_trainer: end when standard input ends, at a low priority
    """
    if with_trainer:
        _end_with_the_trainer()
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    meeting = Exchange(exchange)
    try:
        task = meeting.task
        if task is None:
            raise InputError(
                f"--exchange {exchange}: no training with "
                "refresh=process is going on there."
            )
        builder = _Builder(meeting, task)
        # A run that goes on after a kill begins another task.
        while meeting.task == task:
            if not builder.work():
                time.sleep(_SECONDS_BETWEEN_LOOKS)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _end_with_the_trainer():
    def wait():
        # Not sys.stdin: its lock would be held when Python ends by itself.
        while os.read(sys.stdin.fileno(), 1):
            continue
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    program = "python -m realm_tf.operations.rebuild_index"
    sys.exit(tyro.cli(build, prog=program))
