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
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import viser
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
    """Servers that start meanwhile refuse every request that is not ``allowed``. viser has no setting for it, so its library is told."""
    serve = websockets.asyncio.server.serve

    def guarded(*args: Any, process_request: Callable[[Any, Request], Response | None], **settings: Any) -> Any:
        @functools.wraps(process_request)
        def answer(connection: Any, request: Request) -> Response | None:
            if not allowed(request):
                return Response(http.HTTPStatus.FORBIDDEN, "FORBIDDEN", Headers({"Content-Length": "0"}))
            return process_request(connection, request)

        # Browsers open connections that they never use, which is no error to be told of.
        return serve(*args, process_request=answer, logger=_silent(), **settings)

    websockets.asyncio.server.serve = guarded  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        websockets.asyncio.server.serve = serve  # type: ignore[misc]
