"""Repositories of the hub, against one on loopback."""

import os

import pytest
import stub_hub
import tiny_models

from realm_tf import cli
from realm_tf.artifacts import hubs
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.models import model_directory

FILES = {
    "config.json": b"{}",
    "pytorch_model.bin": bytes(range(256)) * 40,
    "onnx/model.onnx": b"o" * 999,
}


@pytest.fixture
def hub(hub):
    hub.repos["them/bert"] = dict(FILES)
    return hub


def _read(directory, name):
    with open(os.path.join(directory, name), "rb") as file:
        return file.read()


def test_a_commit_can_be_named(hub):
    first = stub_hub.commit(hub.repos["them/bert"])
    address = f"hf://them/bert@{first}"
    directory = hubs.fetch(address)
    assert os.path.basename(directory) == first
    hub.repos["them/bert"]["config.json"] = b'{"new": 1}'
    assert _read(hubs.fetch("hf://them/bert"), "config.json") == b'{"new": 1}'
    with pytest.raises(InputError, match="hf://them/bert@v9: RevisionNotFound"):
        hubs.fetch("hf://them/bert@v9")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://bert", "expected hf://OWNER/NAME, or hf://OWNER/NAME@REVISION"),
        ("hf://them/none", "RepositoryNotFound.*correct `repo_id`"),
        ("hf://them/bert@", "is no address"),
        ("hf://them/gated", "GatedRepo.*log in with `hf auth login`"),
    ],
)
def test_what_cannot_be_fetched_is_said(hub, address, message):
    hub.repos["them/gated"] = dict(FILES)
    hub.gated.add("them/gated")
    with pytest.raises(InputError, match=message):
        hubs.fetch(address)


def test_a_model_is_pushed_and_read(hub, vocabulary_path, tmp_path, capsys):
    model = Model(tiny_models.save(vocabulary_path, str(tmp_path / "model")))
    for _ in range(2):
        assert (
            cli.main(["push", "--model", model.path, "--to", "hf://me/ours"])
            == 0
        )
        assert f"written to {hub.url}/me/ours/" in capsys.readouterr().out
    assert hub.repos["me/ours"]["README.md"].startswith(b"---\nlicense:")
    found = Model("hf://me/ours")
    assert found.fingerprint == model.fingerprint
    ours, theirs = (model_directory.load(each).model for each in (model, found))
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        assert (a == b).all()


def test_who_may_not_write_is_told(hub, vocabulary_path, tmp_path, monkeypatch):
    model = tiny_models.save(vocabulary_path, str(tmp_path / "model"))
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(
        InputError, match="hf://me/ours: .* log in with `hf auth login`"
    ):
        hubs.push(model, "hf://me/ours", message="ours")
    assert "me/ours" not in hub.repos
