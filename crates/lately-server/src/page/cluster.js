// The nodes that count together, and how it goes with their engine.

import { get, repeat } from "./api.js";
import { h, setText, table } from "./dom.js";
import { clock, count, span } from "./format.js";
import { live, on } from "./live.js";

export function show({ main, signal }) {
  const note = h("p", { class: "empty", role: "status" }, "Asking…");
  const body = h("div", { hidden: true, class: "now-left" });
  main.append(h("section", { class: "card", "aria-label": "Cluster" }, note, body));
  let isAsked = false;
  const chip = (kind, text) => h("span", { class: `chip ${kind}` }, text);
  const old = (ms) => (ms === null ? "never" : ms < 1 ? "now" : `${span(ms)} ago`);
  const said = (ms) => (ms === null ? "It was never reached." : `Reached ${old(ms)}.`);

  function nodes(answer) {
    const { element, body: rows } = table("Nodes", [["Node"], ["State"], ["Exchanged", "n"], ["Unsent hits up to", "n"], ["Unsent keys", "n"], ["Version", "wide"], ["Seen", "n wide"]]);
    rows.append(...answer.nodes.map((node) => h("tr", {},
      h("td", {}, node.node, node.node === answer.node ? [" ", chip("soft", "this one")] : null),
      h("td", {}, node.degraded ? chip("bad", node.degraded) : chip("good", "counts are exchanged")),
      h("td", { class: "n" }, old(node.staleness_ms)),
      h("td", { class: "n" }, node.lag_ms === null ? "–" : `${span(node.lag_ms)} old`),
      h("td", { class: "n" }, count(node.unsent_keys)),
      h("td", { class: "wide" }, node.version),
      h("td", { class: "n wide" }, node.last_seen === null ? "–" : clock(node.last_seen)))));
    return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Nodes" }, element);
  }

  function engine(answer) {
    const mine = answer.nodes.find((node) => node.node === answer.node);
    const list = h("div", { class: "grid2" });
    const card = (title, address, state, ...more) => h("section", { class: "card", "aria-label": title }, h("div", { class: "head" }, h("h2", {}, title), state), h("p", { class: "key" }, address), more);
    const servers = answer.engine_servers.map(({ server, slots }) => h("p", { class: "soft small" }, h("span", { class: "key" }, server), ` slots ${slots.join(", ")}`));
    const isGood = mine && !mine.degraded && !answer.list_error;
    list.append(card("Engine", answer.engine, isGood ? chip("good", "reached") : chip("bad", "trouble"), h("p", {}, mine ? `${said(mine.staleness_ms)} ` : "", answer.list_error ?? mine?.degraded ?? ""), servers));
    const up = answer.upstream;
    if (up) {
      list.append(card("Upstream engine", up.engine, up.degraded ? chip("bad", "trouble") : chip("good", "reached"),
        h("p", {}, `${said(up.staleness_ms)} ${up.degraded ?? ""}`),
        h("p", { class: "soft small" }, `Copied by ${up.aggregator ?? "a node that is not known"}; ${count(up.waiting_blocks)} blocks wait${up.away_since === null ? "" : `; away since ${clock(up.away_since)}`}.`)));
    }
    return list;
  }

  async function load() {
    // A server that counts alone has no list to ask for.
    if (live.status?.node === null) {
      setText(note, "This server counts alone. With [cluster] in its config, several servers count together.");
      return;
    }
    try {
      const answer = await get("/v1/cluster", signal);
      note.hidden = true;
      body.hidden = false;
      const listed = answer.listed === null ? "The list of nodes was not read yet." : `As of ${clock(answer.listed)}.`;
      body.replaceChildren(h("div", { class: "head" }, h("h2", {}, "Nodes"), h("span", { class: "soft small" }, listed)), nodes(answer), engine(answer));
    } catch (error) {
      if (error.name === "AbortError") throw error;
      note.hidden = false;
      body.hidden = true;
      setText(note, error.message);
    }
  }
  on(["status"], () => !isAsked && ((isAsked = true), repeat(2000, load, signal)), signal);
}
