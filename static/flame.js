// The flame graph of a trace: one of its two pictures at a time, zoom by click and keys, search. The server draws it.
(function () {
  "use strict";
  const STEP = 0.001; // per cent: places are rounded to it

  function open(section) {
    if (section.dataset.ready) return;
    section.dataset.ready = "yes";
    const out = section.querySelector("[data-flame-out]"), find = section.querySelector("#flame-find");
    const figures = Array.from(section.querySelectorAll("figure[data-flame]"));
    const pictures = figures.map(picture);
    let shown = Math.max(0, pictures.findIndex((p) => p));

    function show(place) {
      shown = place;
      figures.forEach((figure, i) => { figure.hidden = i !== place; });
      section.querySelectorAll("[data-flame-show]").forEach((button) => {
        button.setAttribute("aria-pressed", String(button.dataset.flameShow === figures[place].dataset.flame));
      });
      search();
      zoomed();
    }
    const zoomed = () => { out.disabled = !(pictures[shown] && pictures[shown].zoomed()); };
    const search = () => { if (pictures[shown]) pictures[shown].search(find.value.trim().toLowerCase()); };

    section.querySelectorAll("[data-flame-show]").forEach((button) => {
      button.addEventListener("click", () => show(figures.findIndex((f) => f.dataset.flame === button.dataset.flameShow)));
    });
    find.addEventListener("input", search);
    out.addEventListener("click", () => { pictures[shown].zoom(null); zoomed(); });
    section.addEventListener("flame:zoomed", zoomed);
    show(shown);
  }

  function picture(figure) {
    const box = figure.querySelector("[data-flame-box]");
    if (!box) return null;
    const said = figure.querySelector("[data-flame-said]");
    const frames = Array.from(box.querySelectorAll(".frame")).map((node) => ({
      node, depth: Number(node.dataset.d), left: Number(node.dataset.x), width: Number(node.dataset.w),
      title: node.querySelector("title").textContent, link: node.closest("a"),
    }));
    const end = (f) => f.left + f.width;
    const holds = (a, b) => a.depth <= b.depth && a.left <= b.left + STEP && end(a) >= end(b) - STEP;
    let at = frames[0], top = null, wanted = "";

    function name(frame) {
      if (frame.node.querySelector("text")) return;
      const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      text.setAttribute("x", "4");
      text.setAttribute("y", "14");
      text.textContent = frame.title.split(" · ")[0];
      frame.node.append(text);
    }
    function zoom(frame) {
      top = frame;
      const [from, wide] = frame ? [frame.left, frame.width] : [0, 100];
      for (const f of frames) {
        const inside = !frame || holds(frame, f), above = frame && !inside && holds(f, frame);
        f.node.style.display = inside || above ? "" : "none";
        f.node.classList.toggle("above", Boolean(above));
        const left = above ? 0 : ((f.left - from) / wide) * 100, width = above ? 100 : (f.width / wide) * 100;
        f.node.setAttribute("x", `${left.toFixed(4)}%`);
        f.node.setAttribute("width", `${width.toFixed(4)}%`);
        if ((inside || above) && width >= 2) name(f);
      }
      section().dispatchEvent(new Event("flame:zoomed"));
    }
    const section = () => figure.closest("section");

    function say(text, href) {
      said.textContent = "";
      const part = document.createElement(href ? "a" : "span");
      part.textContent = text;
      if (href) part.href = href;
      said.append(part);
    }
    function point(frame) {
      frames.forEach((f) => f.node.classList.toggle("at", f === frame));
      at = frame;
      say(frame.title, frame.link ? frame.link.getAttribute("href") : "");
    }
    function search(text) {
      wanted = text;
      const hits = frames.filter((f) => text && f.title.split(" · ")[0].toLowerCase().includes(text));
      frames.forEach((f) => { f.node.classList.toggle("hit", hits.includes(f)); });
      box.classList.toggle("searched", Boolean(text));
      if (!text) return;
      // A frame inside of another that fits is in its time already.
      const outer = hits.filter((f) => !hits.some((o) => o !== f && o.depth < f.depth && holds(o, f)));
      const share = outer.reduce((sum, f) => sum + f.width, 0);
      say(hits.length ? `${hits.length} of ${frames.length} frames, ${share.toFixed(share < 10 ? 1 : 0)} % of the kernel time` : "No frame has this name.", "");
    }

    box.tabIndex = 0;
    said.setAttribute("aria-live", "polite");
    const frameOf = (event) => {
      const node = event.target.closest(".frame");
      return node ? frames.find((f) => f.node === node) : null;
    };
    box.addEventListener("pointermove", (event) => { const f = frameOf(event); if (f && f !== at) point(f); });
    box.addEventListener("click", (event) => {
      const f = frameOf(event);
      if (!f) return;
      point(f);
      if (!f.link) zoom(f === top ? null : f);
    });
    const visible = (f) => f.node.style.display !== "none";
    const moves = {
      ArrowUp: () => frames.filter((f) => visible(f) && f.depth === at.depth - 1 && holds(f, at))[0],
      ArrowDown: () => frames.filter((f) => visible(f) && f.depth === at.depth + 1 && holds(at, f)).sort((a, b) => b.width - a.width)[0],
      ArrowLeft: () => frames.filter((f) => visible(f) && f.depth === at.depth && f.left < at.left - STEP).sort((a, b) => b.left - a.left)[0],
      ArrowRight: () => frames.filter((f) => visible(f) && f.depth === at.depth && f.left > at.left + STEP).sort((a, b) => a.left - b.left)[0],
      Home: () => frames.find(visible),
    };
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (moves[event.key]) {
        const next = moves[event.key]();
        if (next) point(next);
      } else if (event.key === "Enter") {
        zoom(at === top ? null : at);
      } else if (event.key === "Escape") {
        zoom(null);
      } else if (event.key === "o" && at.link) {
        window.location.assign(at.link.getAttribute("href"));
      } else {
        return;
      }
      event.preventDefault();
    });
    box.addEventListener("focus", () => { if (!wanted) point(at); });
    return { zoom, search, zoomed: () => top !== null };
  }

  const openAll = () => document.querySelectorAll("#flame").forEach(open);
  document.addEventListener("htmx:afterSettle", openAll);
  openAll();
})();
