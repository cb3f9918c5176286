"""
The web server of the page: from a request of a browser to a page, with the rights of the visitor.

Nothing is cached, and nothing is asked for with any rights but the visitor's own. A change needs the secret of the
session in its form. Names of other hosts are refused, so that no other site can reach the page through its own name.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from socket import socket
from threading import BoundedSemaphore
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from kyu import log
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Kind
from kyu.cli.connection import ServerConnection
from kyu.cli.web import routes
from kyu.cli.web.html import tag
from kyu.cli.web.pages import usage
from kyu.cli.web.pages.layout import LINKS, page
from kyu.cli.web.sessions import LIFETIME_SECONDS, Session, Sessions, with_token
from kyu.kube.blocking import BlockingClient, Unreachable
from kyu.kube.errors import ApiError, Forbidden, NotFound
from kyu.kube.kubeconfig import Credentials

# A connection, or a datagram with its socket, as socketserver hands it over.
ClientSocket: TypeAlias = socket | tuple[bytes, socket]
COOKIE = "kyu_session"
SELF_REVIEW = Kind("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
CSV_HEADERS = {"Content-Disposition": 'attachment; filename="usage.csv"'}
STATIC = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
MOST_FORM_BYTES = 16 * 1024
IDLE_SECONDS = 30.0
MOST_THREADS = 256
MOST_STREAMS = 128
POLL_SECONDS = 1.0
STREAM_SECONDS = 600.0


class WebSite(ThreadingHTTPServer):
    """The page of one API server. ``hosts`` are the names under which browsers may ask for it."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], server: Credentials, hosts: tuple[str, ...], *, secure: bool) -> None:
        super().__init__(address, Visit)
        self.api = server
        self.hosts = {f"{host}:{self.server_port}" for host in hosts} | (set(hosts) if secure else set())
        self.secure = secure
        self.sessions = Sessions()
        self.streams = BoundedSemaphore(MOST_STREAMS)
        self.threads = BoundedSemaphore(MOST_THREADS)

    def process_request(self, request: ClientSocket, client_address: Any) -> None:
        """Answer in a thread of its own. Beyond the bound, the connection is closed."""
        if not self.threads.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: ClientSocket, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.threads.release()

    def log_in(self, token: str, namespace: str) -> Session:
        """Return a session for a token. Raise an ApiError if the API server does not know it."""
        credentials = with_token(self.api, token, namespace)
        return self.sessions.add(Session(credentials, user_name(BlockingClient(credentials))))


def user_name(client: BlockingClient) -> str:
    """Return the name of the user that the API server sees."""
    body = {"apiVersion": SELF_REVIEW.api_version, "kind": SELF_REVIEW.kind, "metadata": {}}
    answer = client.create(SELF_REVIEW, body)
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username", ""))


