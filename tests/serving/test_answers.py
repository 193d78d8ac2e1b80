import pytest

from realm_tf.serving.client import RealmServerError
from realm_tf.serving.client import checked
from realm_tf.serving.client import to_answers


def outputs(**changes):
    """The columns of one answer, without the URLs of candidates."""
    values = {
        **dict.fromkeys(("answer", "title", "text", "url"), [b""]),
        **dict.fromkeys(("block_id", "start", "limit"), [0]),
        **dict.fromkeys(("score", "confidence"), [0.0]),
        "nbest_answer": [[b""]],
        "nbest_score": [[0.0]],
        "candidate_block_id": [[0]],
        "candidate_title": [[b""]],
        "candidate_text": [[b""]],
        "candidate_answer": [[b""]],
        "candidate_log_prob": [[0.0]],
    }
    return {**values, **changes}


def test_outputs_that_are_none():
    def fails(message, broken, count=1):
        with (
            pytest.raises(RealmServerError, match=message) as caught,
            checked("m"),
        ):
            to_answers(broken, count=count)
        assert caught.value.code == "UNEXPECTED_RESPONSE"

    assert to_answers(outputs(), count=1)[0].candidates[0].url == ""
    found = to_answers(outputs(candidate_url=[[b"u"]]), count=1)
    assert found[0].candidates[0].url == "u"
    assert found[0].fields == found[0].candidates[0].fields == ""
    told = outputs(fields=[b"a=1"], candidate_fields=[[b"b=2"]])
    (found_told,) = to_answers(told, count=1)
    assert found_told.fields == "a=1"
    assert found_told.candidates[0].fields == "b=2"
    # Earlier exports give every answer.
    assert found[0].answered
    assert not to_answers(outputs(answered=[False]), count=1)[0].answered
    broken = outputs()
    del broken["title"]
    fails(r"m gave no answer of a REALM export \(KeyError\('title'\)\)", broken)
    fails("is shorter", outputs(), count=2)
    fails("float", outputs(score=1.0))
    fails("is longer", outputs(candidate_answer=[[b"", b""]]))
    fails("is shorter", outputs(candidate_answer=[b""]))
