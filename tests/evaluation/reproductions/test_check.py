"""What `realm reproduce --check` finds, in a small project and in this one."""

import pathlib

from realm_tf import cli
from realm_tf.evaluation.reproductions import entries as reproductions

_ROOT = pathlib.Path(__file__).parents[3]


def test_check_finds_what_is_out_of_step(
    project, capsys, make_entry, make_figure
):
    (
        pathlib.Path(project(x=make_entry())).parent / "benchmarks/run.py"
    ).write_text("raise SystemExit('it ran')\n")
    script = "python benchmarks/speed.py --output {output}"
    commands = {
        f"{script} --sped 3": "unrecognized arguments: --sped 3",
        f"{script} --speed fast": "argument --speed: invalid float value",
        "python benchmarks/speed.py": "are required: --output",
        "python benchmarks/slow.py": "there is no benchmarks/slow.py",
        "python benchmarks/run.py": "does not read its arguments with argparse",
        f"{script} --help": "ends before it does anything",
        "realm": "realm has no command ''",
        "realm swim --far": "realm has no command 'swim'",
        "realm inspect": "are required: DIR",
        "realm inspect {output} --blocks 3": "unrecognized arguments: --blocks",
        # Abbreviations are the parser's.
        "realm inspect {output} --block three": "invalid int value: 'three'",
        # It would hand what it does not know on to Beam.
        "realm pretrain --model a --blocks b --corpus c --output d --modle e": (
            "unrecognized arguments: --modle e"
        ),
        # These are right.
        f"{script} --speed 3": None,
        "realm inspect {output} --block 3": None,
    }
    quotes = {
        "It does 2.5 times": "does not say 'It does 2.5 times'",
        "MB, and F9 is no figure": "where 2.5 of speed is not among",
        "4.0 MB": "where 2.5 of speed is not among the numbers",
        # A line break is a space.
        "It does 2.50 times what the peer does, with 4.0 MB": None,
    }
    path = project(
        commands=make_entry(commands=list(commands)),
        quotes=make_entry(
            expect=[
                *(
                    make_figure(published={"README.md": each})
                    for each in quotes
                ),
                make_figure(published={"docs/x.md": "2.5"}),
            ]
        ),
    )
    assert cli.main(["reproduce", "--file", path, "--check"]) == 1
    printed = capsys.readouterr()
    found = printed.err.splitlines()
    expected = [
        *(
            (f"entry commands, `{line}`: ", text)
            for line, text in commands.items()
            if text
        ),
        *(("entry quotes, speed: README.md ", t) for t in quotes.values() if t),
        ("entry quotes, speed: docs/x.md ", "does not exist"),
    ]
    assert len(found) == len(expected)
    for line, (start, text) in zip(found, expected, strict=True):
        assert line.startswith(start)
        assert text in line
    assert printed.out == f"2 entries, 6 figures: {len(found)} out of step\n"


def test_this_repository_is_in_step(capsys):
    """README and docs say what reproductions.yaml says, and it can be run."""
    assert cli.main(["reproduce", "--check"]) == 0
    printed = capsys.readouterr()
    assert not printed.err
    entries = reproductions.read_entries(str(_ROOT / reproductions.FILE))
    assert printed.out.startswith(f"{len(entries)} entries, ")
    assert printed.out.endswith(" figures: nothing out of step\n")
