"""The explorer's HTTP server, of the standard library.

It listens on a loopback address unless told otherwise, and answers only requests that name it by an
address or by a name of its own: a page elsewhere whose name is made to point here (DNS rebinding) is
refused, and so is a request that another site's page sends.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from softermax.explorer import rivals
from softermax.explorer.compute import compute
from softermax.explorer.request import RequestError, read_spec, require_only
from softermax.explorer.silicon import figures
from softermax.explorer.verilog import verilog
from softermax.spec import DEFERRED, PRESETS, DeferredSpec

MAX_BODY = 64 * 1024
_DISCARDED = 16 * MAX_BODY

_STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
    "/state.js": ("state.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/front.js": ("front.js", "text/javascript; charset=utf-8"),
    "/steps.js": ("steps.js", "text/javascript; charset=utf-8"),
    "/rivals.js": ("rivals.js", "text/javascript; charset=utf-8"),
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
    request_queue_size = 128
    """Connections that wait to be accepted; the system resets those beyond."""
    max_connections = 64
    """Connections that are served at a time, a thread each; others wait."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        allow_remote: bool = False,
        front: Sequence[Mapping[str, Any]] = (),
        built: Sequence[Mapping[str, Any]] = (),
    ) -> None:
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
        self.front = front
        """Points of a search, as the page shows them."""
        self.built = built
        """Whole softmaxes in silicon, rivals' and ours, as points of the same form."""
        self._free = threading.BoundedSemaphore(self.max_connections)
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

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves before the answer is no fault."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


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
    # The report shows a front by the same script.
    room = "softermax.search" if name == "front.js" else "softermax.explorer"
    return files(room).joinpath("static", name).read_bytes()


# What the page asks. Each takes the request's JSON object, and answers with one.


def _compute(request: dict[str, Any]) -> dict[str, Any]:
    return compute(request) | {"silicon": figures(read_spec(request))}


def _spec(request: dict[str, Any]) -> dict[str, Any]:
    require_only(request, "spec")
    return {"spec": read_spec(request).to_dict()}


def _verilog(request: dict[str, Any]) -> dict[str, Any]:
    require_only(request, "spec", "unit")
    name, text = verilog(read_spec(request), request.get("unit", "top"))
    return {"name": name, "text": text}


def _presets(_: dict[str, Any]) -> dict[str, Any]:
    """By name, and with deferred normalisation those whose own normalisation that changes."""
    deferred = {
        name + DEFERRED: DeferredSpec(scores=spec)
        for name, spec in PRESETS.items()
        if spec.output_mode == "fixed"
    }
    return {name: spec.to_dict() for name, spec in (PRESETS | deferred).items()}


def _of_the_server(_: dict[str, Any]) -> dict[str, Any]:
    """Answered by the handler, which knows its server."""
    return {}


_FRONT, _RIVALS = "/api/front", "/api/rivals"
_API: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "/api/presets": ("GET", _presets),
    _FRONT: ("GET", _of_the_server),
    "/api/spec": ("POST", _spec),
    "/api/compute": ("POST", _compute),
    "/api/verilog": ("POST", _verilog),
    _RIVALS: ("GET", _of_the_server),
    "/api/rival": ("POST", rivals.rival_steps),
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
        self._reply()

    do_HEAD = do_POST = do_GET

    def _reply(self) -> None:
        """Answer, or say what is wrong: the one place where errors become replies."""
        self.body_read = False
        status, kind = HTTPStatus.OK, "application/json"
        try:
            self._check_sender()
            body, kind = self._answer()
        except RequestError as error:
            status, body = error.status, _json({"error": str(error), "field": error.field})
        except (ConnectionError, TimeoutError):
            raise  # Nobody is there to read an answer.
        except Exception as error:
            traceback.print_exc()
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            body = _json({"error": f"a fault of the explorer: {error}", "field": None})
        if status != HTTPStatus.OK:
            self._discard_body()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", self._methods())
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
            raise RequestError(f"Host {', '.join(hosts)!r} is not this server", status=HTTPStatus.FORBIDDEN)
        origin = self.headers.get("Origin")
        if origin is not None and _authority(origin) != hosts[0]:
            raise RequestError(f"a page of {origin!r} may not ask this server", status=HTTPStatus.FORBIDDEN)

    @property
    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _methods(self) -> str:
        """What the path takes, as the header Allow has it; nothing where there is no such path."""
        if self._path in _API:
            return "POST" if _API[self._path][0] == "POST" else "GET, HEAD"
        return "GET, HEAD" if self._path in _STATIC else ""

    def _answer(self) -> tuple[bytes, str]:
        """The body of a reply and its type."""
        methods = self._methods()
        if not methods:
            raise RequestError(f"no such page: {self._path}", status=HTTPStatus.NOT_FOUND)
        if self.command not in methods.split(", "):
            raise RequestError(f"{self._path} takes {methods}", status=HTTPStatus.METHOD_NOT_ALLOWED)
        if self._path in _STATIC:
            name, kind = _STATIC[self._path]
            return _static(name), kind
        method, answer = _API[self._path]
        if self._path == _FRONT:
            return _json({"points": list(self.server.front)}), "application/json"
        if self._path == _RIVALS:
            return _json({"names": rivals.names(), "points": list(self.server.built)}), "application/json"
        return _json(answer(self._read_request() if method == "POST" else {})), "application/json"

    def _read_request(self) -> dict[str, Any]:
        kind = self.headers.get_content_type()
        if kind != "application/json":
            raise RequestError(
                f"Content-Type {kind}: must be application/json", status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE
            )
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise RequestError("a request needs a Content-Length", status=HTTPStatus.LENGTH_REQUIRED)
        if len(length) > 10 or int(length) > MAX_BODY:
            raise RequestError(
                f"a request of {length} bytes: must be at most {MAX_BODY}",
                status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        self.body_read = True
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise RequestError(f"{len(body)} bytes of {length} arrived", status=HTTPStatus.BAD_REQUEST)
        try:
            request = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"not JSON: {error}", status=HTTPStatus.BAD_REQUEST) from None
        if not isinstance(request, dict):
            raise RequestError(
                f"a request is a JSON object, got {type(request).__name__}", status=HTTPStatus.BAD_REQUEST
            )
        return request

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the page asks at every move of a slider."""


def _authority(origin: str) -> str | None:
    """Host and port of an Origin header; None where it cannot be read."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _json(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, allow_nan=False).encode()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
