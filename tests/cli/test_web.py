"""The page of queues and jobs, asked for as a browser does: logins, rights, forms, and texts that look like HTML."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from kyu.api.core import Namespace
from kyu.api.kueue import LocalQueue
from kyu.api.workflows import Workflow
from kyu.cli.web import routes
from kyu.cli.web.html import render, table, tag
from kyu.cli.web.pages.layout import LINKS
from kyu.cli.web.sessions import CODE_SECONDS, LIFETIME_SECONDS, Session, Sessions
from kyu.cli.web.site import WebSite
from kyu.kube import kubeconfig
from kyu.kube.kubeconfig import Credentials
from tests.support.local_kyu import LocalKyu, local_kyu

MARKUP = "<script>alert(1)</script>"


class Browser:
    """A browser with one cookie."""

    def __init__(self, site: WebSite) -> None:
        self.site = site
        self.cookie = ""

    def ask(self, method: str, path: str, form: dict[str, str] | None = None, host: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.site.server_port, timeout=60)
        headers = {"Host": host or f"127.0.0.1:{self.site.server_port}", "Cookie": self.cookie}
        body = None if form is None else urlencode(form)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        if cookie := answer.getheader("Set-Cookie"):
            self.cookie = cookie.partition(";")[0]
        text = answer.read().decode()
        self.headers = answer.headers
        connection.close()
        return answer.status, text

    def get(self, path: str) -> str:
        status, text = self.ask("GET", path)
        assert status == 200, (path, status, text)
        return text

    def log_in(self, credentials: Credentials, namespace: str) -> None:
        status, _ = self.ask("POST", "/login", {"token": credentials.token, "namespace": namespace})
        assert status == 303

    def secret(self, path: str = "/") -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.get(path))
        assert found is not None
        return found[1]


@contextmanager
def served(credentials: Credentials) -> Iterator[WebSite]:
    with WebSite(("127.0.0.1", 0), credentials, ("127.0.0.1",), secure=False) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield site
        site.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu"), "--trust-users") as running:
        for team in ("red", "blue"):
            running.client.create(Namespace.KIND, {"metadata": {"name": team}})
            running.make_queue(team, "1")
            queue = {"metadata": {"name": "main", "namespace": team}, "spec": {"clusterQueue": team}}
            running.client.create(LocalQueue.KIND, queue)
        yield running


@pytest.fixture(scope="module")
def site(kyu: LocalKyu) -> Iterator[WebSite]:
    with served(kubeconfig.load(kyu.data / "kubeconfig")) as running:
        yield running


def user(kyu: LocalKyu, folder: Path, name: str, namespace: str) -> Credentials:
    path = folder / f"{name}.yaml"
    path.write_text(kyu.kyu("user", "add", name, "--namespace", namespace).stdout)
    return kubeconfig.load(path)


def test_the_pages_show_queues_jobs_reasons_and_output(kyu: LocalKyu, site: WebSite) -> None:
    kyu.submit("holder", "main", f"echo '{MARKUP}'; sleep 600", cpu="800m", namespace="red")
    kyu.wait_for("holder", "Running")
    kyu.submit("waiter", "main", "true", cpu="500m", namespace="red")
    workload = kyu.wait("waiter has its reason", lambda: why_known(kyu, "waiter"))
    browser = Browser(site)
    browser.log_in(site.api, "default")
    now = browser.get("/")
    assert "holder" in now
    assert "1 running, 1 waiting" in now
    assert "Queue red" in browser.get("/queues/red")
    assert "waiter" in browser.get("/jobs?state=Queued&q=red")
    assert "No job matches" in browser.get("/jobs?q=nothing-has-this-name")
    page = browser.get(f"/jobs/red/{workload}")
    assert "Why it waits" in page
    assert "red/holder" in page
    assert "would free enough" in page
    holder = kyu.workload("holder")
    assert holder is not None
    pods = browser.get(f"/jobs/red/{holder['metadata']['name']}")
    link = re.search(r'href="([^"]+/logs/[^"]+)"', pods)
    assert link is not None
    output = kyu.wait("the output", lambda: text if "alert" in (text := browser.get(link[1])) else None)
    assert MARKUP not in output
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in output


def why_known(kyu: LocalKyu, job: str) -> str:
    """Return the name of the job's Workload once its reason is written."""
    found = kyu.workload(job)
    conditions = ((found or {}).get("status") or {}).get("conditions") or ()
    known = any(c["type"] == "QuotaReserved" and "insufficient" in c["message"] for c in conditions)
    return str(found["metadata"]["name"]) if found and known else ""


