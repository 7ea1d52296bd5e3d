// A trace's timeline: a cursor that says what runs there, search, and views by keys and wheel. The picture is the server's.
(function () {
  "use strict";
  const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
  const time = (us) => (us < 1000 ? digits(us) + " µs" : us < 1e6 ? digits(us / 1e3) + " ms" : digits(us / 1e6) + " s");
  const many = (number, one) => number + " " + one + (number === 1 ? "" : "s");
  const SVG = "http://www.w3.org/2000/svg", WIDE = 1000, HIGH = 40; // the lanes' viewBox
  // What a new view keeps of the one before it: the search, the moment, and whether the keyboard was there.
  const kept = { find: "", moment: null, focus: false };

  // Asks the server for the part of the step from start to end, in µs; the page's address follows.
  function ask(wall, start, end) {
    const address = new URL(window.location.href), whole = end - start >= wall * 0.999;
    for (const [name, value] of [["start", Math.max(0, start)], ["end", Math.min(wall, end)]]) {
      if (whole) address.searchParams.delete(name);
      else address.searchParams.set(name, value.toFixed(1));
    }
    window.htmx.ajax("GET", address.pathname + address.search, { target: "#timeline", swap: "outerHTML" });
  }

  function open(box) {
    if (box.dataset.ready) return;
    box.dataset.ready = "yes";
    const data = JSON.parse(box.dataset.timeline);
    const readout = box.querySelector(".readout"), cursor = box.querySelector(".cursor"), frame = box.querySelector(".lanes-of");
    const [start, end] = data.window;
    const lanes = data.lanes.concat([data.gaps]);
    const wall = Number(cursor.getAttribute("aria-valuemax")), closest = Number(box.dataset.closest) || wall / 512;
    let lane = 0, at = 0, moved = 0, factor = 1, timer = 0;

    const spanOf = (row) => lanes[row][Math.min(at, lanes[row].length - 1)];
    const picture = () => frame.querySelector(".lane > svg").getBoundingClientRect();

    // The last span that begins before the moment, or the next one where that is nearer.
    function nearest(row, moment) {
      const spans = lanes[row];
      let low = 0, high = spans.length;
      while (low < high) { const middle = (low + high) >> 1; if (spans[middle][0] <= moment) low = middle + 1; else high = middle; }
      const before = Math.max(0, low - 1);
      if (low >= spans.length || !spans.length) return before;
      return moment - (spans[before][0] + spans[before][1]) > spans[low][0] - moment ? low : before;
    }

    function words(row) {
      const span = spanOf(row);
      if (!span) return { text: "nothing in this view", href: "" };
      const when = `${time(span[0])} to ${time(span[0] + span[1])}`;
      if (row === data.lanes.length) {
        const several = span[3] > 1 ? `${many(span[3], "gap")}, ${time(span[4])} in all` : time(span[1]);
        return { when, name: "GPU idle", href: "", rest: `${data.causes[span[2]]}: ${several}` };
      }
      const [name, advice, href] = data.owners[span[2]];
      const kernel = data.names[span[4]];
      const parts = [advice, data.streams[row], `${many(span[3], "kernel")}, ${time(span[5])}`, kernel ? `longest ${kernel}` : ""];
      return { when, name, href, rest: parts.filter(Boolean).join(" · ") };
    }

    function place(moment) {
      const view = picture(), around = frame.getBoundingClientRect();
      cursor.hidden = false;
      cursor.style.left = `${view.left - around.left + ((moment - start) / (end - start)) * view.width}px`;
    }
    place(start);

    function show(moment) {
      const span = spanOf(lane), said = words(lane);
      readout.textContent = "";
      if (!said.name) { readout.textContent = said.text; return; }
      const name = document.createElement(said.href ? "a" : "strong");
      name.textContent = said.name;
      if (said.href) name.href = said.href;
      const when = document.createElement("span");
      when.className = "muted";
      when.textContent = ` ${said.when} · ${said.rest}`;
      readout.append(name, when);
      const here = moment === undefined ? Math.min(Math.max(span[0], start), end) : moment;
      place(here);
      cursor.setAttribute("aria-valuenow", Math.round(here));
      cursor.setAttribute("aria-valuetext", `${said.name}, ${said.when}, ${said.rest}`);
    }

    const laneAt = (event) => {
      const row = event.target.closest(".lane[data-lane]");
      if (!row) return null;
      return row.dataset.lane === "gaps" ? data.lanes.length : Number(row.dataset.lane);
    };
    function point(event) {
      const row = laneAt(event), view = picture();
      if (row === null || event.clientX < view.left) return false;
      const moment = start + ((event.clientX - view.left) / view.width) * (end - start);
      lane = row;
      at = nearest(row, moment);
      show(moment);
      return true;
    }
    frame.addEventListener("pointermove", point);
    // A mouse goes to the region; a finger only asks what it is: the link stands below.
    frame.addEventListener("click", (event) => {
      if (!point(event)) return;
      const { href } = words(lane);
      if (href && event.pointerType === "mouse") window.location.assign(href);
    });
    const moves = {
      ArrowRight: () => { at += 1; }, ArrowLeft: () => { at -= 1; }, Home: () => { at = 0; }, End: () => { at = Infinity; },
      PageDown: () => { at += 10; }, PageUp: () => { at -= 10; },
    };
    cursor.addEventListener("keydown", (event) => {
      const span = spanOf(lane);
      if (moves[event.key]) {
        moves[event.key]();
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        lane = Math.min(Math.max(lane + (event.key === "ArrowDown" ? 1 : -1), 0), lanes.length - 1);
        at = nearest(lane, span ? span[0] : start);
      } else if (event.key === "Enter" && words(lane).href) {
        window.location.assign(words(lane).href);
      } else {
        return;
      }
      event.preventDefault();
      at = Math.min(Math.max(at, 0), Math.max(0, lanes[lane].length - 1));
      show();
    });
    cursor.addEventListener("focus", () => show());
    window.addEventListener("resize", () => place(Number(cursor.getAttribute("aria-valuenow"))));

    // Views by keys and wheel: what comes within a moment is one question.
    const here = () => Math.min(Math.max(Number(cursor.getAttribute("aria-valuenow")), start), end);
    function later(by, times) {
      moved += by;
      factor *= times;
      kept.moment = here();
      kept.focus = document.activeElement === cursor;
      clearTimeout(timer);
      timer = setTimeout(() => {
        const wide = Math.min(wall, Math.max(closest, (end - start) * factor));
        const about = here(), part = (about - start) / (end - start);
        const low = Math.min(Math.max(0, about - wide * part + moved * wide), wall - wide);
        moved = 0;
        factor = 1;
        if (Math.abs(low - start) > 0.05 || Math.abs(low + wide - end) > 0.05) ask(wall, low, low + wide);
      }, 120);
    }
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      point(event);
      later(0, Math.exp(event.deltaY / 240));
    }, { passive: false });
    const section = box.closest("section");
    section.timelineKey = (key) => {
      const view = { w: [0, 0.5], s: [0, 2], a: [-0.5, 1], d: [0.5, 1] }[key];
      if (view) later(...view);
      return Boolean(view);
    };

    // Search: the spans whose region or longest kernel has the text in its name.
    const find = section.querySelector("[data-timeline-find]");
    if (!find) return;
    const told = section.querySelector("[data-timeline-hits]"), steps = section.querySelectorAll("[data-timeline-step]");
    let hits = [], hit = -1;
    function mark() {
      section.querySelectorAll(".lane path.hit").forEach((path) => path.remove());
      data.lanes.forEach((spans, row) => {
        const scale = WIDE / (end - start);
        const shapes = hits.filter((h) => h.row === row).map((h) => {
          const span = spans[h.at], left = Math.max(0, (span[0] - start) * scale);
          const right = Math.min(WIDE, (span[0] + span[1] - start) * scale);
          return `M${left.toFixed(2)} 1h${Math.max(1, right - left).toFixed(2)}v${HIGH - 2}H${left.toFixed(2)}z`;
        });
        if (!shapes.length) return;
        const path = document.createElementNS(SVG, "path");
        path.setAttribute("class", "hit");
        path.setAttribute("fill", "none");
        path.setAttribute("d", shapes.join(""));
        frame.querySelector(`.lane[data-lane="${row}"] svg`).append(path);
      });
    }
    function search() {
      const text = find.value.trim().toLowerCase();
      kept.find = find.value;
      hits = [];
      hit = -1;
      data.lanes.forEach((spans, row) => spans.forEach((span, place) => {
        const names = [data.owners[span[2]][0], data.names[span[4]] || ""];
        if (text && names.some((name) => name.toLowerCase().includes(text))) hits.push({ row, at: place, start: span[0] });
      }));
      hits.sort((a, b) => a.start - b.start);
      told.textContent = !text ? "" : hits.length ? `${hits.length} in this view` : "none in this view";
      steps.forEach((button) => { button.disabled = !hits.length; });
      mark();
    }
    function go(by) {
      if (!hits.length) return;
      hit = hit < 0 ? (by > 0 ? 0 : hits.length - 1) : (hit + by + hits.length) % hits.length;
      lane = hits[hit].row;
      at = hits[hit].at;
      show();
      told.textContent = `${hit + 1} of ${hits.length}`;
    }
    find.addEventListener("input", search);
    find.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      go(event.shiftKey ? -1 : 1);
    });
    steps.forEach((button) => button.addEventListener("click", () => go(Number(button.dataset.timelineStep))));
    if (kept.find) { find.value = kept.find; search(); }
    if (kept.moment !== null) {
      const moment = Math.min(Math.max(kept.moment, start), end);
      at = nearest(lane, moment);
      if (kept.focus) cursor.focus();
      show(moment);
      kept.moment = null;
      kept.focus = false;
    }
  }

  // w and s zoom, a and d go along, while the timeline is shown and nobody types. A dialog counts while it is open: one
  // that was just closed keeps the focus until the next frame.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, select, textarea, [contenteditable]:not([contenteditable='false']), [role='textbox']")) return;
    const section = document.getElementById("timeline");
    if (!section || !section.timelineKey || !section.getClientRects().length || document.querySelector("dialog[open]")) return;
    if (section.timelineKey(event.key.toLowerCase())) event.preventDefault();
  });

  const openAll = () => document.querySelectorAll("[data-timeline]").forEach(open);
  // A button that was used keeps the keyboard's focus: the one of its name in what came in its place.
  let used = "";
  document.addEventListener("htmx:beforeRequest", (event) => {
    used = event.target.closest("#timeline-controls") ? event.target.textContent : "";
  });
  document.addEventListener("htmx:afterSettle", () => {
    openAll();
    if (!used) return;
    const links = Array.from(document.querySelectorAll("#timeline-controls a"));
    const again = links.find((link) => link.textContent === used) || links[0];
    if (again) again.focus();
    used = "";
  });
  openAll();
})();
