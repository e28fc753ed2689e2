"""One call: what is sent, what is repeated, and what an answer amounts to. No network, no time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.client import errors as e
from signoff.client import ops, policy_ops
from signoff.client.connection import read_options
from signoff.client.effects import Answer, Policy, Send, Sleep, exchange
from signoff.client.op import at, query
from signoff.domain.error import SignoffError

POLICY = Policy(retries=2, new_key=lambda: "made-up", spread=lambda: 1.0)
RUN = Answer(status=200, body=b'{"id": 7, "status": "running", "unheard_of": 1}')
BUSY = Answer(status=503, body=b'{"error": {"message": "busy", "error_code": "unavailable"}}')
LOST = e.ConnectionFailedError("lost")


def play(steps, *outcomes):
    """What the steps do when their requests end so, and how they end themselves."""
    done, left = [], list(outcomes)
    try:
        effect = next(steps)
        while True:
            done.append(effect)
            if isinstance(effect, Sleep):
                effect = steps.send(None)
            elif isinstance(found := left.pop(0), Exception):
                effect = steps.throw(found)
            else:
                effect = steps.send(found)
    except StopIteration as stop:
        return done, stop.value
    except SignoffError as error:
        return done, error


def sends(done):
    return [effect for effect in done if isinstance(effect, Send)]


def pauses(done):
    return [effect.seconds for effect in done if isinstance(effect, Sleep)]


def test_a_read_is_repeated_with_growing_pauses():
    """Two failures, then the answer."""
    done, run = play(exchange(ops.get_run(7), POLICY), BUSY, LOST, RUN)
    assert (run.id, len(sends(done)), pauses(done)) == (7, 3, [0.5, 1.0])


def test_a_read_is_given_up_after_its_last_try():
    """The last failure is raised as it is."""
    done, error = play(exchange(ops.get_run(7), POLICY), BUSY, BUSY, BUSY)
    assert isinstance(error, e.UnavailableError)
    assert len(sends(done)) == 3
    assert play(exchange(ops.get_run(7), POLICY), LOST, LOST, LOST)[1] is LOST


def test_a_create_is_repeated_under_one_key_with_one_body():
    """The service knows by the key that it is the same request."""
    done, _ = play(exchange(ops.create_run("go"), POLICY), LOST, RUN)
    first, second = sends(done)
    assert first == second
    assert first.headers["idempotency-key"] == "made-up"
    done, _ = play(exchange(ops.create_run("go", idempotency_key="mine"), POLICY), RUN)
    assert sends(done)[0].headers["idempotency-key"] == "mine"


@pytest.mark.parametrize(
    "op",
    [
        ops.approve(7, "req_1"),
        ops.answer(7, {"a": "b"}),
        ops.cancel(7),
        ops.update_webhook(1, active=True),
        policy_ops.delete_policy(1),
        ops.create_webhook("https://example.com"),
    ],
    ids=lambda op: f"{op.method} {op.path}",
)
def test_nothing_else_is_repeated(op):
    """A request without a key may have been carried out."""
    assert play(exchange(op, POLICY), LOST) == ([sends([play_first(op)])[0]], LOST)
    assert len(sends(play(exchange(op, POLICY), BUSY)[0])) == 1


def play_first(op):
    return next(exchange(op, POLICY))


def test_retry_after_is_heeded_up_to_a_bound():
    """The pause is as long as asked for; one that is too long is the caller's to decide."""
    slow = Answer(status=429, body=b"{}", retry_after="7")
    done, _ = play(exchange(ops.get_run(7), POLICY), slow, RUN)
    assert pauses(done) == [7.0]
    never = Answer(status=429, body=b"{}", retry_after="3600")
    done, error = play(exchange(ops.get_run(7), POLICY), never)
    assert isinstance(error, e.RateLimitError)
    assert (error.retry_after, pauses(done)) == (3600.0, [])


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, e.UnexpectedAnswerError),
        (400, e.InvalidRequestError),
        (401, e.AuthenticationError),
        (402, e.LimitReachedError),
        (404, e.NotFoundError),
        (409, e.ConflictError),
        (418, e.InvalidRequestError),
        (500, e.ServerError),
        (502, e.ServerError),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": "no"}', b'{"detail": 1}'])
def test_answers_of_strangers_are_errors_of_ours(status, kind, body):
    """A proxy's page or another server's JSON ends in the class of its status."""
    answer = Answer(status=status, body=body)
    once = Policy(retries=0, new_key=str, spread=float)
    _, error = play(exchange(ops.get_run(7), once), answer)
    assert isinstance(error, kind)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"id": "x"}', b"null"])
def test_a_good_status_with_a_strange_body_is_an_error_of_ours(body):
    """It is not the service that answers."""
    _, error = play(exchange(ops.get_run(7), POLICY), Answer(status=200, body=body))
    assert isinstance(error, e.UnexpectedAnswerError)


def test_unknown_codes_of_a_newer_service_keep_their_name():
    """The class is that of the status, the code is as it came."""
    body = {"error": {"message": "why", "error_code": "newer", "details": None}}
    answer = Answer(status=409, body=json.dumps(body).encode())
    _, error = play(exchange(ops.cancel(7), POLICY), answer)
    assert type(error) is e.ConflictError
    assert error.code == "newer"


@given(
    st.integers(min_value=300, max_value=599),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.text()
                | st.sampled_from(
                    ["error", "error_code", "details", "message", "request_id", "field"]
                ),
                inner,
            )
        ),
    ),
)
def test_reading_a_refusal_is_total(status, body):
    """Whatever the JSON is, it becomes an ApiError."""
    assert isinstance(e.error_of(status, body), e.ApiError)


def test_fields_that_are_not_known_are_ignored_and_values_cannot_be_changed():
    """An old SDK works with a newer service."""
    _, run = play(exchange(ops.get_run(7), POLICY), RUN)
    with pytest.raises(ValueError, match="frozen"):
        run.id = 8


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", True, "\ud800"])
def test_a_path_is_never_another_one(part):
    """What cannot be one segment of a path is refused before anything is sent."""
    with pytest.raises(e.InvalidArgumentError):
        at("users", part)


def test_paths_and_queries_are_encoded():
    """Every character stays within its segment."""
    assert ops.get_user("a b?c#d%2f").path == "/v1/users/a%20b%3Fc%23d%252f"
    assert query(a=True, b=None, c=1) == {"a": "true", "c": "1"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "signoff.example.com"},
        {"base_url": "ftp://x"},
        {"base_url": "https://"},
        {"api_key": ""},
        {"api_key": "a\nb"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"retries": -1},
    ],
)
def test_a_client_that_cannot_work_is_refused_at_once(wrong):
    """Before the first call."""
    fine = {"base_url": "https://x", "api_key": "k", "timeout": 1.0, "retries": 0}
    with pytest.raises(e.InvalidArgumentError):
        read_options(**{**fine, **wrong})


def test_the_surface_may_be_part_of_the_address_and_the_key_is_not_shown():
    """base_url with or without /v1 or /api/v2; no repr has the key."""
    for url in ("https://x", "https://x/", "https://x/v1", "https://x/api/v2/"):
        options = read_options(base_url=url, api_key="secret-key", timeout=1.0, retries=0)
        assert options.base_url == "https://x"
        assert "secret-key" not in repr(options)


def test_misspelt_options_are_errors():
    """As those of any other call."""
    with pytest.raises(TypeError, match="permision_mode"):
        ops.create_run("go", permision_mode="approval")  # type: ignore[call-arg]
