// Shows source files that the user drops with the trace's times in the margin. The text stays in this browser: it is
// read by FileReader and no request carries it.
(function () {
  "use strict";
  const MOST_BYTES = 4 * 1024 * 1024;
  const base = (path) => path.split(/[\\/]/).pop();
  const part = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const indent = (line) => line.length - line.trimStart().length;

  // The line after the function that begins at this one (by number, from 1): by indentation, as Python has it.
  function endOf(lines, first) {
    let head = first - 1;
    while (head < lines.length && /^\s*(@|#|$)/.test(lines[head])) head += 1;
    const depth = head < lines.length ? indent(lines[head]) : 0;
    let last = head;
    for (let i = head + 1; i < lines.length; i += 1) {
      const text = lines[i].trim();
      if (text && indent(lines[i]) <= depth && !/^[)\]}]/.test(text)) break;
      if (text) last = i;
    }
    return last + 2;
  }

  const begins = (line) => /^\s*(@|async\s+def\b|def\b|class\b)|lambda/.test(line || "");

  function listing(margin, text) {
    const lines = text.split(/\r\n|\r|\n/);
    const owner = new Array(lines.length + 2).fill(null), strange = [];
    const rows = margin.lines.filter(([line, name]) => {
      if (name === "<module>") return true;
      const here = line <= lines.length && begins(lines[line - 1]) && (name.startsWith("<") || lines.slice(line - 1, line + 20).join("\n").includes(name));
      if (!here) strange.push(`${name} (line ${line})`);
      return here;
    });
    for (const row of rows) {
      const end = row[1] === "<module>" ? row[0] + 1 : endOf(lines, row[0]);
      for (let n = row[0]; n < end; n += 1) owner[n] = row; // an inner function comes later and has its own lines
    }
    const table = part("table", "listing-source"), body = part("tbody");
    lines.forEach((line, i) => {
      const number = i + 1, row = owner[number];
      const cells = part("tr", row ? `look ${row[3]}` : "");
      const told = part("td", "margin");
      const starting = rows.filter((r) => r[0] === number);
      starting.forEach((r) => told.append(part("span", "", r[2])));
      if (starting.length) cells.classList.add("first");
      const at = part("td", "n", String(number)), code = part("td", "code-line");
      code.append(part("code", "", line || " "));
      cells.append(at, code, told);
      body.append(cells);
    });
    table.append(body);
    return { table, strange };
  }

  function open(section) {
    const drop = section.querySelector("[data-source-drop]");
    if (!drop || drop.dataset.ready) return;
    drop.dataset.ready = "yes";
    const said = drop.querySelector("[data-source-said]"), input = drop.querySelector("input");
    const files = Array.from(section.querySelectorAll("[data-source]")).map((box) => ({ box, margin: JSON.parse(box.dataset.source) }));

    function show(file, text) {
      const fitting = files.filter((f) => base(f.margin.file) === file.name);
      if (!fitting.length) return `${file.name}: no function of it is in this trace.`;
      const told = fitting.map(({ box, margin }) => ({ box, ...listing(margin, text) }));
      // Of several files of one name the one whose functions begin where the trace says.
      const best = told.sort((a, b) => a.strange.length - b.strange.length)[0];
      const place = best.box.querySelector("[data-source-text]");
      place.textContent = "";
      const scroll = part("div", "scroll source-text");
      scroll.tabIndex = 0;
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", `${file.name} with times`);
      scroll.append(best.table);
      place.append(scroll);
      place.hidden = false;
      best.box.open = true;
      const first = best.table.querySelector("tr.first");
      if (first) scroll.scrollTop = Math.max(0, first.offsetTop - 40);
      return best.strange.length
        ? `${file.name}: another version than the one that ran? Not where the trace has them: ${best.strange.join(", ")}.`
        : `${file.name}: shown with its times.`;
    }

    function read(list) {
      const answers = [];
      said.textContent = "";
      Array.from(list).forEach((file) => {
        if (file.size > MOST_BYTES) { answers.push(`${file.name} is larger than 4 MB.`); said.textContent = answers.join(" "); return; }
        const reader = new FileReader();
        reader.addEventListener("load", () => { answers.push(show(file, String(reader.result))); said.textContent = answers.join(" "); });
        reader.addEventListener("error", () => { answers.push(`${file.name} cannot be read.`); said.textContent = answers.join(" "); });
        reader.readAsText(file);
      });
    }

    input.addEventListener("change", () => read(input.files));
    const stop = (event) => { event.preventDefault(); event.stopPropagation(); };
    drop.addEventListener("dragover", (event) => { stop(event); drop.classList.add("over"); });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => { stop(event); drop.classList.remove("over"); read(event.dataTransfer.files); });
  }

  const openAll = () => document.querySelectorAll("#source").forEach(open);
  document.addEventListener("htmx:afterSettle", openAll);
  openAll();
})();
