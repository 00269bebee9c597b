import contextlib
import dataclasses
import enum
import math
import time
import typing

import betterproto2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.core import device_warnings, events, facts, inventory, link, refusals, routes, shard, views, warnings
from llmgw.core.engines import orders, terms
from llmgw.core.errors import BadMessage
from llmgw.core.presence import NodeState
from llmgw.core.refusals import Refusal
from llmgw.wire import convert
from llmgw.wire.agent import v1 as agent
from llmgw.wire.convert import decode, enum_from_wire, from_wire, to_wire
from llmgw.wire.engines import v1 as engines
from llmgw.wire.facts import v1 as wire
from llmgw.wire.operator import v1 as operator
from llmgw.wire.operator.engines import v1 as operator_engines
from llmgw.wire.parts import has_more_parts

from .values import values

PACKAGES = (wire, engines, agent, operator, operator_engines)
UNIONS = {
    "Refusal": refusals.Refusal,
    "NodeWarning": warnings.NodeWarning,
    "Item": views.Item,
    "AgentMessage": link.AgentMessage,
    "ControlMessage": link.ControlMessage,
}
ASKED = {
    "AboutRequest",
    "WatchRequest",
    "WhyModelRequest",
    "ScaleModelRequest",
    "WatchRoutesRequest",
    "WatchAttemptsRequest",
    "ReportAttemptRequest",
    "EnginesWantedRequest",
    "LockEngineRequest",
    "RetryEngineRequest",
    "ReleaseRequest",
    "ReadFileRequest",
    "FileChunk",
}
"""Messages without a counterpart: what a caller asks is the arguments of a method, and a file's bytes are no value."""

MODULES = (
    *(facts, link, terms, orders, inventory, views, routes),
    *(refusals, device_warnings, warnings, events, shard),
)
"""Where core has what travels."""

CORE = {"NodeState": NodeState} | {
    value.__name__: value
    for module in (
        facts,
        link,
        terms,
        orders,
        inventory,
        views,
        routes,
        refusals,
        device_warnings,
        warnings,
        events,
        shard,
    )
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__
}
NOT_SENT = {"Secret", "ShardEvent"}
"""A kind of text, and what happens to a shard inside its agent."""

MESSAGES = {
    name: value
    for package in PACKAGES
    for name, value in vars(package).items()
    if isinstance(value, type) and issubclass(value, betterproto2.Message) and value.__module__ == package.__name__
}
ENUMS = {
    name: value
    for package in PACKAGES
    for name, value in vars(package).items()
    if isinstance(value, type) and issubclass(value, betterproto2.Enum) and value.__module__ == package.__name__
}
PAIRS = [(CORE[name], message) for name, message in MESSAGES.items() if name in CORE]


def test_every_message_and_enum_has_a_counterpart_in_core_and_every_value_of_core_a_message():
    assert set(MESSAGES) - ASKED - set(UNIONS) == {n for n, v in CORE.items() if dataclasses.is_dataclass(v)}
    assert set(ENUMS) == {n for n, v in CORE.items() if issubclass(v, enum.Enum)} - NOT_SENT
    assert set(CORE) == (set(MESSAGES) - ASKED - set(UNIONS)) | set(ENUMS) | NOT_SENT


@pytest.mark.parametrize(("core", "message"), PAIRS, ids=lambda one: one.__module__.split(".")[1])
def test_every_field_has_a_counterpart_of_the_same_kind(core, message):
    """The plan refuses a field that one side lacks, or holds differently."""
    convert._plan(core, message)


@pytest.mark.parametrize("name", UNIONS)
def test_every_member_of_a_union_has_a_place_in_its_message(name):
    convert._plan(UNIONS[name], MESSAGES[name])
    for member in typing.get_args(UNIONS[name]):
        convert._plan(member, convert._slots(MESSAGES[name])[member.__name__][1])


def test_every_enum_has_the_same_members_and_a_zero_that_is_never_sent():
    for name, there in ENUMS.items():
        assert [member.name for member in there] == ["UNSPECIFIED", *(member.name for member in CORE[name])]
        assert there["UNSPECIFIED"] == 0


def test_a_plan_refuses_what_does_not_match():
    for core, message in ((inventory.Cpu, wire.Gpu), (link.AgentMessage, agent.ControlMessage), (int, wire.Cpu)):
        with pytest.raises(TypeError):
            convert._plan(core, message)
    with pytest.raises(TypeError):
        to_wire(inventory.Cpu(cores=1), agent.AgentMessage)

    @dataclasses.dataclass
    class Cpu:
        model: str
        cores: int

    with pytest.raises(TypeError, match="features"):
        convert._plan(Cpu, wire.Cpu)


