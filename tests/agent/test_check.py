"""What a node refuses before it launches anything, in its own words."""

import os
from pathlib import Path

import pytest

from llmgw.agent.engines import llamacpp
from llmgw.agent.engines.check import Room, check
from llmgw.agent.engines.probe import Engine
from llmgw.core.errors import BadProfile
from llmgw.core.facts import EngineReport
from llmgw.core.units import GIB, MIB, Bytes
from tests.agent.control import order

ENGINE = Engine(report=EngineReport(engine="llama.cpp", version="b10021", path="/opt/llama-server"))
ROOM = Room(total=Bytes(4 * GIB), available=Bytes(2 * GIB))


def refusal(path: object, engine: Engine | None = ENGINE, room: Room = ROOM, **profile: object) -> str:
    with pytest.raises(BadProfile) as bad:
        check(order(path, **profile), engine, llamacpp, room)
    return str(bad.value)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(1000))
    return path


def test_what_fits_is_not_refused(gguf: Path):
    check(order(gguf), ENGINE, llamacpp, ROOM)


def test_weights_that_are_not_there(tmp_path: Path):
    text = refusal(tmp_path / "no.gguf")
    assert text == f"weights {tmp_path}/no.gguf: cannot be read: no such file or directory; is it on this node?"


def test_a_directory_is_no_weights(tmp_path: Path):
    assert "is no regular file; name the .gguf file itself" in refusal(tmp_path)


def test_a_named_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert "is no regular file" in refusal(tmp_path / "pipe")


def test_another_kind_of_file_is_refused_with_what_it_begins_with(tmp_path: Path):
    (tmp_path / "w.gguf").write_bytes(b"PK\x03\x04")
    assert "is no GGUF file: it begins with b'PK\\x03\\x04'" in refusal(tmp_path / "w.gguf")


def test_an_empty_file_is_refused(tmp_path: Path):
    (tmp_path / "w.gguf").touch()
    assert "is no GGUF file" in refusal(tmp_path / "w.gguf")


def test_a_relative_path_is_refused():
    assert "must be an absolute path" in refusal("model.gguf")


def test_every_part_of_split_weights_must_be_there(tmp_path: Path):
    for part in (1, 3):
        (tmp_path / f"m-0000{part}-of-00003.gguf").write_bytes(b"GGUF")
    assert f"weights {tmp_path}/m-00002-of-00003.gguf: cannot be read" in refusal(tmp_path / "m-00001-of-00003.gguf")
    assert "is part 3 of 3; name" in refusal(tmp_path / "m-00003-of-00003.gguf")
    (tmp_path / "m-00002-of-00003.gguf").write_bytes(b"GGUF")
    check(order(tmp_path / "m-00001-of-00003.gguf"), ENGINE, llamacpp, ROOM)


def test_split_weights_count_in_all_their_parts(tmp_path: Path):
    for part in (1, 2):
        (tmp_path / f"m-0000{part}-of-00002.gguf").write_bytes(b"GGUF" + bytes(MIB))
    text = refusal(tmp_path / "m-00001-of-00002.gguf", memory=Bytes(MIB))
    assert text == "memory: the weights are 2 MiB, the profile says 1 MiB"


def test_weights_and_prompt_cache_must_fit_what_is_reserved(gguf: Path):
    text = refusal(gguf, memory=Bytes(100 * MIB), arguments=("--cache-ram", "200"))
    assert "with a prompt cache of 200 MiB, the profile says 100 MiB" in text


def test_more_memory_than_the_node_has(gguf: Path):
    assert refusal(gguf, memory=Bytes(5 * GIB)) == "memory: needs 5 GiB, engines on this node may use 4 GiB in all"


def test_more_memory_than_there_is_now(gguf: Path):
    assert refusal(gguf, memory=Bytes(3 * GIB)) == "memory: needs 3 GiB, 2 GiB of 4 GiB can be had now"


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ({"context": 0}, "profile context: must be from 1 to 134217728, not 0"),
        ({"slots": 0}, "profile slots: must be from 1 to 1024, not 0"),
        ({"context": 1 << 26, "slots": 4}, "profile context × slots: must be"),
        ({"threads": 5000}, "profile threads: must be from 0 to 4096, not 5000"),
        ({"arguments": ("-fa",) * 300}, "profile arguments: must be from 0 to 256, not 300"),
    ],
)
def test_numbers_that_make_no_sense(gguf: Path, profile: dict, words: str):
    assert words in refusal(gguf, **profile)


def test_an_engine_that_the_node_does_not_have(gguf: Path):
    text = refusal(gguf, engine=None)
    assert text == (
        "engine llama.cpp: this node has none; have it installed by `engines:` in server.yaml, or name one in "
        "agent.yaml: engines: {llama.cpp: PATH}"
    )


def test_an_engine_that_nobody_here_knows_how_to_run(gguf: Path):
    with pytest.raises(BadProfile, match=r"^engine llama\.cpp: this agent does not know how to run it$"):
        check(order(gguf), ENGINE, None, ROOM)


def test_an_engine_that_was_seen_to_fail(gguf: Path):
    broken = Engine(report=EngineReport(engine="llama.cpp", problem="/opt/x is not there"))
    assert refusal(gguf, engine=broken) == "engine llama.cpp: /opt/x is not there"


def test_an_engine_at_another_version(gguf: Path):
    assert refusal(gguf, version="b1") == "engine llama.cpp: is b10021 here, the profile wants b1"
