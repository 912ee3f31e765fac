// What happens now: the total rate and the busiest keys.

import { chart, spark } from "./chart.js";
import { h, setText, table, tile } from "./dom.js";
import { bytes, count, exact, nameOf, percent, rate, span } from "./format.js";
import { keyLink } from "./keylink.js";
import { on } from "./live.js";

export function show({ main, signal }) {
  const big = h("div", { class: "big" }, "–");
  const line = chart({ label: "Hits per second over the last five minutes", unit: " hits/s" });
  const total = h("section", { class: "card", "aria-labelledby": "total-name" },
    h("div", { class: "head" },
      h("h2", { id: "total-name" }, "Hits per second"),
      h("div", { class: "legend" }, h("span", {}, "counted"), h("span", { class: "no" }, "denied")),
    ),
    big, line.element);
  const tiles = {
    keys: tile("Keys"), memory: tile("Memory"), denied: tile("Denied per second"), hits: tile("Hits since the start"),
    clients: tile("Redis clients"), up: tile("Running for"),
  };
  const { element, body } = table("Busiest keys", [["#", "rank"], ["Key"], ["Last minutes", "line wide"], ["Hits", "n"], ["per second", "n wide"]], "top");
  const note = h("p", { class: "empty" }, "Waiting for the first answer…");
  const top = h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Busiest keys"), h("a", { href: "#/keys" }, "All keys")), note, element);
  element.hidden = true;
  main.append(h("div", { class: "now" },
    h("div", { class: "now-left" }, total, h("div", { class: "tiles" }, Object.values(tiles).map((it) => it.element))),
    top));

  const rows = [];
  const row = () => {
    const made = { rank: h("td", { class: "rank soft" }), key: h("td"), spark: spark(), hits: h("td", { class: "n" }), rate: h("td", { class: "n wide" }), share: h("div", { class: "share" }) };
    made.element = h("tr", {}, made.rank, made.key, h("td", { class: "line wide" }, made.spark.element), made.hits, made.rate);
    return made;
  };

  on(["rate"], (live) => {
    if (live.hits.length === 0) return;
    const now = live.hits.at(-1);
    setText(big, count(now));
    tiles.denied.set(count(live.denied.at(-1)));
    const text = `Hits per second over the last ${span(live.hits.length * 1000)}: now ${exact(now)}, at most ${exact(Math.max(...live.hits))}; denied now ${exact(live.denied.at(-1))}`;
    line.set({ values: live.hits, denied: live.denied, start: live.end - live.hits.length, step: 1 }, text);
  }, signal);

  on(["status"], ({ status }) => {
    const { used_bytes: used, ceiling_bytes: ceiling, evicted_keys: evicted } = status.memory;
    tiles.keys.set(count(status.keys), status.loading ? "still loading" : "");
    tiles.memory.set(bytes(used), `${percent(used, ceiling)} of ${bytes(ceiling)}${evicted ? `, ${count(evicted)} keys evicted` : ""}`);
    tiles.hits.set(count(status.hits), `${count(status.denied_hits)} denied, ${count(status.refused_hits)} refused`);
    tiles.clients.set(count(status.clients), `${count(status.commands_per_s)} commands per second`);
    tiles.up.set(span((status.as_of - status.started) * 1000), `version ${status.version}`);
  }, signal);

  on(["top"], ({ top: answer }) => {
    const keys = answer.keys;
    const most = keys.length ? keys[0].hits : 0;
    element.hidden = keys.length === 0;
    note.hidden = keys.length > 0;
    note.replaceChildren("No key has hits in its window. Count one: ", h("code", {}, `curl -X POST ${location.origin}/v1/hit/user:42`));
    while (rows.length > keys.length) rows.pop().element.remove();
    while (rows.length < keys.length) {
      const made = row();
      rows.push(made);
      body.append(made.element);
    }
    keys.forEach((key, index) => {
      const made = rows[index];
      const name = nameOf(key);
      setText(made.rank, String(index + 1));
      if (made.name !== name) made.key.replaceChildren(keyLink(name), made.share);
      made.name = name;
      made.share.style.width = `${Math.max(1, (100 * key.hits) / most)}%`;
      made.spark.set(key.points);
      setText(made.hits, count(key.hits));
      made.hits.title = `${exact(key.hits)} in ${key.window}`;
      setText(made.rate, rate(key.rate));
    });
  }, signal);
}
