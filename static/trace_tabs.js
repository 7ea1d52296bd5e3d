// Tabs in place: the server's links open a page with their tab; here they open it without one. What is open stands in the
// address (?tab=), Back goes to the tab before, and #id opens the tab that it stands in. A tab's own script is loaded when
// the tab is opened for the first time.
(function () {
  "use strict";
  const own = document.currentScript, loaded = new Set();
  const bar = () => document.querySelector(".trace-tabs");
  const panels = () => Array.from(document.querySelectorAll(".panel[data-panel]"));
  const links = () => Array.from(document.querySelectorAll(".trace-tabs [data-tab]"));
  const first = () => (links()[0] ? links()[0].dataset.tab : "");
  const asked = () => new URLSearchParams(window.location.search).get("tab") || first();

  // The tab that holds what the address points to, "" for none.
  function pointedTo() {
    let id = "";
    try { id = decodeURIComponent(window.location.hash.slice(1)); } catch (e) { return ""; }
    const target = id && document.getElementById(id);
    const panel = target && target.closest(".panel[data-panel]");
    return panel ? panel.dataset.panel : "";
  }

  function load(name) {
    const src = own.getAttribute("data-script-" + name);
    if (!src || loaded.has(name)) return;
    loaded.add(name);
    document.head.append(Object.assign(document.createElement("script"), { src }));
  }

  let current = "";
  function open(name) {
    const known = links().some((link) => link.dataset.tab === name) ? name : first();
    const changed = known !== current;
    current = known;
    load(known);
    for (const link of links()) {
      const chosen = link.dataset.tab === known;
      link.parentElement.setAttribute("role", "tablist");
      link.setAttribute("role", "tab");
      link.setAttribute("aria-controls", "tab-" + link.dataset.tab);
      link.setAttribute("aria-selected", String(chosen));
      link.removeAttribute("aria-current");
    }
    for (const panel of panels()) {
      panel.classList.toggle("open", panel.dataset.panel === known);
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", "to-" + panel.dataset.panel);
    }
    // As after a swap: charts that had no room are drawn, boxes that scroll are reached by Tab.
    const shown = document.querySelector(".panel.open");
    if (changed && shown) shown.dispatchEvent(new CustomEvent("htmx:afterSettle", { bubbles: true }));
  }

  // A tab that is chosen far down begins at its top, under the bar.
  function toTop() {
    const panel = document.querySelector(".panel.open");
    const over = bar().getBoundingClientRect().bottom - panel.getBoundingClientRect().top;
    if (over > 0) window.scrollBy({ top: -over, behavior: "instant" });
  }

  function choose(name) {
    const address = new URL(window.location);
    if (name === first()) address.searchParams.delete("tab"); else address.searchParams.set("tab", name);
    address.hash = "";
    window.history.pushState({}, "", address.href.replace(/#$/, ""));
    open(name);
    toTop();
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest(".trace-tabs [data-tab]");
    if (link && event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey) {
      event.preventDefault();
      choose(link.dataset.tab);
      return;
    }
    // A link within the page to what is in another tab, followed again: the address does not change.
    const within = event.target.closest("a[href^='#']");
    if (within && within.hash === window.location.hash && pointedTo()) open(pointedTo());
  });
  document.addEventListener("keydown", (event) => {
    const link = event.target.closest(".trace-tabs [data-tab]");
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!link || step === undefined || event.metaKey || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    const all = links();
    const at = Number.isFinite(step) ? (all.indexOf(link) + step + all.length) % all.length : step < 0 ? 0 : all.length - 1;
    choose(all[at].dataset.tab);
    all[at].focus();
  });

  const follow = () => {
    const name = pointedTo() || asked();
    const moved = name !== current;
    open(name);
    if (moved && pointedTo()) document.getElementById(decodeURIComponent(window.location.hash.slice(1))).scrollIntoView();
  };
  window.addEventListener("hashchange", follow);
  window.addEventListener("popstate", follow);
  // Parts that came anew know of no tab that was chosen here.
  document.addEventListener("htmx:afterSettle", () => { if (bar()) open(current || asked()); });
  document.addEventListener("htmx:oobAfterSwap", () => { if (bar()) open(current || asked()); });
  if (bar()) follow();
})();
