import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
import safetensors.numpy
from hugging_face_goldens import GOLDEN
from hugging_face_goldens import import_hf

from realm_tf import cli
from realm_tf.checkpoints import random_weights
from realm_tf.checkpoints.torch_files import open_torch_file
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.export_checkpoint import ExportCheckpoint

ENCODER = GOLDEN / "encoder"


@pytest.fixture(scope="module")
def exported(open_qa, tmp_path_factory):
    """A published checkpoint, imported and written again."""
    path = tmp_path_factory.mktemp("export") / "exported"
    command = (
        f"export-checkpoint --to hf --model {open_qa['model']} --output {path} "
        f"--blocks {open_qa['blocks']} --index {open_qa['index']}"
    )
    assert cli.main(command.split()) == 0
    return path


def test_the_tensors_are_those_that_were_read(exported):
    found = safetensors.numpy.load_file(
        exported / "openqa" / "model.safetensors"
    )
    source = open_torch_file(str(GOLDEN / "openqa" / "pytorch_model.bin"))
    for name, value in found.items():
        np.testing.assert_array_equal(value, source.read(name))
    # All but the heads that neither side reads.
    left_out = set(source.names()) - set(found)
    assert left_out == {n for n in source.names() if ".cls.predictions." in n}


def test_configuration_and_texts_are_those_that_were_read(exported):
    directory = exported / "openqa"
    found, source = (
        json.loads((path / "config.json").read_text())
        for path in (directory, GOLDEN / "openqa")
    )
    ours = {
        # Choices of ours.
        *("pad_token_id", "searcher_beam_size"),
    }
    for name, value in found.items():
        if name not in ours:
            assert value == source[name], name
    records, expected = (
        np.load(path / "block_records.npy", allow_pickle=True)
        for path in (directory, GOLDEN / "openqa")
    )
    assert records.tolist() == [b" ".join(e.split()) for e in expected]


# In a process of its own, where transformers 4.40.2 is.
PEER = """
import sys
import numpy as np
import torch
import transformers

directory, goldens, output = sys.argv[1:]
goldens = dict(np.load(goldens))
name = f"{directory}/openqa"
retriever = transformers.RealmRetriever.from_pretrained(name)
model = transformers.RealmForOpenQA.from_pretrained(name, retriever=retriever)
model.eval()
# As the goldens were made.
model.config.reader_seq_len = 72
tokenizer = retriever.tokenizer
found = {}
for case, question in enumerate(goldens["openqa/questions"].tolist()):
    with torch.no_grad():
        inputs = tokenizer([question], return_tensors="pt")
        out, ids = model(**inputs, answer_ids=[[1]], return_dict=False)
        projection = model.embedder(**inputs).projected_score
    found[f"{case}/ids"] = ids.numpy()
    found[f"{case}/block"] = out.block_idx.numpy()
    found[f"{case}/projection"] = projection.numpy()
np.savez(output, **found)
"""


@pytest.mark.slow
def test_transformers_answers_from_what_is_written(exported, tmp_path):
    """With REALM_TRANSFORMERS_PYTHON, a Python that has it and torch."""
    python = os.environ.get("REALM_TRANSFORMERS_PYTHON")
    if not python:
        pytest.skip("REALM_TRANSFORMERS_PYTHON names no Python")
    output = str(tmp_path / "found.npz")
    goldens_path = str(GOLDEN / "outputs.npz")
    done = subprocess.run(
        [python, "-c", PEER, str(exported), goldens_path, output],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Only the heads that nothing reads may be new.
    for line in done.stderr.splitlines():
        if "newly initialized" in line:
            names = re.findall(r"'([\w.]+)'", line)
            assert names and all("cls.predictions." in n for n in names)
    with np.load(goldens_path) as goldens, np.load(output) as found:
        for case in range(4):
            prefix = f"openqa/{case}/out"
            np.testing.assert_allclose(
                found[f"{case}/projection"],
                goldens[f"{prefix}/question_projection"],
                atol=2e-5,
                rtol=1e-4,
            )
            assert found[f"{case}/block"] == goldens[f"{prefix}/block_idx"]
            np.testing.assert_array_equal(
                found[f"{case}/ids"], goldens[f"{prefix}/predicted_answer_ids"]
            )


def test_it_can_be_imported_again(open_qa, exported, tmp_path):
    output = str(tmp_path / "again")
    import_hf([str(exported / "openqa")], output)
    again = model_directory.load(output)
    before = model_directory.load(open_qa["model"])
    assert again.metadata["fingerprint"] == before.metadata["fingerprint"]
    assert (exported / "embedder" / "config.json").exists()
    assert (exported / "reader" / "config.json").exists()
    assert not (exported / "encoder").exists()


@pytest.mark.slow
def test_a_masked_lm_head_and_two_towers(tmp_path):
    paths = [str(tmp_path / name) for name in ("model", "hf", "again")]
    vocab = str(GOLDEN / "embedder" / "vocab.txt")
    import_hf([str(GOLDEN / "scorer"), str(ENCODER)], paths[0], vocab=vocab)
    exported = ExportCheckpoint(to="hf", model=paths[0], output=paths[1]).run()
    assert set(exported.metadata["classes"]) == {"scorer", "reader", "encoder"}
    encoder = safetensors.numpy.load_file(
        pathlib.Path(paths[1]) / "encoder" / "model.safetensors"
    )
    source = open_torch_file(str(ENCODER / "pytorch_model.bin"))
    for name, value in encoder.items():
        np.testing.assert_array_equal(value, source.read(name))
    import_hf([f"{paths[1]}/scorer", f"{paths[1]}/reader"], paths[2])
    model, again = (
        model_directory.load(path).model for path in (paths[0], paths[2])
    )
    assert not again.share_embedders
    for part in ("query_embedder", "block_embedder", "reader"):
        for ours, theirs in zip(
            getattr(model, part).get_weights(),
            getattr(again, part).get_weights(),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_what_the_format_has_no_place_for_is_refused(vocabulary_path, tmp_path):
    loaded = random_weights.random(
        vocab=vocabulary_path, num_layers=1, hidden_dim=8, cosine=True
    )
    model = str(tmp_path / "model")
    model_directory.save(loaded, model)
    with pytest.raises(InputError, match="pooling mean, projection None"):
        ExportCheckpoint(to="hf", model=model, output=tmp_path / "hf").run()
    reads = random_weights.random(vocab=vocabulary_path, num_layers=1)
    reads.model.reader.reads_titles = True
    model_directory.save(reads, str(tmp_path / "reads"))
    with pytest.raises(InputError, match="The reader reads titles"):
        ExportCheckpoint(
            to="hf", model=tmp_path / "reads", output=tmp_path / "hf"
        ).run()
    assert not (tmp_path / "hf").exists()
    command = f"export-checkpoint --to hf --model {model} --output {tmp_path}/x"
    assert cli.main([*command.split(), "--blocks", "b"]) == 2
