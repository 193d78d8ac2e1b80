"""The graphs that corpora share: made once, removed when nobody uses them."""

import os
import threading
import time
import types

import pytest

from realm_tf.artifacts.objects import Model
from realm_tf.export import card
from realm_tf.export import live_version
from realm_tf.export import tracing

DAY = 24 * 3600


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Fingerprints of the models whose graphs were traced."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    models = []

    def trace(stage, model, state, **options):
        models.append(model.fingerprint)
        time.sleep(0.2)
        os.makedirs(stage.path("assets.extra"))
        with open(stage.path(card.FILE), "w") as file:
            file.write('{"files": {}}')

    monkeypatch.setattr(tracing, "write_template", trace)
    return models


def _template(model_dir, num_reader_blocks=5):
    state = types.SimpleNamespace(max_block_length=32)
    return live_version.template(
        Model(model_dir),
        state,
        parameters={"num_reader_blocks": num_reader_blocks},
        fields=(),
    )


def test_processes_that_need_it_at_once_make_it_once(made, model_dir):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(_template(model_dir)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({version.path for version in found}) == 1 and len(found) == 3
    assert made == [Model(model_dir).fingerprint]


def test_a_damaged_one_is_made_again(made, model_dir):
    path = _template(model_dir).file(card.FILE)
    with open(path, "w") as file:
        file.write("{")
    assert _template(model_dir).file(card.FILE) == path
    assert len(made) == 2


@pytest.mark.parametrize("days, is_kept", [(29, True), (31, False)])
def test_what_was_not_used_for_30_days_goes(made, model_dir, days, is_kept):
    before = _template(model_dir)
    used = time.time() - days * DAY
    os.utime(before.file(card.FILE), (used, used))
    after = _template(model_dir, num_reader_blocks=6)
    assert after.is_complete and before.is_complete == is_kept
