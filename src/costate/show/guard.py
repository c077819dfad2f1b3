"""A web server that answers only those who may ask: requests under another host's name get nothing.

A page of somebody else in the same browser can make its own name point to this machine (DNS rebinding), and then speak to a server on it. The name
gives it away, in the Host header of every request and in the Origin header of the connection that a page opens.
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


def may_ask(host: str, request_host: str | None, origin: str | None) -> bool:
    """Whether a request for ``request_host``, from a page of ``origin``, is meant for a server on ``host``.

    An address of numbers cannot be made to point elsewhere; a name can, so it must be the one that was asked for, or this machine's own.
    """
    if request_host is None or not _is_ours(host, _name(request_host)):
        return False
    # The port too: another server on this machine has the same name.
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
    """A host without its port."""
    return (urllib.parse.urlsplit(f"//{netloc}").hostname or "").lower()


def start_server(host: str, port: int, label: str) -> viser.ViserServer:
    """A server of pages on ``port``, or on the next one that is free."""

    def allowed(request: Request) -> bool:
        return may_ask(host, request.headers.get("Host"), request.headers.get("Origin"))

    # It would print a table of addresses, of which one is enough.
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
    """Have servers of viser that start meanwhile refuse every request that is not ``allowed``.

    viser has no setting for it, but it looks `serve` up in the name `websockets` of its own module. Only that name is
    exchanged, so that other servers in this process start as ever.
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
    """Start a server as `websockets.asyncio.server.serve` does, which asks ``allowed`` before it answers."""

    @functools.wraps(process_request)
    def answer(connection: Any, request: Request) -> Response | None:
        if not allowed(request):
            return Response(http.HTTPStatus.FORBIDDEN, "FORBIDDEN", Headers({"Content-Length": "0"}))
        return process_request(connection, request)

    # Browsers open connections that they never use, which is no error to be told of.
    return websockets.asyncio.server.serve(*args, process_request=answer, logger=_silent(), **settings)
