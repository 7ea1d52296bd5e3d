// A region's page: a link to a part opens the tab that holds it. The tabs themselves are htmx's, and links without it.
(function () {
  "use strict";
  let wanted = "";
  const holder = (id) => Array.from(document.querySelectorAll("#region-tabs a[data-holds]")).find((link) =>
    link.dataset.holds.split(" ").some((held) => (held.endsWith("-") ? id.startsWith(held) : id === held)));

  function show(id) {
    const part = document.getElementById(id);
    if (!part) return false;
    for (let box = part; box; box = box.parentElement) if (box.matches("details")) box.open = true;
    part.scrollIntoView();
    return true;
  }

  // The part's id stays in the address, behind the tab that htmx puts there.
  function reveal(id, tab) {
    if (!id || show(id)) return true;
    const link = tab ? document.getElementById("tab-" + tab) : holder(id);
    if (!link) return false;
    wanted = id;
    link.click();
    return true;
  }

  const hash = () => decodeURIComponent(location.hash.slice(1));
  window.addEventListener("hashchange", () => reveal(hash()));
  document.addEventListener("htmx:afterSettle", () => {
    if (!wanted || !show(wanted)) return;
    history.replaceState(history.state, "", location.pathname + location.search + "#" + wanted);
    wanted = "";
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-tab]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (reveal(link.hash.slice(1), link.dataset.tab)) event.preventDefault();
  });
  document.addEventListener("DOMContentLoaded", () => reveal(hash()));
})();
