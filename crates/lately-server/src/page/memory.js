// What the memory is taken by, what was evicted for want of it, and the journal.

import { h, setText, table, tile } from "./dom.js";
import { bytes, count, exact, percent } from "./format.js";
import { on } from "./live.js";

const PARTS = [
  ["keys_bytes", "Keys and hits", "a"],
  ["connection_bytes", "Connections", "b"],
  ["journal_bytes", "Journal", "c"],
  ["dump_bytes", "Dumps and long answers", "d"],
  ["cluster_bytes", "Counts for other nodes and databases", "e"],
  ["fragmented_bytes", "Fragmentation", "f"],
];

export function show({ main, signal }) {
  const stack = h("div", { class: "meter stack", role: "img" });
  const bars = PARTS.map(([, , kind]) => h("i", { class: kind }));
  stack.append(...bars);
  const used = h("span", { class: "soft" });
  const { element, body } = table("Memory by its parts", [["Part"], ["Bytes", "n"], ["Share", "n"]]);
  const cells = PARTS.map(([, name, kind]) => {
    const made = { size: h("td", { class: "n" }), share: h("td", { class: "n" }) };
    body.append(h("tr", {}, h("td", {}, h("span", { class: `dot ${kind}` }), name), made.size, made.share));
    return made;
  });
  const tiles = {
    process: tile("Process"), evicted: tile("Evicted keys"), expired: tile("Expired keys"), ids: tile("Ids of hits"),
    refused: tile("Refused hits"), journal: tile("Journal"),
  };
  main.append(
    h("section", { class: "card", "aria-labelledby": "memory-name" }, h("div", { class: "head" }, h("h2", { id: "memory-name" }, "Memory under the ceiling"), used), stack, element),
    h("div", { class: "tiles" }, Object.values(tiles).map((it) => it.element)));

  on(["status"], ({ status }) => {
    const { memory, journal } = status;
    const ceiling = memory.ceiling_bytes;
    setText(used, `${bytes(memory.used_bytes)} of ${bytes(ceiling)}: ${percent(memory.used_bytes, ceiling)}`);
    stack.setAttribute("aria-label", `${percent(memory.used_bytes, ceiling)} of the ceiling are used`);
    PARTS.forEach(([part], index) => {
      bars[index].style.width = `${ceiling ? (100 * memory[part]) / ceiling : 0}%`;
      setText(cells[index].size, bytes(memory[part]));
      setText(cells[index].share, percent(memory[part], ceiling));
    });
    tiles.process.set(memory.resident_bytes === null ? "–" : bytes(memory.resident_bytes), "resident memory");
    tiles.evicted.set(count(memory.evicted_keys), memory.evicted_keys ? "with hits in their retention, for want of room" : "none had to go");
    tiles.expired.set(count(memory.expired_keys), "after their last hit left the retention");
    tiles.ids.set(bytes(memory.id_bytes), memory.forgotten_ids ? `${exact(memory.forgotten_ids)} forgotten early` : "none forgotten early");
    tiles.refused.set(count(status.refused_hits), "late, too far ahead, or without room");
    if (journal) tiles.journal.set(bytes(journal.log_bytes), `after a checkpoint of ${bytes(journal.checkpoint_bytes)}; ${journal.failures ? `${exact(journal.failures)} failures` : "no failure"}`);
    else tiles.journal.set("off", "counts are in memory only");
  }, signal);
}
