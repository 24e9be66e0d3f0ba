/** Whatever a server sends, nothing but the declared errors comes of it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { WireError } from "../src/protocol/json.js";
import { eventsOf } from "../src/protocol/wire.js";
import { refusalOf } from "../src/session/socket.js";
import { closeOf, Driver, givenTypes, seeded } from "./driver.js";
import {
  ack,
  closed,
  failed,
  finalized,
  goAway,
  missing,
  opened,
  partial,
  result,
} from "./events.js";

const FRAMES = 4000;
/** Stands for an array that is too deep for a recursive writer. */
const DEEP = "<deep>";

/** Values that trip up code which trusts its input. */
const AWKWARD: readonly unknown[] = [
  null,
  true,
  "",
  "x",
  "__proto__",
  "9".repeat(40),
  -1,
  0.5,
  1e308,
  2 ** 53,
  [],
  {},
  { toString: 1 },
  { valueOf: 1, toString: null },
  { toJSON: 1, length: -1 },
  DEEP,
  JSON.parse('{"__proto__": {"toString": 1}, "constructor": 1, "hasOwnProperty": 1}'),
];

const MESSAGES: readonly object[] = [
  opened(3, { silenceMs: 3000 }),
  ack(3, 1),
  result(0, "hola", {
    speechFormat: { encoding: "AUDIO_ENCODING_PCM_S16LE", sampleRateHz: 16_000, channels: 1 },
    joinedUtterances: [1],
    timings: { nodeMs: 5, stages: [{ stage: "STAGE_KIND_ASR", tookMs: 4 }] },
  }),
  missing(0),
  finalized(0),
  partial(0, "ho"),
  goAway(5),
  closed(1),
  failed("BAD_AUDIO", { seq: "1", expected_seq: "1" }),
  { error: { reason: 3, fieldViolations: [{ field: "a", description: "b" }] } },
];

type Random = () => number;

function one<T>(random: Random, of: readonly T[]): T {
  return of[Math.floor(random() * of.length)] as T;
}

/** Returns the value with some parts of it replaced by awkward ones. */
function spoilt(random: Random, value: unknown): unknown {
  if (random() < 0.08) {
    return one(random, AWKWARD);
  }
  if (Array.isArray(value)) {
    return value.map((each) => spoilt(random, each));
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).map(([key, each]) => [key, spoilt(random, each)]);
    if (random() < 0.1) {
      entries.push(["metadata", one(random, AWKWARD)]);
    }
    return Object.fromEntries(entries);
  }
  return value;
}

function written(value: unknown): string {
  return JSON.stringify(value).replaceAll(`"${DEEP}"`, "[".repeat(5000) + "]".repeat(5000));
}

function spoiltFrame(random: Random): string {
  const events = Array.from({ length: 1 + Math.floor(random() * 3) }, () => one(random, MESSAGES));
  return written(spoilt(random, { events }));
}

test("reading any JSON throws nothing but WireError", () => {
  const random = seeded(20);
  let refused = 0;
  for (let at = 0; at < FRAMES; at += 1) {
    const frame = spoiltFrame(random);
    try {
      eventsOf(frame);
    } catch (error) {
      refused += 1;
      assert(error instanceof WireError, `${String(error)} for ${frame.slice(0, 500)}`);
    }
    refusalOf(500, frame);
  }
  assert(refused > FRAMES / 10 && refused < FRAMES, `${refused} of ${FRAMES} were refused`);
});

test("a session survives any JSON", () => {
  const random = seeded(21);
  for (let at = 0; at < FRAMES / 10; at += 1) {
    const driver = new Driver();
    driver.connect();
    driver.send("a");
    for (let frame = 0; frame < 10; frame += 1) {
      driver.drain();
      const effects = driver.protocol.onText(driver.now, spoiltFrame(random));
      if (effects.some((each) => each.do === "close")) {
        driver.lose(closeOf(effects).ending);
        break;
      }
    }
  }
});

for (const value of [{ toString: 1 }, DEEP, 5]) {
  test(`an error with ${JSON.stringify(value)} in its metadata is malformed`, () => {
    const driver = new Driver();
    driver.connect();
    const error = { reason: "ERROR_REASON_INTERNAL", metadata: { a: value } };
    const effects = driver.protocol.onText(driver.now, written({ events: [{ error }] }));
    assert.deepEqual(givenTypes(effects), ["problem"]);
    assert.equal(closeOf(effects).ending.kind, "lost");
  });
}
