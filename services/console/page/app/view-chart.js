// @ts-check
/** Small charts over time. */

import { useEffect, useRef, useState } from "preact/hooks";

import { html } from "./html.js";
import { indexAt, lineOf } from "./chart.js";
import { clock, count } from "./format.js";

const WIDTH = 120;
const HEIGHT = 32;

/**
 * A line without axes. The number that it ends with is beside it.
 *
 * @param {{ values: readonly number[] | undefined, second?: readonly number[] | undefined,
 *   points: number, max?: number }} props
 */
export function Sparkline({ values = [], second, points, max = 0 }) {
  const top = Math.max(max, ...values, ...(second ?? []));
  const box = { width: WIDTH, height: HEIGHT, points: Math.max(points, 2), max: top };
  const line = lineOf(values, box);
  return html`<svg
    class="sparkline"
    viewBox=${`0 -2 ${WIDTH} ${HEIGHT + 4}`}
    preserveAspectRatio="none"
    aria-hidden="true"
  >
    ${second !== undefined && html`<path class="line second" d=${lineOf(second, box).path} />`}
    <path class="area" d=${line.area} />
    <path class="line" d=${line.path} />
  </svg>`;
}

/**
 * Slots of a node that are taken, over the last minutes.
 *
 * @param {{ series: { interval_s: number, end_ms: number, used: readonly number[], slots: number },
 *   label: string }} props
 */
export function SlotsChart({ series, label }) {
  const [ref, width] = useWidth();
  const [at, setAt] = useState(-1);
  const { used, slots, interval_s: interval, end_ms: end } = series;
  const [height, left, bottom] = [140, 34, 22];
  const room = Math.max(width - left - 6, 50);
  const line = lineOf(used, { width: room, height, max: slots });
  const step = room / Math.max(used.length - 1, 1);
  /** @param {number} index */
  const timeOf = (index) => end - (used.length - 1 - index) * interval * 1000;
  const middle = Math.floor((used.length - 1) / 2);
  return html`<div class="chart" ref=${ref}>
    <svg
      role="img"
      aria-label=${label}
      width=${width}
      height=${height + bottom + 8}
      onMouseMove=${(/** @type {MouseEvent} */ event) =>
        setAt(indexAt({ length: used.length, width: room, x: event.offsetX - left }))}
      onMouseLeave=${() => setAt(-1)}
    >
      <g transform=${`translate(${left},6)`}>
        ${[0, 0.5, 1].map((share) => {
          const y = height - (height * share * slots) / line.max;
          return html`<g key=${share}>
            <line class="grid" x1="0" x2=${room} y1=${y} y2=${y} />
            <text class="axis" x="-6" y=${y + 4} text-anchor="end">
              ${Number.isInteger(slots * share) ? count(slots * share) : ""}
            </text>
          </g>`;
        })}
        <path class="area" d=${line.area} />
        <path class="line" d=${line.path} />
        <text class="axis" x="0" y=${height + 16}>${clock(timeOf(0))}</text>
        ${
          room > 420 &&
          html`<text class="axis" x=${room / 2} y=${height + 16} text-anchor="middle">
            ${clock(timeOf(middle))}
          </text>`
        }
        <text class="axis" x=${room} y=${height + 16} text-anchor="end">${clock(end)}</text>
        ${
          at >= 0 &&
          (used[at] ?? -1) >= 0 &&
          html`<g>
            <line class="cursor" x1=${at * step} x2=${at * step} y1="0" y2=${height} />
            <text
              class="axis strong"
              x=${at * step + (at > used.length / 2 ? -6 : 6)}
              y="12"
              text-anchor=${at > used.length / 2 ? "end" : "start"}
            >
              ${`${clock(timeOf(at))}: ${count(used[at])} of ${count(slots)}`}
            </text>
          </g>`
        }
      </g>
    </svg>
  </div>`;
}

/**
 * The width of an element, which follows its container.
 *
 * @returns {[import("preact").RefObject<HTMLDivElement>, number]}
 */
export function useWidth() {
  const ref = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const { current } = ref;
    if (current === null) {
      return undefined;
    }
    const measure = () => setWidth(Math.floor(current.clientWidth));
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    measure();
    return () => observer.disconnect();
  }, []);
  return [/** @type {import("preact").RefObject<HTMLDivElement>} */ (ref), width];
}
