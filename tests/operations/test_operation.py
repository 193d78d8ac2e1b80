"""Operations: their fields as arguments, flags, keys and command lines."""

import dataclasses
import pathlib
from typing import Annotated
from typing import ClassVar
from typing import Literal

import pytest
import tyro

from realm_tf import cli
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.question_files import Questions
from realm_tf.errors import InputError
from realm_tf.operations.operation import BeamOptions
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import Repeated


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bake(Operation):
    """Bakes something."""

    command: ClassVar[str] = "bake"
    makes = Embeddings
    manner = ("batch_size",)

    model: Model
    """the model"""
    output: str
    """where it goes"""
    blocks: Blocks | None = None
    """blocks, if there are any"""
    questions: tuple[Questions, ...] = ()
    """files"""
    source: Annotated[str, tyro.conf.arg(name="from")] = "flour"
    """what it is made from"""
    kind: Literal["bread", "cake"] = "bread"
    """what it becomes"""
    sides: tuple[Literal["bread", "cake"], ...] = ()
    """what is eaten with it"""
    batch_size: int = 8
    """at once"""
    set: Repeated = ()
    """changes"""
    numbers: tuple[int, ...] = ()
    """several at once"""
    fast: bool = False
    """be quick"""
    words: tyro.conf.Positional[tuple[str, ...]] = ()
    """said beside it"""
    beam_options: BeamOptions = ()


def test_paths_become_objects_where_they_enter():
    blocks = Blocks("b/")
    made = Bake(
        model=pathlib.Path("m"), output="o", blocks=blocks, questions=["q", "r"]
    )
    assert made.model == Model("m")
    assert made.blocks is blocks and blocks.path == "b"
    assert made.questions == (Questions("q"), Questions("r"))
    assert made.result == Embeddings("o")
    # An object becomes its path where a path is asked for.
    assert Bake(model="m", output=Model("o")).output == "o"
    assert set(made.inputs()) == {
        *("model", "blocks", "questions 0", "questions 1")
    }
    # It is a value.
    assert made == dataclasses.replace(made)
    assert hash(made) == hash(dataclasses.replace(made))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.kind = "cake"


def test_the_command_line_gives_the_same_operation():
    made = Bake(
        model="a model",
        output="o",
        questions=("q", "r"),
        source="rye",
        kind="cake",
        set=("a=1", "b=2"),
        fast=True,
        words=("hello", "there"),
        beam_options=("--runner=X",),
    )
    line = made.command_line()
    assert line == (
        "realm bake --model 'a model' --output o --questions q r --from rye "
        "--kind cake --set a=1 --set b=2 --fast hello there --runner=X"
    )
    words = made.command_line().replace("'a model'", "a_model").split()
    # Words behind a flag of several would be taken for its own.
    words = words[2:-3] + ["--batch-size", "8", *words[-3:]]
    parsed = cli.parse(Bake, words)
    assert dataclasses.replace(parsed, model=made.model) == made


def test_an_operation_without_a_command_is_shown_as_a_value():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mix(Operation):
        makes = Embeddings

        output: str

    assert Mix(output="o").command_line().endswith("Mix(output='o')")


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["--output", "o", "--kind", "pie"], "invalid choice 'pie'"),
        (["--output", "o", "--batch-size", "many"], "--batch-size"),
        ([], "--output STR"),
    ],
)
def test_a_wrong_word_is_refused(words, complaint, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.parse(Bake, ["--model", "m", *words])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_flags_that_take_several_may_be_given_several_times():
    words = ["--model", "m", "--output", "o", "--numbers", "1", "2"]
    parsed = cli.parse(Bake, [*words, "--set", "a=1", "--set", "b=2"])
    assert parsed == Bake(
        model="m", output="o", numbers=[1, 2], set=["a=1", "b=2"]
    )
    assert "--numbers 1 2" in parsed.command_line()


def test_a_wrong_word_is_refused_in_python_too():
    with pytest.raises(
        InputError, match="^--kind must be one of bread, cake. Received: 'pie'$"
    ):
        Bake(model="m", output="o", kind="pie")
    with pytest.raises(InputError, match="Received: 'pie'"):
        Bake(model="m", output="o", sides=["cake", "pie"])


def test_help_is_the_docstrings(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.parse(Bake, ["--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: realm bake ")
    for text in ("Bakes something.", "--from", "what it is made from", "DIR"):
        assert text in printed
    assert "beam" not in printed


def test_parameters_and_parents_decide_content(tmp_path, model_dir, blocks_dir):
    made = Bake(model=model_dir, output="o")
    assert made.parameters() == {
        "source": "flour",
        "kind": "bread",
        "sides": (),
        "set": (),
        "numbers": (),
        "fast": False,
        "words": (),
    }
    assert made.parents() == {"model": Model(model_dir).fingerprint}
    for same in ({"output": "p"}, {"batch_size": 9}):
        assert _job(dataclasses.replace(made, **same)) == _job(made)
    for other in ({"kind": "cake"}, {"blocks": blocks_dir}, {"set": ("a=1",)}):
        assert _job(dataclasses.replace(made, **other)) != _job(made)


def _job(operation):
    return operation.parameters(), operation.parents()
