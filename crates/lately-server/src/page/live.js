// The stream of events. While the page is not seen it is closed: a browser has few connections to a server.

const SECONDS = 300;
const listeners = new Map();

export const live = { hits: [], denied: [], end: 0, status: null, alerts: null, alert: null, top: null, state: "connecting" };

let source = null;
let retry = null;
let isWanted = false;
let whenRefused = async () => {};

export function on(names, call, signal) {
  for (const name of names) {
    if (!listeners.has(name)) listeners.set(name, new Set());
    listeners.get(name).add(call);
    signal?.addEventListener("abort", () => listeners.get(name).delete(call));
  }
}

function tell(name) {
  listeners.get(name)?.forEach((call) => call(live));
}
on.again = tell;

function setState(state) {
  live.state = state;
  tell("state");
}

// Adds seconds, each once: a stream that was opened again sends some that are known.
function add({ end, hits, denied }) {
  const isGap = end - hits.length > live.end;
  const fresh = isGap ? hits.length : Math.max(0, end - live.end);
  if (isGap) [live.hits, live.denied] = [[], []];
  if (fresh > 0) {
    live.hits.push(...hits.slice(-fresh));
    live.denied.push(...denied.slice(-fresh));
  }
  live.hits = live.hits.slice(-SECONDS);
  live.denied = live.denied.slice(-SECONDS);
  live.end = Math.max(end, live.end);
  tell("rate");
}

function open() {
  clearTimeout(retry);
  if (source || !isWanted || document.hidden) return;
  source = new EventSource("/v1/events");
  const opened = source;
  source.addEventListener("open", () => setState("live"));
  source.addEventListener("history", (event) => add(JSON.parse(event.data)));
  source.addEventListener("rate", (event) => add(JSON.parse(event.data)));
  for (const name of ["status", "alerts", "alert", "top"]) {
    source.addEventListener(name, (event) => {
      live[name] = JSON.parse(event.data);
      tell(name);
    });
  }
  source.addEventListener("error", async () => {
    if (source !== opened) return;
    shut();
    setState("away");
    if (await whenRefused().catch(() => true)) retry = setTimeout(open, 1000);
  });
}

function shut() {
  source?.close();
  source = null;
}

// `refused` finds out why a stream ended: false if it is not to be opened again.
export function start(refused) {
  whenRefused = refused;
  isWanted = true;
  open();
}

export function stop() {
  isWanted = false;
  clearTimeout(retry);
  shut();
}

// What was seen is not for the next user.
export function forget() {
  Object.assign(live, { hits: [], denied: [], end: 0, status: null, alerts: null, alert: null, top: null, state: "connecting" });
}

document.addEventListener("visibilitychange", () => (document.hidden ? shut() : open()));
