// @ts-check
/** The geometry of a job's waterfall: its steps by attempt, over time. Pixels, for a given width. */

import { ticksOf } from "./chart.js";
import { microseconds } from "./format.js";
import { STEPS, wordOf } from "./words.js";

/** @import { Attempt, Step } from "./types.js" */
/** @import { Tone } from "./words.js" */

/**
 * @typedef {object} Bar
 * @property {string} key
 * @property {string} kind
 * @property {string} label
 * @property {Tone | "stage"} tone
 * @property {number} x
 * @property {number} y
 * @property {number} width
 * @property {number} startUs since the first step.
 * @property {number} tookUs
 * @property {string} node
 * @property {string} detail
 * @property {boolean} failed
 * @property {boolean} running whether the step has not ended.
 * @property {boolean} nested whether it is a part of the bar above.
 * @property {string} value what is written beside it.
 * @property {number} valueX
 * @property {"start" | "end"} anchor
 *
 * @typedef {object} Group
 * @property {number} attempt 0: the job as a whole.
 * @property {string} label
 * @property {string} node
 * @property {string} outcome
 * @property {number} y
 * @property {readonly Bar[]} bars
 *
 * @typedef {object} Waterfall
 * @property {number} width
 * @property {number} height
 * @property {number} labelWidth
 * @property {number} spanUs
 * @property {readonly Group[]} groups
 * @property {readonly { x: number, label: string }[]} ticks
 */

export const ROW = 24;
export const BAR = 14;
const GROUP = 30;
const AXIS = 24;
const RIGHT = 56;
/** A step that took no time is still to be seen, and to be touched. */
const LEAST = 3;
/** The number of pixels that a label of the axis needs. */
const PER_TICK = 88;
/** The room of a letter, and beside a bar. */
const PER_CHAR = 7;
const GAP = 6;
const ORDER = Object.keys(STEPS);
/** Details that say that a step has not failed. */
const NOTES = ["", "under way", "by relay"];

/**
 * @param {readonly Step[]} steps
 * @param {readonly Attempt[]} attempts
 * @param {number} width of the drawing.
 * @param {number} nowUs the end of steps that are under way.
 * @returns {Waterfall | null} null if there is nothing to draw.
 */
export function waterfall(steps, attempts, width, nowUs) {
  if (steps.length === 0) {
    return null;
  }
  const labelWidth = width < 560 ? 92 : 128;
  const startUs = Math.min(...steps.map((step) => step.started_us));
  const endUs = Math.max(...steps.map((step) => endOf(step, nowUs)));
  const spanUs = Math.max(endUs - startUs, 1);
  const room = Math.max(width - labelWidth - RIGHT, 40);
  const scale = room / spanUs;
  let y = AXIS;
  const groups = attemptsOf(steps).map((attempt) => {
    const own = ordered(steps.filter((step) => step.attempt === attempt));
    const top = y;
    y += GROUP;
    const bars = own.map((step, index) => {
      const bar = barOf(step, { index, startUs, nowUs, scale, left: labelWidth, y, end: width });
      y += ROW;
      return bar;
    });
    const record = attempts.find((each) => each.number === attempt);
    return {
      attempt,
      label: attempt === 0 ? "Job" : `Attempt ${attempt}`,
      node: record?.node ?? own.find((step) => step.node)?.node ?? "",
      outcome: record?.outcome ?? "",
      y: top,
      bars,
    };
  });
  const places = ticksOf(spanUs, Math.max(Math.floor(room / PER_TICK), 2));
  const ticks = places.map((at) => ({
    x: labelWidth + at * scale,
    label: axisLabel(at, places.at(-1) ?? 0),
  }));
  return { width, height: y + 8, labelWidth, spanUs, groups, ticks };
}

/**
 * All labels of an axis have one unit, and are not rounded: 1.25 s is not 1.3 s.
 *
 * @param {number} us
 * @param {number} lastUs of the axis.
 */
function axisLabel(us, lastUs) {
  if (us === 0 || lastUs >= 120_000_000) {
    return us === 0 ? "0" : microseconds(us);
  }
  const [unit, name] =
    lastUs >= 1_000_000 ? [1_000_000, "s"] : lastUs >= 1000 ? [1000, "ms"] : [1, "µs"];
  return `${Number((us / unit).toPrecision(6))} ${name}`;
}

/**
 * @param {Step} step
 * @param {{ index: number, startUs: number, nowUs: number, scale: number, left: number, y: number,
 *   end: number }} at `end`: of the drawing.
 * @returns {Bar}
 */
function barOf(step, { index, startUs, nowUs, scale, left, y, end }) {
  const word = wordOf(STEPS, step.kind);
  const detail = step.detail ?? "";
  const isStage = step.kind === "STAGE";
  const running = detail === "under way";
  const failed = !isStage && !NOTES.includes(detail);
  const tookUs = endOf(step, nowUs) - step.started_us;
  const x = left + (step.started_us - startUs) * scale;
  const width = Math.max(tookUs * scale, LEAST);
  const beside = { x, right: x + width, left, end };
  return {
    key: `${step.attempt}-${index}`,
    kind: step.kind,
    label: isStage && detail !== "" ? detail.toUpperCase() : word.label,
    tone: failed ? "bad" : isStage ? "stage" : word.tone,
    x,
    y: y + (ROW - BAR) / 2,
    width,
    startUs: step.started_us - startUs,
    tookUs,
    node: step.node ?? "",
    detail: isStage ? "" : detail,
    failed,
    running,
    nested: isStage,
    ...valueOf(microseconds(tookUs), failed ? ` ${detail}` : "", beside),
  };
}

/**
 * At the right of the bar, or at its left if it would be cut off there; without the detail if there is
 * no room for it at all.
 *
 * @param {string} value
 * @param {string} detail
 * @param {{ x: number, right: number, left: number, end: number }} room
 * @returns {{ value: string, valueX: number, anchor: "start" | "end" }}
 */
function valueOf(value, detail, { x, right, left, end }) {
  const length = (value.length + detail.length) * PER_CHAR + GAP;
  if (right + length <= end) {
    return { value: value + detail, valueX: right + GAP, anchor: "start" };
  }
  if (x - length >= left) {
    return { value: value + detail, valueX: x - GAP, anchor: "end" };
  }
  return { value, valueX: right + GAP, anchor: "start" };
}

/**
 * @param {Step} step
 * @param {number} nowUs
 */
function endOf(step, nowUs) {
  const end = step.started_us + step.took_us;
  return step.detail === "under way" ? Math.max(end, nowUs) : end;
}

/** The job as a whole first, then attempts in order. @param {readonly Step[]} steps */
function attemptsOf(steps) {
  return [...new Set(steps.map((step) => step.attempt))].sort((a, b) => a - b);
}

/** By start; a stage follows the step that it is a part of. @param {readonly Step[]} steps */
function ordered(steps) {
  return [...steps].sort(
    (a, b) =>
      a.started_us - b.started_us ||
      // Steps that took no time begin together with the next one.
      ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind),
  );
}

/** All numbers of a bar, for those who hover, focus or listen. @param {Bar} bar */
export function barText(bar) {
  const parts = [
    `${bar.label}: ${microseconds(bar.tookUs)}${bar.running ? " so far" : ""}`,
    `starts at +${microseconds(bar.startUs)}`,
  ];
  if (bar.node !== "") {
    parts.push(`node ${bar.node}`);
  }
  if (bar.detail !== "" && !bar.running) {
    parts.push(bar.detail);
  }
  return parts.join(", ");
}
