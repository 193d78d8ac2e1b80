import contextlib
import json
import os

import pytest

from realm_tf.errors import InputError
from realm_tf.serving.metrics import RequestLog
from realm_tf.serving.metrics import RequestRecord
from realm_tf.serving.metrics import choose_request_id


@pytest.mark.parametrize("sent", ["abc", "6f1c:7/x-Z_~", "x" * 128])
def test_a_clients_request_id_is_kept(sent):
    assert choose_request_id(sent) == sent


@pytest.mark.parametrize(
    "sent", [None, "", "x" * 129, "a b", "a\nb", "é", "\x1b[2J", "a\x7f"]
)
def test_other_request_ids_are_replaced(sent):
    first, second = choose_request_id(sent), choose_request_id(sent)
    assert first != second
    assert len(first) == 16
    assert int(first, 16) >= 0


@pytest.fixture
def open_log(tmp_path):
    """Makes a `RequestLog`, by default at `tmp_path / "log"`."""
    with contextlib.ExitStack() as stack:

        def make(path=None, **options):
            log = RequestLog(path or str(tmp_path / "log"), **options)
            stack.callback(log.close)
            return log

        yield make


def record(**fields):
    return RequestRecord("Predict", "GRPC", "realm", "id", **fields)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_hostile_texts_stay_on_their_line(tmp_path, open_log):
    log = open_log(log_questions=True)
    question = 'a\nb"\u2028{"kind": "forged"}'
    log.request(record(questions=[question]))
    assert (tmp_path / "log").read_text().isascii()
    (line,) = lines(tmp_path / "log")
    assert line["questions"] == [question]
    assert line["kind"] == "request"


def test_events_of_models(tmp_path, open_log):
    log = open_log()
    log.event("loaded", version=3, message="/m/3", seconds=1.5)
    log.event("poll_failed", message="gone")
    loaded, failed = lines(tmp_path / "log")
    assert loaded.pop("time").endswith("Z")
    assert loaded == {
        "kind": "model",
        "event": "loaded",
        "version": 3,
        "message": "/m/3",
        "seconds": 1.5,
    }
    assert "version" not in failed


def test_a_renamed_file_is_opened_again(tmp_path, open_log):
    path = tmp_path / "log"
    log = open_log()
    log.request(record())
    os.rename(path, tmp_path / "log.1")
    log.request(record())
    log.request(record())
    assert len(lines(tmp_path / "log.1")) == 1
    assert len(lines(path)) == 2


def test_a_file_that_is_lost_stops_no_request(tmp_path, capsys, open_log):
    log = open_log()
    os.rename(tmp_path / "log", tmp_path / "log.1")
    os.mkdir(tmp_path / "log")
    log.request(record())
    assert "IsADirectoryError" in capsys.readouterr().err
    os.rmdir(tmp_path / "log")
    log.request(record())
    assert len(lines(tmp_path / "log")) == 1


def test_two_logs_are_apart(tmp_path, capsys, open_log):
    first, second = open_log(), open_log("-")
    nowhere = RequestLog()
    first.request(record())
    second.request(record(status="NOT_FOUND"))
    nowhere.request(record())
    assert [line["status"] for line in lines(tmp_path / "log")] == ["OK"]
    output = capsys.readouterr()
    assert output.out == ""
    assert json.loads(output.err)["status"] == "NOT_FOUND"


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="--log-file .* cannot be written"):
        RequestLog(str(tmp_path / "none" / "log"))
