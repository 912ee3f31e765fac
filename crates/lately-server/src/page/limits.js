// The limits of the config and the rules of envoyproxy/ratelimit, what they answered, and what those in shadow would have denied.

import { get, repeat } from "./api.js";
import { h, setText, table } from "./dom.js";
import { count, exact, percent, rate } from "./format.js";

// Rules that are shown: those that denied most.
const MOST_RULES = 200;

export function show({ main, signal }) {
  const { element, body } = table("Limits", [["Limit"], ["Answers", "wide answers"], ["Allowed", "n wide", "a"], ["Denied", "n", "no"], ["Would deny", "n", "warn"], ["Denied per second", "n wide"]]);
  const note = h("p", { class: "empty" }, "Asking…");
  const box = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Limits", hidden: true }, element);
  main.append(h("section", { class: "card", "aria-labelledby": "limits-name" },
    h("div", { class: "head" }, h("h2", { id: "limits-name" }, "Named limits"), h("span", { class: "soft small" }, "requests since the start, by the answer")),
    note, box));
  const ruled = table("Rules", [["Rule"], ["Answers", "wide answers"], ["Within", "n wide", "a"], ["Over", "n", "no"], ["Over in shadow", "n", "warn"]]);
  const ruleNote = h("span", { class: "soft small" });
  const ruleCard = h("section", { class: "card", "aria-labelledby": "rules-name", hidden: true },
    h("div", { class: "head" }, h("h2", { id: "rules-name" }, "Rules of envoyproxy/ratelimit"), ruleNote),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Rules" }, ruled.element));
  main.append(ruleCard);
  const before = new Map();
  const rows = new Map();
  const chip = (kind, text) => h("span", { class: `chip ${kind}` }, text);

  function row(limit) {
    const cells = { allowed: h("td", { class: "n wide" }), denied: h("td", { class: "n" }), would: document.createTextNode(""), share: h("span", { class: "wide" }), speed: h("td", { class: "n wide" }) };
    const parts = ["", "no", "warn"].map((kind) => h("i", { class: kind }));
    const meter = h("div", { class: "meter", role: "img" }, parts);
    const rule = `${exact(limit.max)} in ${limit.window}${limit.lockout ? `, then locked out for ${limit.lockout}` : ""}`;
    const made = h("tr", {},
      h("td", {}, limit.name, limit.shadow ? [" ", chip("warn", "shadow")] : null, limit.overdraft ? [" ", chip("soft", "overdraft")] : null,
        h("div", { class: "small" }, rule),
        h("div", { class: "soft small key" }, limit.key ?? (limit.domain ? `domain ${limit.domain}` : "by name"))),
      h("td", { class: "wide" }, meter), cells.allowed, cells.denied, h("td", { class: "n" }, cells.would, cells.share), cells.speed);
    return { made, cells, parts, meter };
  }

  function ruleRow(rule) {
    const denied = rule.over - rule.over_in_shadow;
    const parts = [[rule.within, ""], [denied, "no"], [rule.over_in_shadow, "warn"]].map(([part, kind]) => {
      const fill = h("i", { class: kind });
      fill.style.width = `${rule.hits ? (100 * part) / rule.hits : 0}%`;
      return fill;
    });
    const label = `${percent(denied, rule.hits)} over the limit, ${percent(rule.over_in_shadow, rule.hits)} over it in shadow`;
    return h("tr", {},
      h("td", {}, rule.rule, rule.shadow ? [" ", chip("warn", "shadow")] : null,
        h("div", { class: "small" }, rule.max === null ? "no limit of its own" : `${exact(rule.max)} per ${rule.unit}`),
        h("div", { class: "soft small key" }, `domain ${rule.domain}`)),
      h("td", { class: "wide" }, h("div", { class: "meter", role: "img", "aria-label": label }, parts)),
      h("td", { class: "n wide" }, count(rule.within)), h("td", { class: "n" }, count(denied)),
      h("td", { class: "n" }, rule.shadow ? count(rule.over_in_shadow) : "–"));
  }

  function showRules(rules) {
    ruleCard.hidden = rules.length === 0;
    rules.sort((one, other) => other.over - one.over || other.hits - one.hits);
    setText(ruleNote, rules.length > MOST_RULES ? `the ${MOST_RULES} of ${exact(rules.length)} with the most hits over their limit` : "hits since the start, by the answer");
    ruled.body.replaceChildren(...rules.slice(0, MOST_RULES).map(ruleRow));
  }

  async function load() {
    let answer;
    try {
      answer = await get("/v1/limits", signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      setText(note, error.message);
      note.hidden = false;
      return;
    }
    showRules(answer.rules);
    box.hidden = answer.limits.length === 0;
    note.hidden = answer.limits.length > 0;
    note.replaceChildren("The config has no named limits. One looks like this: ", h("code", {}, '[[limit]] name = "login" max = 5 window = "1m" shadow = true'));
    const names = new Set(answer.limits.map((limit) => limit.name));
    for (const [name, { made }] of rows) if (!names.has(name)) rows.delete(name), made.remove();
    for (const limit of answer.limits) {
      if (!rows.has(limit.name)) {
        rows.set(limit.name, row(limit));
        body.append(rows.get(limit.name).made);
      }
      const { cells, parts, meter } = rows.get(limit.name);
      const { allowed, denied, would_deny: would } = limit;
      const all = allowed + denied + would;
      [allowed, denied, would].forEach((part, index) => (parts[index].style.width = `${all ? (100 * part) / all : 0}%`));
      meter.setAttribute("aria-label", `${percent(denied, all)} denied, ${percent(would, all)} would be denied`);
      setText(cells.allowed, count(allowed));
      setText(cells.denied, count(denied));
      setText(cells.would, limit.shadow ? count(would) : "–");
      setText(cells.share, limit.shadow ? ` (${percent(would, all)})` : "");
      const last = before.get(limit.name);
      const passed = last ? answer.as_of - last.at : 0;
      setText(cells.speed, passed > 0 ? rate(Math.max(0, denied + would - last.stopped) / passed) : "–");
      before.set(limit.name, { at: answer.as_of, stopped: denied + would });
    }
  }
  // The more limits, the longer until the next look.
  const again = () => {
    const begun = performance.now();
    return load().then(() => new Promise((done) => setTimeout(done, Math.min(30000, 20 * (performance.now() - begun)))));
  };
  repeat(2000, again, signal);
}
