// @ts-check
/** Where the time went. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  duration,
  timeline,
  waitedMs,
} from "../../../../services/session_gateway/web/page/app/facts.js";

const TIMINGS = {
  audioMs: 1500,
  hangoverMs: 200,
  dispatchMs: 12,
  nodeMs: 800,
  deliverMs: 3,
  stages: [
    { stage: "ASR", startedMs: 0, tookMs: 500 },
    { stage: "NMT", startedMs: 500, tookMs: 200 },
    { stage: "NEWER", startedMs: 700, tookMs: 50 },
  ],
};

test("the parts are consecutive, and all of the time is in one of them", () => {
  assert.deepEqual(timeline(TIMINGS), [
    { name: "audio", ms: 1500 },
    { name: "pause", ms: 200 },
    { name: "dispatch", ms: 12 },
    { name: "ASR", ms: 500 },
    { name: "NMT", ms: 200 },
    { name: "OTHER", ms: 50 },
    { name: "rest", ms: 50 },
    { name: "deliver", ms: 3 },
  ]);
  assert.equal(waitedMs(TIMINGS), 1015);
});

test("a node that reports no stages has all of its time", () => {
  assert.deepEqual(timeline({ ...TIMINGS, stages: [] })[3], { name: "node", ms: 800 });
});

test("stages that claim more than the node's time do not lengthen the bar", () => {
  const stages = Array.from({ length: 1000 }, () => ({ stage: "ASR", startedMs: 0, tookMs: 999 }));
  const parts = timeline({ ...TIMINGS, stages });
  const all = parts.reduce((sum, part) => sum + part.ms, 0);
  assert.equal(all, 1500 + 200 + 12 + 800 + 3);
  assert(parts.length < 10);
});

test("durations are short", () => {
  assert.equal(duration(12.4, "en"), "12 ms");
  assert.equal(duration(1540, "en"), "1.5 s");
  assert.equal(duration(1540, "es"), "1,5 s");
});
