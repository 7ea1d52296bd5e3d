// Takes things along: a button with data-copy copies the address of the link before it, with data-copy="here" that of
// this page; data-csv="NAME" around a table gets a button that saves it. What a code block's button copies is app.js's.
(function () {
  "use strict";
  async function copyAddress(button) {
    const text = button.dataset.copy === "here" ? window.location.href : button.previousElementSibling.href;
    const words = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch (e) { // no clipboard without a secure origin
      window.prompt("Copy this address", text);
      return;
    }
    button.textContent = "Copied";
    window.setTimeout(() => { button.textContent = words; }, 1500);
  }

  // A text that a spreadsheet would run as a formula gets an apostrophe in front; a number stays one.
  const NUMBER = /^[+-]?[\d.,]+(e[+-]?\d+)?$/i;
  function cell(element) {
    const text = element.innerText.trim().replace(/\s+/g, " ");
    const safe = /^[=+\-@]/.test(text) && !NUMBER.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  }
  const csv = (table) => Array.from(table.rows, (row) => Array.from(row.cells, cell).join(",")).join("\r\n") + "\r\n";

  function save(table, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", csv(table)], { type: "text/csv;charset=utf-8" }));
    link.download = `tritonworthy-${name}.csv`;
    link.click();
    window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function furnish() {
    for (const box of document.querySelectorAll("[data-csv]:not([data-csv-ready])")) {
      box.dataset.csvReady = "";
      const button = document.createElement("button");
      button.type = "button";
      button.className = "csv";
      button.textContent = "CSV";
      button.setAttribute("aria-label", `Save as CSV: ${box.dataset.csv.replace(/-/g, " ")}`);
      button.addEventListener("click", () => save(box.querySelector("table"), box.dataset.csv));
      box.before(button);
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest ? event.target.closest("button[data-copy]") : null;
    if (button) copyAddress(button);
  });
  document.addEventListener("htmx:afterSettle", furnish);
  furnish();
})();
