// @ts-check
/** The geometry of small charts of numbers over time. A negative number means: no value. */

/**
 * @typedef {object} Line
 * @property {string} path of the line, for the attribute `d`; breaks if values are missing.
 * @property {string} area below it.
 * @property {number} max of the scale.
 */

/**
 * @param {readonly number[]} values oldest first.
 * @param {{ width: number, height: number, max?: number, points?: number }} box `points`: how many
 *   the width has room for; newer ones are at the right. At least two.
 * @returns {Line}
 */
export function lineOf(values, { width, height, max = 0, points = values.length }) {
  const top = Math.max(max, ...values, 0) || 1;
  const step = width / Math.max(points - 1, 1);
  const first = width - step * (values.length - 1);
  const path = [];
  const area = [];
  for (const run of runsOf(values)) {
    const dots = run.map(
      (index) =>
        `${round(first + step * index)},${round(height - ((values[index] ?? 0) / top) * height)}`,
    );
    const [left, right] = [run[0] ?? 0, run.at(-1) ?? 0];
    // A lone point is a short line, or nobody would see it.
    const end = run.length === 1 ? `h${round(Math.min(step, 2))}` : "";
    path.push(`M${dots.join("L")}${end}`);
    area.push(
      `M${round(first + step * left)},${height}L${dots.join("L")}L${round(first + step * right)},${height}Z`,
    );
  }
  return { path: path.join(""), area: area.join(""), max: top };
}

/**
 * Indexes of values that are there, in runs without a gap.
 *
 * @param {readonly number[]} values
 */
function runsOf(values) {
  /** @type {number[][]} */
  const runs = [];
  let isOpen = false;
  values.forEach((value, index) => {
    if (value < 0) {
      isOpen = false;
      return;
    }
    if (!isOpen) {
      runs.push([]);
      isOpen = true;
    }
    runs.at(-1)?.push(index);
  });
  return runs;
}

/**
 * Which point is nearest to a place of the chart, and when it was.
 *
 * @param {{ length: number, points?: number, width: number, x: number }} where
 */
export function indexAt({ length, points = length, width, x }) {
  const step = width / Math.max(points - 1, 1);
  const index = Math.round((x - (width - step * (length - 1))) / step);
  return Math.min(Math.max(index, 0), length - 1);
}

/**
 * Round times for an axis: at most `most` of them, from 0 to `span`.
 *
 * @param {number} span
 * @param {number} most
 * @returns {number[]}
 */
export function ticksOf(span, most) {
  if (!(span > 0)) {
    return [0];
  }
  const rough = span / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step =
    [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const ticks = [];
  for (let at = 0; at <= span * 1.000001; at += step) {
    ticks.push(Number(at.toPrecision(12)));
  }
  return ticks;
}

/** @param {number} value */
export function round(value) {
  return Math.round(value * 10) / 10;
}
