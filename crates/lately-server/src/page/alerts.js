// The alerts: what fires and by which keys, the rules with their totals, and what has ended lately.

import { h, setText, table } from "./dom.js";
import { clock, count, exact, nameOf, percent, rate, span } from "./format.js";
import { keyLink } from "./keylink.js";
import { on } from "./live.js";

const KINDS = { firing: "bad", pending: "warn", quiet: "soft" };
const FILLS = { firing: "no", pending: "warn", quiet: "" };

// What the hits of a rule are compared with: as words, and as hits if that is known.
function bound({ kind, threshold, baseline }) {
  if (kind === "above") return { text: `more than ${exact(threshold)}`, hits: threshold };
  if (kind === "below") return { text: `fewer than ${exact(threshold)}`, hits: threshold };
  const usual = baseline === null ? "" : `, ${rate(baseline)}`;
  return { text: `more than ${threshold} times the usual${usual}`, hits: baseline === null ? null : threshold * baseline };
}

function meter() {
  const fill = h("i");
  const element = h("div", { class: "meter", role: "img" }, fill);
  return {
    element,
    set(rule) {
      const { text, hits } = bound(rule);
      fill.className = FILLS[rule.state];
      fill.style.width = `${hits ? Math.min(100, (100 * rule.hits) / hits) : 0}%`;
      element.setAttribute("aria-label", `${exact(rule.hits)} hits; it fires at ${text}`);
    },
  };
}

const chip = (state) => h("span", { class: `chip ${KINDS[state]}` }, state);
const when = (at, now) => clock(at, now - at);

// An alert that fires or is pending.
function card() {
  const title = h("h2");
  const since = h("span", { class: "soft small" });
  const hits = h("span", { class: "big" });
  const about = h("p", { class: "soft" });
  const fill = meter();
  const keys = table("Keys with the most hits when it started", [["Key"], ["Hits", "n"], ["Share", "n"]], "top");
  const noKeys = h("p", { class: "soft small" });
  const element = h("section", { class: "card" }, h("div", { class: "head" }, title, since), hits, about, fill.element, keys.element, noKeys);
  let shown = "";
  return {
    element,
    set(alert, now) {
      element.className = `card ${alert.state}`;
      element.setAttribute("aria-label", `${alert.name}, ${alert.state}`);
      const head = `${alert.name} ${alert.state}`;
      if (shown.head !== head) title.replaceChildren(alert.name, " ", chip(alert.state));
      setText(since, `since ${when(alert.since, now)}, for ${span(Math.max(0, now - alert.since) * 1000)}`);
      setText(hits, count(alert.hits));
      setText(about, `hits of ${alert.match} in ${alert.window}. It fires at ${bound(alert).text}. The most so far: ${exact(alert.peak)}.`);
      fill.set(alert);
      const causes = JSON.stringify(alert.keys);
      if (shown.causes !== causes) {
        keys.body.replaceChildren(...alert.keys.map((cause) => {
          const share = h("div", { class: "share" });
          share.style.width = `${Math.max(1, 100 * cause.share)}%`;
          return h("tr", {}, h("td", {}, keyLink(nameOf(cause)), share), h("td", { class: "n" }, count(cause.hits)), h("td", { class: "n" }, percent(cause.share, 1)));
        }));
      }
      keys.element.hidden = alert.keys.length === 0;
      setText(noKeys, alert.keys.length ? "The keys with the most hits when it started." : alert.state === "pending" ? "It has to last before it fires." : "No key had hits in the window when it started.");
      shown = { head, causes };
    },
  };
}

function rule() {
  const state = h("td");
  const hits = h("td", { class: "n" });
  const fill = meter();
  const text = h("div", { class: "soft small" });
  const starts = h("td", { class: "n wide" });
  const name = h("td");
  const element = h("tr", {}, name, state, hits, h("td", { class: "wide answers" }, fill.element), starts);
  let shown = "";
  return {
    element,
    set(of) {
      const about = `${of.name} ${of.match} ${of.window}`;
      if (shown.about !== about) name.replaceChildren(of.name, h("div", { class: "small" }, `hits of ${of.match} in ${of.window}`), text);
      if (shown.state !== of.state) state.replaceChildren(chip(of.state));
      shown = { about, state: of.state };
      setText(text, bound(of).text);
      setText(hits, count(of.hits));
      fill.set(of);
      setText(starts, exact(of.starts));
    },
  };
}

// Rows that stay where they are while their number is the same: what has the focus keeps it.
function rows(parent, make) {
  const all = [];
  return (items, now) => {
    while (all.length > items.length) all.pop().element.remove();
    while (all.length < items.length) {
      all.push(make());
      parent.append(all.at(-1).element);
    }
    items.forEach((item, index) => all[index].set(item, now));
  };
}

export function show({ main, signal }) {
  const calm = h("p", { class: "card empty", role: "status" }, "Waiting for the first answer…");
  const cards = h("div", { class: "grid2", hidden: true });
  const rules = table("Rules", [["Rule"], ["State"], ["Hits in its window", "n"], ["Against its threshold", "wide answers"], ["Started", "n wide"]]);
  const ended = table("Alerts that ended lately", [["Alert"], ["Ended"], ["Lasted", "n wide"], ["Most hits", "n"], ["Most by", "wide"]]);
  const section = (id, title, note, { element }) => h("section", { class: "card", "aria-labelledby": id, hidden: true },
    h("div", { class: "head" }, h("h2", { id }, title), h("span", { class: "soft small" }, note)),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, element));
  const ruleCard = section("alert-rules", "Rules", "each compares the hits of all its keys", rules);
  const endedCard = section("alert-ended", "Ended lately", "since the start of the server", ended);
  main.append(calm, cards, ruleCard, endedCard);
  const setCards = rows(cards, card);
  const setRules = rows(rules.body, rule);
  let before = "";

  on(["alerts"], ({ alerts: answer }) => {
    const now = answer.as_of;
    const order = ["firing", "pending"];
    const active = answer.alerts.toSorted((one, other) => order.indexOf(one.state) - order.indexOf(other.state));
    setCards(active, now);
    cards.hidden = active.length === 0;
    calm.hidden = active.length > 0;
    const all = answer.rules.length;
    if (all) setText(calm, `Nothing fires. ${all === 1 ? "One rule is" : `${exact(all)} rules are`} watched.`);
    else calm.replaceChildren("The config has no alerts. One looks like this: ", h("code", {}, '[[alert]] name = "ddos" match = "endpoint:*" above = 10_000 window = "10s"'));
    ruleCard.hidden = all === 0;
    setRules(answer.rules, now);
    const text = JSON.stringify(answer.ended);
    if (before === text) return;
    before = text;
    endedCard.hidden = answer.ended.length === 0;
    ended.body.replaceChildren(...answer.ended.map((alert) => h("tr", {},
      h("td", {}, alert.name),
      h("td", {}, when(alert.ended_at, now)),
      h("td", { class: "n wide" }, span((alert.ended_at - alert.since) * 1000)),
      h("td", { class: "n" }, count(alert.peak)),
      h("td", { class: "wide" }, alert.keys.slice(0, 1).map((cause) => [keyLink(nameOf(cause)), h("span", { class: "soft small" }, percent(cause.share, 1))]).flat()))));
  }, signal);
}
