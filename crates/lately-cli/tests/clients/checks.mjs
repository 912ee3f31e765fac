// What the Node clients have in common: checks, and the commands as text. A client brings `call`, which sends a
// command given as an array of strings.

import { isDeepStrictEqual } from "node:util";
import { createRequire } from "node:module";
import path from "node:path";

let checks = 0;

/** Loads a client from where the tests installed it. */
export function load(name) {
  const modules = process.env.LATELY_TEST_NODE_MODULES;
  if (modules === undefined) throw new Error("LATELY_TEST_NODE_MODULES names no folder; run `cargo xtask test`");
  return createRequire(path.join(modules, "/"))(name);
}

/** Equal and of the same type. */
export function check(what, got, expected) {
  checks += 1;
  if (!isDeepStrictEqual(got, expected)) {
    throw new Error(`${what}: got ${JSON.stringify(got)}, expected ${JSON.stringify(expected)}`);
  }
}

export function checkThat(what, holds, got) {
  checks += 1;
  if (!holds) throw new Error(`${what}: got ${JSON.stringify(got)}`);
}

export async function checkError(call, command, start, ErrorReply) {
  let reply;
  try {
    reply = await call(command);
  } catch (error) {
    const is = error instanceof ErrorReply && error.message.startsWith(start);
    checkThat(`${command}: an error that starts "${start}"`, is, `${error.name}: ${error.message}`);
    return;
  }
  throw new Error(`${command}: got ${JSON.stringify(reply)}, expected an error that starts "${start}"`);
}

export const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, index) => from + index);

const secondsFromNow = (seconds) => String(Math.floor(Date.now() / 1000) + seconds);

/** `rate` is what this client makes of the double 0.02. */
export async function counting(call, rate) {
  check("PING", await call(["PING"]), "PONG");
  check("HIT k", await call(["HIT", "k"]), 1);
  check("HIT k 5", await call(["HIT", "k", "5"]), 6);
  check("HITS k", await call(["HITS", "k"]), 6);
  check("HITS k 1m 5m", await call(["HITS", "k", "1m", "5m"]), [6, 6]);
  const bounds = await call(["HITS", "k", "5m", "BOUNDS"]);
  check("HITS k 5m BOUNDS: integers", bounds.map(Number.isInteger), [true, true, true, true]);
  check("HITS k 5m BOUNDS: exact", bounds.slice(0, 3), [6, 6, 6]);
  checkThat("HITS k 5m BOUNDS: cell of some milliseconds", bounds[3] > 0, bounds);
  check("HITS k STALENESS", await call(["HITS", "k", "STALENESS"]), [6, 0]);
  check("HITS k BY ORIGIN", await call(["HITS", "k", "BY", "ORIGIN"]), [["local", 6]]);
  check("MHIT a 1 b 2", await call(["MHIT", "a", "1", "b", "2"]), [1, 2]);
  check("MHITS 5m a b none", await call(["MHITS", "5m", "a", "b", "none"]), [1, 2, 0]);
  check("RATE k 5m", await call(["RATE", "k", "5m"]), rate);
  const series = await call(["SERIES", "k", "5m", "1m"]);
  const starts = series.map(([start]) => Number(start));
  check("SERIES k 5m 1m: sum", series.reduce((sum, [, hits]) => sum + hits, 0), 6);
  check("SERIES k 5m 1m: oldest first", starts, [...new Set(starts)].sort((a, b) => a - b));
  check("SERIES k 5m 1m: aligned", starts.map((start) => start % 60), starts.map(() => 0));
}

export async function limits(call) {
  check("LIMIT", await call(["LIMIT", "limited", "3", "1h", "COST", "2"]), [1, 3, 1, 0, 3_600_000]);
  const denied = await call(["LIMIT", "limited", "3", "1h", "COST", "2"]);
  check("LIMIT: denied", denied.slice(0, 3), [0, 3, 1]);
  checkThat("LIMIT: retry after", 3_500_000 < denied[3] && denied[3] <= denied[4] && denied[4] <= 3_600_000, denied);
  check("LIMIT: never", (await call(["LIMIT", "limited", "3", "1h", "COST", "4"]))[3], -1);
  check("HITS of what was allowed", await call(["HITS", "limited"]), 2);
  check("HITS DENIED", await call(["HITS", "limited", "DENIED"]), 6);
  const both = ["MLIMIT", "limited", "4", "1h", "both", "2", "1d"];
  check("MLIMIT", await call(both), [1, [1, 4, 1, 0, 3_600_000], [1, 2, 1, 0, 86_400_000]]);
  const [allowed, ...limits] = await call([...both, "COST", "2"]);
  check("MLIMIT: denied", [allowed, ...limits.map((limit) => limit.slice(0, 3))], [0, [0, 4, 1], [0, 2, 1]]);
  check("CL.THROTTLE", await call(["CL.THROTTLE", "rate", "15", "30", "60"]), [0, 16, 15, -1, 2]);
  check("CL.THROTTLE: denied", await call(["CL.THROTTLE", "rate", "15", "30", "60", "17"]), [1, 16, 15, -1, 2]);
  check("COOLEST", await call(["COOLEST", "2", "limited", "both", "nobody"]), [["nobody", 0], ["both", 1]]);
  check("TOP", await call(["TOP", "1", "5m", "PREFIX", "both", "BOUNDS"]), [["both", 1, 1, 1], 0]);
  check("DEL limited both rate", await call(["DEL", "limited", "both", "rate"]), 3);
}

