// Loaded without defer in <head>: the theme stands before the first paint.
(function () {
  "use strict";
  var kept = null;
  try { kept = localStorage.getItem("theme"); } catch (e) { /* storage refused: the system's theme stays */ }
  var root = document.documentElement;
  root.classList.add("js");
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
})();
