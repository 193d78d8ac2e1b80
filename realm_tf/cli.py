"""The command `realm`: one table of subcommands, the chosen one imported."""

import ast
import dataclasses
import functools
import importlib.util
import io
import itertools
import os
import select
import sys

import realm_tf
from realm_tf.errors import InputError
from realm_tf.text.printable import printable
from realm_tf.version import __version__

# Command: public name of its operation. Order: as in the life of a model.
COMMANDS = {
    "quickstart": "Quickstart",
    "init": "Init",
    "import": "ImportCheckpoint",
    "chunk": "Chunk",
    "annotate": "Annotate",
    "train-tagger": "TrainTagger",
    "embed": "Embed",
    "index": "BuildIndex",
    "plan": "Plan",
    "ict": "InverseClozeTask",
    "pretrain": "Pretrain",
    "probe": "Probe",
    "questions": "PrepareQuestions",
    "finetune": "FineTune",
    "evaluate": "Evaluate",
    "retrieve": "Retrieve",
    "compare": "Compare",
    "export": "Export",
    "push": "Push",
    "verify": "Verify",
    "corpus create": "CreateCorpus",
    "corpus sync": "SyncCorpus",
    "corpus compact": "CompactCorpus",
    "corpus status": "CorpusStatus",
    "serve": "Serve",
    "ask": "Ask",
    "inspect": "Inspect",
}
USAGE_ERROR = 2
INTERRUPTED = 130
# As a shell reports a program that SIGPIPE ended.
PIPE_CLOSED = 141


def _help(commands: list[str]) -> str:
    width = max(map(len, commands))
    lines = [
        "usage: realm COMMAND ...",
        "",
        "REALM: a language model that retrieves, from raw pages to served "
        "answers.",
        "",
        "Commands:",
        *(f"  {c:<{width}}  {_summary(COMMANDS[c])}" for c in commands),
        "",
        "`realm COMMAND --help` explains one. Start with `realm quickstart`, or "
        "with `realm\ncorpus create` for your own documents.",
    ]
    return "\n".join(lines)


def _summary(kind):
    """The first line of an operation's docstring.

    Parsed, not imported: TensorFlow takes seconds.
    """
    module = f"realm_tf.{realm_tf.MODULES[kind]}"
    source = importlib.util.find_spec(module).loader.get_source(module)
    (found,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == kind
    )
    return ast.get_docstring(found).partition("\n")[0]


def main(argv: list[str] | None = None) -> int:
    """Runs one subcommand.

    Args:
        argv: list of str. Arguments after the program's name. Defaults to
            those of the process.

    Returns:
        int, the exit status: 0 done, 1 a check failed, 2 bad input, 3 files
        of a corpus were not read, 4 a source of it was not, 130 interrupted,
        141 if the reader of standard output closed it.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What its encoding lacks, as an escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = _main(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        if not _is_closed(sys.__stdout__):
            raise
        # Python flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
        return PIPE_CLOSED


def _is_closed(stream):
    """Whether the reader of a pipe has gone, as `head` goes."""
    poll = select.poll()
    poll.register(stream, 0)
    return bool(poll.poll(0))


def _main(argv):
    if not argv or argv[0] in ("-h", "--help"):
        print(_help([*COMMANDS]))
        return 0 if argv else USAGE_ERROR
    if argv[0] == "--version":
        print(__version__)
        return 0
    name, arguments = split(argv)
    if name not in COMMANDS:
        group = [each for each in COMMANDS if each.startswith(f"{name} ")]
        if group and set(arguments) <= {"-h", "--help"}:
            print(_help(group))
            return 0 if arguments else USAGE_ERROR
        unknown = " ".join(argv[:2]) if group else name
        print(
            f"realm: unknown command {unknown!r}. `realm --help` lists them.",
            file=sys.stderr,
        )
        return USAGE_ERROR
    # TensorFlow's C++ log is for its developers; errors still show.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        try:
            operation = parse(operation_class(name), arguments)
        except SystemExit as error:
            # tyro has printed the help or what is wrong.
            return error.code
        result = operation.run()
        text = operation.report(result)
        if text:
            print(printable(text))
        return operation.status(result)
    except InputError as error:
        told = printable(" ".join(str(error).split()))
        print(f"realm {name}: {told}", file=sys.stderr)
        return USAGE_ERROR
    except Exception as error:
        from realm_tf.artifacts.artifact import is_disk_full

        if not is_disk_full(error):
            raise
        print(
            f"realm {name}: no space is left on the disk. Free some and give "
            "the same command again.",
            file=sys.stderr,
        )
        return USAGE_ERROR
    except KeyboardInterrupt:
        print(
            f"realm {name}: interrupted. Run the same command again: it "
            "resumes or starts over, and no partial output is left.",
            file=sys.stderr,
        )
        return INTERRUPTED


def split(argv: list[str]) -> tuple[str, list[str]]:
    """The command of a command line, which may be two words, and the rest."""
    size = 2 if " ".join(argv[:2]) in COMMANDS else 1
    return " ".join(argv[:size]), argv[size:]


def operation_class(name: str) -> type:
    """The `Operation` of a command. Imports its module."""
    return getattr(realm_tf, COMMANDS[name])


def parse(kind: type, arguments: list[str]):
    """The operation of a command line.

    Args:
        kind: class. A subclass of `operations.operation.Operation`.
        arguments: list of str. The words after the command.

    Returns:
        An instance of `kind`.

    Raises:
        InputError: if the operation refuses the values of its fields.
        SystemExit: after printing the help (status 0) or the words that do
            not fit the fields (status 2).
    """
    import tyro
    from tyro.constructors import ConstructorRegistry

    from realm_tf.operations.operation import flags_of_many

    for word, value in itertools.pairwise([*arguments, "--"]):
        if word in flags_of_many(kind) and value.startswith("--"):
            raise InputError(f"{word} has no value: expected one or more.")
    registry = ConstructorRegistry()
    registry.primitive_rule(_of_object)
    has_more = any(f.name == "beam_options" for f in dataclasses.fields(kind))
    parsed = tyro.cli(
        # tyro turns a ValueError of a class, but not of a function, into a
        # message of its own.
        functools.partial(kind),
        prog=f"realm {kind.command}",
        args=arguments,
        return_unknown_args=has_more,
        registry=registry,
    )
    if not has_more:
        return parsed
    operation, rest = parsed
    return dataclasses.replace(operation, beam_options=tuple(rest))


def _of_object(info):
    """Directories and files of questions: their paths."""
    from tyro.constructors import PrimitiveConstructorSpec

    from realm_tf.artifacts.directory import Artifact
    from realm_tf.artifacts.directory import File

    kind = info.type
    if not (isinstance(kind, type) and issubclass(kind, Artifact | File)):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.metavar,
        instance_from_str=lambda words: kind(words[0]),
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


if __name__ == "__main__":
    sys.exit(main())
