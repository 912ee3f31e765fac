// One key: its hits in any window, what limits say of it, its distinct members.

import { Failed, get, repeat } from "./api.js";
import { chart } from "./chart.js";
import { h, setText, table, tile } from "./dom.js";
import { clock, count, exact, pathOf, percent, rate, seconds, span, textOf } from "./format.js";
import { keyNodes } from "./keylink.js";

const WINDOWS = ["1m", "5m", "1h", "1d", "7d"];

export function show({ main, signal, name, query }) {
  const text = textOf(name);
  document.title = `${text.slice(0, 60)} – Lately`;
  main.replaceChildren();
  let window = query.get("window") ?? "";
  const buttons = WINDOWS.map((value) => h("button", { type: "button", "aria-pressed": "false", onclick: () => choose(value) }, value));
  const own = h("input", { id: "key-window", size: "6", placeholder: "90s", autocomplete: "off" });
  const form = h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    if (own.value.trim()) choose(own.value.trim());
  } }, h("label", { for: "key-window", class: "soft small" }, "Other"), own);
  const error = h("p", { class: "error", role: "alert", hidden: true });
  const state = h("p", { class: "row small" });
  const bars = chart({ label: "Hits in the window", kind: "bars", unit: " hits" });
  const step = h("span", { class: "soft small" });
  const values = table("Hits in each step", [["From"], ["Hits", "n"]]);
  const tiles = { hits: tile("Hits"), rate: tile("Per second"), denied: tile("Denied"), unique: tile("Distinct members") };
  tiles.unique.element.hidden = true;
  const limits = table("Limits", [["Limit"], ["Used", "wide"], ["Left", "n"], ["Next request"]]);
  const limitCard = h("section", { class: "card", "aria-labelledby": "key-limits", hidden: true },
    h("div", { class: "head" }, h("h2", { id: "key-limits" }, "Limits"), h("span", { class: "soft small" }, "what each would answer the next request of this key")),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Limits" }, limits.element));
  const details = h("details", {}, h("summary", {}, "Values as a table"), h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Values" }, values.element));

  main.append(
    h("section", { class: "card", "aria-label": "The key" },
      h("div", { class: "head" }, h("h1", { class: "key", dir: "ltr" }, h("bdi", {}, keyNodes(name))), state),
      h("div", { class: "row" }, buttons, form), error),
    h("div", { class: "tiles" }, Object.values(tiles).map((it) => it.element)),
    h("section", { class: "card", "aria-labelledby": "key-hits" }, h("div", { class: "head" }, h("h2", { id: "key-hits" }, "Hits in the window"), step), bars.element, details),
    limitCard);

  function choose(value) {
    window = value;
    history.replaceState(null, "", `#/key/${name}?window=${encodeURIComponent(value)}`);
    load().catch(() => {});
  }

  const chip = (kind, text) => h("span", { class: `chip ${kind}` }, text);

  let asked = 0;
  async function load() {
    asked += 1;
    const mine = asked;
    try {
      const about = await get(pathOf("key", name, window ? { window } : {}), signal);
      const at = { window: about.window };
      const [hits, series, unique] = await Promise.all([
        get(pathOf("hits", name, at), signal),
        get(pathOf("series", name, at), signal),
        about.unique ? get(pathOf("unique", name, at), signal) : null,
      ]);
      if (mine !== asked) return;
      error.hidden = true;
      fill(about, hits, series, unique);
    } catch (failure) {
      if (failure.name === "AbortError" || mine !== asked) return;
      if (!(failure instanceof Failed)) throw failure;
      setText(error, failure.message);
      error.hidden = false;
    }
  }

  function fill(about, hits, series, unique) {
    const { hits: number, lower, upper, rate: perSecond } = hits.windows[0];
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(seconds(button.textContent) === seconds(about.window))));
    const isExact = lower === number && upper === number;
    tiles.hits.set(count(number), `in ${about.window}${isExact ? ", exact" : `: between ${exact(lower)} and ${upper === null ? "an unknown number" : exact(upper)}`}`);
    tiles.rate.set(rate(perSecond));
    tiles.denied.set(count(about.denied), `${percent(about.denied, about.denied + number)} of all requests`);
    tiles.unique.element.hidden = unique === null;
    if (unique) tiles.unique.set(count(unique.unique), unique.lower === unique.upper ? "exact" : "estimated");
    const now = about.as_of;
    const chips = [];
    if (!about.exists) chips.push(chip("soft", "no hits, no limit in force"));
    if (about.locked_until !== null) chips.push(chip("bad", `locked out for ${span((about.locked_until - now) * 1000)}`));
    chips.push(h("span", { class: "soft" }, `steps of ${about.resolution}, kept for ${about.retain}`));
    if (hits.staleness_ms) chips.push(h("span", { class: "soft" }, `other nodes: ${span(hits.staleness_ms)} old`));
    state.replaceChildren(...chips);
    const points = series.points.map((point) => point.hits);
    setText(step, `each bar is ${series.step}`);
    const most = Math.max(0, ...points);
    bars.set({ values: points, start: series.points[0]?.start ?? now, step: seconds(series.step) ?? 1 },
      `Hits in each ${series.step} of ${about.window}: ${exact(number)} in all, at most ${exact(most)}`);
    if (details.open) fillValues(series);
    details.ontoggle = () => details.open && fillValues(series);
    limitCard.hidden = about.limits.length === 0;
    limits.body.replaceChildren(...about.limits.map((limit) => {
      const used = Math.max(0, limit.max - limit.remaining);
      const share = Math.min(100, limit.max ? (100 * used) / limit.max : 100);
      const fill = h("i", { class: share >= 100 ? (limit.shadow ? "warn" : "no") : share >= 80 ? "warn" : "" });
      fill.style.width = `${share}%`;
      // A limit in shadow allows all; nothing left is what it would have denied.
      const isFull = !limit.allowed || limit.remaining <= 0;
      const wait = limit.retry_after_ms === null ? "" : limit.retry_after_ms > 0 ? ` for ${span(limit.retry_after_ms)}` : "";
      const answer = !isFull ? chip("good", "allowed") : limit.shadow ? chip("warn", "would be denied") : chip("bad", `denied${wait}`);
      return h("tr", {},
        h("td", {}, h("a", { href: "#/limits" }, limit.limit), limit.shadow ? [" ", chip("soft", "shadow")] : null, h("div", { class: "small" }, `${exact(limit.max)} in ${limit.window}`)),
        h("td", { class: "wide answers" }, h("div", { class: "meter", role: "img", "aria-label": `${exact(used)} of ${exact(limit.max)} used` }, fill)),
        h("td", { class: "n" }, exact(limit.remaining)),
        h("td", {}, answer));
    }));
  }

  function fillValues(series) {
    const long = seconds(series.window) ?? 0;
    values.body.replaceChildren(...series.points.map((point) => h("tr", {}, h("td", {}, clock(point.start, long)), h("td", { class: "n" }, exact(point.hits)))));
  }

  repeat(2000, load, signal);
}
