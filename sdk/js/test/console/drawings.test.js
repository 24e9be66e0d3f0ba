// @ts-check
/** The geometry of charts, waterfalls and timelines. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { indexAt, lineOf, ticksOf } from "../../../../services/console/page/app/chart.js";
import {
  MAX_GAP_MS,
  timeline,
  utteranceText,
} from "../../../../services/console/page/app/timeline.js";
import { barText, waterfall } from "../../../../services/console/page/app/waterfall.js";

/** @import { Step, Utterance } from "../../../../services/console/page/app/types.js" */

test("a line breaks at values that are missing, and ends at the right", () => {
  const { path } = lineOf([0, 10, -1, 5, 10], { width: 80, height: 10 });
  assert.equal(path, "M0,10L20,0M60,5L80,0");
});

test("a chart that is not full yet starts further to the right", () => {
  assert.equal(lineOf([1, 1], { width: 100, height: 10, points: 11 }).path, "M90,0L100,0");
});

test("the point under the pointer is the nearest one", () => {
  assert.equal(indexAt({ length: 5, width: 80, x: 33 }), 2);
  assert.equal(indexAt({ length: 5, width: 80, x: -9 }), 0);
  assert.equal(indexAt({ length: 5, width: 80, x: 999 }), 4);
});

test("ticks are round numbers, and not too many", () => {
  assert.deepEqual(ticksOf(4900, 5), [0, 1000, 2000, 3000, 4000]);
  assert.deepEqual(ticksOf(0, 5), [0]);
  assert.ok(ticksOf(123_456_789, 7).length <= 8);
});

/** @type {Step[]} */
const STEPS = [
  { kind: "GATHER", attempt: 0, started_us: 1_000_000, took_us: 1_000_000 },
  {
    kind: "ACK",
    attempt: 1,
    started_us: 2_000_000,
    took_us: 800_000,
    node: "a",
    detail: "ACK_TIMEOUT",
  },
  { kind: "NODE", attempt: 2, started_us: 2_800_000, took_us: 200_000, node: "b" },
  { kind: "STAGE", attempt: 2, started_us: 2_800_000, took_us: 100_000, node: "b", detail: "asr" },
];

test("a waterfall has a group for the job and for each attempt, on one scale", () => {
  const drawing = waterfall(
    STEPS,
    [{ number: 1, node: "a", outcome: "ACK_TIMEOUT", detail: "" }],
    1000,
    0,
  );
  assert.ok(drawing);
  assert.deepEqual(
    drawing.groups.map(({ label, node, outcome }) => [label, node, outcome]),
    [
      ["Job", "", ""],
      ["Attempt 1", "a", "ACK_TIMEOUT"],
      ["Attempt 2", "b", ""],
    ],
  );
  const [gather, ack, node, stage] = drawing.groups.flatMap((group) => group.bars);
  assert.ok(gather && ack && node && stage);
  assert.equal(drawing.spanUs, 2_000_000);
  assert.ok(Math.abs(gather.x + gather.width - ack.x) < 0.01, "steps follow each other");
  assert.ok(Math.abs(gather.width / ack.width - 1.25) < 0.01);
  assert.ok(node.x + node.width <= drawing.width);
  assert.deepEqual([ack.failed, ack.tone], [true, "bad"]);
  assert.deepEqual([stage.label, stage.nested, stage.failed], ["ASR", true, false]);
});

test("a bar says all of its numbers", () => {
  const bar = waterfall(STEPS, [], 1000, 0)?.groups[1]?.bars[0];
  assert.ok(bar);
  assert.equal(barText(bar), "Acknowledge: 800 ms, starts at +1.0 s, node a, ACK_TIMEOUT");
});

test("a value that would be cut off at the right is at the left of its bar", () => {
  const bar = waterfall(STEPS, [], 1000, 0)?.groups[2]?.bars[0];
  const last = {
    kind: "NODE",
    attempt: 1,
    started_us: 1_500_000,
    took_us: 500_000,
    detail: "JOB_TIMEOUT",
  };
  const failed = waterfall([STEPS[0] ?? last, last], [], 1000, 0)?.groups[1]?.bars[0];
  assert.equal(bar?.anchor, "start");
  assert.equal(failed?.anchor, "end");
});

test("a step that is under way grows until now", () => {
  const step = { kind: "NODE", attempt: 1, started_us: 1_000_000, took_us: 0, detail: "under way" };
  const bar = waterfall([step], [], 1000, 4_000_000)?.groups[0]?.bars[0];
  assert.deepEqual([bar?.tookUs, bar?.running, bar?.failed], [3_000_000, true, false]);
});

