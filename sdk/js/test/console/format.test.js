// @ts-check
/** Numbers and times as people read them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as format from "../../../../services/console/page/app/format.js";

test("durations have at most two units", () => {
  const expected = /** @type {[number | undefined, string][]} */ ([
    [undefined, "–"],
    [0, "0 ms"],
    [1.26, "1.3 ms"],
    [850, "850 ms"],
    [1250, "1.3 s"],
    [9_960, "10 s"],
    [59_960, "1 min"],
    [200_000, "3 min 20 s"],
    [7_500_000, "2 h 5 min"],
    [86_400_000, "1 d"],
    [273_600_000, "3 d 4 h"],
  ]);
  for (const [ms, text] of expected) {
    assert.equal(format.duration(ms), text);
  }
});

test("steps may be shorter than a millisecond", () => {
  assert.equal(format.microseconds(85), "85 µs");
  assert.equal(format.microseconds(1250), "1.25 ms");
  assert.equal(format.microseconds(850_000), "850 ms");
});

test("times are relative to now, before and after it", () => {
  assert.equal(format.ago(10_000, 11_000), "just now");
  assert.equal(format.ago(10_000, 22_900), "12 s ago");
  assert.equal(format.ago(200_000, 10_000), "in 3 min");
  assert.equal(format.ago(undefined, 0), "–");
});

test("exact times are in the viewer's zone, with its offset", () => {
  const ms = Date.UTC(2026, 1, 3, 23, 3, 22, 123);
  assert.equal(format.exact(ms, "Europe/Berlin"), "2026-02-04 00:03:22.123 GMT+1");
  assert.equal(format.clock(ms, "Europe/Berlin"), "00:03:22");
  assert.equal(format.local(ms, "Europe/Berlin"), "2026-02-04T00:03");
});

test("a rate that is small is not shown as zero", () => {
  const expected = [
    [0, "0"],
    [0.001, "<0.01"],
    [0.25, "0.25"],
    [3.14, "3.1"],
    [1234.5, "1,235"],
    [-1, "–"],
  ];
  for (const [value, text] of expected) {
    assert.equal(format.rate(/** @type {number} */ (value)), text);
  }
});

test("one node, two nodes", () => {
  assert.equal(format.plural(1, "node"), "1 node");
  assert.equal(format.plural(2000, "node"), "2,000 nodes");
});
