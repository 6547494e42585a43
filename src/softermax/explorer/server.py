"""The explorer's HTTP server, of the standard library.

It listens on a loopback address unless told otherwise, and answers only requests that name it by an
address or by a name of its own: a page elsewhere whose name is made to point here (DNS rebinding) is
refused, and so is a request that another site's page sends.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from softermax.explorer.compute import Impossible, RequestError, compute, read_spec
from softermax.explorer.silicon import figures
from softermax.explorer.verilog import verilog
from softermax.spec import PRESETS

MAX_BODY = 64 * 1024
_DISCARDED = 16 * MAX_BODY

_STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/steps.js": ("steps.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Explorer(ThreadingHTTPServer):
    """Serves the page on ``host``; port 0 takes any free one."""

    daemon_threads = True

    def __init__(self, host: str = "127.0.0.1", port: int = 0, allow_remote: bool = False) -> None:
        if not allow_remote and not is_loopback(host):
            raise ValueError(
                f"host {host!r} can be reached from other machines: must be 127.0.0.1, ::1 or localhost, "
                "or any address with --allow-remote"
            )
        if not 0 <= port <= 65535:
            raise ValueError(f"port {port}: must be 0 (any free one) to 65535")
        self.host = host
        self.names = {"localhost", host.lower()} | ({socket.gethostname().lower()} if allow_remote else set())
        self.any_address = allow_remote
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise OSError(
                f"cannot listen on port {port} of {host}: {error}; --port 0 takes a free one"
            ) from None
        compute({"scores": [0]})  # makes the tables of the first page

    @property
    def url(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.server_port}/"

    def answers_to(self, authority: str) -> bool:
        """Whether a Host header names this server. A rebound name is no address and not ours."""
        try:
            name = urlsplit(f"//{authority}").hostname or ""
        except ValueError:
            return False
        return name in self.names or is_loopback(name) or (self.any_address and _address(name) is not None)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host's address."""
    address = _address(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


@lru_cache(maxsize=len(_STATIC))
def _static(name: str) -> bytes:
    return files("softermax.explorer").joinpath("static", name).read_bytes()


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field = status, field


def _compute(request: dict[str, Any]) -> dict[str, Any]:
    return compute(request) | {"silicon": figures(read_spec(request))}


def _verilog(request: dict[str, Any]) -> dict[str, Any]:
    name, text = verilog(read_spec(request), request.get("unit", "top"))
    return {"name": name, "text": text}


_API: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "/api/compute": _compute,
    "/api/verilog": _verilog,
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "softermax"
    sys_version = ""
    timeout = 30
    # Headers and body leave together, and no reply waits for the acknowledgement of the one before.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: Explorer
    body_read = False

    def do_GET(self) -> None:
        self._answer(self._get)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, answer: Callable[[], tuple[bytes, str]]) -> None:
        self.body_read = False
        try:
            self._check_sender()
            body, kind = answer()
            status = HTTPStatus.OK
        except _Refused as refused:
            status, kind = refused.status, "application/json"
            body = json.dumps({"error": str(refused), "field": refused.field}).encode()
            self._discard_body()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "POST" if self.path in _API else "GET, HEAD")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _discard_body(self) -> None:
        """Read what a refused request still sends, within reason: a connection that is closed with
        bytes unread takes the reply down with it."""
        self.close_connection = True
        if not self.body_read:
            length = self.headers.get("Content-Length", "0")
            left = min(int(length), _DISCARDED) if length.isascii() and length.isdigit() else 0
            while left > 0 and (part := self.rfile.read(min(left, MAX_BODY))):
                left -= len(part)

    def _check_sender(self) -> None:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not self.server.answers_to(hosts[0]):
            raise _Refused(HTTPStatus.FORBIDDEN, f"Host {', '.join(hosts)!r} is not this server")
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != hosts[0]:
            raise _Refused(HTTPStatus.FORBIDDEN, f"a page of {origin!r} may not ask this server")

    def _get(self) -> tuple[bytes, str]:
        path = urlsplit(self.path).path
        if path in _STATIC:
            name, kind = _STATIC[path]
            return _static(name), kind
        if path == "/api/presets":
            presets = {name: spec.to_dict() for name, spec in PRESETS.items()}
            return json.dumps(presets).encode(), "application/json"
        if path in _API:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes POST")
        raise _Refused(HTTPStatus.NOT_FOUND, f"no such page: {path}")

    def _post(self) -> tuple[bytes, str]:
        if self.path not in _API:
            if self.path in _STATIC or self.path == "/api/presets":
                raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{self.path} takes GET")
            raise _Refused(HTTPStatus.NOT_FOUND, f"no such page: {self.path}")
        request = self._read_request()
        try:
            answer = _API[self.path](request)
        except Impossible as error:
            # An answer, not a fault of the request: the page asks it at every step of a slider.
            answer = {"error": str(error), "field": error.field}
        except RequestError as error:
            raise _Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), error.field) from None
        return json.dumps(answer, allow_nan=False).encode(), "application/json"

    def _read_request(self) -> dict[str, Any]:
        kind = self.headers.get_content_type()
        if kind != "application/json":
            raise _Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type {kind}: must be application/json"
            )
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a request needs a Content-Length")
        if len(length) > 10 or int(length) > MAX_BODY:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a request of {length} bytes: must be at most {MAX_BODY}",
            )
        self.body_read = True
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise _Refused(HTTPStatus.BAD_REQUEST, f"{len(body)} bytes of {length} arrived")
        try:
            request = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"not JSON: {error}") from None
        if not isinstance(request, dict):
            raise _Refused(
                HTTPStatus.BAD_REQUEST, f"a request is a JSON object, got {type(request).__name__}"
            )
        return request

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the page asks at every move of a slider."""


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
