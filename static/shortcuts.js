// Keys that work on every page. A page adds its own by its elements: data-shortcut="w" data-shortcut-what="zoom in" is
// listed in the dialog, and the key clicks the element, unless data-shortcut-handled says that the page does it itself.
(function () {
  "use strict";
  const shown = (element) => element.offsetParent !== null || element.getClientRects().length > 0;

  // Where typing belongs: a key pressed there is a letter, never a command.
  function typing(target) {
    if (!target || !target.closest) return false;
    const field = "input, textarea, select, [contenteditable]:not([contenteditable='false']), .cm-editor, [role='textbox']";
    return Boolean(target.closest(field));
  }

  // The page's search: what says it is one, else its first search field.
  function search() {
    const fields = Array.from(document.querySelectorAll("[data-search], main input[type='search']"));
    return fields.find((field) => shown(field) && !field.disabled);
  }
  function focusSearch() {
    const field = search();
    if (!field) return false;
    field.focus();
    if (field.select) field.select();
    return true;
  }

  const TABLE = [
    { key: "?", what: "This list", run: () => { toggle(); return true; } },
    { key: "/", what: "Search on this page", run: focusSearch, here: () => Boolean(search()) },
    { key: "Escape", what: "Close this list or the menu", run: () => false },
  ];

  function ofPage() {
    const rows = new Map();
    for (const element of document.querySelectorAll("[data-shortcut]")) {
      const { shortcut, shortcutWhat } = element.dataset;
      if (shown(element) && !rows.has(shortcut)) rows.set(shortcut, { element, what: shortcutWhat || element.textContent.trim() });
    }
    return rows;
  }

  const button = document.getElementById("keys");
  let dialog = null, before = null;

  function made() {
    dialog = document.createElement("dialog");
    dialog.className = "keys stack-s";
    dialog.setAttribute("aria-labelledby", "keys-title");
    const title = document.createElement("h2");
    title.id = "keys-title";
    title.textContent = "Keyboard shortcuts";
    const list = document.createElement("dl");
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    dialog.append(title, list, close);
    dialog.addEventListener("close", () => { if (before && before.isConnected) before.focus(); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    document.body.append(dialog);
  }

  function fill() {
    const list = dialog.querySelector("dl");
    list.textContent = "";
    const common = TABLE.filter((row) => !row.here || row.here());
    const rows = [...common, ...Array.from(ofPage(), ([key, { what }]) => ({ key, what }))];
    for (const { key, what } of rows) {
      const term = document.createElement("dt"), said = document.createElement("dd"), kbd = document.createElement("kbd");
      kbd.textContent = key;
      term.append(kbd);
      said.textContent = what;
      list.append(term, said);
    }
  }

  function toggle() {
    if (!dialog) made();
    if (dialog.open) { dialog.close(); return; }
    before = document.activeElement;
    fill();
    dialog.showModal();
  }

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const open = dialog && dialog.open;
    const own = TABLE.find((row) => row.key === event.key);
    if (own) {
      if ((!open || own.key === "?") && own.run()) event.preventDefault();
      return;
    }
    if (open) return;
    const row = ofPage().get(event.key);
    if (!row || "shortcutHandled" in row.element.dataset) return;
    event.preventDefault();
    row.element.click();
  });
  if (button) button.addEventListener("click", toggle);

  // The phone's menu closes by Escape, and by a touch beside it.
  const menu = document.querySelector("details.menu");
  if (menu) {
    document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  }
})();
