// The dashboard: which view is shown, and what is around it.

import * as alerts from "./alerts.js";
import { logOut, onLoggedOut, session } from "./api.js";
import * as cluster from "./cluster.js";
import { h, setText } from "./dom.js";
import { bytes, normal } from "./format.js";
import * as key from "./key.js";
import * as keys from "./keys.js";
import * as limits from "./limits.js";
import { forget, live, on, start, stop } from "./live.js";
import * as login from "./login.js";
import * as memory from "./memory.js";
import * as now from "./now.js";

const VIEWS = { "": now, keys, key, limits, alerts, cluster, memory };
const TITLES = { "": "Now", keys: "Keys", key: "Key", limits: "Limits", alerts: "Alerts", cluster: "Cluster", memory: "Memory" };

const at = (id) => document.getElementById(id);
const main = at("main");
let current = null;
// Who looks; null before that is known, and while nobody is logged in.
let who = null;

function clear(title) {
  current?.abort();
  current = new AbortController();
  main.replaceChildren(h("h1", { class: "unseen" }, title));
  document.title = `${title} – Lately`;
}

function route() {
  if (!who) return;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/");
  const view = Object.hasOwn(VIEWS, first) ? first : "";
  const name = normal(rest.join("/"));
  clear(TITLES[view]);
  for (const tab of document.querySelectorAll("#tabs a")) {
    if (tab.getAttribute("href") === `#/${view === "key" ? "keys" : view}`) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  if (view === "key" ? name === "" || who.reads === "none" : who.reads !== "all") {
    const text = view === "key" && name === "" ? "Which key? Type it above."
      : who.reads === "some" ? `${who.user} may read some keys, not all: type one of them above to open it.`
      : `${who.user} has no permission to read.`;
    return main.append(h("p", { class: "card empty" }, text));
  }
  VIEWS[view].show({ main, signal: current.signal, name, query: new URLSearchParams(query) });
  // What is known already is shown at once.
  if (live.end) on.again("rate");
  for (const event of ["status", "alerts", "top"]) if (live[event]) on.again(event);
}

function showState() {
  const { status, state } = live;
  const wrong = status?.problems ?? [];
  const [text, kind] = !who ? ["not logged in", ""]
    : who.reads !== "all" ? ["not live", ""]
    : state === "away" ? ["no connection", "bad"]
    : state !== "live" ? ["connecting", ""]
    : status?.loading ? ["loading", "warn"]
    : wrong.length ? ["degraded", "warn"]
    : ["live", "good"];
  setText(at("link"), text);
  at("link").className = `pill ${kind}`;
  setText(at("node"), status?.node ?? "");
  const lines = [...wrong];
  if (who && state === "away") lines.unshift("The server cannot be reached. What is shown is old.");
  if (status?.loading) lines.push(`The server is loading its counts: ${bytes(status.loading.done_bytes)} of ${bytes(status.loading.total_bytes)}.`);
  setText(at("problems"), lines.join("\n"));
  at("problems").hidden = lines.length === 0;
}
on(["state", "status"], showState);

function showFiring() {
  const firing = live.alerts?.alerts.filter((alert) => alert.state === "firing").length ?? 0;
  const badge = at("firing");
  if (badge.textContent !== `${firing} firing`) badge.replaceChildren(String(firing), h("span", { class: "unseen" }, " firing"));
  badge.hidden = firing === 0;
}
on(["alerts"], showFiring);
on(["alert"], ({ alert }) => setText(at("news"), `Alert ${alert.data.name} ${alert.data.state === "ended" ? "ended" : "started"}`));

// Finds out who looks, and shows the form if that is nobody.
async function enter() {
  try {
    who = await session();
  } catch {
    setTimeout(enter, 2000);
    live.state = "away";
    return showState();
  }
  at("logout").hidden = !who?.user;
  at("open").hidden = at("tabs").hidden = !who;
  if (!who) return leave();
  if (who.reads === "all") start(isStillIn);
  showState();
  route();
}

function leave() {
  who = null;
  stop();
  forget();
  showFiring();
  at("logout").hidden = at("open").hidden = at("tabs").hidden = true;
  showState();
  clear("Log in");
  login.show({ main, done: enter });
}

// Whether a stream that ended is to be opened again.
async function isStillIn() {
  const found = await session();
  if (!found) leave();
  else if (found.reads !== who?.reads) enter();
  return found?.reads === "all";
}

onLoggedOut(() => who && leave());
at("logout").addEventListener("click", async () => {
  await logOut().catch(() => {});
  leave();
});

const THEMES = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const showTheme = () => setText(at("theme"), THEMES[document.documentElement.dataset.theme ?? ""]);
at("theme").addEventListener("click", () => {
  const order = Object.keys(THEMES);
  const next = order[(order.indexOf(document.documentElement.dataset.theme ?? "") + 1) % order.length];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  try {
    if (next) localStorage.setItem("lately-theme", next);
    else localStorage.removeItem("lately-theme");
  } catch {
    // Without storage the choice is for this page.
  }
  showTheme();
});
showTheme();

at("open").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = at("open-key");
  if (input.value === "") return;
  location.hash = `#/key/${encodeURIComponent(input.value)}`;
  input.value = "";
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
enter();
