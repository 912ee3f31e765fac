// Charts, as SVG by hand.

import { h, s, setText } from "./dom.js";
import { clock, count, exact } from "./format.js";

// The first of 1, 2, 5, 10, 20, … that is not below.
function nice(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value - 1e-9);
}

// A chart of values over time. `lines` are the classes of further series; `kind` is "area" or "bars".
export function chart({ label, kind = "area", unit = "", format = count }) {
  const svg = s("svg", { class: "chart", role: "img", "aria-label": label });
  const tip = h("div", { class: "tip", hidden: true });
  const element = h("figure", {}, svg, tip);
  let data = { values: [], denied: [], start: 0, step: 1 };
  let place = { left: 0, top: 0, width: 0, height: 0 };
  let hovered = null;

  function draw() {
    const { width, height } = svg.getBoundingClientRect();
    if (width === 0) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const em = parseFloat(getComputedStyle(document.documentElement).fontSize);
    place = { left: 0, top: 0.9 * em, width, height: height - 2.3 * em };
    const { values, denied, start, step } = data;
    const peak = Math.max(0, ...values, ...denied);
    const unitOf = nice(peak / 4 || 0.25);
    const most = Math.max(unitOf * Math.ceil(peak / unitOf), unitOf);
    const y = (value) => place.top + place.height * (1 - value / most);
    const slots = Math.max(values.length, 1);
    const x = (index) => place.left + (place.width * index) / (kind === "bars" ? slots : Math.max(slots - 1, 1));
    const parts = [];
    const texts = [];
    for (let value = 0; value <= most + 1e-9; value += unitOf) {
      parts.push(s("line", { class: "grid", x1: 0, x2: width, y1: y(value), y2: y(value) }));
      if (value > 0 && (Number.isInteger(value) || most < 1)) texts.push(s("text", { x: 0, y: y(value) - 0.25 * em }, format(value)));
    }
    const times = width < 30 * em ? 3 : 5;
    const end = start + slots * step;
    for (let number = 0; number < times && values.length; number += 1) {
      const at = start + ((end - start) * number) / (times - 1);
      const anchor = number === 0 ? "start" : number === times - 1 ? "end" : "middle";
      const text = clock(at, slots * step);
      texts.push(s("text", { x: (width * number) / (times - 1), y: height - 0.3 * em, "text-anchor": anchor }, text));
    }
    if (kind === "bars") {
      const gap = Math.min(2, (place.width / slots) * 0.2);
      values.forEach((value, index) => {
        if (value === 0) return;
        const tall = Math.max(1, place.height * (value / most));
        parts.push(s("rect", { class: "bar", x: x(index), y: place.top + place.height - tall, width: Math.max(0.5, place.width / slots - gap), height: tall }));
      });
    } else if (values.length > 1) {
      const path = (series) => series.map((value, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      parts.push(s("path", { class: "area", d: `${path(values)}L${x(slots - 1)} ${y(0)}L${x(0)} ${y(0)}Z` }));
      parts.push(s("path", { class: "hits", d: path(values) }));
      if (denied.some((value) => value > 0)) parts.push(s("path", { class: "denied", d: path(denied) }));
    }
    if (hovered !== null && values.length) {
      const index = Math.min(values.length - 1, Math.max(0, Math.round(hovered * (slots - 1))));
      const at = x(index) + (kind === "bars" ? place.width / slots / 2 : 0);
      parts.push(s("line", { class: "cross", x1: at, x2: at, y1: place.top, y2: place.top + place.height }));
      const no = denied[index] ? `, ${exact(denied[index])} denied` : "";
      setText(tip, `${clock(start + index * step, slots * step)}  ${format === count ? exact(values[index]) : format(values[index])}${unit}${no}`);
      tip.hidden = false;
      tip.style.left = `${Math.min(Math.max(0, at - tip.offsetWidth / 2), width - tip.offsetWidth)}px`;
    } else {
      tip.hidden = true;
    }
    svg.replaceChildren(...parts, ...texts);
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    hovered = (event.clientX - box.left) / box.width;
    draw();
  });
  svg.addEventListener("pointerleave", () => {
    hovered = null;
    draw();
  });
  new ResizeObserver(draw).observe(svg);
  return {
    element,
    set(next, text) {
      data = { denied: [], ...next };
      if (text && svg.getAttribute("aria-label") !== text) svg.setAttribute("aria-label", text);
      draw();
    },
  };
}

// A small chart without axes. The numbers beside it say the same.
export function spark() {
  const area = s("path", { class: "area" });
  const line = s("path", {});
  const element = s("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
  return {
    element,
    // The last step is not over: it would look like a fall.
    set(points) {
      const values = points?.slice(0, -1);
      if (!values || values.length < 2) {
        area.setAttribute("d", "");
        line.setAttribute("d", "");
        return;
      }
      const most = Math.max(1, ...values);
      const path = values.map((value, index) => `${index ? "L" : "M"}${((100 * index) / (values.length - 1)).toFixed(1)} ${(23 - (21 * value) / most).toFixed(1)}`).join("");
      line.setAttribute("d", path);
      area.setAttribute("d", `${path}L100 24L0 24Z`);
    },
  };
}
