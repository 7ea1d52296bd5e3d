// Charts that the server does not draw itself: Plotly draws them, loaded when the first of them comes into view.
(function () {
  "use strict";
  const root = document.documentElement;
  const { plotly, style } = document.currentScript.dataset;
  const every = (selector) => Array.from(document.querySelectorAll(selector));

  function template() {
    const styles = getComputedStyle(root);
    const token = (name) => styles.getPropertyValue(name).trim();
    const axis = {
      color: token("--text-2"), gridcolor: token("--line"), zerolinecolor: token("--line-strong"),
      linecolor: token("--line-strong"), tickfont: { color: token("--text") }, title: { font: { size: 12 } },
    };
    const text = { color: token("--text"), family: token("--font"), size: window.innerWidth < 560 ? 10 : 12 };
    return {
      layout: {
        font: text, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", xaxis: axis, yaxis: axis,
        hoverlabel: { bgcolor: token("--surface"), bordercolor: token("--line-strong"), font: text },
        annotationdefaults: { font: text },
      },
    };
  }

  // A phone: cut the names, and leave the labels next to the marks the room that they need.
  function narrow(layout) {
    const names = layout.yaxis.type === "category" ? layout.yaxis.tickvals : null;
    if (!names) return layout;
    const cut = names.map((name) => (name.length > 25 ? name.slice(0, 24) + "…" : name));
    const [low, high] = layout.xaxis.range;
    const yaxis = Object.assign({}, layout.yaxis, { ticktext: cut });
    const xaxis = Object.assign({}, layout.xaxis, { range: [low, high + 0.45 * (high - low)], nticks: 4 });
    return Object.assign({}, layout, { yaxis, xaxis, showlegend: layout.barmode === "group" });
  }

  function add(name, attributes) {
    return new Promise((resolve, reject) => {
      const element = Object.assign(document.createElement(name), attributes);
      element.addEventListener("load", resolve);
      element.addEventListener("error", reject);
      document.head.append(element);
    });
  }
  // plotly.js injects its sheet unless an element of this id and class stands already: so style-src needs no
  // 'unsafe-inline'.
  let loading = null;
  const load = () => loading || (loading = Promise.all([
    add("link", { id: "plotly.js-style-global", className: "no-inline-styles", rel: "stylesheet", href: style }),
    add("script", { src: plotly }),
  ]));

  async function draw(element) {
    await load();
    if (element.dataset.drawn || !element.isConnected) return;
    const chart = JSON.parse(element.dataset.figure);
    element.dataset.drawn = "yes";
    const given = element.clientWidth < 520 ? narrow(chart.figure.layout) : chart.figure.layout;
    const layout = Object.assign({}, given, { template: template() });
    window.Plotly.newPlot(element, chart.figure.data, layout, chart.config);
  }

  // Half a screen ahead of a reader who scrolls; what is folded away is in nobody's view.
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "50% 0px" });
  const watch = () => every("[data-figure]:not([data-drawn])").forEach((element) => seen.observe(element));

  root.addEventListener("recolour", () => {
    every("[data-drawn]").forEach((element) => window.Plotly.relayout(element, { template: template() }));
  });
  document.addEventListener("htmx:afterSettle", watch);
  document.addEventListener("htmx:beforeCleanupElement", (event) => {
    const element = event.detail.elt;
    if (element.dataset && element.dataset.drawn) window.Plotly.purge(element);
  });
  // Paper has no view to come into.
  window.addEventListener("beforeprint", () => every("[data-figure]").forEach(draw));
  watch();
})();
