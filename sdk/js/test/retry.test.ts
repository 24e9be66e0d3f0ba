/** When a session tries again, and when it gives up. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { LONGEST_MS } from "../src/protocol/retry.js";
import { closeOf, Driver, errorOf, retryOf } from "./driver.js";
import { failed, goAway, result } from "./events.js";

/** Lets every connection open and fail at once. Returns the waits, and whether it gave up. */
function flap(driver: Driver, times: number, fail: () => void): [number[], boolean] {
  const waits: number[] = [];
  for (let at = 0; at < times; at += 1) {
    driver.connect();
    fail();
    const effects = driver.close(1011);
    const wait = retryOf(effects);
    if (wait === null) {
      return [waits, true];
    }
    waits.push(wait);
    driver.now += wait;
  }
  return [waits, false];
}

test("connections that open and fail right away do not reset the backoff, and are given up", () => {
  const driver = new Driver();
  const [waits, gaveUp] = flap(driver, 1000, () => driver.say(failed("INTERNAL")));
  assert(gaveUp, `it reconnects for ever: ${waits.length} times`);
  assert(waits.length < 40, `${waits.length} connections in 20 s`);
  assert(Math.max(...waits) > LONGEST_MS / 4, "the backoff does not grow");
});

test("connections that bring the session forward are never given up", () => {
  const driver = new Driver();
  let index = 0;
  const [waits, gaveUp] = flap(driver, 300, () => {
    driver.say(result(index));
    index += 1;
  });
  assert(!gaveUp);
  assert(Math.max(...waits) <= 100, "the backoff grows although the session goes forward");
});

test("a gateway that opens and says GoAway for ever is not asked in a tight loop", () => {
  const driver = new Driver();
  let connections = 0;
  const end = driver.now + 10_000;
  while (driver.now < end) {
    driver.connect();
    connections += 1;
    const wait = retryOf(driver.close(1001));
    if (wait === null) {
      break;
    }
    driver.now += wait;
  }
  assert(connections < 40, `${connections} connections in 10 s`);
});

test("gateways that send clients away before the session is open are not asked in a tight loop", () => {
  const driver = new Driver();
  driver.connect();
  driver.now += 5000;
  const waits: number[] = [];
  for (
    let wait = retryOf(driver.close(1001));
    wait !== null && waits.length < 1000;
    wait = retryOf(driver.lose(closeOf(driver.say(goAway()).concat(driver.tick(0))).ending))
  ) {
    waits.push(wait);
    driver.now += wait;
    driver.protocol.onConnected(driver.now);
  }
  assert.equal(waits[0], 0);
  assert(waits.length < 40, `${waits.length} connections in 20 s`);
  assert(Math.max(...waits) > LONGEST_MS / 4, "the backoff does not grow");
});

test("after a good connection the first wait is short", () => {
  const driver = new Driver();
  flap(driver, 5, () => undefined);
  driver.connect();
  driver.now += 1000;
  assert((retryOf(driver.close(1006)) ?? 1e9) <= 100);
});

test("the time to give up is what the server allows, counted from the loss", () => {
  const driver = new Driver();
  driver.connect({ resumeWithinMs: 8000 });
  driver.now += 60_000;
  driver.lose();
  const lostAt = driver.now;
  for (;;) {
    driver.protocol.onConnecting(driver.now);
    const effects = driver.lose();
    const wait = retryOf(effects);
    if (wait === null) {
      const error = errorOf(effects);
      assert.equal(error.reason, "UNREACHABLE");
      assert.equal(driver.now - lostAt, 8000);
      return;
    }
    driver.now += wait;
  }
});

test("waits are random: clients that are cut off together do not come back together", () => {
  const first = new Driver();
  const waits = new Set<number>();
  first.connect();
  first.now += 5000;
  for (let at = 0; at < 20; at += 1) {
    waits.add(Math.round(retryOf(first.lose()) ?? -1));
    first.protocol.onConnecting(first.now);
  }
  assert(waits.size > 10);
});