def test_a_user_sees_the_own_namespace_only(kyu: LocalKyu, site: WebSite, tmp_path: Path) -> None:
    kyu.submit("covert", "main", "sleep 600", cpu="100m", namespace="blue")
    covert = kyu.wait_for("covert", "Running")["metadata"]["name"]
    browser = Browser(site)
    browser.log_in(user(kyu, tmp_path, "ruth", "red"), "red")
    now = browser.get("/")
    assert "ruth" in now
    assert "covert" not in now
    assert "covert" not in browser.get("/jobs?state=all")
    assert browser.ask("GET", f"/jobs/blue/{covert}")[0] == 403
    assert browser.ask("GET", "/queues/blue")[0] == 403
    assert browser.ask("POST", f"/jobs/blue/{covert}/cancel", {"csrf": browser.secret()})[0] == 403
    assert kyu.state("covert") == "Running"


def test_a_change_needs_the_secret_of_the_session(kyu: LocalKyu, site: WebSite) -> None:
    kyu.submit("doomed", "main", "sleep 600", cpu="100m", namespace="blue")
    path = f"/jobs/blue/{kyu.wait_for('doomed', 'Running')['metadata']['name']}"
    browser, other = Browser(site), Browser(site)
    for each in (browser, other):
        each.log_in(site.api, "default")
    assert browser.ask("POST", f"{path}/cancel", {})[0] == 403
    assert browser.ask("POST", f"{path}/cancel", {"csrf": other.secret()})[0] == 403
    assert kyu.state("doomed") == "Running"
    assert browser.ask("POST", f"{path}/cancel", {"csrf": browser.secret(path)})[0] == 303
    kyu.wait("doomed is gone", lambda: kyu.workload("doomed") is None)


def test_the_browser_hears_of_changes(kyu: LocalKyu, site: WebSite) -> None:
    browser = Browser(site)
    browser.log_in(site.api, "default")
    connection = http.client.HTTPConnection("127.0.0.1", site.server_port, timeout=60)
    connection.request("GET", "/events", headers={"Host": f"127.0.0.1:{site.server_port}", "Cookie": browser.cookie})
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == "text/event-stream"
    heard = iter(answer)
    next(line for line in heard if line == b"event: change\n")  # the state at the start
    next(line for line in heard if line == b": still here\n")
    kyu.submit("news", "main", "true", cpu="100m", namespace="red")
    next(line for line in heard if line == b"event: change\n")
    connection.close()


def test_a_link_logs_in_once(site: WebSite) -> None:
    code = site.sessions.make_code(Session(site.api, "admin"))
    first, second = Browser(site), Browser(site)
    assert first.ask("GET", f"/login?code={code}")[0] == 303
    first.get("/")
    assert "used or is too old" in second.get(f"/login?code={code}")
    assert first.ask("POST", "/logout", {"csrf": first.secret()})[0] == 303
    assert first.ask("GET", "/")[0] == 303


def test_strangers_get_nothing(site: WebSite) -> None:
    browser = Browser(site)
    assert browser.ask("GET", "/jobs")[0] == 303
    assert browser.ask("GET", "/events")[0] == 303
    assert browser.ask("POST", "/login", {"token": "wrong"})[0] == 401
    assert browser.ask("GET", "/login", host="evil.example:80")[0] == 421
    assert browser.ask("GET", "/static/../site.py")[0] == 404
    assert browser.ask("POST", "/login", {"token": "x" * 20_000})[0] == 413
    browser.get("/login")
    assert "script-src 'self'" in browser.headers["Content-Security-Policy"]


