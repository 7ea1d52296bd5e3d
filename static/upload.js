// The drop zone of the start page: sends what was chosen, says how far it is, and stops it when asked to.
(function () {
  "use strict";
  // A trace alone goes off at once; where the fields for what goes with it are open, the button sends all of it.
  const withMore = (form) => form.querySelector("details[data-more][open]");
  const state = (form) => form.querySelector("[data-upload-state]");
  const size = (bytes) => (bytes < 1e6 ? (bytes / 1e3).toFixed(0) + " kB" : (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0) + " MB");

  function name(form) {
    const files = form.querySelector(".drop input[type=file]").files;
    const names = Array.from(files, (file) => file.name).join(", ");
    state(form).textContent = names ? "Chosen: " + names : "";
  }
  function chosen(input) {
    name(input.form);
    if (input.files.length && !withMore(input.form)) input.form.requestSubmit();
  }
  document.addEventListener("change", (event) => {
    if (event.target.matches(".drop input[type=file]")) chosen(event.target);
  });
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      const zone = event.target.closest ? event.target.closest(".drop") : null;
      if (!zone) return;
      event.preventDefault();
      zone.classList.toggle("over", kind === "dragenter" || kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) {
        const input = zone.querySelector("input[type=file]");
        input.files = event.dataTransfer.files;
        chosen(input);
      }
    });
  }

  function running(form, shown, cancel) {
    form.querySelector("[data-uploading]").hidden = !shown;
    form.querySelector("[data-cancel]").hidden = !cancel;
  }
  document.addEventListener("htmx:beforeSend", (event) => {
    if (!event.target.matches("form[data-upload]")) return;
    delete event.target.dataset.cancelled;
    running(event.target, true, true);
  });
  document.addEventListener("htmx:xhr:progress", (event) => {
    if (!event.target.matches("form[data-upload]") || !event.detail.lengthComputable) return;
    const { loaded, total } = event.detail, bar = event.target.querySelector("progress"), done = loaded >= total;
    bar.max = total;
    bar.value = loaded;
    // What is sent is sent: from here on the trace has its page, where its reading can be stopped.
    running(event.target, true, !done);
    const told = done ? "Reading the trace…" : `${Math.floor((100 * loaded) / total)} % of ${size(total)} sent`;
    state(event.target).textContent = told;
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-cancel]");
    if (!button) return;
    button.form.dataset.cancelled = "yes";
    window.htmx.trigger(button.form, "htmx:abort");
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const form = event.target;
    if (!form.matches("form[data-upload]")) return;
    running(form, false, false);
    // What was chosen stays for the next try; alone it is forgotten, so that choosing it again sends it again.
    if (!withMore(form)) form.querySelector(".drop input[type=file]").value = "";
    name(form);
    if (form.dataset.cancelled) state(form).textContent = "Cancelled: nothing of it was kept.";
  });
})();