export async function eventTime(call) {
  const past = secondsFromNow(-60);
  check("HIT k 1 AT a minute ago", await call(["HIT", "k", "1", "AT", past]), 1);
  check("HITS k AT a minute ago", await call(["HITS", "k", "5m", "AT", past]), 1);
  check("HITS k 30s", await call(["HITS", "k", "30s"]), 6);
  check("HITS k 5m", await call(["HITS", "k", "5m"]), 7);
}

/** `scan(pattern)` iterates fully and returns the keys; without a pattern, all. */
export async function keys(call, scan) {
  check("EXISTS k none", await call(["EXISTS", "k", "none"]), 1);
  check("TYPE k", await call(["TYPE", "k"]), "hits");
  check("TYPE none", await call(["TYPE", "none"]), "none");
  const ttl = await call(["TTL", "k"]);
  checkThat("TTL k: about the retention, a week", ttl >= 604_000 && ttl <= 612_000, ttl);
  check("TTL none", await call(["TTL", "none"]), -2);
  check("DEL k none", await call(["DEL", "k", "none"]), 1);
  check("EXISTS k", await call(["EXISTS", "k"]), 0);
  check("HITS k after DEL", await call(["HITS", "k"]), 0);
  const names = numbers(0, 499).map((number) => `scan:${number}`);
  await Promise.all(names.map((name) => call(["HIT", name])));
  // SCAN may return a key twice, as in Redis.
  const scanned = async (pattern) => [...new Set(await scan(pattern))].sort();
  check("SCAN", await scanned(undefined), [...names, "a", "b"].sort());
  check("SCAN MATCH", await scanned("scan:*"), [...names].sort());
  check("DBSIZE", await call(["DBSIZE"]), 502);
}

export async function errors(call, ErrorReply) {
  await call(["HIT", "e"]);
  await checkError(call, ["NONESUCH", "e"], "ERR unknown command", ErrorReply);
  await checkError(call, ["HIT"], "ERR wrong number of arguments for 'hit' command", ErrorReply);
  await checkError(call, ["HITS", "e", "5 parsecs"], "ERR ", ErrorReply);
  await checkError(call, ["HIT", "e", "-1"], "ERR ", ErrorReply);
  await checkError(call, ["HIT", "e", "1", "AT", "1"], "LATE ", ErrorReply);
  await checkError(call, ["HIT", "e", "1", "AT", secondsFromNow(3600)], "FUTURE ", ErrorReply);
  check("HITS e after refused hits", await call(["HITS", "e", "7d"]), 1);
  const settled = await Promise.allSettled([call(["HIT", "e"]), call(["NONESUCH"]), call(["HIT", "e"])]);
  check("an error in a pipeline leaves its neighbours", [settled[0].value, settled[2].value], [2, 3]);
  check("an error in a pipeline", settled[1].status, "rejected");
}

export async function flush(call) {
  check("FLUSHALL", await call(["FLUSHALL"]), "OK");
  check("DBSIZE after FLUSHALL", await call(["DBSIZE"]), 0);
}

/** Runs `body(host, port)`; says how many checks passed or what the first difference was. */
/**
 * `listen` subscribes to a channel, has a function called with the channel and the text of each message, and returns a function
 * that ends it.
 */
export async function alerts(call, listen) {
  check("ALERTS: none", await call(["ALERTS"]), []);
  let got;
  const message = new Promise((resolve) => { got = resolve; });
  const close = await listen("lately:alerts", (channel, text) => got([channel, text]));
  await call(["HIT", "alerted:a", "3"]);
  const [channel, text] = await message;
  check("message: channel", channel, "lately:alerts");
  const { type, data } = JSON.parse(text);
  check("event", [type, data.name, data.keys], ["alert.started", "busy", [{ key: "alerted:a", hits: 3, share: 1 }]]);
  await close();
  check("ALERTS: one", (await call(["ALERTS"])).length, 1);
}

export async function main(body) {
  const warnings = [];
  process.on("warning", (warning) => warnings.push(`${warning.name}: ${warning.message}`));
  try {
    await body(process.argv[2], Number(process.argv[3]));
    // Warnings arrive in a later turn of the event loop.
    await new Promise(setImmediate);
    check("warnings", warnings, []);
    console.log(`ok ${checks} checks`);
  } catch (error) {
    console.error(error.stack);
    process.exit(1);
  }
}
