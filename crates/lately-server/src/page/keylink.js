// A key as a link to its page. A key is any bytes: it is shown as text, isolated from the text around it.

import { h } from "./dom.js";
import { piecesOf, textOf } from "./format.js";

export const keyNodes = (name) => piecesOf(name).map(({ text, isEscape }) => (isEscape ? h("span", { class: "esc" }, text) : text));

export function keyLink(name) {
  const text = textOf(name);
  return h("a", { class: "key", href: `#/key/${name}`, title: text, dir: "ltr" }, h("bdi", {}, keyNodes(name)));
}
