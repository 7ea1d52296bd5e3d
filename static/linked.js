// A line of the text and the kernels that compute it: pointing at one marks the other. What belongs together is said by
// the server: data-lines has the lines of the text, from 1, that an element is made of.
(function () {
  "use strict";
  const SECTIONS = "#columns, #tab-panel"; // the kernels of each are of one text
  const area = () => document.querySelector("textarea[data-editor]");
  const linesOf = (element) => element.dataset.lines.split(" ").filter(Boolean).map(Number);
  let marked = [];
  let byKernel = false; // who marked them last

  // The columns of code are of the text that the page was sent with, all others of the one that was answered last.
  function isOfEditor(section) {
    const text = area();
    if (!text || document.querySelector(".stale")) return false;
    return section.id !== "columns" || text.value.trim() === text.defaultValue.trim();
  }

  function mark(elements, lines) {
    marked.forEach((element) => element.classList.remove("linked"));
    marked = elements;
    marked.forEach((element) => element.classList.add("linked"));
    const text = area();
    if (text) text.dispatchEvent(new CustomEvent("editor:mark", { detail: { lines } }));
  }

  const sharing = (section, lines) => Array.from(section.querySelectorAll("[data-lines]"))
    .filter((element) => linesOf(element).some((line) => lines.includes(line)));

  function fromElement(target) {
    const element = target instanceof Element ? target.closest("[data-lines]") : null;
    const section = element && element.closest(SECTIONS);
    if (!section) return false;
    byKernel = true;
    const lines = linesOf(element);
    const others = Array.from(document.querySelectorAll(SECTIONS)).filter((s) => s === section || (isOfEditor(s) && isOfEditor(section)));
    mark(others.flatMap((s) => sharing(s, lines)), isOfEditor(section) ? lines : []);
    return true;
  }

  let pointed = 0;
  let cursor = 0;
  function fromEditor({ line, by }) {
    if (by === "pointer") {
      if (line === pointed) return;
      pointed = line;
      if (!line && byKernel) return; // the text went from under the pointer
    } else cursor = line;
    byKernel = false;
    const shown = pointed || cursor;
    const sections = Array.from(document.querySelectorAll(SECTIONS)).filter(isOfEditor);
    mark(shown ? sections.flatMap((section) => sharing(section, [shown])) : [], []);
  }

  document.addEventListener("editor:line", (event) => fromEditor(event.detail));
  let place = "";
  document.addEventListener("mouseover", (event) => {
    const now = `${event.screenX} ${event.screenY}`;
    if (now === place) return; // the page moved, not the pointer
    place = now;
    if (event.target.closest && event.target.closest(".cm-editor")) return;
    if (!fromElement(event.target) && marked.length && !pointed) fromEditor({ line: cursor, by: "cursor" });
  });
  document.addEventListener("focusin", (event) => { if (!event.target.closest(".cm-editor")) fromElement(event.target); });
})();
