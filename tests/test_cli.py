import dataclasses
import errno
import io
import os
import re
import subprocess
import sys
from typing import ClassVar
from unittest import mock

import pytest
import rich

import realm_tf
from realm_tf import cli
from realm_tf.errors import InputError
from realm_tf.operations.operation import BeamOptions
from realm_tf.operations.operation import Operation
from realm_tf.version import __version__


def _command(monkeypatch, run, *, status=0, takes_more=False):
    """Makes `realm fake` a command that calls `run` with its operation."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Fake(Operation):
        """A command of the tests."""

        command: ClassVar[str] = "fake"

        size: int = 1
        """how large it is"""

        def run(self):
            return run(self)

        def report(self, result):
            return ""

        def status(self, result):
            return status

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class FakePipeline(Fake):
        """A pipeline of the tests."""

        beam_options: BeamOptions = ()

    operation = FakePipeline if takes_more else Fake
    monkeypatch.setattr(realm_tf, "Fake", operation, raising=False)
    monkeypatch.setitem(cli.COMMANDS, "fake", "Fake")


def test_help_lists_every_command(capsys):
    for arguments, status in ((["--help"], 0), (["-h"], 0), ([], 2)):
        assert cli.main(arguments) == status
        printed = capsys.readouterr()
        assert not printed.err
        for name in cli.COMMANDS:
            summary, *_ = cli.operation_class(name).__doc__.splitlines()
            assert re.search(
                rf"^  {name} +{re.escape(summary)}$", printed.out, re.M
            )


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_an_unknown_command(capsys):
    assert cli.main(["frobnicate", "--help"]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err == (
        "realm: unknown command 'frobnicate'. `realm --help` lists them.\n"
    )


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_explains_itself(name, capsys):
    assert cli.main([*name.split(), "--help"]) == 0
    printed = capsys.readouterr()
    assert not printed.err
    assert printed.out.startswith(f"usage: realm {name} ")
    # The description is the operation's; its first line says what is done.
    operation = cli.operation_class(name)
    assert operation.command == name
    assert operation.__doc__.splitlines()[0] in printed.out


def test_the_status_is_the_command_s(monkeypatch):
    _command(monkeypatch, lambda fake: None, status=1)
    assert cli.main(["fake"]) == 1


def test_a_group_of_commands(capsys):
    group = [name for name in cli.COMMANDS if name.startswith("corpus ")]
    for arguments, status in ((["corpus", "--help"], 0), (["corpus"], 2)):
        assert cli.main(arguments) == status
        printed = capsys.readouterr()
        assert not printed.err
        named = re.findall("^  (\\w+ ?\\w+) ", printed.out, re.M)
        assert named == group
    assert cli.main(["corpus", "frobnicate"]) == 2
    assert "unknown command 'corpus frobnicate'" in capsys.readouterr().err


def test_a_wrong_argument(monkeypatch, capsys):
    _command(monkeypatch, lambda fake: pytest.fail("was run"))
    for arguments, complaint in (
        (["--size", "two"], "Error parsing --size: "),
        (["--size"], "Missing value for argument '--size'"),
        (["--sizes", "2"], "Unrecognized options: --sizes"),
        (["more"], "Unrecognized options: more"),
    ):
        assert cli.main(["fake", *arguments]) == 2
        printed = capsys.readouterr()
        assert not printed.out
        assert complaint in printed.err
        assert "realm fake --help" in printed.err


@pytest.mark.parametrize("arguments", [["--help"], ["init", "--help"]])
def test_a_reader_that_goes_away(arguments):
    """`realm | head` ends without a traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "realm_tf.cli", *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert done.returncode == cli.PIPE_CLOSED
    assert not done.stderr


def test_what_a_terminal_lacks_is_escaped(monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    _command(monkeypatch, lambda fake: rich.print("Café … \u202e"))
    assert cli.main(["fake"]) == 0
    assert shown.buffer.getvalue() == rb"Caf\xe9 \u2026 \u202e" + b"\n"


@pytest.mark.parametrize("error", [BrokenPipeError, ValueError])
def test_a_defect_keeps_its_traceback(monkeypatch, error):
    """Also the broken pipe of a connection."""

    _command(monkeypatch, mock.Mock(side_effect=error("a defect")))
    with pytest.raises(error, match="a defect"):
        cli.main(["fake"])


def test_only_pipelines_pass_on_what_they_do_not_know(monkeypatch):
    calls = []
    _command(
        monkeypatch,
        lambda fake: calls.append((fake.size, fake.beam_options)),
        takes_more=True,
    )
    assert cli.main(["fake", "--runner=X", "--size", "2", "--flag"]) == 0
    assert calls == [(2, ("--runner=X", "--flag"))]


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (
            InputError("questions.jsonl, line 3\nis not\n  JSON."),
            *(2, "questions.jsonl, line 3 is not JSON.\n"),
        ),
        (KeyboardInterrupt(), 130, "interrupted."),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "no space is"),
        (OSError(errno.EFBIG, "File too large"), 2, "no space is"),
        (InputError("no file \x1b[31m\u202e"), 2, r"no file \x1b[31m\u202e"),
    ],
)
def test_an_end_is_one_line(monkeypatch, capsys, error, status, shown):
    _command(monkeypatch, mock.Mock(side_effect=error))
    assert cli.main(["fake"]) == status
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith(f"realm fake: {shown}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("corpus", "sync", "x", "--exclude"),
        ("corpus", "create", "x", "--documents", "--fields", "a"),
        ("chunk", "--vocab", "v", "--output", "o", "--input"),
    ],
)
def test_an_option_without_its_values_is_refused(words, capsys):
    assert cli.main(words) == 2
    assert " has no value: expected one or more." in capsys.readouterr().err


def test_a_report_does_not_command_the_terminal(monkeypatch, capsys):
    _command(monkeypatch, lambda fake: None)
    monkeypatch.setattr(
        realm_tf.Fake, "report", lambda fake, result: "caf\xe9 \x1b[31m\udce9"
    )
    assert cli.main(["fake"]) == 0
    assert capsys.readouterr().out == "caf\xe9 \\x1b[31m\\udce9\n"


def test_help_is_immediate():
    # TensorFlow takes seconds; nothing heavy may be imported for a list.
    code = (
        "import sys\n"
        "from realm_tf import cli\n"
        "status = cli.main(sys.argv[1:])\n"
        "heavy = {'tensorflow', 'keras', 'apache_beam', 'numpy', 'grpc'}\n"
        "print('imported:', sorted(heavy & set(sys.modules)))\n"
        "sys.exit(status)\n"
    )
    for argument in ("--help", "--version"):
        done = subprocess.run(
            [sys.executable, "-c", code, argument],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.endswith("imported: []\n")
        assert not done.stderr
