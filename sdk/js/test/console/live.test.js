// @ts-check
/** Following a document over a connection that comes and goes. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { Backoff, STABLE_MS } from "../../../../services/console/page/app/backoff.js";
import { Live } from "../../../../services/console/page/app/live.js";

test("waits double, up to half a minute, with jitter", () => {
  const backoff = new Backoff();
  const waits = Array.from({ length: 10 }, () => backoff.lost(0, 1));
  assert.deepEqual(waits.slice(0, 4), [500, 1000, 2000, 4000]);
  assert.equal(waits.at(-1), 30_000);
  assert.equal(new Backoff().lost(0, 0), 250);
});

test("a connection that only opens does not start over, one that stays does", () => {
  const backoff = new Backoff();
  backoff.lost(0, 1);
  backoff.working(1000);
  assert.equal(backoff.lost(1100, 1), 1000);
  backoff.working(2000);
  assert.equal(backoff.lost(2000 + STABLE_MS, 1), 500);
});

/** A stream of events that tests write. */
class FakeSource {
  /** @type {Map<string, (event: { data: string }) => void>} */
  #listeners = new Map();
  closed = false;

  /**
   * @param {string} type
   * @param {(event: { data: string }) => void} listener
   */
  addEventListener(type, listener) {
    this.#listeners.set(type, listener);
  }

  close() {
    this.closed = true;
  }

  /**
   * @param {string} type
   * @param {unknown} [data]
   */
  send(type, data = {}) {
    this.#listeners.get(type)?.({ data: JSON.stringify(data) });
  }
}

/** @param {{ again?: boolean }} [options] `again`: what the check of a lost stream says. */
function started({ again = true } = {}) {
  /** @type {FakeSource[]} */
  const sources = [];
  /** @type {object[]} */
  const documents = [];
  /** @type {string[]} */
  const statuses = [];
  /** @type {string[]} */
  const problems = [];
  const live = new Live(
    "/api/v1/nodes",
    {
      document: (document) => documents.push(document),
      tick: () => undefined,
      problem: (message) => problems.push(message),
      status: (status) => statuses.push(status),
      check: () => Promise.resolve(again),
    },
    () => {
      const source = new FakeSource();
      sources.push(source);
      return source;
    },
  );
  return { live, sources, documents, statuses, problems };
}

/** Runs what waits for promises. */
async function settled() {
  for (let turn = 0; turn < 5; turn += 1) {
    await Promise.resolve();
  }
}

test("a document is followed by its changes", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const { live, sources, documents, statuses, problems } = started();
  sources[0]?.send("document", { rows: { a: 1 }, total: 1 });
  sources[0]?.send("patch", { rows: { a: null, b: 2 } });
  sources[0]?.send("problem", { reason: "X", message: "no answer" });
  sources[0]?.send("problem", {});
  assert.deepEqual(documents, [
    { rows: { a: 1 }, total: 1 },
    { rows: { b: 2 }, total: 1 },
  ]);
  assert.deepEqual(statuses, ["connecting", "live"]);
  assert.deepEqual(problems, ["no answer", ""]);
  live.stop();
});

test("a stream that ends, fails or falls silent is replaced by another one", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const { live, sources, statuses } = started();
  for (const lose of [
    () => sources.at(-1)?.send("end", { reason: "DRAINING" }),
    () => sources.at(-1)?.send("error"),
    () => context.mock.timers.tick(20_000),
  ]) {
    const before = sources.length;
    sources.at(-1)?.send("document", {});
    lose();
    await settled();
    assert.equal(sources.at(before - 1)?.closed, true);
    assert.equal(statuses.at(-1), "lost");
    context.mock.timers.tick(30_000);
    assert.equal(sources.length, before + 1);
  }
  live.stop();
});

test("ticks keep a quiet stream alive", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const { live, sources } = started();
  for (let tick = 0; tick < 10; tick += 1) {
    context.mock.timers.tick(5000);
    sources[0]?.send("tick", { now_ms: 0 });
  }
  await settled();
  assert.equal(sources.length, 1);
  assert.equal(sources[0]?.closed, false);
  live.stop();
});

test("a refusal that is final is not asked for again", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const { sources, live, statuses } = started({ again: false });
  sources[0]?.send("error");
  await settled();
  context.mock.timers.tick(60_000);
  assert.equal(sources.length, 1);
  live.stop();
  assert.equal(statuses.at(-1), "ended");
});

test("a page that is hidden for long rests, and goes on at once when it is seen", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const { live, sources, statuses } = started();
  live.visibility(true);
  for (let tick = 0; tick < 13; tick += 1) {
    sources[0]?.send("tick", { now_ms: 0 });
    context.mock.timers.tick(5000);
  }
  assert.equal(sources[0]?.closed, true);
  assert.equal(statuses.at(-1), "paused");
  live.visibility(false);
  assert.equal(sources.length, 2);
  live.stop();
});

test("a page that is hidden for a moment keeps its stream", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const { live, sources } = started();
  live.visibility(true);
  context.mock.timers.tick(5000);
  live.visibility(false);
  sources[0]?.send("tick", { now_ms: 0 });
  assert.deepEqual([sources.length, sources[0]?.closed], [1, false]);
  live.stop();
});

test("events of a stream that was replaced are ignored", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const { live, sources, documents } = started();
  sources[0]?.send("error");
  await settled();
  sources[0]?.send("document", { old: true });
  live.stop();
  assert.deepEqual(documents, []);
  mock.reset();
});
