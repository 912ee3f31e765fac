// ioredis with its defaults against a Lately server: `ioredis.mjs HOST PORT`.
// Prints `ok N checks`, or the first difference, and exits 1. Flushes the server's keys.

import { alerts, check, counting, errors, eventTime, flush, keys, limits, load, main, numbers } from "./checks.mjs";

const { Redis, ReplyError } = load("ioredis");

/** Only over protocol 3, and only as a double, does this setting give a number. */
async function numberFromDouble(host, port) {
  const client = new Redis({ host, port, replyMapping: "resp3" });
  try {
    check("RATE k 5m as a double", await client.call("RATE", "k", "5m"), 0.02);
  } finally {
    client.disconnect();
  }
}

main(async (host, port) => {
  const client = new Redis({ host, port });
  const emitted = [];
  client.on("error", (error) => emitted.push(error.message));
  const call = ([name, ...words]) => client.call(name, ...words);
  try {
    await flush(call);
    // By default ioredis shows a double as Redis 2 did, whatever the protocol.
    await counting(call, "0.02");
    await numberFromDouble(host, port);
    await eventTime(call);
    await limits(call);
    await keys(call, async (match) => {
      const found = [];
      const stream = client.scanStream(match === undefined ? {} : { match, count: 7 });
      for await (const batch of stream) found.push(...batch);
      return found;
    });
    for (const [key, pipe] of [["queued", client.multi()], ["piped", client.pipeline()]]) {
      for (let hit = 0; hit < 1000; hit += 1) pipe.call("HIT", key);
      const replies = await pipe.exec();
      check(`1000 HITs, ${key}: errors`, replies.filter(([error]) => error !== null), []);
      check(`1000 HITs, ${key}`, replies.map(([, reply]) => reply), numbers(1, 1000));
      check(`HITS ${key}`, await call(["HITS", key]), 1000);
    }
    await errors(call, ReplyError);
    await alerts(call, async (channel, take) => {
      const feed = client.duplicate();
      feed.on("message", take);
      check("SUBSCRIBE", await feed.subscribe(channel), 1);
      return async () => {
        check("UNSUBSCRIBE", await feed.unsubscribe(channel), 0);
        check("PING after UNSUBSCRIBE", await feed.ping(), "PONG");
        feed.disconnect();
      };
    });
    await flush(call);
    await client.quit();
    check("error events", emitted, []);
  } finally {
    client.disconnect();
  }
});
