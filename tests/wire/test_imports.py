import importlib.metadata
import subprocess
import sys

from llmgw.wire import CODEC_VERSION


def test_the_codec_is_the_version_that_it_is_told_it_is():
    assert importlib.metadata.version("betterproto2") == CODEC_VERSION


def test_a_client_imports_little():
    """A short command pays for every module; these are the large ones that it has no use for."""
    code = "import sys, llmgw.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "cryptography", "textual", "yaml", "importlib.metadata", "llmgw.wire.server"} & {*loaded}


def test_what_was_hidden_from_the_codec_is_there_for_others():
    code = "import llmgw.client, pydantic, importlib.metadata as m; print(pydantic.VERSION, m.version('pydantic'))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert out[0] == out[1]
