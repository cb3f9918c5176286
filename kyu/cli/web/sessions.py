"""
The logins of the web page. A session holds the credentials of one visitor; every request to the API is made with them.

Sessions are kept in memory: a restart of the page asks for a new login.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kyu.kube.blocking import BlockingClient
from kyu.kube.kubeconfig import Credentials

LIFETIME_SECONDS = 12 * 3600.0
CODE_SECONDS = 120.0
MOST_SESSIONS = 1000


@dataclass(slots=True)
class Session:
    """The login of one visitor."""

    credentials: Credentials
    user: str
    id: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used_at: float = 0.0

    def client(self) -> BlockingClient:
        """Return a client with the visitor's own rights. Each request of the browser has one of its own."""
        return BlockingClient(self.credentials, manager="kyu-web")


class Sessions:
    """The sessions and one-time codes of a page."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._codes: dict[str, tuple[Session, float]] = {}

    def add(self, session: Session) -> Session:
        """Keep a session. The one that was not used for the longest time makes room."""
        with self._lock:
            session.used_at = self._clock()
            while len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[min(self._sessions.values(), key=lambda each: each.used_at).id]
            self._sessions[session.id] = session
        return session

    def find(self, identifier: str) -> Session | None:
        """Return the session of a cookie, unless it has ended."""
        with self._lock:
            session = self._sessions.get(identifier)
            now = self._clock()
            if session is None:
                return None
            if now - session.used_at > LIFETIME_SECONDS:
                del self._sessions[identifier]
                return None
            session.used_at = now
            return session

    def remove(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)

    def make_code(self, session: Session) -> str:
        """Return a code that logs in once, for a short time."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._codes[code] = session, self._clock() + CODE_SECONDS
        return code

    def redeem(self, code: str) -> Session | None:
        """Return a new session for a code. A code works once."""
        with self._lock:
            found, ends = self._codes.pop(code, (None, 0.0))
        if found is None or self._clock() > ends:
            return None
        return self.add(Session(found.credentials, found.user))


def with_token(server: Credentials, token: str, namespace: str) -> Credentials:
    """Return credentials for the same server with another token, and none of the rights of the page itself."""
    return replace(
        server,
        token=token,
        token_file=None,
        plugin=None,
        certificate=b"",
        key=b"",
        user="",
        namespace=namespace or "default",
    )
