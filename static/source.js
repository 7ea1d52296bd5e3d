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
  // As app/units.py writes them.
  const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
  const time = (us) => (us < 1 && us > 0 ? digits(us * 1e3) + " ns" : us < 1e3 ? digits(us) + " µs" : us < 1e6 ? digits(us / 1e3) + " ms" : digits(us / 1e6) + " s");
  const share = (part) => {
    const percent = part * 100;
    return percent > 0 && percent < 0.1 ? "< 0.1 %" : percent >= 99.95 || percent === Math.round(percent) ? percent.toFixed(0) + " %" : percent.toFixed(1) + " %";
  };
  const MOST_REGIONS = 3, LEAST_REST = 0.01; // of a function's own time: less is not said to be at no line
  const add = (sums, key, us) => sums.set(key, (sums.get(key) || 0) + us);
  const most = (sums) => Array.from(sums).sort((one, other) => other[1] - one[1]);

  // What is launched at one place: its time, by region what it launches itself, by tool everything.
  const place = () => ({ us: 0, likely: 0, own: 0, regions: new Map(), tools: new Map() });
  function launch(at, [, , , , , own, region, us], regions) {
    at.us += us;
    if (own) { at.own += us; if (regions[region]) add(at.regions, region, us); }
    add(at.tools, regions[region] ? regions[region].tool : "rest", us);
  }
  function advice(at, regions) {
    const told = most(at.regions).slice(0, MOST_REGIONS).map(([region, us]) => `${regions[region].advice}: ${regions[region].name} (${time(us)})`);
    if (at.regions.size > MOST_REGIONS) told.push(`${at.regions.size - MOST_REGIONS} more`);
    return told;
  }

  // By line number what stands in the margin ({ words, tool, us }); the functions that are not where the trace has them;
  // and the own time that has a line.
  function margins(margin, code, whole) {
    const lines = window.sourceLines, at = new Map(), strange = [];
    const say = (n, words, tool, us) => at.set(n, { words: [...(at.has(n) ? at.get(n).words : []), words], tool, us: Math.max(us, at.has(n) ? at.get(n).us : 0) });
    const here = margin.lines.filter(([line, name]) => {
      const is = line <= code.lines.length && lines.functionAt(code, line, name) !== null;
      if (!is) strange.push(`${name} (line ${line})`);
      return is;
    });
    let told = 0;
    if (margin.exact) {
      here.forEach(([line, , words, tool, us, own]) => { say(line, words, tool, us); told += own; });
      return { at, strange, told, here };
    }
    const known = lines.linesOfCalls(code, margin.calls), places = new Map(), rests = new Map();
    margin.calls.forEach((call, i) => {
      const key = call[0] + " " + call[1], { line, likely } = known[i], within = line ? places : rests, name = line || key;
      if (!within.has(name)) within.set(name, place());
      launch(within.get(name), call, whole.regions);
      if (likely) within.get(name).likely += call[7];
      if (line && !rests.has(key)) rests.set(key, place());
      if (line) { rests.get(key).some = true; if (call[5]) told += call[7]; }
    });
    here.forEach(([line, name, words, tool, us, own]) => {
      const rest = rests.get(line + " " + name);
      if (!rest || !rest.some) { say(line, words, tool, us); return; }
      const left = rest.own > LEAST_REST * own ? [`${time(rest.own)} at no one line`, ...advice(rest, whole.regions)] : [];
      say(line, [`${name}: ${time(us)}, ${share(us / whole.us)}`, ...left].join(" · "), tool, us);
    });
    for (const [n, of] of places) {
      const tool = (most(of.regions.size ? new Map(Array.from(of.regions, ([r, us]) => [whole.regions[r].tool, us])) : of.tools)[0] || ["rest"])[0];
      const doubt = of.likely ? [of.likely < (1 - LEAST_REST) * of.us ? `${time(of.likely)} likely` : "likely"] : [];
      say(n, [`${time(of.us)}, ${share(of.us / whole.us)}`, ...doubt, ...advice(of, whole.regions)].join(" · "), tool, of.us);
    }
    return { at, strange, told, here };
  }

  function listing(margin, text, whole) {
    const code = window.sourceLines.parse(text), lines = text.split(/\r\n|\r|\n/);
    const { at, strange, told, here } = margins(margin, code, whole), owner = new Map();
    for (const row of margin.exact ? [] : here) {
      const def = window.sourceLines.functionAt(code, row[0], row[1]);
      const end = def.module || !def.line ? row[0] + 1 : def.end;
      for (let n = def.module ? row[0] : def.from; n < end; n += 1) owner.set(n, row); // an inner function comes later
    }
    const longest = Math.max(1e-9, ...Array.from(at.values(), (line) => line.us));
    const table = part("table", "listing-source"), body = part("tbody");
    lines.forEach((line, i) => {
      const number = i + 1, said = at.get(number), row = owner.get(number);
      const cells = part("tr", said ? `look first ${said.tool}` : row ? `look ${row[3]}` : "");
      const notes = part("td", "margin");
      if (said) {
        const bar = part("i", "source-bar");
        bar.style.width = `${(100 * said.us) / longest}%`;
        notes.append(bar);
        said.words.forEach((words) => notes.append(part("span", "", words)));
      }
      const code_ = part("td", "code-line");
      code_.append(part("code", "", line || " "));
      cells.append(part("td", "n", String(number)), code_, notes);
      body.append(cells);
    });
    table.append(body);
    return { table, strange, told };
  }

  function open(section) {
    const drop = section.querySelector("[data-source-drop]");
    if (!drop || drop.dataset.ready) return;
    drop.dataset.ready = "yes";
    const said = drop.querySelector("[data-source-said]"), input = drop.querySelector("input");
    const files = Array.from(section.querySelectorAll("[data-source]")).map((box) => ({ box, margin: JSON.parse(box.dataset.source), told: 0 }));
    const whole = JSON.parse(drop.dataset.sourceDrop);

    // How much of the time is told by line, once files are shown.
    function tell() {
      const line = whole.exact ? whole.told[0] : Math.min(whole.told[1], files.reduce((sum, file) => sum + file.told, 0));
      const parts = [[line, "a line"], [whole.told[0] + whole.told[1] - line, "a function"], [whole.told[2], "neither"]];
      section.querySelector("[data-source-told]").textContent = parts.map(([us, what]) => `${share(us / whole.us)} to ${what}`).join(", ");
    }

    function show(file, text) {
      const fitting = files.filter((f) => base(f.margin.file) === file.name);
      if (!fitting.length) return `${file.name}: no function of it is in this trace.`;
      const told = fitting.map((of) => ({ of, box: of.box, ...listing(of.margin, text, whole) }));
      // Of several files of one name the one whose functions begin where the trace says.
      const best = told.sort((a, b) => a.strange.length - b.strange.length)[0];
      best.of.told = best.told;
      if (whole.told) tell();
      const shown = best.box.querySelector("[data-source-text]");
      shown.textContent = "";
      const scroll = part("div", "scroll source-text");
      scroll.tabIndex = 0;
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", `${file.name} with times`);
      scroll.append(best.table);
      shown.append(scroll);
      shown.hidden = false;
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

  // The parser of lines comes with the first tab that has a place to drop files.
  let asked = false;
  function openAll() {
    const drop = document.querySelector("#source [data-source-drop]");
    if (!drop) return;
    if (window.sourceLines) { document.querySelectorAll("#source").forEach(open); return; }
    if (asked) return;
    asked = true;
    document.addEventListener("source-lines", openAll, { once: true });
    document.head.append(Object.assign(document.createElement("script"), { src: drop.dataset.lines }));
  }
  document.addEventListener("htmx:afterSettle", openAll);
  openAll();
})();
