// A list of many rows, of which only those that are seen have elements.

import { h } from "./dom.js";

const SPARE = 6;

// `make` gives a row `{ element, focus, set(item, index) }`; `seen` is called with the items that are seen, once it is calm.
export function list({ label, make, seen }) {
  const space = h("div", { class: "space" });
  const element = h("div", { class: "list", role: "table", "aria-label": label, tabindex: "0" }, space);
  let items = [];
  let rows = [];
  let tall = 0;
  let calm = null;
  let frame = null;

  function measure() {
    const probe = h("div", { class: "line-row" });
    space.append(probe);
    tall = probe.getBoundingClientRect().height || 40;
    probe.remove();
    const wanted = Math.ceil(element.clientHeight / tall) + 2 * SPARE;
    while (rows.length > wanted) rows.pop().element.remove();
    while (rows.length < wanted) {
      const row = make();
      row.index = -1;
      row.element.classList.add("line-row");
      row.element.setAttribute("role", "row");
      rows.push(row);
      space.append(row.element);
    }
    rows.forEach((row) => (row.index = -1));
    space.style.height = `${items.length * tall}px`;
    draw();
  }

  const first = () => Math.max(0, Math.floor(element.scrollTop / tall) - SPARE);

  function draw() {
    frame = null;
    const from = first();
    for (let index = from; index < from + rows.length; index += 1) {
      const row = rows[index % rows.length];
      const item = items[index];
      row.element.hidden = !item;
      if (!item || (row.index === index && row.item === item)) continue;
      if (row.index !== index) {
        if (row.element.contains(document.activeElement)) element.focus({ preventScroll: true });
        row.element.style.transform = `translateY(${index * tall}px)`;
        row.element.setAttribute("aria-rowindex", index + 1);
        row.index = index;
      }
      row.item = item;
      row.set(item, index);
    }
    clearTimeout(calm);
    calm = setTimeout(tellSeen, 120);
  }

  function tellSeen() {
    const from = Math.floor(element.scrollTop / tall);
    const to = Math.ceil((element.scrollTop + element.clientHeight) / tall);
    seen?.(items.slice(from, to));
  }

  element.addEventListener("scroll", () => (frame ??= requestAnimationFrame(draw)), { passive: true });
  new ResizeObserver(measure).observe(element);

  element.addEventListener("keydown", (event) => {
    const page = Math.floor(element.clientHeight / tall) - 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -items.length, End: items.length };
    const step = steps[event.key];
    if (step === undefined || items.length === 0) return;
    event.preventDefault();
    const focused = rows.find((row) => row.element.contains(document.activeElement));
    const before = focused ? focused.index : Math.ceil(element.scrollTop / tall) - (step > 0 ? 1 : 0);
    const index = Math.min(items.length - 1, Math.max(0, before + step));
    const top = index * tall;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + tall > element.scrollTop + element.clientHeight) element.scrollTop = top + tall - element.clientHeight;
    draw();
    rows[index % rows.length].focus();
  });

  return {
    element,
    set(next) {
      items = next;
      element.setAttribute("aria-rowcount", items.length);
      if (tall) space.style.height = `${items.length * tall}px`;
      if (rows.length) draw();
    },
    // Sets the rows again whose items are shown.
    refresh() {
      rows.forEach((row) => row.item && !row.element.hidden && row.set(row.item, row.index));
    },
    seen: tellSeen,
  };
}
