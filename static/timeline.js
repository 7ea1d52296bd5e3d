// The cursor on a trace's timeline: says what runs where the mouse or the arrow keys are. The picture is the server's.
(function () {
  "use strict";
  const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
  const time = (us) => (us < 1000 ? digits(us) + " µs" : us < 1e6 ? digits(us / 1e3) + " ms" : digits(us / 1e6) + " s");
  const many = (number, one) => number + " " + one + (number === 1 ? "" : "s");

  function open(box) {
    if (box.dataset.ready) return;
    box.dataset.ready = "yes";
    const data = JSON.parse(box.dataset.timeline);
    const readout = box.querySelector(".readout"), cursor = box.querySelector(".cursor"), frame = box.querySelector(".lanes-of");
    const [start, end] = data.window;
    const lanes = data.lanes.concat([data.gaps]);
    let lane = 0, at = 0;

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
  }

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
