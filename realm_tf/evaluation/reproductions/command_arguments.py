"""Reads command lines with the commands' own parsers, without running them.

    python -m realm_tf.evaluation.reproductions.command_arguments < commands.json

In: a JSON list of commands, each a list of words that begins with `realm` or
with `python SCRIPT.py`. Out: a JSON list with what is wrong with each, or null.
It is a process of its own because scripts are started up to the point where
they have read their arguments, with all that they import.
"""

import argparse
import contextlib
import importlib
import json
import pathlib
import runpy
import subprocess
import sys

from realm_tf.cli import COMMANDS


class _Parsed(Exception):
    """The arguments were read, and nothing more is to be done."""


class _Refused(Exception):
    """The parser refuses the arguments."""


def find_complaints(
    commands: list[list[str]], *, root: str
) -> list[str | None]:
    """What is wrong with the words of each command.

    Args:
        commands: list of list of str. The first word is `realm` or `python`.
        root: str. Directory that paths of scripts are relative to.

    Returns:
        list of str or `None`: `None` where the command's parser takes them.
    """
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{__spec__.name} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def _complaint(words):
    try:
        if words[0] == "realm":
            _parse_realm(words[1:])
        else:
            _parse_script(words[1], words[2:])
    except _Refused as error:
        return str(error)
    except SystemExit:
        return "ends before it does anything"
    return None


def _parse_realm(words):
    name = words[0] if words else ""
    if name not in COMMANDS:
        raise _Refused(f"realm has no command {name!r}")
    parser = argparse.ArgumentParser()
    importlib.import_module(COMMANDS[name][0]).add_arguments(parser)
    # Also where a command hands on to Beam what it does not know: that is
    # where a misspelt option would go.
    with contextlib.suppress(_Parsed):
        parser.parse_args(words[1:])


def _parse_script(script, arguments):
    path = pathlib.Path(script)
    if not path.is_file():
        raise _Refused(f"there is no {script}")
    # Whatever does not stop there would run.
    if ".parse_args()" not in path.read_text(encoding="utf-8"):
        raise _Refused(f"{script} does not read its arguments with argparse")
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(path.parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except _Parsed:
        return
    finally:
        sys.path.remove(str(path.parent))
    raise _Refused(f"{script} does not read its arguments")


def _only_parse():
    """Makes every parser stop the program once it has parsed."""
    parse_known_args = argparse.ArgumentParser.parse_known_args

    def parse_args(self, args=None, namespace=None):
        _, unknown = parse_known_args(self, args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        raise _Parsed

    def error(self, message):
        raise _Refused(message)

    argparse.ArgumentParser.parse_args = parse_args
    argparse.ArgumentParser.error = error


def main():
    commands = json.load(sys.stdin)
    _only_parse()
    # What scripts print while they are imported is no part of the answer.
    with contextlib.redirect_stdout(sys.stderr):
        complaints = [_complaint(words) for words in commands]
    print(json.dumps(complaints))


if __name__ == "__main__":
    main()
