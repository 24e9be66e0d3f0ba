/** How connections end: close codes, refusals, GoAway, silence. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { SessionRefusedError, SessionUnavailableError } from "../src/errors.js";
import { closeOf, Driver, errorOf, givenTypes, retryOf } from "./driver.js";
import { failed, goAway } from "./events.js";

describe("the end of a connection, by its code", () => {
  const table: [number, string, "retry" | "fail", string][] = [
    [1001, "", "retry", ""],
    [1006, "", "retry", ""],
    [1011, "INTERNAL", "retry", ""],
    [1013, "SCHEDULER_DEPENDENCY_DOWN", "retry", ""],
    [1013, "BACKPRESSURE", "retry", ""],
    [4400, "INVALID_MESSAGE", "fail", "INVALID_MESSAGE"],
    [4400, "", "fail", "INVALID_MESSAGE"],
    [4403, "PERMISSION_DENIED", "fail", "PERMISSION_DENIED"],
    [4404, "", "fail", "SESSION_NOT_FOUND"],
    [4408, "", "retry", ""],
    [4409, "SESSION_TAKEN_OVER", "fail", "SESSION_TAKEN_OVER"],
    // The connection broke before the close frame arrived.
    [1006, "SESSION_TAKEN_OVER", "fail", "SESSION_TAKEN_OVER"],
    [4413, "", "fail", "INVALID_MESSAGE"],
    [4429, "QUOTA_EXCEEDED", "retry", ""],
    [1006, "BAD_AUDIO", "retry", ""],
  ];
  for (const [code, reason, next, failure] of table) {
    test(`${code} ${reason}: ${next}`, () => {
      const driver = new Driver();
      driver.connect();
      if (reason !== "") {
        driver.say(failed(reason));
      }
      const effects = driver.close(code, "said");
      assert.deepEqual(givenTypes(effects), ["reconnecting"]);
      if (next === "fail") {
        assert.equal(errorOf(effects).reason, failure);
      } else {
        assert.notEqual(retryOf(effects), null);
      }
    });
  }

  test("a quota that an open session has survived is not why it breaks later", () => {
    const driver = new Driver();
    driver.connect();
    driver.say(failed("QUOTA_EXCEEDED", {}, 60_000));
    assert((retryOf(driver.close(1006)) ?? 1e9) <= 100, "it waits for the quota");
    driver.connect();
    driver.say(failed("QUOTA_EXCEEDED", {}, 3000));
    assert.equal(retryOf(driver.close(4429)), 3000);
  });

  test("an abandoned resume of this client that took over is no stranger", () => {
    const driver = new Driver();
    driver.connect();
    driver.lose();
    driver.protocol.onConnected(driver.now);
    driver.drain();
    driver.lose();
    driver.connect();
    driver.say(failed("SESSION_TAKEN_OVER"));
    assert.notEqual(retryOf(driver.close(4409)), null);
    driver.connect();
    driver.say(failed("SESSION_TAKEN_OVER"));
    assert.equal(errorOf(driver.close(4409)).reason, "SESSION_TAKEN_OVER");
  });
});

describe("refusals of Open", () => {
  test("INVALID_MESSAGE names the fields", () => {
    const driver = new Driver();
    driver.protocol.onConnected(driver.now);
    driver.drain();
    const fieldViolations = [{ field: "open.new.tenant", description: "is too long" }];
    const error = { reason: "ERROR_REASON_INVALID_MESSAGE", message: "bad", fieldViolations };
    const failure = errorOf(driver.lose(closeOf(driver.say({ error })).ending));
    assert(failure instanceof SessionRefusedError);
    assert.deepEqual(failure.fieldViolations, fieldViolations);
    assert.match(failure.message, /open.new.tenant: is too long/);
  });

  test("a quota waits as long as the server says, or fails at once if that is too long", () => {
    const driver = new Driver();
    assert.equal(retryOf(driver.refuse("QUOTA_EXCEEDED", 4000)), 4000);
    const failure = errorOf(driver.refuse("QUOTA_EXCEEDED", 60_000));
    assert(failure instanceof SessionUnavailableError);
    assert.deepEqual([failure.reason, failure.retryAfterMs], ["QUOTA_EXCEEDED", 60_000]);
  });
});

describe("GoAway", () => {
  test("is obeyed when its time has come, and the session goes on elsewhere", () => {
    const driver = new Driver();
    driver.connect();
    driver.tick(5000);
    driver.say(goAway(300));
    driver.send("a");
    assert.deepEqual(driver.written(), ["audio 0"]);
    assert.deepEqual(driver.tick(299), []);
    const { ending } = closeOf(driver.tick(1));
    assert.equal(ending.kind, "moved");
    assert.equal(retryOf(driver.lose(ending)), 0);
    assert.deepEqual(driver.connect(), ["resume", "audio 0"]);
  });

  test("a gateway that ends before that time still spreads its clients", () => {
    const driver = new Driver();
    driver.connect();
    driver.tick(5000);
    driver.say(goAway(300));
    assert.equal(retryOf(driver.close(1001)), 300);
  });
});

describe("silence", () => {
  test("a silent gateway is asked at half of the time, and left after all of it", () => {
    const driver = new Driver();
    driver.connect({ silenceMs: 6000 });
    const asked: number[] = [];
    for (let ms = 1000; ms < 20_000; ms += 1000) {
      const effects = driver.tick(1000);
      if (driver.written().includes("empty")) {
        asked.push(ms);
      }
      if (effects.length > 0) {
        assert.deepEqual(asked, [3000]);
        assert.deepEqual(closeOf(effects).ending, {
          kind: "lost",
          why: "the gateway sent nothing for 6000 ms",
          silent: true,
        });
        assert.equal(ms, 6000);
        return;
      }
    }
    assert.fail("it was never left");
  });

  test("an answer without events is a sign of life", () => {
    const driver = new Driver();
    driver.connect({ silenceMs: 6000 });
    for (let at = 0; at < 100; at += 1) {
      assert.deepEqual(driver.tick(1000), []);
      if (driver.written().includes("empty")) {
        driver.protocol.onText(driver.now, "{}");
      }
    }
  });

  test("a stall of this page is not mistaken for silence of the gateway", () => {
    const driver = new Driver();
    driver.connect({ silenceMs: 6000 });
    driver.tick(3000);
    for (let at = 0; at < 20; at += 1) {
      assert.deepEqual(driver.tick(60_000), []);
    }
  });
});
