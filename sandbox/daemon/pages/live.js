// Shows the events of a task while its page is open. Text is only ever set as text, never as markup.
"use strict";
const live = document.getElementById("live");
if (live) {
  const most = 200000;
  const stale = document.getElementById("stale");
  const add = (text) => {
    live.textContent = (live.textContent + text).slice(-most);
    live.scrollTop = live.scrollHeight;
  };
  const change = (text) => {
    add("--- " + text + "\n");
    stale.hidden = false;
  };
  const events = new EventSource(live.dataset.events);
  const read = (event) => JSON.parse(event.data);
  events.addEventListener("output", (event) => add(read(event).text || ""));
  events.addEventListener("started", (event) => add("--- " + (read(event).check_id || "a check") + " started\n"));
  events.addEventListener("finished", (event) => change(read(event).run.verdict));
  events.addEventListener("lost", () => change("no verdict"));
  events.addEventListener("operation", (event) => change(read(event).operation.operation));
  events.addEventListener("left-out", (event) => change(event.data + " more operations, which are not listed here"));
  events.addEventListener("closed", () => events.close());
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) add("--- not connected any more: `sandbox dashboard` opens the pages again\n");
  });
}
