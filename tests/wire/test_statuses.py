import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from llmgw.core import errors
from llmgw.core.errors import LlmgwError
from llmgw.wire.statuses import STATUSES, Details, from_grpc, one_line, to_grpc

SAMPLES = [
    errors.Rejected("nothing was changed"),
    errors.BadConfig("server.yaml", 3, "models.x", "must be a number", "'two'"),
    errors.BadConfig("server.yaml", None, "", "cannot be read"),
    errors.BadName("node", "N 1", "[a-z]+"),
    errors.BadMessage("Report", "at", "must be a finite number"),
    errors.TooMany("model gemma", 2000, 1000),
    errors.BadProfile("model gemma", "weights /x.gguf are missing", "put them there"),
    errors.UnknownModel("qwn", ["qwen", "gemma"]),
    errors.UnknownModel("qwn"),
    errors.UnknownNode("node09", ["node01", "node02"]),
    errors.UnknownRelease("4f2a"),
    errors.EngineNotWanted("node01", "vllm", "wanted there: llama.cpp"),
    errors.InvalidTransition("shard m/0.0", "ready", "fetch"),
    errors.NotAllowed("viewer v", "scale", "the role operator"),
    errors.Unreachable("the network"),
    errors.ControlUnreachable("host:7443", "connection refused", "is it running?"),
    errors.PeerNotTrusted("control plane x", "expired"),
    errors.ClusterCannot("no node has room"),
    errors.NoBuild("llama.cpp b10991 has no build for riscv64"),
    errors.ControlFault("see the log"),
]


def kinds(kind=LlmgwError):
    for sub in kind.__subclasses__():
        if sub.__module__ == errors.__name__ and not sub.__name__.startswith("_"):
            yield sub
        yield from kinds(sub)


def over_the_wire(error):
    sent = to_grpc(error)
    codec = Details()
    details = codec.decode(sent.status, sent.message, codec.encode(sent.status, sent.message, sent.details))
    return GRPCError(sent.status, sent.message, details)


def test_every_class_of_error_has_a_status_and_a_sample_here():
    assert set(kinds()) <= set(STATUSES)
    assert {type(sample) for sample in SAMPLES} == set(kinds())


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_it_was(error):
    again = from_grpc(over_the_wire(error), "host:7443")
    assert type(again) is type(error)
    assert str(again) == str(error) and again.args == error.args
    assert (again.code, again.exit_status) == (error.code, error.exit_status)


def test_an_error_that_this_reader_does_not_know_keeps_code_text_and_exit_status():
    """A newer control plane may have classes that we have not."""
    for code in ("quota_exceeded", "unknown_model"):
        newer = GRPCError(Status.NOT_FOUND, "tenant a is over its quota", (code, [1, 2, 3, 4]))
        error = from_grpc(newer, "host:7443")
        assert type(error) is errors.Rejected
        assert (error.code, str(error), error.exit_status) == (code, "tenant a is over its quota", 2)
    assert errors.Rejected.code == "rejected"


@pytest.mark.parametrize("fields", [None, [{"a": 1}], [[[1]]], [1.5], ["x"] * 50, [None]])
def test_fields_that_do_not_fit_are_not_used(fields):
    error = from_grpc(GRPCError(Status.NOT_FOUND, "model 'x' is unknown", ("unknown_model", fields)), "a")
    assert str(error) == "model 'x' is unknown" and error.exit_status == 2


def test_fields_that_say_something_else_than_the_text_are_not_used():
    error = from_grpc(GRPCError(Status.NOT_FOUND, "text", ("unknown_model", ["x", ["y"]])), "a")
    assert str(error) == "text"


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"code": 3}', b"[" * 100_000])
def test_details_of_another_sender_are_none(data):
    assert Details().decode(Status.NOT_FOUND, "x", data) is None


def test_details_that_would_not_fit_in_a_header_leave_the_fields_out():
    names = [f"model-{number:05}" for number in range(1000)]
    error = errors.UnknownModel("x", names)
    data = Details().encode(Status.NOT_FOUND, "", error)
    assert len(data) < 100
    again = from_grpc(over_the_wire(error), "a")
    assert str(again) == str(error) and again.code == "unknown_model"


EXITS = {
    Status.UNAVAILABLE: errors.ControlUnreachable,
    Status.CANCELLED: errors.ControlUnreachable,
    Status.UNAUTHENTICATED: errors.PeerNotTrusted,
    Status.DEADLINE_EXCEEDED: errors.ClusterCannot,
    Status.FAILED_PRECONDITION: errors.ClusterCannot,
    Status.ABORTED: errors.ClusterCannot,
    Status.INTERNAL: errors.ControlFault,
    Status.UNKNOWN: errors.ControlFault,
    Status.DATA_LOSS: errors.ControlFault,
}


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_bare_status_has_a_class_too(status):
    error = from_grpc(GRPCError(status, None), "host:7443")
    assert type(error) is EXITS.get(status, errors.Rejected)
    assert str(error)


def test_a_text_is_one_line_of_bounded_length():
    assert one_line("a\nb\x1b[31mc") == "a b [31mc"
    assert len(one_line("x" * 5000)) == 1025
