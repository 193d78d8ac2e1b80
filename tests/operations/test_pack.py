import pytest

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts.packed_blocks import PackedBlocks
from realm_tf.artifacts.paths import Path
from realm_tf.data.packed_passages import PackedPassages
from realm_tf.errors import InputError
from realm_tf.operations.pack import Pack
from realm_tf.text.tokenizer import Tokenizer


@pytest.fixture
def annotated(tmp_path, mark_passage, write_annotated):
    return write_annotated(
        tmp_path / "annotated",
        [mark_passage("The <Nile> is a river."), mark_passage("It flows.")],
    )


def test_blocks(blocks_dir, tmp_path, capsys):
    output = str(tmp_path / "packed")
    assert cli.main(["pack", "--blocks", blocks_dir, "--output", output]) == 0
    num_blocks = artifact.read(blocks_dir, kind="blocks")["num_blocks"]
    assert len(PackedBlocks(output)) == num_blocks
    assert f"{output}: blocks {num_blocks}, articles 6" in (
        capsys.readouterr().out
    )


def test_annotated_passages_with_a_vocabulary_and_with_a_models(
    annotated, vocabulary_path, model_dir, tmp_path, capsys
):
    base = ["pack", "--annotated", annotated, "--output"]
    one, two, cased = (str(tmp_path / name) for name in ("one", "two", "cased"))
    assert cli.main([*base, one, "--vocab", vocabulary_path]) == 0
    assert "passages 2, sentences 2" in capsys.readouterr().out
    assert cli.main([*base, two, "--model", model_dir]) == 0
    assert (
        artifact.read(one)["fingerprint"] == artifact.read(two)["fingerprint"]
    )
    ids = Tokenizer.from_file(vocabulary_path).tokenize("The Nile is a river.")
    assert PackedPassages(one)[0].token_ids.tolist() == ids.ids
    assert (
        cli.main([*base, cased, "--vocab", vocabulary_path, "--no-lowercase"])
        == 0
    )
    # "The" and "Nile" are in no vocabulary of small letters.
    assert PackedPassages(cased)[0].token_ids.tolist()[:2] == [1, 1]


def test_bad_arguments_are_refused(
    annotated, blocks_dir, vocabulary_path, tmp_path, capsys
):
    output = str(tmp_path / "packed")
    with pytest.raises(InputError, match="takes one of --model and --vocab"):
        Pack(output=output, annotated=annotated).run()
    with pytest.raises(InputError, match="--vocab is not for --blocks"):
        Pack(output=output, blocks=blocks_dir, vocab=vocabulary_path).run()
    with pytest.raises(InputError, match="--lowercase is not for --blocks"):
        Pack(output=output, blocks=blocks_dir, lowercase=False).run()
    with pytest.raises(InputError, match="One of --blocks and --annotated"):
        Pack(output=output).run()
    with pytest.raises(InputError, match="One of --blocks and --annotated"):
        Pack(output=output, blocks=blocks_dir, annotated=annotated).run()
    with pytest.raises(InputError, match="expected 'annotated'"):
        Pack(output=output, annotated=blocks_dir, vocab=vocabulary_path).run()
    assert (
        cli.main(["pack", "--blocks", annotated, "--output", output])
        == cli.USAGE_ERROR
    )
    assert "expected 'blocks'" in capsys.readouterr().err
    assert not Path(output).exists()
    assert not Path(f"{output}.partial").exists()