test("the labels of an axis are exact, and have one unit", () => {
  const step = { kind: "NODE", attempt: 1, started_us: 0, took_us: 1_500_000 };
  const labels = waterfall([step], [], 1000, 0)?.ticks.map(({ label }) => label);
  assert.deepEqual(labels, ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1 s", "1.2 s", "1.4 s"]);
  const short = waterfall([{ ...step, took_us: 1200 }], [], 400, 0)?.ticks.at(-1)?.label;
  assert.equal(short, "1 ms");
});

test("a job without steps has no waterfall", () => {
  assert.equal(waterfall([], [], 1000, 0), null);
});

/**
 * @param {number} index
 * @param {Partial<Utterance>} facts
 * @returns {Utterance}
 */
function utterance(index, facts) {
  return {
    ...{ index, job_id: `job-${index}`, src: "en", tgt: "es", cut: "TIMEOUT", state: "done" },
    ...{ kind: "TRANSLATED", node: "gpu-1", attempts: 1, missing: false, joined: [] },
    ...facts,
  };
}

/** @param {number} from */
function times(from) {
  return { spoken_from_ms: from, cut_ms: from + 1000, result_ms: from + 1500, latency_ms: 500 };
}

test("each direction has its lanes, in the order in which it was spoken first", () => {
  const drawing = timeline(
    [
      utterance(2, { ...times(6000), src: "es", tgt: "en" }),
      utterance(1, times(3000)),
      utterance(0, times(0)),
    ],
    1000,
    0,
  );
  assert.ok(drawing);
  assert.deepEqual(
    drawing.lanes.map(({ src, marks }) => [src, marks.length]),
    [
      ["en", 4],
      ["es", 2],
    ],
  );
  const [spoken, waited] = drawing.lanes[0]?.marks ?? [];
  assert.ok(spoken && waited && spoken.x + spoken.width <= waited.x + 0.01);
  assert.ok(waited.y > spoken.y);
});

test("long silence is shortened, and says how long it was", () => {
  const apart = timeline([utterance(0, times(0)), utterance(1, times(3_600_000))], 1000, 0);
  assert.deepEqual(
    apart?.breaks.map((each) => each.label),
    ["59 min"],
  );
  const [first, second] = apart?.lanes[0]?.marks.filter((mark) => mark.part === "spoken") ?? [];
  assert.ok(first && second && second.x - first.x < 1000);
  const near = timeline([utterance(0, times(0)), utterance(1, times(MAX_GAP_MS))], 1000, 0);
  assert.deepEqual(near?.breaks, []);
});

test("waits that overlap lie below each other", () => {
  const slow = { ...times(0), result_ms: 9000 };
  const drawing = timeline([utterance(0, slow), utterance(1, times(2000))], 1000, 0);
  const waits = drawing?.lanes[0]?.marks.filter((mark) => mark.part === "waited") ?? [];
  assert.ok((waits[1]?.y ?? 0) > (waits[0]?.y ?? 0));
});

test("held utterances are tied to the one that contains them", () => {
  const drawing = timeline(
    [
      utterance(0, { ...times(0), kind: "HELD", joined_into: 1 }),
      utterance(1, { ...times(3000), joined: [0] }),
    ],
    1000,
    0,
  );
  assert.deepEqual(
    drawing?.joins.map(({ from, to }) => [from, to]),
    [["en:es/0", "en:es/1"]],
  );
  assert.equal(drawing?.lanes[0]?.marks[0]?.look, "held");
});

test("what is said to a room has a lane for each language, with its own outcomes", () => {
  const drawing = timeline(
    [
      utterance(0, { ...times(0), kind: "HELD", joined_into: 1 }),
      utterance(0, { ...times(0), tgt: "de" }),
      utterance(1, { ...times(3000), joined: [0] }),
      utterance(1, { ...times(3000), tgt: "de", missing: true }),
    ],
    1000,
    0,
  );
  assert.deepEqual(
    drawing?.lanes.map(({ tgt, marks }) => [
      tgt,
      ...marks.filter(({ part }) => part === "spoken").map(({ look }) => look),
    ]),
    [
      ["es", "held", "done"],
      ["de", "done", "missing"],
    ],
  );
  assert.deepEqual(
    drawing?.joins.map(({ from, to }) => [from, to]),
    [["en:es/0", "en:es/1"]],
  );
});

test("an utterance without times is not drawn, and one that waits ends now", () => {
  assert.equal(timeline([utterance(0, {})], 1000, 0), null);
  const open = { index: 1, ...{ spoken_from_ms: 0, cut_ms: 1000, state: "active" } };
  const waiting = utterance(1, open);
  delete waiting.kind;
  const drawing = timeline([waiting], 1000, 5000);
  const waited = drawing?.lanes[0]?.marks[1];
  assert.equal(waited?.look, "open");
  assert.ok((waited?.width ?? 0) > (drawing?.lanes[0]?.marks[0]?.width ?? 0));
});

test("an utterance in words", () => {
  assert.equal(
    utteranceText(utterance(7, { ...times(0), attempts: 2, joined: [5, 6] })),
    "7: en → es, spoken for 1.0 s, cut: pause, translated, after 500 ms, node gpu-1, 2 attempts, contains 5, 6",
  );
  assert.match(
    utteranceText(utterance(9, { missing: true, state: "failed", error: "JOB_TIMEOUT" })),
    /missing \(JOB_TIMEOUT\)/,
  );
});