@given(st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_core_can_say_arrives_as_it_was(data):
    core, message = data.draw(st.sampled_from(PAIRS))
    value = data.draw(values(core, message))
    sent = bytes(to_wire(value, message))
    assert from_wire(decode(sent, message), core) == value


@given(st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_member_of_a_union_arrives_as_the_class_it_was(data):
    name = data.draw(st.sampled_from(sorted(UNIONS)))
    core = data.draw(st.sampled_from(typing.get_args(UNIONS[name])))
    value = data.draw(values(core, MESSAGES[core.__name__]))
    sent = bytes(to_wire(value, MESSAGES[name]))
    back = from_wire(decode(sent, MESSAGES[name]), UNIONS[name])
    assert back == value and type(back) is type(value)


@given(st.binary(max_size=60), st.sampled_from(sorted(MESSAGES)))
@settings(max_examples=400, deadline=None)
def test_bytes_of_a_stranger_are_a_value_or_a_bad_message_and_nothing_else(data, name):
    try:
        message = decode(data, MESSAGES[name])
        if name not in ASKED:
            from_wire(message, UNIONS.get(name) or CORE[name])
    except BadMessage as bad:
        assert "\n" not in str(bad)


@given(st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_message_with_some_bytes_changed_is_a_value_or_a_bad_message(data):
    core, message = data.draw(st.sampled_from(PAIRS))
    sent = bytearray(bytes(to_wire(data.draw(values(core, message)), message)))
    for _ in range(data.draw(st.integers(1, 3))):
        if sent:
            sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadMessage):
        from_wire(decode(bytes(sent), message), core)


AWAY = refusals.NodeAway(node="n1", lost=True, seconds=3.0)


def test_a_refusal_carries_its_words_for_readers_that_do_not_know_its_type():
    sent = to_wire(AWAY, wire.Refusal)
    assert (sent.code, sent.verdict, sent.text) == ("node_away", wire.Verdict.NOT_NOW, "lost for 3s")
    assert sent.clears == AWAY.clears
    sent.code = sent.text = "nonsense"
    sent.verdict = wire.Verdict.UNSPECIFIED
    assert from_wire(sent, Refusal) == AWAY
    assert tuple(convert._DERIVED["Refusal"]) == refusals.DERIVED


def test_a_warning_of_a_newer_version_is_read_by_its_words():
    sent = to_wire(warnings.ClockSkew(seconds=95.0), wire.NodeWarning)
    assert (sent.code, sent.text) == ("clock_skew", "its clock is 95 s behind the control plane's")
    assert from_wire(sent, warnings.NodeWarning) == warnings.ClockSkew(seconds=95.0)
    newer = wire.NodeWarning(code="too_hot", text="it is 95 °C", fix="cool it")
    assert from_wire(newer, warnings.NodeWarning) == warnings.OtherWarning(
        code="too_hot", text="it is 95 °C", fix="cool it"
    )
    assert "must have one member, not 0" in bad(wire.NodeWarning(), warnings.NodeWarning)
    assert tuple(convert._DERIVED["NodeWarning"]) == warnings.DERIVED


def bad(message, core):
    with pytest.raises(BadMessage) as raised:
        from_wire(message, core)
    return str(raised.value)


def test_what_the_codec_lets_pass_is_refused_when_read():
    at = {"at": 1.0}
    usage = wire.Usage(memory_available=1)
    cases = [
        (agent.Heartbeat(**at), link.Heartbeat, "Heartbeat: usage is missing"),
        (agent.Heartbeat(at=math.nan, usage=usage), link.Heartbeat, "at must be a finite number, not nan"),
        (agent.Heartbeat(at=math.inf, usage=usage), link.Heartbeat, "at must be a finite number, not inf"),
        (wire.Failure(text="x", **at), facts.Failure, "kind has no known value"),
        (wire.Failure(kind=wire.FailureKind(77), text="x", **at), facts.Failure, "kind has no known value"),
        (wire.Cpu(cores=-1), inventory.Cpu, "cores must be a number from 0 to 4294967295, not -1"),
        (wire.Cpu(cores=1 << 40), inventory.Cpu, "cores must be a number from 0"),
        (wire.Cpu(cores=True), inventory.Cpu, "cores must be a number"),
        (wire.NodeAway(node="N 1", seconds=1.0), refusals.NodeAway, "node is no name: 'N 1'"),
        (wire.NodeAway(node="", seconds=1.0), refusals.NodeAway, "node is no name"),
        (operator.RouteReplica(id="m", node="n", port=1), routes.RouteReplica, "id is no name"),
        (
            operator.RouteReplica(id="m/0", node="n", port=0),
            routes.RouteReplica,
            "port must be a number from 1 to 65535",
        ),
        (operator.RouteReplica(id="m/0", node="n", port=65536), routes.RouteReplica, "port must be"),
        (agent.AgentMessage(), link.AgentMessage, "its oneof must have one member, not 0"),
        (wire.Refusal(code="new_reason", text="x"), Refusal, "its oneof must have one member, not 0"),
    ]
    for message, core, text in cases:
        assert text in bad(message, core)
    two = agent.AgentMessage(leaving=agent.Leaving(), report=agent.Report())
    assert "its oneof must have one member, not 2" in bad(two, link.AgentMessage)


def test_a_wire_type_that_the_codec_takes_for_another_is_refused():
    """It puts the number of a varint into a field of text, and text where a message belongs."""
    number_as_text = decode(b"\x08\x05", agent.Leaving)
    assert "reason must be text" in bad(number_as_text, link.Leaving)
    shard_as_number = decode(b"\x08\x05", agent.Report)
    assert "shards is not a message" in bad(shard_as_number, link.Report)


@pytest.mark.parametrize("data", [b"\x0a\x02\xff\xfe", b"\x80" * 12, b"\x09\x01", b"\x0a\x80"])
def test_bytes_that_are_no_message_are_a_bad_message(data):
    with pytest.raises(BadMessage):
        from_wire(decode(data, agent.Leaving), link.Leaving)


def nested(tag, data):
    length, size = len(data), bytearray()
    while length:
        size.append(length & 0x7F | (0x80 if length > 0x7F else 0))
        length >>= 7
    return bytes([tag]) + bytes(size) + data


CROWDS = {
    "empty shards": (b"\x0a\x00" * (2 << 20), agent.Report),
    "empty GPUs of an inventory": (nested(0x1A, b"\x32\x00" * (1 << 20)), agent.Report),
    "empty lines of output": (nested(0x0A, nested(0x5A, b"\x2a\x00" * (1 << 20))), agent.Report),
    "packed numbers": (nested(0x12, nested(0x1A, b"\x00" * (1 << 20))), agent.Heartbeat),
    "one field again and again": (b"\x08\x01" * (1 << 20), agent.Accepted),
    "fields that nobody knows": (b"\xf8\x07\x01" * (1 << 20), agent.Accepted),
}


@pytest.mark.parametrize("case", CROWDS)
def test_a_message_of_very_many_parts_is_refused_before_it_is_decoded(case):
    """Decoding one of these takes up to a minute and a gigabyte."""
    data, message = CROWDS[case]
    begun = time.process_time()
    with pytest.raises(BadMessage, match="have more than 50000 parts"):
        decode(data, message)
    assert time.process_time() - begun < 1


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_parts_are_counted_as_the_codec_finds_them(data):
    core, message = data.draw(st.sampled_from(PAIRS))
    sent = to_wire(data.draw(values(core, message)), message)
    count = parts(sent)
    assert not has_more_parts(bytes(sent), message, count)
    assert count == 0 or has_more_parts(bytes(sent), message, count - 1)


def parts(message):
    """Fields that are there, in it and in the messages within it."""
    count = 0
    for name, meta in message._betterproto.meta_by_field_name.items():
        value = getattr(message, name)
        held = value if meta.repeated else [] if value is None else [value]
        if not meta.repeated and not meta.optional and value == message._betterproto.default_gen[name]():
            held = []
        count += len(held) + sum(parts(one) for one in held if isinstance(one, betterproto2.Message))
    return count


def test_what_cannot_be_sent_is_refused_when_written():
    usage = inventory.Usage(memory_available=1)
    cases = [
        (inventory.Cpu(cores=-1), wire.Cpu),
        (inventory.Cpu(cores=1 << 32), wire.Cpu),
        (inventory.Usage(memory_available=-1), wire.Usage),
        (facts.Engines(probed_at=math.nan), wire.Engines),
        (link.Heartbeat(at=math.inf, usage=usage), agent.Heartbeat),
        (link.Leaving(reason="half a pair \ud800"), agent.Leaving),
        (link.Leaving(reason=3), agent.Leaving),
    ]
    for value, message in cases:
        with pytest.raises(BadMessage):
            to_wire(value, message)


def test_a_key_stays_a_secret_on_the_way():
    report = facts.ShardReport(shard="m/0.0", state=shard.ShardState.READY, since=1.0, key=facts.Secret("s3cret"))
    back = from_wire(decode(bytes(to_wire(report, agent.ShardReport)), agent.ShardReport), facts.ShardReport)
    assert back.key == "s3cret" and "s3cret" not in repr(back)


def test_an_enum_by_itself():
    assert enum_from_wire(operator.Noun.EVENTS, views.Noun) is views.Noun.EVENTS
    for unknown in (operator.Noun.UNSPECIFIED, operator.Noun(99), 7):
        with pytest.raises(BadMessage):
            enum_from_wire(unknown, views.Noun)
