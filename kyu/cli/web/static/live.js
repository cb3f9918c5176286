// Keep the page up to date: when the server says that something changed, fetch this page again and replace its content.
"use strict";
(() => {
  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (button && button.dataset.confirm && !window.confirm(button.dataset.confirm)) event.preventDefault();
  });
  if (document.body.dataset.live !== "yes") return;
  let etag = "", isBusy = false, isStale = false;
  async function refresh() {
    if (isBusy || document.hidden) { isStale = true; return; }
    const typing = document.activeElement && document.activeElement.closest("form.filters");
    if (typing) return;
    isBusy = true; isStale = false;
    try {
      const answer = await fetch(location.href, { headers: etag ? { "If-None-Match": etag } : {}, cache: "no-store" });
      if (answer.status === 401 || answer.redirected) { location.reload(); return; }
      if (answer.ok) {
        etag = answer.headers.get("ETag") || "";
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        const old = document.querySelector("main");
        if (fresh && old && fresh.innerHTML !== old.innerHTML) {
          const focus = document.activeElement && document.activeElement.getAttribute("href");
          old.replaceWith(document.adoptNode(fresh));
          if (focus) { const again = document.querySelector(`main a[href="${CSS.escape(focus)}"]`); if (again) again.focus(); }
        }
      }
    } catch (error) { /* The server is away; the event stream tells when it is back. */ } finally {
      isBusy = false;
    }
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden && isStale) refresh(); });
  const stream = new EventSource("/events");
  stream.addEventListener("change", refresh);
})();
