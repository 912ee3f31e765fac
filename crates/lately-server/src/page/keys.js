// All keys of a window, the most-hit first: up to 10,000, of which only those that are seen are drawn.

import { get, repeat } from "./api.js";
import { spark } from "./chart.js";
import { h, setText } from "./dom.js";
import { count, exact, nameOf, pathOf, rate, clock } from "./format.js";
import { keyLink } from "./keylink.js";
import { list } from "./list.js";

const MOST = 10000;
const WINDOWS = [["", "each key's own"], ["1m", "1 minute"], ["5m", "5 minutes"], ["1h", "1 hour"], ["1d", "1 day"], ["7d", "7 days"]];
// A small chart is asked for again after this long, and few at once.
const FRESH_MS = 15000;
const AT_ONCE = 4;

export function show({ main, signal, query }) {
  const chosen = h("select", { id: "keys-window" }, WINDOWS.map(([value, text]) => h("option", { value }, text)));
  chosen.value = query.get("window") ?? "";
  const prefix = h("input", { id: "keys-prefix", type: "search", placeholder: "such as user:", spellcheck: "false", autocapitalize: "off" });
  prefix.value = query.get("prefix") ?? "";
  const note = h("p", { class: "soft small", role: "status" }, "Asking…");
  const charts = new Map();
  let asking = 0;
  let wanted = [];

  const rows = list({
    label: "Keys by their hits",
    make() {
      const parts = { rank: h("span", { class: "soft num", role: "cell" }), key: h("span", { role: "cell" }), spark: spark(), hits: h("span", { class: "num", role: "cell" }), rate: h("span", { class: "num wide", role: "cell" }) };
      const element = h("div", { class: "cols" }, parts.rank, parts.key, h("span", { class: "wide", role: "cell" }, parts.spark.element), parts.hits, parts.rate);
      return {
        element,
        focus: () => parts.key.firstChild?.focus({ preventScroll: true }),
        set(item, index) {
          setText(parts.rank, exact(index + 1));
          if (parts.name !== item.name) parts.key.replaceChildren(keyLink(item.name));
          parts.name = item.name;
          setText(parts.hits, count(item.hits));
          setText(parts.rate, rate(item.rate));
          parts.spark.set(charts.get(item.name)?.points);
        },
      };
    },
    seen(items) {
      wanted = items;
      fetchCharts();
    },
  });

  function fetchCharts() {
    const now = Date.now();
    while (asking < AT_ONCE) {
      const item = wanted.find(({ name }) => !(charts.get(name)?.at > now - FRESH_MS));
      if (!item || signal.aborted) return;
      charts.set(item.name, { at: now, points: charts.get(item.name)?.points });
      asking += 1;
      get(pathOf("series", item.name, { window: item.window }), signal)
        .then(({ points }) => charts.set(item.name, { at: now, points: points.map((point) => point.hits) }))
        .catch(() => {})
        .finally(() => {
          asking -= 1;
          if (charts.size > 2 * MOST) charts.clear();
          rows.refresh();
          fetchCharts();
        });
    }
  }

  let asked = 0;
  async function load() {
    asked += 1;
    const mine = asked;
    const parameters = new URLSearchParams({ k: MOST });
    if (chosen.value) parameters.set("window", chosen.value);
    if (prefix.value) parameters.set("prefix", prefix.value);
    try {
      const answer = await get(`/v1/top?${parameters}`, signal);
      if (mine !== asked) return;
      const items = answer.keys.map((key) => ({ name: nameOf(key), hits: key.hits, rate: key.rate, window: key.window }));
      rows.element.hidden = names.hidden = items.length === 0;
      rows.set(items);
      rows.seen();
      const more = answer.keys.length === MOST ? `; others have at most ${answer.others_upper === null ? "an unknown number of" : exact(answer.others_upper)} hits` : "";
      setText(note, items.length ? `${exact(items.length)} ${items.length === 1 ? "key" : "keys"} with hits, as of ${clock(answer.as_of)}${more}` : "No such key has hits in the window.");
    } catch (error) {
      if (error.name !== "AbortError") setText(note, error.message);
    }
  }

  // The more keys, the longer until the next look: each one reads them all.
  const again = () => {
    const begun = performance.now();
    return load().then(() => new Promise((done) => setTimeout(done, Math.min(30000, 20 * (performance.now() - begun)))));
  };
  chosen.addEventListener("change", load);
  let typed;
  prefix.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(load, 200);
  });

  const names = h("div", { class: "cols names", "aria-hidden": "true" }, h("span", { class: "num" }, "#"), h("span", {}, "Key"), h("span", { class: "wide" }, "In its window"), h("span", { class: "num" }, "Hits"), h("span", { class: "num wide" }, "per second"));
  main.append(h("section", { class: "card", "aria-label": "Keys" },
    h("div", { class: "head" },
      h("div", { class: "row" },
        h("label", { for: "keys-window", class: "soft small" }, "Window"), chosen,
        h("label", { for: "keys-prefix", class: "soft small" }, "Begins with"), prefix),
      note),
    names,
    rows.element));
  repeat(5000, again, signal);
}
