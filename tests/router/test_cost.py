"""What `python -m bench router` says where it cannot measure."""

import json

from bench import router


async def test_without_a_peer_to_measure_beside_the_figure_is_skipped_and_not_ok(monkeypatch, tmp_path):
    monkeypatch.setattr(router, "NGINX", tmp_path / "nginx")
    lines = [json.loads(figure.line()) async for figure in router.figures()]
    assert [(line["name"], line["unit"], line["ok"]) for line in lines] == [("router.cpu", "µs CPU/request", False)]
    assert lines[0]["failed"].startswith("skipped: there is no ")
