"""The live page of `oht watch`: a small web server, on this machine only, over the runs below a folder.

Python reads the runs and makes the figures; the page in web/ asks for them every two seconds and draws them with
plotly.js, which comes with Plotly's Python package. Nothing is loaded from the network. A server of the standard
library is enough for four questions; Dash would bring 17 more packages, Flask and pydantic among them.
"""

import importlib.util
import json
import socketserver
import threading
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from oht.errors import UserError
from oht.report import return_pictures, rundata, runnames, tuning_pictures
from oht.report.rundata import RunData

HOST = "127.0.0.1"
WEB = Path(__file__).parent / "web"
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "/watch.js": ("watch.js", "text/javascript; charset=utf-8"),
}
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'"


@cache
def plotly_js() -> bytes:
    """The JavaScript of Plotly; its Python part, which takes 0.3 s to import, is not needed."""
    spec = importlib.util.find_spec("plotly")
    for place in (spec and spec.submodule_search_locations) or ():
        path = Path(place) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path.read_bytes()
    raise UserError("Plotly, which draws the figures, is not installed; it is an extra: pip install 'oht[watch]'")


class Watch:
    """What the page may ask for; the answers are what JSON can hold."""

    def __init__(self, root: Path):
        self.folder = rundata.Folder(root)
        self._lock = threading.Lock()  # the caches of the folder are not made for threads
        self._answers: dict[str, Callable[..., Any]] = {
            "/api/runs": self.runs,
            "/api/returns": self.returns,
            "/api/tuning": self.tuning,
            "/api/config": self.config,
        }
        self._known: dict[str, RunData] = {}
        self._labels: dict[str, str] = {}

    def answer(self, path: str, query: dict[str, str]) -> Any:
        if path not in self._answers:
            raise UserError(f"there is nothing at {path}.")
        with self._lock:
            return self._answers[path](**query)

    def runs(self) -> dict[str, Any]:
        """The table of runs; reads the folder anew, the other answers are about what was read here."""
        found = self.folder.runs()
        self._known, self._labels = {run.id: run for run in found}, runnames.labels(found)
        rows = [runnames.summary(run, self._labels[run.id]) for run in found]
        return {"root": str(self.folder.root), "runs": rows, "problems": self.folder.problems}

    def returns(self, runs: str, by: str = "steps", each: str = "0") -> list[dict[str, Any]]:
        chosen = [self._run(id) for id in runs.split(",")]
        drawn = return_pictures.returns(chosen, self._labels, "time" if by == "time" else "steps", each == "1")
        return [figure.as_json() for figure in drawn]

    def tuning(self, run: str) -> dict[str, Any]:
        found = self._run(run)
        figures = [figure.as_json() for figure in tuning_pictures.tuning(found)]
        return {"note": tuning_pictures.tuning_note(found), "figures": figures}

    def config(self, run: str, other: str = "") -> dict[str, Any]:
        chosen = [self._run(id) for id in (run, other) if id]
        columns = [f"{self._labels[each.id]}, seed {each.seed} ({each.name})" for each in chosen]
        return {"columns": columns, "rows": [row._asdict() for row in runnames.side_by_side(chosen)]}

    def _run(self, id: str) -> RunData:
        if not self._known:
            self.runs()
        if id not in self._known:
            raise UserError("this run is no longer there.")
        return self._known[id]


class _Handler(BaseHTTPRequestHandler):
    server: "Server"  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if (self.headers.get("Host") or "").rsplit(":", 1)[0] not in (HOST, "localhost"):
            return self._send(HTTPStatus.FORBIDDEN, b"only for this machine", "text/plain")  # a page from elsewhere
        address = urlsplit(self.path)
        if address.path == "/plotly.js":
            return self._send(HTTPStatus.OK, plotly_js(), "text/javascript; charset=utf-8", "max-age=86400")
        if address.path in FILES:
            name, kind = FILES[address.path]
            return self._send(HTTPStatus.OK, (WEB / name).read_bytes(), kind)
        query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        try:
            status, content = HTTPStatus.OK, self.server.watch.answer(address.path, query)
        except (UserError, TypeError) as error:  # TypeError: not the arguments that this address takes
            status, content = HTTPStatus.NOT_FOUND, {"error": str(error)}
        return self._send(status, json.dumps(content, allow_nan=False).encode(), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str, keep: str = "no-store") -> None:
        try:
            self.send_response(status)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(content))),
                ("Cache-Control", keep),
                ("Content-Security-Policy", POLICY),
                ("X-Content-Type-Options", "nosniff"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except ConnectionError:  # the page was closed meanwhile
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: requests come every two seconds."""


class Server(ThreadingHTTPServer):
    """Serves the page from its creation on; `serve_forever` answers until `shutdown` or Ctrl-C."""

    daemon_threads = True

    def __init__(self, root: Path, port: int = 0):
        """`port` 0: any that is free."""
        plotly_js()  # refuse before anything is shown
        self.watch = Watch(root)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise UserError(
                f"port {port} cannot be used ({error.strerror}); leave out --port to get a free one."
            ) from None

        threading.Thread(target=self.watch.answer, args=("/api/runs", {}), daemon=True).start()  # before it is asked

    def server_bind(self) -> None:
        """Without asking for the name of this machine, which takes seconds where there is no network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"