class Visit(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: WebSite
    protocol_version = "HTTP/1.1"
    server_version = "kyu"
    sys_version = ""
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the terminal quiet: the API server has the audit log."""

    def _answer(self, handle: Callable[[], None]) -> None:
        if self.headers.get("Host", "") not in self.server.hosts:
            self._send_error(HTTPStatus.MISDIRECTED_REQUEST, "This page is not served under that name.")
            return
        try:
            self._handle_errors(handle)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    def _handle_errors(self, handle: Callable[[], None]) -> None:
        """Answer errors with a page that says what to do."""
        try:
            handle()
        except NotFound:
            self._send_error(HTTPStatus.NOT_FOUND, "This object does not exist. It may have been deleted.")
        except Forbidden as error:
            self._send_error(HTTPStatus.FORBIDDEN, f"You may not see this: {error}")
        except (ApiError, Unreachable) as error:
            self._send_error(HTTPStatus.BAD_GATEWAY, f"The API server answered: {error}")
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            raise
        except Exception as error:
            log.warning("a page failed", path=self.path, error=repr(error))
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "The page could not be made. The terminal says why.")

    # Reading

    def _get(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path.startswith("/static/"):
            self._send_static(url.path.removeprefix("/static/"))
            return
        if url.path == "/login":
            self._get_login(query.get("code", ""))
            return
        session = self._session()
        if session is None:
            self._redirect("/login")
        elif url.path == "/events":
            self._stream(session)
        else:
            self._send_page(session, url.path, query)

    def _send_page(self, session: Session, path: str, query: Mapping[str, str]) -> None:
        server = ServerConnection(session.client(), session.credentials.namespace, session.credentials.server)
        found = routes.PAGES.get(path)
        try:
            if path == "/usage.csv":
                body = usage.as_csv(server, query).encode()
                self._send(HTTPStatus.OK, body, "text/csv; charset=utf-8", CSV_HEADERS)
                return
            if found is not None:
                content = found.content(server, query)
            else:
                content = routes.object_page(server, session, words_of(path))
        finally:
            server.client.close()
        title = LINKS.get(path, path.rpartition("/")[2])
        is_live = found is None or found.is_live
        self._send_html(page(title, session, *content, current=path, is_live=is_live))

    def _stream(self, session: Session) -> None:
        """Tell the browser when something changed, at most once a second, until it goes or the stream is old."""
        if not self.server.streams.acquire(blocking=False):
            self._send_error(HTTPStatus.SERVICE_UNAVAILABLE, "Too many pages are open.")
            return
        client = session.client()
        try:
            self.send_response(HTTPStatus.OK)
            self._headers({"Content-Type": "text/event-stream", "Connection": "close"})
            self.end_headers()
            self.close_connection = True
            ends, last = time.monotonic() + STREAM_SECONDS, ""
            while time.monotonic() < ends and self.server.sessions.find(session.id) is session:
                version = current_version(client, session.credentials.namespace)
                self.wfile.write(b": still here\n\n" if version == last else b"event: change\ndata: 1\n\n")
                self.wfile.flush()
                last = version
                time.sleep(POLL_SECONDS)
        finally:
            client.close()
            self.server.streams.release()

    # Logging in and out, and changes

    def _get_login(self, code: str) -> None:
        session = self.server.sessions.redeem(code) if code else None
        if session is not None:
            self._redirect("/", cookie=self._cookie(session.id, LIFETIME_SECONDS))
        else:
            self._send_html(login_page("This link was used or is too old." if code else ""))

    def _post(self) -> None:
        form = self._read_form()
        if form is None:
            return
        path = urlsplit(self.path).path
        if path == "/login":
            self._post_login(form)
            return
        session = self._session()
        if session is None:
            self._redirect("/login")
        elif not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf.encode()):
            self._send_error(HTTPStatus.FORBIDDEN, "This form is out of date. Go back and load the page again.")
        elif path == "/logout":
            self.server.sessions.remove(session)
            self._redirect("/login", cookie=self._cookie("", 0))
        else:
            self._change(session, words_of(path))

    def _post_login(self, form: Mapping[str, str]) -> None:
        try:
            session = self.server.log_in(form.get("token", "").strip(), form.get("namespace", "").strip())
        except ApiError:
            self._send_html(login_page("The API server does not accept this token."), HTTPStatus.UNAUTHORIZED)
            return
        self._redirect("/", cookie=self._cookie(session.id, LIFETIME_SECONDS))

    def _change(self, session: Session, words: list[str]) -> None:
        client = session.client()
        try:
            target = routes.change(client, words)
        finally:
            client.close()
        self._redirect(target)

    def _read_form(self) -> dict[str, str] | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_FORM_BYTES:
            self.close_connection = True
            self._send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large.")
            return None
        body = self.rfile.read(int(length)).decode(errors="replace")
        return {name: values[0] for name, values in parse_qs(body, keep_blank_values=True).items()}

    # Answers

    def _session(self) -> Session | None:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return None
        return self.server.sessions.find(cookie.value) if cookie else None

    def _cookie(self, value: str, seconds: float) -> str:
        secure = "; Secure" if self.server.secure else ""
        return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={int(seconds)}{secure}"

    def _headers(self, more: Mapping[str, str]) -> None:
        for name, value in {**SECURITY_HEADERS, **more}.items():
            self.send_header(name, value)

    def _send(self, status: HTTPStatus, body: bytes, content_type: str, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self._headers({"Content-Type": content_type, "Content-Length": str(len(body)), **(more or {})})
        self.end_headers()
        self.wfile.write(body)

    def _send_html(self, text: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = text.encode()
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if status == HTTPStatus.OK and self.headers.get("If-None-Match") == etag:
            self._send(HTTPStatus.NOT_MODIFIED, b"", "text/html; charset=utf-8", {"ETag": etag})
            return
        self._send(status, body, "text/html; charset=utf-8", {"ETag": etag})

    def _send_error(self, status: HTTPStatus, text: str) -> None:
        back = tag("p", tag("a", "Back to the start", href="/"))
        self._send_html(page(status.phrase, None, tag("h1", status.phrase), tag("p", text), back), status)

    def _send_static(self, name: str) -> None:
        if name not in STATIC:
            raise NotFound(404, "NotFound", "there is no such file")
        body = resources.files("kyu.cli.web").joinpath("static", name).read_bytes()
        self._send(HTTPStatus.OK, body, f"{STATIC[name]}; charset=utf-8", {"Cache-Control": "max-age=300"})

    def _redirect(self, path: str, cookie: str = "") -> None:
        self._send(
            HTTPStatus.SEE_OTHER, b"", "text/plain", {"Location": path, **({"Set-Cookie": cookie} if cookie else {})}
        )


def words_of(path: str) -> list[str]:
    """Return the words of a path."""
    return [unquote(word) for word in path.split("/")[1:]]


def login_page(trouble: str) -> str:
    """Return the form that asks for a token."""
    form = tag(
        "form",
        tag("h1", "Log in to Kyu"),
        tag("p", trouble, class_="bad", role="alert") if trouble else None,
        tag("label", "Token", tag("input", type="password", name="token", required=True, autocomplete="off")),
        tag("label", "Namespace", tag("input", type="text", name="namespace", placeholder="default")),
        tag("button", "Log in"),
        tag("p", "Your kubeconfig has the token. ", tag("code", "kyu open"), " logs you in without one."),
        method="post",
        action="/login",
        class_="login card",
    )
    return page("Log in", None, form)


def current_version(client: BlockingClient, namespace: str) -> str:
    """Return a version that changes with every change of a Workload that the visitor may see."""
    try:
        return list_version(client, None)
    except Forbidden:
        return list_version(client, namespace)


def list_version(client: BlockingClient, namespace: str | None) -> str:
    path = f"/apis/{Workload.KIND.api_version}" + (f"/namespaces/{namespace}" if namespace else "") + "/workloads"
    found: Json = json.loads(client.raw(path, {"limit": "1"}))
    return str((found.get("metadata") or {}).get("resourceVersion", ""))
