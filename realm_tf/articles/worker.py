"""Calls functions in a process of its own, with limits of time and memory."""

import atexit
import contextlib
import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import connection

from realm_tf.articles.pages import Unreadable
from realm_tf.articles.pages import reason_of
from realm_tf.text.printable import printable

# For one document (our choice); a book takes seconds.
SECONDS = 120
NUM_BYTES = 4 << 30


class Worker:
    """Calls functions in another process, which starts with the first call.

    What takes too much time or memory, or ends the process, raises
    `Unreadable`; the next call starts another process.

    Args:
        seconds: int. Longest time of a call. Defaults to two minutes.
        num_bytes: int. Most memory. Defaults to 4 GiB.
    """

    def __init__(self, *, seconds: int = SECONDS, num_bytes: int = NUM_BYTES):
        self._seconds = seconds
        self._num_bytes = num_bytes
        self._process = self._pipe = None
        atexit.register(self.close)

    def call(self, function: Callable, *args, **options):
        """The result of a function that a module holds.

        Raises:
            Unreadable: see above; also what else the function raises becomes
                one.
        """
        if self._process is None:
            self._start()
        is_answered = False
        try:
            self._pipe.send((function, args, options))
            if not self._pipe.poll(self._seconds):
                raise Unreadable(
                    f"reading it takes more than {self._seconds} seconds"
                )
            result, error, warnings = self._pipe.recv()
            is_answered = True
        except (EOFError, ConnectionError) as error:
            raise Unreadable(
                "reading it ends the process that reads documents "
                f"(status {self._process.wait()})"
            ) from error
        finally:
            if not is_answered:
                self.close()
        print(printable(warnings), end="", file=sys.stderr)
        if error is not None:
            raise error
        return result

    def close(self):
        """Ends the process."""
        if self._process is not None:
            self._pipe.close()
            self._process.kill()
            self._process.wait()
            self._process = self._pipe = None

    def _start(self):
        # No fork: this process may hold threads of TensorFlow. None of
        # multiprocessing's ways, which run the script of a user again.
        self._pipe, end = connection.Pipe()
        limits = (end.fileno(), self._seconds, self._num_bytes)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, limits)],
            pass_fds=[end.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
        )
        end.close()


def _serve(number, seconds, num_bytes):
    # The process that asks is the one that an interrupt is for.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        num_bytes = min(num_bytes, most)
    resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))
    pipe = connection.Connection(number)
    while True:
        try:
            function, args, options = pipe.recv()
        except EOFError:
            return
        # Should nobody be there any more to end it.
        signal.alarm(2 * seconds)
        result = error = None
        with contextlib.redirect_stderr(io.StringIO()) as warnings:
            try:
                result = function(*args, **options)
            except MemoryError:
                error = Unreadable(
                    f"reading it takes more than {num_bytes >> 20} MiB of memory"
                )
            except Exception as raised:
                error = Unreadable(reason_of(raised))
        signal.alarm(0)
        pipe.send((result, error, warnings.getvalue()))


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
