// Numbers, times and keys as text.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

// 1,234 up to a million, then 1.23M. The exact number is in the title where it matters.
export const count = (n) => (n < 1e6 ? whole.format(n) : short.format(n));
export const exact = (n) => whole.format(n);
export const rate = (n) => (n === 0 ? "0" : n < 10 ? n.toPrecision(2) : count(Math.round(n)));
export const percent = (part, all) => {
  if (!all || !part) return "0 %";
  const value = (100 * part) / all;
  return value < 0.1 ? "< 0.1 %" : `${value < 10 ? value.toFixed(1) : Math.round(value)} %`;
};

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

// A span in milliseconds: two units at most.
export function span(ms) {
  if (ms === null || ms === undefined) return "never";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? Number(seconds.toFixed(1)) : Math.round(seconds)} s`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let rest = Math.round(seconds);
  const parts = [];
  for (const [name, size] of units) {
    const n = Math.floor(rest / size);
    rest -= n * size;
    if (n > 0) parts.push(`${n} ${name}`);
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

// A duration as the API writes it, in seconds.
export function seconds(text) {
  const found = /^(\d+)(ms|s|m|h|d|w)?$/.exec(text.trim());
  if (!found) return null;
  const unit = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400, w: 604800 }[found[2] ?? "s"];
  return Number(found[1]) * unit;
}

export function clock(unix, window = 0) {
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (window <= 7200) options.second = "2-digit";
  if (window > 86400) Object.assign(options, { month: "short", day: "numeric" });
  return new Date(unix * 1000).toLocaleString("en", options);
}

// A key in an answer, percent-encoded: its name in links and paths.
export function nameOf(row) {
  if (row.key !== undefined) return encodeURIComponent(row.key);
  return Array.from(atob(row.key_b64), (byte) => `%${byte.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()}`).join("");
}

// The path of a call about a key, with parameters. A browser reads . and .. as steps in a path, so they are in the query.
export function pathOf(call, name, parameters = {}) {
  const isStep = name === "." || name === "..";
  const query = new URLSearchParams(isStep ? { key_b64: btoa(name), ...parameters } : parameters);
  return `/v1/${call}/${isStep ? "" : name}${query.size ? `?${query}` : ""}`;
}

export function bytesOf(name) {
  const found = [];
  const encoder = new TextEncoder();
  for (const [piece, escape] of name.matchAll(/%([0-9a-f]{2})|[^]/giu)) {
    if (escape) found.push(parseInt(escape, 16));
    else found.push(...encoder.encode(piece));
  }
  return Uint8Array.from(found);
}

// The one spelling of a name, whatever a user or the browser made of it.
export function normal(name) {
  const plain = /[A-Za-z0-9\-_.!~*'()]/;
  const spell = (byte) => {
    const char = String.fromCharCode(byte);
    return plain.test(char) ? char : `%${byte.toString(16).padStart(2, "0").toUpperCase()}`;
  };
  return Array.from(bytesOf(name), spell).join("");
}

// Characters that show nothing, or that change how the text around them is shown.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u{115f}\u{1160}\u{3164}\u{ffa0}]/u;

// The pieces of a key: readable text, and escapes of what cannot be seen. Bytes that are no UTF-8 are \xNN.
export function piecesOf(name) {
  const pieces = [];
  const add = (text, isEscape) => {
    const last = pieces.at(-1);
    if (last && last.isEscape === isEscape) last.text += text;
    else pieces.push({ text, isEscape });
  };
  const all = bytesOf(name);
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  for (let at = 0; at < all.length; ) {
    const first = all[at];
    const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    let char;
    try {
      char = decoder.decode(all.subarray(at, at + length));
    } catch {
      add(`\\x${first.toString(16).padStart(2, "0")}`, true);
      at += 1;
      continue;
    }
    if (HIDDEN.test(char)) add(`\\u{${char.codePointAt(0).toString(16)}}`, true);
    else add(char, false);
    at += length;
  }
  return pieces;
}

export const textOf = (name) => piecesOf(name).map((piece) => piece.text).join("");
