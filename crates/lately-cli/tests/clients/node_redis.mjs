// node-redis with its defaults against a Lately server: `node_redis.mjs HOST PORT`.
// Prints `ok N checks`, or the first difference, and exits 1. Flushes the server's keys.

import { alerts, check, counting, errors, eventTime, flush, keys, limits, load, main, numbers } from "./checks.mjs";

const { createClient, ErrorReply } = load("redis");

main(async (host, port) => {
  const client = createClient({ socket: { host, port } });
  const emitted = [];
  client.on("error", (error) => emitted.push(error.message));
  const call = (words) => client.sendCommand(words);
  try {
    await client.connect();
    await flush(call);
    await counting(call, 0.02);
    await eventTime(call);
    await limits(call);
    await keys(call, async (match) => {
      const found = [];
      const options = match === undefined ? {} : { MATCH: match, COUNT: 7 };
      for await (const batch of client.scanIterator(options)) found.push(...batch);
      return found;
    });
    const queued = client.multi();
    for (let hit = 0; hit < 1000; hit += 1) queued.addCommand(["HIT", "queued"]);
    check("1000 HITs, queued", await queued.exec(), numbers(1, 1000));
    check("HITS queued", await call(["HITS", "queued"]), 1000);
    const piped = client.multi();
    for (let hit = 0; hit < 1000; hit += 1) piped.addCommand(["HIT", "piped"]);
    check("1000 HITs, piped", await piped.execAsPipeline(), numbers(1, 1000));
    check("HITS piped", await call(["HITS", "piped"]), 1000);
    await errors(call, ErrorReply);
    await alerts(call, async (channel, take) => {
      const feed = client.duplicate();
      feed.on("error", (error) => emitted.push(error.message));
      await feed.connect();
      await feed.subscribe(channel, (text, from) => take(from, text));
      return async () => {
        await feed.unsubscribe(channel);
        check("PING after UNSUBSCRIBE", await feed.ping(), "PONG");
        feed.destroy();
      };
    });
    await flush(call);
    check("error events", emitted, []);
  } finally {
    client.destroy();
  }
});
