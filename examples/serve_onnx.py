"""Serve a trained policy over HTTP with ONNX Runtime: no JAX, no oht, no env.

    oht export runs/pendulum policy.onnx --best
    pip install onnxruntime
    python examples/serve_onnx.py policy.onnx 8000
    curl -d '{"obs": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]]}' http://127.0.0.1:8000

A request is a JSON object with a batch for each input of the model: `obs`, or the parts of a Dict observation by their
names. The answer holds one action for each row, in the env's own range.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


class Policy:
    """An exported policy: a batch of observations in, a batch of actions out."""

    def __init__(self, path: str | Path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.names = [given.name for given in self.session.get_inputs()]

    def __call__(self, observations: dict[str, Any]) -> np.ndarray:
        inputs = {name: np.asarray(observations[name], np.float32) for name in self.names}
        (actions,) = self.session.run(["action"], inputs)
        return np.asarray(actions)


def server(policy: Policy, port: int = 0) -> ThreadingHTTPServer:
    """A server on this machine; port 0 is any free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = 200, {"action": policy(json.loads(text)).tolist()}
            except Exception as error:  # whatever was sent, the server goes on
                status, answer = 400, {"error": f"{type(error).__name__}: {error}", "inputs": policy.names}
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing for each request."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    with server(Policy(sys.argv[1]), int(sys.argv[2])) as http:
        print(f"http://127.0.0.1:{http.server_port}")
        http.serve_forever()
