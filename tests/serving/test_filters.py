"""Who sees which documents, over a real corpus and every protocol."""

import json

import backends
import grpc
import pytest
import tensorflow as tf
from document_site import ALL
from document_site import PART
from document_site import WORDS
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from rest_client import PREDICT
from rest_client import Client
from stock_requests import predict_request
from tensorflow_serving.apis import prediction_service_pb2_grpc

from realm_tf.serving.client import RealmClient
from realm_tf.serving.client import RealmServerError

pytestmark = backends.exports


def _client(site, key):
    return RealmClient(site.target, api_key=key)


def test_what_each_key_sees(site):
    for key, num_seen in ((ALL, 12), (PART, 6)):
        client = _client(site, key)
        (found,) = client.retrieve(["Nile"])
        assert len(found) == num_seen
        (found,) = client.retrieve(["Nile"], filter="number>=6")
        assert len(found) == num_seen // 2
        (answer,) = client.ask(["Nile?"], filter="number=1|2|3")
        assert len(answer.candidates) == {ALL: 3, PART: 1}[key]
        assert len(client.embed(["Nile"])[0])
    (answer,) = _client(site, PART).ask(["Nile?"], filter="parity=odd")
    assert answer.answer == "" and not answer.answered
    with pytest.raises(RealmServerError, match="is no field of this corpus"):
        _client(site, ALL).ask(["Nile?"], filter="x=1")


def test_the_page_tells_a_key_no_other_titles(site):
    client = Client(site)
    facts = {
        key: client.get("/about.json", **{"x-api-key": key})[1]
        for key in (ALL, PART)
    }
    titles = facts[ALL]["example_titles"]
    assert facts[ALL]["example_questions"] == [
        f"What about {title}?" for title in titles
    ]
    assert facts[ALL]["field_values"]["parity"] == ["even", "odd"]
    assert facts[ALL]["documents"] and not facts[PART]["documents"]
    hidden = {"example_titles", "example_questions", "field_values"}
    assert hidden.isdisjoint(facts[PART])
    assert facts[PART]["fields"] == ["parity", "number"]


@pytest.mark.parametrize(
    "filter, message",
    [
        ("colour=red", "colour is no field of this corpus; expected one of"),
        ("parity", "parity is no condition of a filter; expected NAME=VALUE"),
        (";".join(["number>=0"] * 17), "has more than 16 conditions"),
    ],
)
def test_an_error_shows_no_filter_of_a_key(site, filter, message):
    with pytest.raises(RealmServerError) as refused:
        _client(site, PART).ask(["Nile?"], filter=filter)
    assert message in refused.value.message
    for hidden in ("even", "Graph execution", "assertion", "{{node"):
        assert hidden not in refused.value.message


def test_the_conditions_of_a_key_are_not_those_of_a_request(site):
    filter = ";".join(["number>=0"] * 16)
    (found,) = _client(site, PART).retrieve(["Nile"], filter=filter)
    assert len(found) == 6


def _by_grpc(site, signature, inputs):
    request = predict_request(*inputs["question"], signature=signature)
    if "filter" in inputs:
        request.inputs["filter"].CopyFrom(
            tf.make_tensor_proto(inputs["filter"], tf.string)
        )
    with grpc.insecure_channel(site.target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        try:
            response = stub.Predict(request, metadata=[("x-api-key", PART)])
        except grpc.RpcError as error:
            return error.details().encode()
    return response.SerializeToString()


def _by_rest(site, signature, inputs):
    body = json.dumps({"signature_name": signature, "inputs": inputs})
    headers = {"authorization": f"Bearer {PART}"}
    return Client(site).call("POST", PREDICT, body, headers)[2]


_conditions = st.one_of(
    st.sampled_from(
        [
            *("parity=odd", "parity!=even", "parity=even|odd", "number>=0"),
            *(";", "|", "parity=odd;parity=odd", ""),
        ]
    ),
    st.text(alphabet="parityodevn=!<>|; 0123456789\n", max_size=20),
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.sampled_from(
        [
            "",
            *("serving_default", "serving_default_filtered"),
            *("retrieve", "retrieve_filtered"),
            *("embed_query", "embed_block", "__saved_model_init_op"),
        ]
    ),
    st.lists(st.sampled_from([*WORDS, "", "odd"]), min_size=1, max_size=3),
    st.one_of(st.none(), _conditions),
    st.sampled_from([_by_grpc, _by_rest]),
)
def test_a_key_never_gets_others(site, signature, questions, filter, send):
    inputs = {"question": questions}
    if filter is not None:
        inputs["filter"] = [filter] * len(questions)
    # Its answer, its error, and whatever else may come.
    assert b"is odd" not in send(site, signature, inputs)


def test_that_would_show(site):
    """What is looked for above is there, for who may see it."""
    found = _client(site, ALL).retrieve(["Nile"])[0]
    assert sum("is odd" in each.text for each in found) == 6
