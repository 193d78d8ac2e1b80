"""SavedModels take each other's place: no wrong answer, no memory left."""

import contextlib
import os
import re
import shutil
import threading
import weakref

from server_process import get_json
from waiting import wait_for

from realm_tf.serving import server
from realm_tf.serving.client import RealmClient
from realm_tf.serving.servable import SavedModelServable


def copy_version(saved_model, version, base, *, to):
    """As one puts a version in place: beside, then renamed."""
    shutil.copytree(f"{saved_model}/{version}", base / "copy")
    os.rename(base / "copy", base / str(to))


def test_no_request_fails_while_swapped(saved_model, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "_POLL_SECONDS", 0.05)
    in_memory = weakref.WeakSet()

    class Tracked(SavedModelServable):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            in_memory.add(self)

    monkeypatch.setattr(server, "SavedModelServable", Tracked)
    copy_version(saved_model, 1, tmp_path, to=1)
    enough = threading.Event()
    latest = [0.0] * 8
    wrong = []

    def ask(thread):
        while not enough.is_set():
            try:
                (answer,) = client.ask(["who wrote frankenstein?"])
                latest[thread] = answer.score
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(server.start(str(tmp_path)))
        client = stack.enter_context(RealmClient(running.target))
        for thread in threads:
            thread.start()
            stack.callback(thread.join, 10)
        stack.callback(enough.set)
        # Version 2 of the fixture scores 100 higher than 1.
        for version, source, score in ((2, 2, 112.5), (3, 1, 12.5)):
            copy_version(saved_model, source, tmp_path, to=version)
            wait_for(lambda s=score: latest == [s] * 8, seconds=60)
        url = f"{running.rest_url}/v1/models/realm"

        def states():
            return [
                (status["version"], status["state"])
                for status in get_json(url)[1]["model_version_status"]
            ]

        expected = [("3", "AVAILABLE"), ("2", "END"), ("1", "END")]
        wait_for(lambda: states() == expected)
        wait_for(lambda: len(in_memory) == 1)
        metrics = running.handler.render_metrics()[0].decode()
    assert wrong == []
    # Nor was one sent again.
    assert set(re.findall(r'request_count\{.*status="(\w+)"', metrics)) == {
        "OK"
    }
    sample = 'realm_version_available{model_name="realm",version='
    assert f'{sample}"3"}} 1.0' in metrics
    assert f'{sample}"2"}} 0.0' in metrics
