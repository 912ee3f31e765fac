// Elements. Text is always set as text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

export const h = (tag, properties, ...children) => filled(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => filled(document.createElementNS(SVG, tag), properties, children);

// Sets the text if it has changed, so that screen readers and layout are left alone otherwise.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function tile(name) {
  const value = document.createTextNode("–");
  const note = h("span", { class: "note" });
  const element = h("dl", { class: "card tile" }, h("dt", {}, name), h("dd", {}, value, note));
  const set = (text, more = "") => {
    if (value.data !== text) value.data = text;
    setText(note, more);
  };
  return { element, set };
}

export function table(caption, columns, name = "") {
  const body = h("tbody");
  const heads = columns.map(([title, kind, dot]) => h("th", { scope: "col", class: kind }, dot ? h("span", { class: `dot ${dot}` }) : null, title));
  const element = h("table", { class: name, "aria-label": caption }, h("thead", {}, h("tr", {}, heads)), body);
  return { element, body };
}
