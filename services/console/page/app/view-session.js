// @ts-check
/** One session as a timeline of its utterances. Nothing of what was said. */

import { html } from "./html.js";
import { count, duration } from "./format.js";
import { address } from "./router.js";
import { Directions } from "./view-sessions.js";
import { Ago, Card, Clock, Direction, Empty, Facts, IdLink, Pill } from "./view-parts.js";
import { Pager, Table } from "./view-table.js";
import { SessionTimeline } from "./view-timeline.js";
import { lookOf, placeOf } from "./timeline.js";
import { CUTS, OVER, RESULT_KINDS, SESSION_STATES, sentence, wordOf } from "./words.js";

/** @import { Children } from "./html.js" */
/** @import { SessionDetails, SessionDocument, Utterance } from "./types.js" */
/** @import { Column } from "./view-table.js" */

/** @type {readonly Column<Utterance>[]} */
const COLUMNS = [
  {
    name: "#",
    phone: "title",
    cell: (utterance) =>
      utterance.job_id
        ? html`<a href=${address("job", utterance.job_id)} title=${utterance.job_id}
            >${utterance.index}</a
          >`
        : String(utterance.index),
  },
  {
    name: "Result",
    phone: "side",
    cell: (utterance) => html`<${Result} utterance=${utterance} />`,
  },
  {
    name: "Direction",
    cell: (utterance) => html`<${Direction} src=${utterance.src} tgt=${utterance.tgt} />`,
  },
  { name: "Spoken", cell: (utterance) => html`<${Clock} ms=${utterance.spoken_from_ms} />` },
  {
    name: "Cut",
    cell: (utterance) =>
      html`<span title=${wordOf(CUTS, utterance.cut).meaning}
        >${wordOf(CUTS, utterance.cut).label}</span
      >`,
  },
  {
    name: "Node",
    cell: (utterance) =>
      html`<${IdLink} to="node" id=${utterance.node} short />${
          utterance.attempts > 1 &&
          html` <span class="badge" title=${`${utterance.attempts} attempts`}
            >×${utterance.attempts}</span
          >`
        }`,
  },
  { name: "Joined", cell: (utterance) => html`<${Joined} utterance=${utterance} />` },
  { name: "Latency", number: true, cell: (utterance) => duration(utterance.latency_ms) },
];

/** @param {{ document: SessionDocument }} props */
export function Session({ document }) {
  const { session, utterances } = document;
  const rows = utterances.order.flatMap((id) => utterances.rows[id] ?? []);
  const shared = severalTimes(rows.map(({ index }) => index));
  return html`<div class="page-head">
      <div>
        <p class="crumbs"><a href=${address("sessions")}>Sessions</a></p>
        <h1 tabindex="-1" class="id">${session.id}</h1>
        <p class="subtitle">
          ${
            session.over
              ? html`<${Pill} words=${OVER} value="over" />`
              : html`<${Pill}
                  words=${SESSION_STATES}
                  value=${session.connected ? "connected" : "away"}
                />`
          }
          <${Directions} of=${session.directions} />
        </p>
      </div>
    </div>
    <${Card} title="Utterances over time" id="timeline" tools=${html`<${Legend} />`}>
      ${
        rows.length === 0
          ? html`<${Empty} title="No utterance yet." />`
          : html`<${SessionTimeline} utterances=${rows} />`
      }
    <//>
    ${
      rows.length > 0 &&
      html`<${Table}
          label="Utterances"
          columns=${COLUMNS}
          rows=${rows}
          keyOf=${(/** @type {Utterance} */ utterance) =>
            shared.has(utterance.index) ? placeOf(utterance) : String(utterance.index)}
          linkOf=${(/** @type {Utterance} */ utterance) =>
            utterance.job_id ? address("job", utterance.job_id) : undefined}
          toneOf=${(/** @type {Utterance} */ utterance) => (lookOf(utterance) === "missing" ? "row-bad" : "")}
        />
        <${Pager} list=${utterances} what="utterances" />`
    }
    <div class="columns">
      <${Card} title="Session" id="facts"><${Facts} rows=${factsOf(session)} /><//>
      <${Card} title="Turns" id="turns">
        ${
          session.turns.length === 0
            ? html`<${Empty} title="No node holds audio of it." />`
            : html`<ul class="turns">
                ${session.turns.map(
                  (turn) =>
                    html`<li key=${`${turn.src}:${turn.tgt}`}>
                      <${Direction} src=${turn.src} tgt=${turn.tgt} />${" on "}<${IdLink}
                        to="node"
                        id=${turn.node}
                      />${" "}${turn.holds && html`<span class="pill info">Holds audio</span>`}
                    </li>`,
                )}
              </ul>`
        }
      <//>
    </div>`;
}

/** Indexes that several rows have: what is said to a room is translated to several languages. @param {readonly number[]} indexes */
function severalTimes(indexes) {
  return new Set(indexes.filter((index, at) => indexes.indexOf(index) !== at));
}

const LOOKS = [
  ["done", "translated"],
  ["held", "held"],
  ["quiet", "no speech"],
  ["missing", "missing"],
  ["open", "waiting"],
];

function Legend() {
  return html`<ul class="legend" aria-label="Legend">
    ${LOOKS.map(
      ([look, name]) =>
        html`<li key=${look}>
          <svg class="legend-mark" viewBox="0 0 12 12" aria-hidden="true">
            <rect class=${`mark ${look}`} width="12" height="12" rx="2" />
          </svg>
          ${name}
        </li>`,
    )}
  </ul>`;
}

/** @param {{ utterance: Utterance }} props */
function Result({ utterance }) {
  const look = lookOf(utterance);
  if (look === "missing") {
    return html`<span class="healths"
      ><span class="pill bad" data-state="missing">Missing</span>${
        utterance.error && html` <span class="error-word">${sentence(utterance.error)}</span>`
      }</span
    >`;
  }
  return look === "open"
    ? html`<span class="pill info" data-state="waiting">Waiting</span>`
    : html`<${Pill} words=${RESULT_KINDS} value=${utterance.kind ?? "TRANSLATED"} />`;
}

/** @param {{ utterance: Utterance }} props */
function Joined({ utterance }) {
  if (utterance.joined_into !== undefined) {
    return html`<span>into #${utterance.joined_into}</span>`;
  }
  return utterance.joined.length > 0
    ? html`<span>contains ${utterance.joined.map((index) => `#${index}`).join(", ")}</span>`
    : html`<span class="none">–</span>`;
}

/**
 * @param {SessionDetails} session
 * @returns {[string, Children][]}
 */
function factsOf(session) {
  /** @type {[string, Children][]} */
  const rows = [
    ["Tenant", session.tenant || "–"],
    ["Gateway", html`<span class="id">${session.gateway || "–"}</span>`],
    ["Opened", html`<${Ago} ms=${session.opened_ms} />`],
    ["Last audio", html`<${Ago} ms=${session.last_chunk_ms} />`],
    ["Utterances", count(session.utterances)],
    ["Results", count(session.results)],
    ["Waiting", count(session.waiting)],
    ["Missing", count(session.missing)],
    ["Takeovers (epoch)", count(session.epoch)],
  ];
  if (session.room !== undefined) {
    rows.unshift(["Speaks to room", html`<${IdLink} to="room" id=${session.room} />`]);
  }
  return rows;
}
