import json
import pathlib

import numpy as np
import pytest
import safetensors.numpy
import tiny_models
from init_runs import init

from realm_tf import cli
from realm_tf.artifacts.objects import Model
from realm_tf.checkpoints import sentence_transformers
from realm_tf.checkpoints.tensor_files import open_directory
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.push import Push

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/sentence_transformers"


def _init(source, output):
    init(source, output)
    return Model(str(output))


@pytest.mark.parametrize("kind", ["minilm", "bge", "e5"])
def test_a_directory_of_sentence_transformers(kind, tmp_path, capsys):
    """Read, written and read again: the same tensors and the same modules."""
    model = _init(GOLDEN / kind, tmp_path / "model")
    output = tmp_path / "written"
    command = "push --format sentence-transformers"
    command = f"{command} --model {model.path} --to {output}"
    assert cli.main(command.split()) == 0
    assert f"written to {output}" in capsys.readouterr().out
    source = open_directory(str(GOLDEN / kind))
    found = safetensors.numpy.load_file(output / "model.safetensors")
    for name, value in found.items():
        np.testing.assert_array_equal(value, source.read(name))
    for name in ("config.json", "1_Pooling/config.json"):
        ours, theirs = (
            json.loads((each / name).read_text())
            for each in (output, GOLDEN / kind)
        )
        for key in {*ours} & {*theirs} - {"torch_dtype"}:
            assert ours[key] == theirs[key], key
    again = _init(output, tmp_path / "again")
    assert again.fingerprint == model.fingerprint
    read = sentence_transformers.read(str(GOLDEN / kind))
    assert read.normalize == sentence_transformers.read(str(output)).normalize
    assert cli.main(command.split()) == 2
    assert "exists already" in capsys.readouterr().err


def test_two_towers_are_two_directories(tmp_path):
    path = str(tmp_path / "model")
    model = _init(GOLDEN / "e5", path)
    loaded = model_directory.load(model)
    block = loaded.model.block_embedder
    block.set_weights([weight + 1 for weight in block.get_weights()])
    model_directory.save(loaded, f"{path}-2")
    output = str(tmp_path / "written")
    Push(model=f"{path}-2", to=output, format="sentence-transformers").run()
    tables = []
    for name, prompt in (("query", "query"), ("block", "passage")):
        directory = f"{output}/{name}_embedder"
        found = sentence_transformers.read(directory)
        assert f"{prompt} : " in (found.query_prefix, found.block_prefix)
        table = open_directory(directory)
        tables.append(table.read("embeddings.word_embeddings.weight"))
    np.testing.assert_array_equal(tables[0] + 1, tables[1])


def test_another_form_is_pushed(hub, tmp_path):
    model = _init(GOLDEN / "minilm", tmp_path / "model")
    Push(model=model, to="hf://me/st", format="sentence-transformers").run()
    files = hub.repos["me/st"]
    assert files["README.md"].startswith(b"---\nlicense:")
    assert {"modules.json", "model.safetensors", "vocab.txt"} <= {*files}


def test_what_a_format_has_no_place_for_is_refused(vocabulary_path, tmp_path):
    model = tiny_models.save(vocabulary_path, str(tmp_path / "model"))
    to = str(tmp_path / "to")
    with pytest.raises(InputError, match="pooling cls and projection"):
        Push(model=model, to=to, format="sentence-transformers").run()
    with pytest.raises(InputError, match="Name a repository"):
        Push(model=model, to=to).run()
    gelu = _init(GOLDEN / "minilm", tmp_path / "gelu")
    with pytest.raises(InputError, match="has the activation gelu and"):
        Push(model=gelu, to=to, format="keras-hub").run()
    assert not (tmp_path / "to").exists()
