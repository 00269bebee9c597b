import grp
import os
import socket
from pathlib import Path

import pytest

from llmgw.core.errors import Rejected
from llmgw.core.identity import Role
from llmgw.wire.tls import server_context


async def test_a_port_in_use_is_said_in_one_line(serve, make_files):
    served = await serve()
    context = server_context(make_files("control", Role.CONTROL))
    with pytest.raises(Rejected, match=f"cannot listen at 127.0.0.1:{served.port}: address already in use; stop what"):
        await served.server.listen_tls("127.0.0.1", served.port, context)
    with pytest.raises(Rejected, match=r"cannot listen at 192\.0\.2\.1:0: cannot assign requested address"):
        await served.server.listen_tls("192.0.2.1", 0, context)


async def test_a_socket_that_nobody_listens_on_is_replaced_and_others_are_not(serve, tmp_path: Path):
    path = tmp_path / "llmgwd.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    served = await serve(unix=path)
    with pytest.raises(Rejected, match="another program does; stop it first"):
        await served.server.listen_unix(path)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(Rejected, match="something that is no socket is there"):
        await served.server.listen_unix(tmp_path / "file")
    with pytest.raises(Rejected, match="group 'nobody-has-this' does not exist"):
        await served.server.listen_unix(tmp_path / "other.sock", group="nobody-has-this")
    with pytest.raises(Rejected, match="no such file or directory"):
        await served.server.listen_unix(tmp_path / "no" / "such.sock")
    await served.server.close()
    assert not path.exists()


async def test_the_group_of_the_socket_may_use_it(serve, tmp_path: Path):
    path = tmp_path / "llmgwd.sock"
    served = await serve()
    await served.server.listen_unix(path, group=grp.getgrgid(os.getgid()).gr_name)
    assert (path.stat().st_mode & 0o777, path.stat().st_gid) == (0o660, os.getgid())
