"""`realm serve` as users run it."""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request


def get_json(url, **options):
    """The status and body of an HTTP request."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, **options) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


class Process:
    """`realm serve` as users run it; ready when this is."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "realm_tf.cli", "serve", *arguments]
        # A pipe that no one reads is full after some hundred requests.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  see `kill`
        self.popen = subprocess.Popen(
            [*command, "--grpc-port", "0", "--rest-port", "0"],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        try:
            self.ready = self.popen.stdout.readline()
            match = re.match(
                r"realm serve: ready at (127\.0\.0\.1:\d+) and "
                r"(http://127\.0\.0\.1:\d+), ",
                self.ready,
            )
            assert match, self.ready or (self.popen.wait(), self._read_log())
        # A test that timed out, too.
        except BaseException:
            self.kill()
            raise
        self.target, self.rest_url = match.groups()

    def __enter__(self):
        return self

    def __exit__(self, *exception_info):
        self.kill()

    def kill(self):
        """Ends it as no program can resist (SIGKILL)."""
        self.popen.kill()
        self.popen.wait()
        self.popen.stdout.close()
        self._log.close()

    def end(self):
        """Waits for the end after SIGTERM; returns the lines of the log."""
        output, _ = self.popen.communicate()
        assert (self.popen.returncode, output) == (0, "")
        return [json.loads(line) for line in self._read_log().splitlines()]

    def _read_log(self):
        self._log.seek(0)
        return self._log.read()
