"""The command `realm`: one table of subcommands, the chosen one imported."""

import ast
import contextlib
import dataclasses
import functools
import importlib.util
import io
import os
import re
import sys
import types
import typing

import realm_tf
from realm_tf.errors import InputError
from realm_tf.version import __version__

# Command: public name of its operation. Order: as in the life of a model.
COMMANDS = {
    "quickstart": "Quickstart",
    "init": "Init",
    "import": "ImportCheckpoint",
    "chunk": "Chunk",
    "annotate": "Annotate",
    "pack": "Pack",
    "train-tagger": "TrainTagger",
    "embed": "Embed",
    "index": "BuildIndex",
    "plan": "Plan",
    "ict": "InverseClozeTask",
    "pretrain": "Pretrain",
    "probe": "Probe",
    "questions": "PrepareQuestions",
    "cloze": "MakeClozeQuestions",
    "finetune": "FineTune",
    "evaluate": "Evaluate",
    "retrieve": "Retrieve",
    "compare": "Compare",
    "ablate": "Ablate",
    "export": "Export",
    "export-checkpoint": "ExportCheckpoint",
    "push": "Push",
    "verify": "Verify",
    "corpus create": "CreateCorpus",
    "corpus sync": "SyncCorpus",
    "corpus add": "AddToCorpus",
    "corpus remove": "RemoveFromCorpus",
    "corpus compact": "CompactCorpus",
    "corpus status": "CorpusStatus",
    "serve": "Serve",
    "ask": "Ask",
    "inspect": "Inspect",
    "reproduce": "Reproduce",
}
USAGE_ERROR = 2
# What is around a message of tyro, and how its parts that only explain begin.
_FRAME = str.maketrans("─│╭╮╰╯", "-     ")
_HELP = ("Argument helptext", "For full helptext")
INTERRUPTED = 130


def _help() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = [
        "usage: realm COMMAND ...",
        "",
        "REALM: a language model that retrieves, from raw pages to served "
        "answers.",
        "",
        "Commands:",
        *(f"  {n:<{width}}  {_summary(kind)}" for n, kind in COMMANDS.items()),
        "",
        "`realm COMMAND --help` explains one. Start with: realm quickstart",
    ]
    return "\n".join(lines)


def _summary(kind):
    """The first line of an operation's docstring.

    Read, not imported: TensorFlow takes seconds.
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
        int, the exit status: 0 done, 1 a check failed, 2 bad input, 130
        interrupted.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print(_help())
        return 0 if argv else USAGE_ERROR
    if argv[0] == "--version":
        print(__version__)
        return 0
    name, arguments = split(argv)
    if name not in COMMANDS:
        print(
            f"realm: unknown command {name!r}. `realm --help` lists them.",
            file=sys.stderr,
        )
        return USAGE_ERROR
    # TensorFlow's C++ log is for its developers; errors still show.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        operation = parse(operation_class(name), arguments)
        result = operation.run()
        text = operation.report(result)
        if text:
            print(text)
        return operation.status(result)
    except InputError as error:
        print(f"realm {name}: {' '.join(str(error).split())}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print(
            f"realm {name}: interrupted. The same command goes on from here "
            "or starts again; nothing torn is left behind.",
            file=sys.stderr,
        )
        return INTERRUPTED


def split(argv: list[str]) -> tuple[str, list[str]]:
    """The command of a command line, which may be two words, and the rest."""
    size = 2 if " ".join(argv[:2]) in COMMANDS else 1
    return " ".join(argv[:size]), argv[size:]


def operation_class(name: str) -> type:
    """The `Operation` that a command runs; only now its module is imported."""
    return getattr(realm_tf, COMMANDS[name])


def parse(kind: type, arguments: list[str]):
    """The operation that a command line says.

    Args:
        kind: class. A subclass of `operations.operation.Operation`.
        arguments: list of str. What follows the name of the command.

    Returns:
        An instance of `kind`.

    Raises:
        InputError: if an argument is wrong.
        SystemExit: if help was asked for (status 0).
    """
    import tyro

    takes_more = any(f.name == "beam_options" for f in dataclasses.fields(kind))
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            parsed = tyro.cli(
                kind,
                prog=f"realm {kind.command}",
                args=arguments,
                return_unknown_args=takes_more,
                registry=_registry(),
            )
    except SystemExit as error:
        if not error.code:
            raise
        raise InputError(
            f"{_without_box(told.getvalue())}. `realm {kind.command} --help` "
            "explains the arguments."
        ) from None
    if not takes_more:
        return parsed
    operation, rest = parsed
    return dataclasses.replace(operation, beam_options=tuple(rest))


def _without_box(text):
    """What tyro says in a box of several lines, as one; help is left out."""
    # The box is of ASCII where standard output is. Its first line is a title.
    plain = re.sub(r"\x1b\[[\d;]*m", "", text).translate(_FRAME)
    _, _, plain = plain.partition("\n")
    said = []
    for part in re.split(r"^ *-+ *$", plain, flags=re.MULTILINE):
        lines = [x for x in part.splitlines() if not x.startswith(" " * 10)]
        said.append(" ".join(" ".join(lines).split()).strip(" ."))
    return "; ".join(
        each for each in said if each and not each.startswith(_HELP)
    )


def _registry():
    """How a word of the command line becomes an object of ours, or `None`."""
    from tyro.constructors import ConstructorRegistry

    registry = ConstructorRegistry()
    registry.primitive_rule(_of_object)
    registry.primitive_rule(functools.partial(_of_optional, registry))
    return registry


def _of_object(info):
    """Directories and files of questions are given by their paths."""
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


def _of_optional(registry, info):
    """`X | None` is shown as X: nobody types None."""
    from tyro.constructors import PrimitiveConstructorSpec
    from tyro.constructors import PrimitiveTypeInfo

    kinds = set(typing.get_args(info.type)) - {types.NoneType}
    if info.type_origin not in (typing.Union, types.UnionType) or (
        len(kinds) != 1
    ):
        return None
    spec = registry.get_primitive_spec(
        PrimitiveTypeInfo.make(*kinds, info.markers)
    )
    if not isinstance(spec, PrimitiveConstructorSpec):
        return None
    return dataclasses.replace(
        spec,
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: (
            ["not given"] if value is None else spec.str_from_instance(value)
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
