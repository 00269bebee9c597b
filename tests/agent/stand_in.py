"""An engine for tests of what real ones seldom do. It takes llama-server's flags, and `--do WHAT`:

serve (default) · load (answers 503 for ever) · exit N · mute (never answers) · stubborn (ignores SIGTERM) · child
(leaves a process behind) · busy (says that a request is in work, until the file next to its key is there)
"""

import os
import signal
import subprocess
import sys

FLAGS = "-m -a --host --port --api-key-file -c -np -t --metrics -fit -ngl -cram --do --mark"


def value(*names: str) -> str:
    for name, word in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        if name in names:
            return word
    return ""


def main() -> None:
    if "--version" in sys.argv:
        print("version: 4711 (0123abc)", file=sys.stderr)
        return
    if "--help" in sys.argv:
        print(FLAGS)
        return
    print("stand-in: starting", flush=True)
    what, _, detail = value("--do").partition(":")
    if what == "exit":
        print(f"stand-in: I end with {detail}", flush=True)
        sys.exit(int(detail))
    if what == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what in ("child", "stubborn"):
        subprocess.Popen(["/bin/sleep", "1000"])
    if what == "mute":
        signal.pause()
    serve(what)


def serve(what: str) -> None:
    import http.server  # not above: most runs only answer `--version` and `--help`

    with open(value("--api-key-file")) as file:
        key = file.read().strip()
    done = value("--api-key-file") + ".done"

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/health":
                self.say(503 if what == "load" else 200)
            elif self.headers["Authorization"] != f"Bearer {key}":
                self.say(401)
            elif self.path == "/metrics":
                busy = what == "busy" and not os.path.exists(done)
                self.say(200, f"llamacpp:requests_processing {int(busy)}\nllamacpp:requests_deferred 0\n")
            else:
                self.say(200)

        def say(self, status: int, body: str = "") -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *words: object) -> None:
            pass

    http.server.ThreadingHTTPServer((value("--host"), int(value("--port"))), Answers).serve_forever()


main()
