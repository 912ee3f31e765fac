// The dashboard in Chromium: `page.mjs HOST PORT HTTP SCENARIO`. Prints `ok N checks`, or the first failure, and exits 1.
// With LATELY_TEST_SHOTS, a folder, it leaves pictures of all views there.

import { existsSync } from "node:fs";
import path from "node:path";

import { check, checkThat, load, main } from "./checks.mjs";

const { chromium } = load("playwright-core");
const { Redis } = load("ioredis");
const { source: axe } = load("axe-core");

const [http, scenario] = process.argv.slice(4);
const base = `http://${http}`;

const PROGRAM = process.env.PATH.split(":").map((folder) => path.join(folder, "chromium")).find(existsSync);
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const WIDTHS = [[360, 740], [1280, 800], [3840, 2160]];
const THEMES = ["light", "dark"];
const SHOTS = process.env.LATELY_TEST_SHOTS;

/** Opens a page. `page.errors` has what went wrong in it, by the browser. */
async function open(context, hash = "") {
  const page = await context.newPage();
  page.errors = [];
  page.on("pageerror", (error) => page.errors.push(error.message));
  page.on("console", (message) => message.type() === "error" && page.errors.push(message.text()));
  page.on("dialog", (dialog) => page.errors.push(`a dialog: ${dialog.message()}`));
  page.on("request", (request) => request.url().startsWith(base) || page.errors.push(`a request to ${request.url()}`));
  await page.goto(`${base}/${hash}`);
  return page;
}

/** No rule of axe-core is broken. */
async function accessible(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const broken = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 200)).join(" ")}`);
  check(`${what}: axe-core`, broken, []);
}

/** The page is not wider than its window. */
async function fits(page, what) {
  const [wide, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  checkThat(`${what}: it fits ${seen} pixels`, wide <= seen, wide);
}

/** A view, and what is there once it has its numbers. */
const view = (hash, title, ready) => ({ hash, title, ready });

/** Clicks or goes through views, at all widths and in all themes. */
async function eachView(browser, name, views) {
  for (const theme of THEMES) {
    for (const [width, height] of WIDTHS) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme });
      const page = await open(context);
      for (const { hash, title, ready } of views) {
        const what = `${name} ${hash} ${theme} ${width}`;
        const tab = page.locator(`#tabs a[href="${hash}"]`);
        if (await tab.count()) await tab.click();
        else await page.evaluate((to) => (location.hash = to), hash);
        await page.locator(ready).first().waitFor().catch((error) => {
          throw new Error(`${what}: there is no ${ready}: ${error.message}`);
        });
        check(`${what}: title`, await page.title(), `${title} – Lately`);
        await fits(page, what);
        await accessible(page, what);
        if (SHOTS) await page.screenshot({ path: path.join(SHOTS, `${what.replace(/\W+/g, "-")}.png`) });
      }
      check(`${name} ${theme} ${width}: errors`, page.errors, []);
      await context.close();
    }
  }
}

/** Keys of all kinds, and how the page shows them. */
const HOSTILE = [
  ["<script>document.title='hacked'</script>", "<script>document.title='hacked'</script>"],
  ["<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"],
  ["\u202egnp.exe\u202c \u0645\u0631\u062d\u0628\u0627", "\\u{202e}gnp.exe\\u{202c} \u0645\u0631\u062d\u0628\u0627"],
  ["x".repeat(1024), "x".repeat(1024)],
  ["a b/../c?d#e%25&f=g+h\\i\"j'", "a b/../c?d#e%25&f=g+h\\i\"j'"],
  ["line\nbreak\tand\u0000zero", "line\\u{a}break\\u{9}and\\u{0}zero"],
  ["\u{1f600}", "\u{1f600}"],
  ["..", ".."],
  [Buffer.from([0xff, 0xfe, 0x00, 0x62, 0xc3, 0xa9]), "\\xff\\xfe\\u{0}b\u00e9"],
];

