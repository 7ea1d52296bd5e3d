// On paper nobody opens what is folded, and a chart drawn for a window is wider than the sheet. Afterwards all is as it was.
(function () {
  "use strict";
  const SHEET = 690; // CSS pixels between the margins of A4
  let opened = [], scaled = [];
  window.addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("main details:not([open])")).filter((part) => !part.closest("[data-no-print]"));
    for (const part of opened) part.open = true;
    scaled = Array.from(document.querySelectorAll(".plot[data-drawn]")).filter((plot) => plot.clientWidth > SHEET);
    for (const plot of scaled) plot.style.zoom = String(SHEET / plot.clientWidth);
  });
  window.addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
    for (const plot of scaled) plot.style.zoom = "";
    opened = [];
    scaled = [];
  });
})();
