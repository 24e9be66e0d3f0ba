// @ts-check
/** The waterfall of a job: all attempts and steps over time. */

import { html } from "./html.js";
import { microseconds } from "./format.js";
import { now } from "./state.js";
import { useWidth } from "./view-chart.js";
import { BAR, barText, waterfall } from "./waterfall.js";
import { sentence } from "./words.js";

/** @import { Attempt, Step } from "./types.js" */
/** @import { Bar, Group } from "./waterfall.js" */

/** @param {{ steps: readonly Step[], attempts: readonly Attempt[] }} props */
export function Waterfall({ steps, attempts }) {
  const [ref, width] = useWidth();
  const isRunning = steps.some((step) => step.detail === "under way");
  const nowUs = (isRunning ? now.value : 0) * 1000;
  const drawing = width > 0 ? waterfall(steps, attempts, width, nowUs) : null;
  return html`<div class="chart waterfall" ref=${ref} data-role="waterfall">
    ${
      drawing !== null &&
      html`<svg
        width=${drawing.width}
        height=${drawing.height}
        role="group"
        aria-label=${`Waterfall of ${steps.length} steps in ${microseconds(drawing.spanUs)}`}
      >
        ${drawing.ticks.map(
          ({ x, label }) =>
            html`<g key=${label}>
              <line class="grid" x1=${x} x2=${x} y1="18" y2=${drawing.height} />
              <text class="axis" x=${x + 3} y="12">${label}</text>
            </g>`,
        )}
        ${drawing.groups.map(
          (group) =>
            html`<${GroupRows}
              key=${group.attempt}
              group=${group}
              width=${drawing.width}
              left=${drawing.labelWidth}
            />`,
        )}
      </svg>`
    }
  </div>`;
}

/** @param {{ group: Group, width: number, left: number }} props */
function GroupRows({ group, width, left }) {
  const outcome = group.outcome === "" ? "" : `: ${sentence(group.outcome).toLowerCase()}`;
  const node = group.node === "" ? "" : ` on ${group.node}`;
  return html`<g data-attempt=${group.attempt}>
    <line class="group-line" x1="0" x2=${width} y1=${group.y + 6} y2=${group.y + 6} />
    <text class="group-name" x="0" y=${group.y + 23}>${group.label + node + outcome}</text>
    ${group.bars.map((bar) => html`<${BarMark} key=${bar.key} bar=${bar} left=${left} />`)}
  </g>`;
}

/** @param {{ bar: Bar, left: number }} props */
function BarMark({ bar, left }) {
  const text = barText(bar);
  return html`<g>
    <text class="axis" x=${left - 10} y=${bar.y + BAR - 3} text-anchor="end">${bar.label}</text>
    <rect
      class=${`bar ${bar.tone}${bar.running ? " running" : ""}`}
      x=${bar.x}
      y=${bar.y + (bar.nested ? 2 : 0)}
      width=${bar.width}
      height=${bar.nested ? BAR - 4 : BAR}
      rx="2"
      tabindex="0"
      role="img"
      aria-label=${text}
      data-tip=${text.replaceAll(", ", "\n")}
      data-step=${bar.kind}
    />
    <text class="axis value" x=${bar.valueX} y=${bar.y + BAR - 3} text-anchor=${bar.anchor}>
      ${bar.value}
    </text>
  </g>`;
}
