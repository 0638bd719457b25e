// Asks for the progress again and again; the report below is fetched again when there are new facts.
(() => {
  "use strict";
  const { data } = window.sigmazero;
  const pause = data("live").milliseconds;
  const [progress, report, trouble] = ["progress", "report", "trouble"].map((id) => document.getElementById(id));
  let shown = null;

  const renew = (version) => {
    if (shown !== null && shown !== version) {
      // The reader stays where they were.
      const { scrollX, scrollY } = report.contentWindow;
      report.addEventListener("load", () => report.contentWindow.scrollTo(scrollX, scrollY), { once: true });
      report.contentWindow.location.reload();
    }
    shown = version;
  };

  const ask = async () => {
    try {
      const answer = await fetch("progress", { cache: "no-store" });
      if (!answer.ok) throw new Error(`the answer was ${answer.status}`);
      const { version, html, error } = await answer.json();
      trouble.hidden = !error;
      trouble.textContent = error || "";
      if (!error) {
        progress.innerHTML = html; // escaped where it was made, as every page is
        renew(version);
      }
    } catch {
      trouble.hidden = false;
      trouble.textContent = "Nobody answers: sigmazero view has ended. What is shown was true before.";
    }
    setTimeout(ask, pause);
  };
  ask();
})();
