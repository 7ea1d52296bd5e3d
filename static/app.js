// What changes in the page is htmx's; this file copies code, switches themes and answers the widget.
(function () {
  "use strict";
  const root = document.documentElement;
  const every = (selector, within) => Array.from((within || document).querySelectorAll(selector));

  // ------------------------------------------------------------------------------------------------------------ boxes
  // A box that scrolls is reached by Tab and says whose numbers it holds; one that fits is no stop on the way.
  const reachable = () => every(".scroll, .kernels").forEach((box) => {
    const wide = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
    const heading = box.closest("section, figure, details, main").querySelector("h1, h2, h3, summary");
    const said = { tabindex: "0", role: box.matches("ul") ? "" : "group", "aria-label": heading ? heading.textContent.trim() : "Table" };
    for (const [name, value] of Object.entries(said)) if (wide && value) box.setAttribute(name, value); else box.removeAttribute(name);
  });
  window.addEventListener("resize", reachable);

  // ------------------------------------------------------------------------------------------------------------ theme
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function toggleTheme() {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch (e) { /* storage refused: this page only */ }
    root.dispatchEvent(new Event("recolour"));
  }
  dark.addEventListener("change", () => root.dispatchEvent(new Event("recolour")));

  // ------------------------------------------------------------------------------------------------------------- copy
  async function copy(button) {
    const text = button.parentElement.querySelector("pre").textContent;
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(text);
    } catch (e) { // no clipboard without a secure origin: select it, so that one key does
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("pre"));
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      said = "Selected";
    }
    button.textContent = said;
    window.setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.matches(".copy")) copy(button);
    if (button.matches("#theme")) toggleTheme();
    if (button.matches("[data-fill]")) {
      const area = document.getElementById(button.dataset.fill);
      area.value = button.dataset.text;
      area.dispatchEvent(new Event("input", { bubbles: true }));
      area.focus();
    }
  });

  // ---------------------------------------------------------------------------------------------------------- sliders
  document.addEventListener("input", (event) => {
    const slider = event.target.closest(".slider");
    if (!slider) return;
    event.target.dataset.moved = "";  // a value between two steps differs from its default untouched
    const value = Number(event.target.value);
    slider.querySelector("output").textContent =
      slider.dataset.as === "times" ? value.toFixed(value < 10 ? 2 : 0) + "×" : Number((value * 100).toFixed(1)) + " %";
    const form = event.target.closest("form[data-widget]");
    if (form) answer(form);
  });

  // ----------------------------------------------------------------------------------------------------------- widget
  // The rule runs on the server: it sends every answer for one bound and kind, and a slider only looks up in them.
  const tables = {};
  const answersAre = document.getElementById("widget-answer");
  const tableOf = (form) => new URLSearchParams({ bound: form.bound.value, kind: form.kind.value }).toString();

  async function fetchTable(form) {
    const query = tableOf(form);
    if (tables[query]) return;
    try {
      const response = await fetch("/widget/table?" + query);
      if (response.ok) tables[query] = await response.json();
    } catch (e) { /* the form goes on asking the server */ }
  }

  function lookUp(form) {
    const table = tables[tableOf(form)];
    if (!table) return false;
    const at = (row) => (row.slider ? Math.round(form[row.slider].value / table.steps[row.slider]) : 0);
    const key = table.rows.map((row) => row.states[at(row)]).join("");
    const whole = tableOf(form) + key;
    if (answersAre.dataset.shows !== whole) {
      const open = every("details", answersAre).map((details) => details.open);
      answersAre.innerHTML = table.answers[key];
      every("details", answersAre).forEach((details, i) => { details.open = Boolean(open[i]); });
      answersAre.dataset.shows = whole;
    }
    for (const row of table.rows) {
      every(`[data-because="${row.name}"]`, answersAre).forEach((place) => { place.innerHTML = row.because[at(row)]; });
    }
    const said = Array.from(new FormData(form)).filter(([, value]) => value !== "");
    answersAre.querySelector("[data-here]").href = "/?" + new URLSearchParams(said) + "#widget";
    answersAre.querySelector("[data-tree]").href = "/learn?" + new URLSearchParams(said) + "#rule";
    return true;
  }

  function answer(form) {
    if (lookUp(form)) return;
    delete answersAre.dataset.shows;
    window.htmx.trigger(form, "ask");
  }

  document.addEventListener("change", async (event) => {
    const form = event.target.closest("form[data-widget]");
    if (!form || !event.target.matches("select")) return;
    const query = tableOf(form);
    await fetchTable(form);
    if (query === tableOf(form)) answer(form);
  });
  // What the oracle says of a text that was edited since is no answer on this page.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { elt } = event.detail.requestConfig;
    if (["oracle", "verdict"].includes(event.target.id) && !document.contains(elt)) event.detail.shouldSwap = false;
  });
  // What was looked up meanwhile is newer than an answer that the server was asked for.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target === answersAre && answersAre.dataset.shows) event.detail.shouldSwap = false;
  });
  every("form[data-widget]").forEach(fetchTable);

  // --------------------------------------------------------------------------------------------------------- lifetime
  document.addEventListener("toggle", (event) => { if (event.target.open) reachable(); }, true);
  document.addEventListener("htmx:afterSettle", reachable);
  // A part that comes in the place of another: what a reader has opened in it stays open.
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    // An answer that was asked for before a validation began knows nothing of it: the validation stays.
    const job = event.detail.target.querySelector("input[name=job]");
    const asked = event.detail.fragment.querySelector("[data-job]");
    if (job && asked && job.value !== asked.dataset.job) { event.detail.shouldSwap = false; return; }
    const opened = every("details[open] > summary", event.detail.target).map((summary) => summary.textContent);
    every("details > summary", event.detail.fragment).forEach((summary) => {
      if (opened.includes(summary.textContent)) summary.parentElement.open = true;
    });
    // A slider that the reader has moved stays where it is, and what stands under it is asked for anew.
    for (const { id, value } of every("input[data-moved]", event.detail.target)) {
      const come = event.detail.fragment.querySelector("#" + id);
      if (!come || Number(value) > Number(come.max)) continue;
      come.value = value;
      window.setTimeout(() => come.dispatchEvent(new Event("input", { bubbles: true })));
    }
  });
  reachable();
})();
