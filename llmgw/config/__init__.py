"""Configuration files: server.yaml, agent.yaml, router.yaml, client.yaml.

`load` reads them; `server`, `agent`, `router` and `client` say what is in them. `client`, `tls`, `address` and `units`
are light, so that a short command starts fast.
"""
