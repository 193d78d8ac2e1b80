"""A model's life on S3 and Google Cloud Storage, by servers on this machine."""

import dataclasses

import keras
import pytest
from object_stores import STORES
from object_stores import opened
from server_process import Process
from server_process import get_json

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import list_files
from realm_tf.operations.inverse_cloze_task import InverseClozeTask

pytestmark = [
    pytest.mark.slow,
    # gcsfs, of what it hands to aiohttp.
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
]


@pytest.fixture(params=STORES)
def store(request, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with opened(request.param) as found:
        yield found


class _Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def _upload(directory, remote):
    for name in list_files(directory):
        Path(f"{remote}/{name}").upload(f"{directory}/{name}")


def test_from_pages_to_answers(
    store, tmp_path, capsys, articles_path, vocabulary_path, model_dir
):
    root, proxy = store
    Path(f"{root}/in/articles.jsonl").upload(articles_path)
    Path(f"{root}/in/vocab.txt").upload(vocabulary_path)
    _upload(model_dir, f"{root}/model")

    def realm(command, **paths):
        found = {"model": f"{root}/model", "blocks": f"{root}/blocks", **paths}
        return cli.main(command.format(**found, root=root).split())

    chunk = (
        "chunk --input {input} --vocab {vocab} --output {blocks} "
        "--max-block-length 40"
    )
    local = str(tmp_path / "blocks")
    inputs = {"input": f"{root}/in/*.jsonl", "vocab": f"{root}/in/vocab.txt"}
    assert not realm(chunk, **inputs)
    assert not realm(
        chunk, input=articles_path, vocab=vocabulary_path, blocks=local
    )
    assert Blocks(f"{root}/blocks").fingerprint == Blocks(local).fingerprint
    # A connection that is cut whenever another shard is written.
    proxy.fault = lambda request: (
        "cut"
        if request.split()[0] in ("PUT", "POST")
        and ("embeddings-" in request or "uploadType" in request)
        and len(_shards(f"{root}/rows"))
        else None
    )
    embed = (
        "embed --model {model} --blocks {blocks} --rows-per-shard 5 --output "
        "{root}/rows"
    )
    capsys.readouterr()
    assert realm(embed) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("realm embed: ") and "same command again" in last
    proxy.fault = lambda request: None
    whole = _shards(f"{root}/rows")
    assert whole and not artifact.is_complete(f"{root}/rows")
    assert not realm(embed)
    rows = Embeddings(f"{root}/rows")
    assert rows.counts["shards_skipped"] == len(whole)
    assert len(whole) < rows.counts["shards"]
    proxy.requests.clear()
    assert len(Embeddings(f"{root}/rows").read()) == len(Blocks(local))
    # The manifest says what is there.
    assert not [x for x in proxy.requests if "list-type" in x]
    assert not realm(
        "index --embeddings {root}/rows --kind ivf --output {root}/index"
    )
    assert not realm(
        "export --model {model} --blocks {blocks} --index {root}/index "
        "--output {root}/export"
    )
    assert not realm("verify --saved-model {root}/export")
    with Process("--saved-model", f"{root}/export") as server:
        status, found = get_json(f"{server.rest_url}/v1/models/realm")
        assert status == 200
        assert found["model_version_status"][0]["state"] == "AVAILABLE"


def _shards(directory):
    return [each for each in list_files(directory) if each.endswith(".npy")]


def test_a_training_goes_on_elsewhere(store, tmp_path, model_dir, blocks_dir):
    root, _ = store
    train = InverseClozeTask(
        recipe="tiny",
        set=["log_every=1"],
        model=model_dir,
        blocks=blocks_dir,
        output=f"{root}/trained",
    )
    with pytest.raises(KeyboardInterrupt):
        train.run(verbose=0, every_seconds=0, callbacks=[_Stop()])
    kept = list_files(f"{root}/trained")
    assert "job.json" in kept and any("training_state" in x for x in kept)
    trained = train.run(verbose=0, every_seconds=0)
    whole = dataclasses.replace(train, output=str(tmp_path / "whole")).run(
        verbose=0
    )
    assert trained.fingerprint == whole.fingerprint
    assert not [x for x in list_files(f"{root}/trained") if "run/" in x]
