"""A web server on this machine whose answers can be made as bad as those of the real ones."""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Serves files by name. `moods` says how: a list for each file, one mood per request.

    The last mood of a list stays; a file without moods is served as it should be. Moods:
    right, wrong (another content of the same size), short (breaks off halfway),
    no-range (ignores Range), cut (no-range and short), unsized (no Content-Length),
    silent (stops halfway, and stays), redirect (to /else/FILE), file (to file:///else/FILE),
    404, ...
    """

    daemon_threads = True

    def __init__(
        self, files: Mapping[str, bytes], moods: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = dict(files)
        self.moods = {name: list(each) for name, each in (moods or {}).items()}
        self.seen: list[tuple[str, str | None]] = []  # path and Range of each request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def mood(self, name: str) -> str:
        left = self.moods.get(name, ["right"])
        return left.pop(0) if len(left) > 1 else left[0]


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path, byte_range = self.path, self.headers.get("Range")
        self.server.seen.append((path, byte_range))
        name = path.rsplit("/", 1)[-1]
        mood = "right" if path.startswith("/else/") else self.server.mood(name)
        data = self.server.files.get(name)
        if data is None or mood.isdecimal():
            self._answer(404 if data is None else int(mood), {"Content-Length": "0"})
        elif mood in ("redirect", "file"):
            scheme = {"redirect": self.server.url, "file": "file://"}
            self._answer(302, {"Location": f"{scheme[mood]}/else/{name}", "Content-Length": "0"})
        else:
            self._send(data if mood != "wrong" else bytes(b ^ 1 for b in data), mood, byte_range)

    def _answer(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def _send(self, data: bytes, mood: str, byte_range: str | None) -> None:
        found = re.fullmatch(r"bytes=(\d+)-", byte_range or "")
        start = int(found[1]) if found and mood not in ("no-range", "cut", "unsized") else 0
        if start and start >= len(data):
            self._answer(416, {"Content-Length": "0"})
            return
        rest = data[start:]
        headers = {} if mood == "unsized" else {"Content-Length": str(len(rest))}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._answer(206 if start else 200, headers)
        try:
            if mood in ("short", "cut", "silent"):
                self.wfile.write(rest[: len(rest) // 2])
                self.wfile.flush()
                if mood == "silent":
                    time.sleep(5)
                self.close_connection = True
            else:
                self.wfile.write(rest)
        except ConnectionError:
            pass

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: stderr belongs to the command under test."""


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Run a server in a thread."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