async function fill(redis) {
  const pipeline = redis.pipeline();
  for (let number = 0; number < 200; number += 1) pipeline.call("HIT", `user:${number}`, String(1 + number));
  HOSTILE.forEach(([key], index) => pipeline.call("HIT", key, String(1000 + index)));
  for (let number = 0; number < 8; number += 1) {
    pipeline.call("LIMIT", "login:10.0.0.1", "@login");
    pipeline.call("LIMIT", "api:key", "@api");
    pipeline.call("HIT", "ad:1", "1", "MEMBER", `m${number}`);
  }
  await pipeline.exec();
}

const READY = "#link.good";
const TOP = "table.top tbody tr";

const scenarios = {
  /** A server that counts all the time. */
  async busy(browser, redis) {
    await fill(redis);
    let count = 0;
    const hits = setInterval(() => {
      redis.call("HIT", `user:${Math.floor(Math.random() * 200)}`, "3");
      // All views together may take longer than the window.
      redis.call("HIT", "ad:1", "1", "MEMBER", `m${(count += 1) % 8}`);
    }, 20);
    await eachView(browser, "busy", [
      view("#/", "Now", TOP),
      view("#/keys", "Keys", ".line-row .key"),
      view("#/limits", "Limits", "td:has-text('10 in 1m')"),
      view("#/limits", "Limits", "tr:has-text('user_guest'):has-text('1 per hour'):has-text('shadow')"),
      view("#/alerts", "Alerts", ".card.firing .key"),
      view("#/cluster", "Cluster", ".empty:has-text('counts alone')"),
      view("#/memory", "Memory", "dd:has-text('MiB')"),
      view("#/key/login%3A10.0.0.1", "login:10.0.0.1", ".chip.bad:has-text('denied')"),
      view("#/key/api%3Akey", "api:key", ".chip.warn:has-text('would be denied')"),
      view("#/key/ad%3A1", "ad:1", "dl:has-text('Distinct members') dd:has-text('8')"),
    ]).finally(() => clearInterval(hits));
  },

  /** What is counted is shown at once, and each key has a page. */
  async live(browser, redis) {
    await fill(redis);
    const context = await browser.newContext();
    const page = await open(context);
    await page.locator(READY).waitFor();
    const first = page.locator(TOP).first();
    await first.waitFor();
    check("rows", await page.locator(TOP).count(), 20);
    await redis.call("HIT", "user:7", "5000");
    await page.locator(`${TOP}:first-child:has-text("user:7")`).waitFor();
    check("its hits", await first.locator("td").nth(3).textContent(), "5,008");
    for (const [key, text] of HOSTILE) {
      await page.evaluate(() => (location.hash = "#/keys"));
      await page.locator("#keys-prefix").waitFor();
      const link = page.locator(".line-row .key").getByText(text, { exact: true });
      await link.click();
      await page.locator("h1.key").waitFor();
      check("a key is shown as it is", await page.locator("h1.key").textContent(), text);
      const number = 1000 + HOSTILE.findIndex(([other]) => other === key);
      await page.locator(`dl:has-text("Hits") dd:has-text("${number.toLocaleString("en")}")`).first().waitFor();
      checkThat("the title is that of the key", (await page.title()).endsWith(" – Lately"), await page.title());
      await fits(page, text);
      await accessible(page, text);
    }
    // By the box, by the keyboard, and by a window of one's own.
    await page.locator("#open-key").fill("user:9");
    await page.keyboard.press("Enter");
    await page.locator("h1 bdi:text-is('user:9')").waitFor();
    await page.locator("#key-window").fill("90s");
    await page.keyboard.press("Enter");
    await page.locator(".note:has-text('in 90s')").waitFor();
    await page.locator("#key-window").fill("soon");
    await page.keyboard.press("Enter");
    await page.locator(".error:has-text('soon')").waitFor();
    // A chosen theme stays.
    check("the theme", await page.locator("#theme").textContent(), "Theme: system");
    await page.locator("#theme").click();
    await page.locator("#theme").click();
    await page.reload();
    check("the theme after a reload", await page.locator("#theme").textContent(), "Theme: dark");
    const refused = page.errors.filter((text) => !text.includes("400"));
    check("errors", refused, []);
  },

  /** An alert starts and ends while somebody looks. */
  async alerts(browser, redis) {
    const page = await open(await browser.newContext(), "#/alerts");
    await page.locator(".empty:has-text('Nothing fires. 2 rules are watched.')").waitFor();
    checkThat("no badge", await page.locator("#firing").isHidden());
    const cells = (row) => row.locator("td").allTextContents();
    check("a rule", await cells(page.locator("tbody tr").first()), ["bursthits of burst:* in 1hmore than 9", "quiet", "0", "", "0"]);
    const hostile = HOSTILE[0][0];
    await redis.call("MHIT", `burst:${hostile}`, "6", "burst:b", "3", "burst:c", "3", "other", "50");
    await page.locator(".card.firing:has-text('burst')").waitFor();
    check("the badge", await page.locator("#tabs a[href='#/alerts']").textContent(), "Alerts 1 firing");
    await page.locator("#news:text-is('Alert burst started')").waitFor({ state: "attached" });
    const firing = page.locator(".card.firing");
    check("its hits", await firing.locator(".big").textContent(), "12");
    check("its threshold", await firing.locator("p").first().textContent(), "hits of burst:* in 1h. It fires at more than 9. The most so far: 12.");
    await firing.locator(".key").first().waitFor();
    check("the key that did most", await cells(firing.locator("tbody tr").first()), [`burst:${hostile}`, "6", "50 %"]);
    await accessible(page, "an alert fires");
    // By the keyboard to the page of that key, and back.
    await firing.locator(".key").first().focus();
    await page.keyboard.press("Enter");
    await page.locator("h1.key").waitFor();
    check("the key", await page.locator("h1.key").textContent(), `burst:${hostile}`);
    await page.goBack();
    await firing.waitFor();
    await redis.call("FLUSHALL");
    await page.locator("#alert-ended").waitFor();
    await page.locator("#news:text-is('Alert burst ended')").waitFor({ state: "attached" });
    checkThat("no badge is left", await page.locator("#firing").isHidden());
    const [name, , , most, by] = await cells(page.locator("table[aria-label='Alerts that ended lately'] tbody tr").first());
    check("what ended", [name, most, by], ["burst", "12", `burst:${hostile}50 %`]);
    check("errors", page.errors, []);
  },

  /** Ten thousand keys: few elements, frames in time, and the keyboard. */
  async many(browser, redis) {
    for (let part = 0; part < 10; part += 1) {
      const pipeline = redis.pipeline();
      for (let number = 0; number < 1000; number += 1) pipeline.call("HIT", `key:${String(part * 1000 + number).padStart(5, "0")}`);
      await pipeline.exec();
    }
    const page = await open(await browser.newContext(), "#/keys");
    await page.locator(".line-row .key").first().waitFor();
    check("rows in all", await page.locator(".list").getAttribute("aria-rowcount"), "10000");
    const elements = await page.locator(".line-row").count();
    checkThat("few rows have elements", elements < 100, elements);
    const [frames, most] = await page.evaluate(async () => {
      const list = document.querySelector(".list");
      const most = list.scrollHeight - list.clientHeight;
      const times = [];
      let elements = 0;
      let last = performance.now();
      for (let step = 1; step <= 120; step += 1) {
        list.scrollTop = (most * step) / 120;
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        times.push(now - last);
        last = now;
        elements = Math.max(elements, list.querySelectorAll(".line-row").length);
      }
      return [times.sort((one, other) => one - other), elements];
    });
    // However far it is scrolled, a frame draws few elements.
    checkThat("few rows have elements in each frame", most < 100, most);
    // Frames are 16.7 ms apart. Only a machine without other work shows that.
    if (process.env.LATELY_TEST_FIGURES) {
      process.stderr.write(`frames: median ${frames[60].toFixed(1)} ms, 95 % ${frames[114].toFixed(1)} ms, most ${frames[119].toFixed(1)} ms\n`);
      checkThat("the usual frame is in time", frames[60] < 34, frames);
    }
    await page.locator(".line-row .key", { hasText: "key:09999" }).waitFor();
    await page.locator(".list").focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowDown");
    check("the second key has the focus", await page.evaluate(() => document.activeElement.textContent), "key:00001");
    await page.keyboard.press("End");
    check("the last key has the focus", await page.evaluate(() => document.activeElement.textContent), "key:09999");
    await page.keyboard.press("Enter");
    await page.locator("h1 bdi:text-is('key:09999')").waitFor();
    check("errors", page.errors, []);
  },

  /** Nothing was counted, and there are no limits. */
  async empty(browser) {
    await eachView(browser, "empty", [
      view("#/", "Now", ".empty:has-text('Count one')"),
      view("#/keys", "Keys", "[role=status]:has-text('No such key')"),
      view("#/limits", "Limits", ".empty:has-text('no named limits')"),
      view("#/alerts", "Alerts", ".empty:has-text('no alerts')"),
      view("#/memory", "Memory", "dd:has-text('none had to go')"),
      view("#/key/none", "none", ".chip:has-text('no hits')"),
      view("#/key/", "Key", ".empty:has-text('Which key?')"),
    ]);
  },

  /** The engine of the cluster is away. */
  async degraded(browser, redis) {
    await fill(redis);
    await eachView(browser, "degraded", [
      view("#/", "Now", "#problems:has-text('the engine of the cluster cannot be reached')"),
      view("#/cluster", "Cluster", ".chip.bad"),
      view("#/key/user%3A9", "user:9", "dd:has-text('10')"),
    ]);
  },

  /** Users log in, see what they may, and out. */
  async login(browser, redis) {
    await redis.call("HIT", "web:1", "7");
    const context = await browser.newContext();
    const page = await open(context, "#/memory");
    const logIn = async (user, password) => {
      await page.locator("#login-user").fill(user);
      await page.locator("#login-password").fill(password);
      await page.keyboard.press("Enter");
    };
    await page.locator("#login-user").waitFor();
    await accessible(page, "login");
    await logIn("all", "wrong");
    await page.locator(".error:has-text('the user or the password is wrong')").waitFor();
    await logIn("all", "a-secret");
    await page.locator(READY).waitFor();
    await page.locator("dd:has-text('none had to go')").waitFor();
    const [cookie] = await context.cookies();
    check("the cookie", [cookie.httpOnly, cookie.sameSite, cookie.secure, cookie.path], [true, "Strict", false, "/"]);
    // A session reads, and does nothing else, even for a user who may.
    const status = await page.evaluate(() => fetch("/v1/hit/web:1", { method: "POST", headers: { "lately-page": "1" } }).then((it) => it.status));
    check("a session counts nothing", status, 401);
    await page.locator("#login-user").waitFor({ state: "detached" });
    await page.reload();
    await page.locator(READY).waitFor();
    await page.locator("#logout").click();
    await page.locator("#login-user").waitFor();
    check("no cookie is left", await context.cookies(), []);
    await logIn("some", "s-secret");
    await page.locator(".empty:has-text('some may read some keys')").waitFor();
    await accessible(page, "some keys");
    await page.locator("#open-key").fill("web:1");
    await page.keyboard.press("Enter");
    await page.locator("dd:has-text('7')").first().waitFor();
    await page.locator("#open-key").fill("other");
    await page.keyboard.press("Enter");
    await page.locator(".error:has-text('no permissions to access the key')").waitFor();
    const unexpected = page.errors.filter((text) => !/status of (401|403)/.test(text));
    check("errors", unexpected, []);
  },

  /** The server is stopped while a page is open. Its test stops it once the line is printed. */
  async away(browser, redis) {
    const page = await open(await browser.newContext());
    await page.locator(READY).waitFor();
    await redis.call("SHUTDOWN").catch(() => {});
    await page.locator("#problems:has-text('cannot be reached')").waitFor();
    await accessible(page, "away");
  },
};

main(async (host, port) => {
  const user = scenario === "login" ? { username: "all", password: "a-secret" } : {};
  const redis = new Redis({ host, port, retryStrategy: null, ...user });
  redis.on("error", () => {});
  const browser = await chromium.launch({ executablePath: PROGRAM, args: FLAGS });
  try {
    await scenarios[scenario](browser, redis);
  } finally {
    await browser.close();
    redis.disconnect();
  }
});
