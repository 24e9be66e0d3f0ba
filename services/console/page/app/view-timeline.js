// @ts-check
/** A session's utterances over time. */

import { html } from "./html.js";
import { clock } from "./format.js";
import { languageName } from "./languages.js";
import { address } from "./router.js";
import { navigate, now } from "./state.js";
import { lookOf, placeOf, timeline, utteranceText } from "./timeline.js";
import { useWidth } from "./view-chart.js";

/** @import { Utterance } from "./types.js" */
/** @import { Lane, Mark } from "./timeline.js" */

/** @param {{ utterances: readonly Utterance[] }} props */
export function SessionTimeline({ utterances }) {
  const [ref, width] = useWidth();
  const isOpen = utterances.some((utterance) => lookOf(utterance) === "open");
  const drawing = width > 0 ? timeline(utterances, width, isOpen ? now.value : 0) : null;
  const byPlace = new Map(utterances.map((utterance) => [placeOf(utterance), utterance]));
  return html`<div
    class="chart scroll timeline"
    ref=${ref}
    data-role="timeline"
    role="region"
    aria-label="Timeline of utterances"
    tabindex="0"
  >
    ${
      drawing !== null &&
      html`<svg
        width=${drawing.width}
        height=${drawing.height}
        role="group"
        aria-label=${`${utterances.length} utterances`}
      >
        ${drawing.breaks.map(
          ({ x, width: gap, label }) =>
            html`<g key=${x}>
              <rect class="break" x=${x} y="20" width=${gap} height=${drawing.height - 20} />
              <text class="axis" x=${x + gap / 2} y=${drawing.height - 3} text-anchor="middle"
                >${label}</text
              >
            </g>`,
        )}
        ${drawing.ticks.map(
          ({ x, ms }) =>
            html`<g key=${ms}>
              <line class="grid" x1=${x} x2=${x} y1="16" y2=${drawing.height} />
              <text class="axis" x=${x + 3} y="12">${clock(ms)}</text>
            </g>`,
        )}
        ${drawing.lanes.map(
          (lane) =>
            html`<${LaneMarks}
              key=${`${lane.src}:${lane.tgt}`}
              lane=${lane}
              width=${drawing.width}
              byPlace=${byPlace}
            />`,
        )}
        ${drawing.joins.map(({ from, to, path }) => html`<path key=${`${from}-${to}`} class="join" d=${path} />`)}
      </svg>`
    }
    ${drawing === null && width > 0 && html`<p class="muted note">No times are known of these utterances.</p>`}
  </div>`;
}

/** @param {{ lane: Lane, width: number, byPlace: ReadonlyMap<string, Utterance> }} props */
function LaneMarks({ lane, width, byPlace }) {
  return html`<g data-direction=${`${lane.src}:${lane.tgt}`}>
    <line class="group-line" x1="0" x2=${width} y1=${lane.y + 2} y2=${lane.y + 2} />
    <text class="group-name" x="4" y=${lane.y + 17}>
      ${`${languageName(lane.src)} → ${languageName(lane.tgt)}`}
    </text>
    ${lane.marks.map((mark) => {
      const utterance = byPlace.get(mark.place);
      return (
        utterance !== undefined &&
        html`<${UtteranceMark}
          key=${`${mark.index}-${mark.part}`}
          mark=${mark}
          utterance=${utterance}
        />`
      );
    })}
  </g>`;
}

/** @param {{ mark: Mark, utterance: Utterance }} props */
function UtteranceMark({ mark, utterance }) {
  const text = utteranceText(utterance);
  const isFirst = mark.part === "spoken";
  const open = () => {
    if (utterance.job_id) {
      navigate(address("job", utterance.job_id));
    }
  };
  return html`<g>
    <rect
      class=${`mark ${mark.part} ${mark.look}`}
      x=${mark.x}
      y=${mark.y}
      width=${mark.width}
      height=${mark.height}
      rx="3"
      tabindex=${isFirst ? 0 : undefined}
      role=${isFirst ? "link" : undefined}
      aria-label=${isFirst ? `Utterance ${text}` : undefined}
      aria-hidden=${isFirst ? undefined : "true"}
      data-tip=${text.replaceAll(", ", "\n")}
      data-utterance=${mark.index}
      onClick=${open}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter") {
          open();
        }
      }}
    />
    ${
      isFirst &&
      mark.width > 20 &&
      html`<text class="mark-name" x=${mark.x + 5} y=${mark.y + 13} aria-hidden="true"
        >${mark.index}</text
      >`
    }
  </g>`;
}
