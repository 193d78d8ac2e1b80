import pytest

from realm_tf.serving.answers import OUTPUTS
from realm_tf.serving.answers import RealmServerError
from realm_tf.serving.answers import to_answers


def outputs(**changes):
    """The columns of one answer."""
    values = {}
    for name in OUTPUTS:
        kind = name.rpartition("_")[2]
        value = {"answer": b"", "title": b"", "text": b"", "url": b""}.get(
            kind, 0
        )
        if kind in ("score", "confidence", "prob"):
            value = 0.0
        several = name.startswith(("nbest", "candidate"))
        values[name] = [[value]] if several else [value]
    return {**values, **changes}


def test_outputs_that_are_none():
    def fails(message, broken, count=1):
        with pytest.raises(RealmServerError, match=message) as caught:
            to_answers(broken, count=count)
        assert caught.value.code == "UNEXPECTED_RESPONSE"

    assert to_answers(outputs(), count=1)[0].block_id == 0
    broken = outputs()
    del broken["url"], broken["candidate_title"]
    fails("url, candidate_title", broken)
    fails("1 rows for 2 questions", outputs(), count=2)
    fails("score has 2 rows for 1 questions", outputs(score=[1.0, 2.0]))
    fails("score has no rows", outputs(score=1.0))
    fails("of one length", outputs(candidate_answer=[[b"", b""]]))
    fails("are not lists", outputs(candidate_answer=[b""]))
    fails("answer holds int where str", outputs(answer=[3]))
    fails("answer holds list where str", outputs(answer=[[b""]]))
    fails("block_id holds float where int", outputs(block_id=[1.5]))
    fails("nbest_score holds bytes where", outputs(nbest_score=[[b"x"]]))
    fails("1e.09, which is no log-prob", outputs(candidate_log_prob=[[1e9]]))