def test_sessions_and_codes_end() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    session = sessions.add(Session(Credentials("https://x"), "ana"))
    code = sessions.make_code(session)
    now[0] = CODE_SECONDS + 1
    assert sessions.redeem(code) is None
    assert sessions.find(session.id) is session
    now[0] += LIFETIME_SECONDS + 1
    assert sessions.find(session.id) is None


def test_texts_never_become_elements() -> None:
    assert render(tag("p", MARKUP, title='"><b>')) == (
        '<p title="&quot;&gt;&lt;b&gt;">&lt;script&gt;alert(1)&lt;/script&gt;</p>'
    )
    assert MARKUP not in render(table([MARKUP], [[MARKUP]], label=MARKUP))


WORKFLOW = {
    "metadata": {"name": "nightly", "namespace": "blue"},
    "spec": {
        "queue": "main",
        "steps": [
            {"name": "fetch", "cpu": "100m", "command": ["true"]},
            {"name": "train", "cpu": "100m", "after": ["fetch"], "command": ["sh", "-c", f"exit '{MARKUP}'"]},
        ],
    },
}


def test_the_page_of_a_workflow_shows_its_graph(kyu: LocalKyu, site: WebSite) -> None:
    kyu.client.create(Workflow.KIND, WORKFLOW)
    browser = Browser(site)
    browser.log_in(site.api, "default")
    kyu.wait("the first step is over", lambda: "✓ fetch" in browser.get("/workflows/blue/nightly"))
    assert 'href="/workflows/blue/nightly"' in browser.get("/workflows")
    page = browser.get("/workflows/blue/nightly")
    assert "<svg" in page
    assert MARKUP not in page
    assert browser.ask("GET", "/workflows/blue/none")[0] == 404


def test_usage_sums_up_what_teams_used(kyu: LocalKyu, site: WebSite, tmp_path: Path) -> None:
    kyu.submit("short", "main", "true", cpu="100m", namespace="red")
    kyu.wait_for("short", "Succeeded")
    browser, tenant = Browser(site), Browser(site)
    browser.log_in(site.api, "default")
    kyu.wait("the attempt is in the ledger", lambda: "red" in browser.get("/usage?by=team&since=24h"))
    assert browser.get("/usage.csv?by=user").startswith("user,jobs,attempts,cpu_hours")
    assert browser.headers["Content-Disposition"] == 'attachment; filename="usage.csv"'
    tenant.log_in(user(kyu, tmp_path, "bob", "blue"), "blue")
    assert "red" not in tenant.get("/usage?by=team&since=all").partition("<main")[2]


def test_a_held_job_is_released_again(kyu: LocalKyu, site: WebSite) -> None:
    kyu.submit("held", "main", "sleep 600", cpu="100m", namespace="blue")
    path = f"/jobs/blue/{kyu.wait_for('held', 'Running')['metadata']['name']}"
    browser = Browser(site)
    browser.log_in(site.api, "default")
    assert browser.ask("POST", f"{path}/hold", {"csrf": browser.secret(path)})[0] == 303
    kyu.wait("the job has stopped", lambda: kyu.state("held") != "Running")
    assert f'action="{path}/release"' in browser.get(path)
    assert browser.ask("POST", f"{path}/release", {"csrf": browser.secret(path)})[0] == 303
    kyu.wait_for("held", "Running")


def test_clusters_and_doctor_show_what_the_visitor_may_read(kyu: LocalKyu, site: WebSite, tmp_path: Path) -> None:
    browser, tenant = Browser(site), Browser(site)
    browser.log_in(site.api, "default")
    assert "You see no worker clusters" in browser.get("/clusters")
    assert "objects:" in browser.get("/doctor")
    tenant.log_in(user(kyu, tmp_path, "eve", "red"), "red")
    assert "You see no pools" in tenant.get("/clusters")
    assert "An administrator may" in tenant.get("/doctor")


def test_every_page_is_in_the_navigation() -> None:
    assert list(routes.PAGES) == list(LINKS)
