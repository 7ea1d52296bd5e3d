// An answer is dim from the first change of the form until it is the form's again; where no answer can come, it says of
// which text it is, and leads back there.
(function () {
  "use strict";
  const ANSWERS = "#verdict, #evidence, #tab-panel, #surveyed";
  const FIELDS = ["text", "share_percent", "calls_per_step", "device"];
  const PREVIEW = "/regions/preview";
  let form = null;
  let answered = null; // the fields that the answers are of
  let refused = false; // the last question got no answer

  const now = () => Object.fromEntries(FIELDS.map((name) => [name, form.elements[name] ? form.elements[name].value : ""]));
  const same = (one, other) => FIELDS.every((name) => one[name] === other[name]);

  // What was sent with the page: a browser may have put back what was typed before a reload.
  const sent = () => Object.fromEntries(FIELDS.map((name) => {
    const field = form.elements[name];
    if (!field) return [name, ""];
    if (!field.options) return [name, field.defaultValue];
    return [name, (Array.from(field.options).find((o) => o.defaultSelected) || field.options[0]).value];
  }));

  function whichText() {
    const before = answered.text.split("\n");
    const after = form.elements.text.value.split("\n");
    const at = before.findIndex((line, i) => line !== after[i]);
    const note = document.createElement("div");
    note.className = "note warning row apart stale-note";
    note.setAttribute("role", "status");
    const says = document.createElement("p");
    says.append("This advice is for the text before your edit");
    if (at >= 0 && before[at].trim()) {
      const line = document.createElement("code");
      line.textContent = before[at].trim();
      says.append(`, where line ${at + 1} is `, line);
    }
    says.append(".");
    const back = document.createElement("button");
    back.type = "button";
    back.textContent = "Back to that text";
    back.addEventListener("click", () => {
      const { text } = form.elements;
      text.value = answered.text;
      text.dispatchEvent(new Event("input", { bubbles: true }));
      text.focus();
    });
    note.append(says, back);
    return note;
  }

  function show() {
    if (!form || !form.isConnected) return;
    const stale = !same(answered, now());
    document.querySelectorAll(ANSWERS).forEach((part) => {
      part.classList.toggle("stale", stale);
      if (stale && !refused) part.setAttribute("aria-busy", "true"); else part.removeAttribute("aria-busy");
    });
    document.querySelectorAll(".stale-note").forEach((note) => note.remove());
    const verdict = document.getElementById("verdict");
    if (stale && refused && verdict) verdict.prepend(whichText());
    document.dispatchEvent(new CustomEvent("region:fresh", { detail: { fresh: !stale } }));
  }

  function watch() {
    const there = document.getElementById("region-form");
    if (there !== form) {
      form = there;
      refused = false;
      answered = form && sent();
    }
    show();
  }

  document.addEventListener("input", (event) => {
    if (!form || event.target.form !== form) return;
    refused = false;
    show();
  });
  document.addEventListener("htmx:configRequest", (event) => {
    // What generated code is compared with: the text that the page was opened with.
    if (event.detail.path !== "/region/changes" || !form) return;
    const { defaultValue, value } = form.elements.text;
    if (defaultValue.trim() === value.trim()) event.preventDefault();
    event.detail.parameters.before = defaultValue;
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { requestConfig, xhr } = event.detail;
    if (!form || requestConfig.path !== PREVIEW) return;
    // A mistake in the text comes with status 200 and its own in a header.
    refused = xhr.status >= 400 || xhr.getResponseHeader("Problem-Status") !== null;
    if (!refused) answered = Object.fromEntries(FIELDS.map((name) => [name, String(requestConfig.parameters[name] || "")]));
  });
  const failed = (event) => { if (form && event.detail.requestConfig.path === PREVIEW) { refused = true; show(); } };
  document.addEventListener("htmx:sendError", failed);
  document.addEventListener("htmx:timeout", failed);
  document.addEventListener("htmx:afterSettle", watch);
  watch();
})();
