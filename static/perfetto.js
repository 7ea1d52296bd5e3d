// Opens a trace in Perfetto: its window answers PONG to PING once it listens, then takes the bytes by postMessage.
(function () {
  "use strict";
  const PERFETTO = "https://ui.perfetto.dev", PING_MS = 100, GIVE_UP_MS = 60000;
  const section = document.getElementById("perfetto"), said = section.querySelector("[data-perfetto-said]");
  const say = (text) => { said.textContent = text; };

  function listening(target) {
    return new Promise((resolve, reject) => {
      const ends = Date.now() + GIVE_UP_MS;
      const timer = setInterval(() => {
        if (target.closed || Date.now() > ends) done(reject, new Error("Perfetto did not answer. Download the file and open it by hand."));
        else target.postMessage("PING", PERFETTO);
      }, PING_MS);
      function answered(event) {
        if (event.source === target && event.origin === PERFETTO && event.data === "PONG") done(resolve);
      }
      function done(how, value) {
        clearInterval(timer);
        window.removeEventListener("message", answered);
        how(value);
      }
      window.addEventListener("message", answered);
    });
  }

  // The window is opened first: a browser allows it only right after a click.
  async function hand(bytes, title) {
    const target = window.open(PERFETTO);
    if (!target) { say("The browser blocked the window. Allow it for this page, or open the file by hand."); return; }
    try {
      say("Waiting for Perfetto …");
      const [buffer] = await Promise.all([bytes(), listening(target)]);
      target.postMessage({ perfetto: { buffer, title, fileName: title } }, PERFETTO);
      say("Handed to Perfetto.");
    } catch (error) {
      say(error.message);
    }
  }

  async function fetched(address) {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error("The server no longer has this file. Drop yours below.");
    return answer.arrayBuffer();
  }

  section.querySelectorAll("[data-perfetto]").forEach((button) => {
    button.addEventListener("click", () => hand(() => fetched(button.dataset.perfetto), section.dataset.title));
  });
  const drop = section.querySelector("[data-perfetto-drop]"), input = drop.querySelector("input");
  const own = (file) => { if (file) hand(() => file.arrayBuffer(), file.name); };
  input.addEventListener("change", () => own(input.files[0]));
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); drop.classList.remove("over"); own(event.dataTransfer.files[0]); });
})();
