"""A web server that rejects requests that name another host or come from another site's page.

A malicious page in the same browser can make its own name point to this machine (DNS rebinding) and then talk
to a server on it. Its name shows in the Host header of every request, and in the Origin header of the
connection that a page opens.
"""

import contextlib
import functools
import http
import io
import ipaddress
import logging
import types
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import viser
import viser.infra._infra as viser_server
import websockets.asyncio.server
from websockets.datastructures import Headers
from websockets.http11 import Request, Response


def is_allowed(host: str, request_host: str | None, origin: str | None) -> bool:
    """Return whether a request for ``request_host`` from a page of ``origin`` may reach a server on ``host``.

    A numeric address cannot be made to point elsewhere. A name can, so it must be the requested host or a
    name of this machine.
    """
    if request_host is None or not _is_ours(host, _name(request_host)):
        return False
    # The port must match too, because other servers on this machine share the name.
    return origin is None or urllib.parse.urlsplit(origin).netloc.lower() == request_host.lower()


def _is_ours(host: str, name: str) -> bool:
    if name in ("localhost", host.lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _name(netloc: str) -> str:
    """Return a host without its port."""
    return (urllib.parse.urlsplit(f"//{netloc}").hostname or "").lower()


def start_server(host: str, port: int, label: str) -> viser.ViserServer:
    """Start a web server on ``port``, or on the next free one."""

    def allowed(request: Request) -> bool:
        return is_allowed(host, request.headers.get("Host"), request.headers.get("Origin"))

    # viser would print a table of addresses, but one address is enough.
    with _answering_only(allowed), contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host=host, port=port, label=label, verbose=False)
    return server


def _silent() -> logging.Logger:
    logger = logging.getLogger("costate.show.server")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


@contextlib.contextmanager
def _answering_only(allowed: Callable[[Request], bool]) -> Iterator[None]:
    """Make viser's servers that start meanwhile reject every request that is not ``allowed``.

    viser has no setting for this, but it looks up `serve` in the name `websockets` of its own module. Only
    that name is replaced, so that other servers in this process start as usual.
    """
    names = vars(viser_server)
    theirs = names["websockets"]
    names["websockets"] = _with_serve(theirs, functools.partial(_serve_guarded, allowed))
    try:
        yield
    finally:
        names["websockets"] = theirs


def _with_serve(package: Any, serve: Callable[..., Any]) -> Any:
    """Return a stand-in for the package `websockets` that starts servers by ``serve``."""
    server = types.SimpleNamespace(**vars(package.asyncio.server) | {"serve": serve})
    asyncio = types.SimpleNamespace(**vars(package.asyncio) | {"server": server})
    return types.SimpleNamespace(**vars(package) | {"asyncio": asyncio})


def _serve_guarded(
    allowed: Callable[[Request], bool],
    *args: Any,
    process_request: Callable[[Any, Request], Response | None],
    **settings: Any,
) -> Any:
    """Start a server like `websockets.asyncio.server.serve`, but ask ``allowed`` before answering."""

    @functools.wraps(process_request)
    def answer(connection: Any, request: Request) -> Response | None:
        if not allowed(request):
            return Response(http.HTTPStatus.FORBIDDEN, "FORBIDDEN", Headers({"Content-Length": "0"}))
        return process_request(connection, request)

    # Browsers open connections that they never use, which should not be logged as errors.
    return websockets.asyncio.server.serve(*args, process_request=answer, logger=_silent(), **settings)
