// @ts-check
/** One job: where its time went, why it failed, what was tried. */

import { html } from "./html.js";
import { count, duration, microseconds } from "./format.js";
import { address } from "./router.js";
import { me } from "./state.js";
import { Actions } from "./view-dialog.js";
import { JobState } from "./view-jobs.js";
import { Ago, Banner, Card, Clock, Direction, Empty, Facts, IdLink } from "./view-parts.js";
import { safeUrl } from "./view-shell.js";
import { Table } from "./view-table.js";
import { Waterfall } from "./view-waterfall.js";
import * as icons from "./icons.js";
import { CUTS, RESULT_KINDS, STEPS, sentence, wordOf } from "./words.js";

/** @import { Attempt, JobDocument, Step } from "./types.js" */
/** @import { Children } from "./html.js" */
/** @import { Column } from "./view-table.js" */

/** @typedef {JobDocument["job"]} Details */

/** @type {readonly Column<Attempt>[]} */
const ATTEMPT_COLUMNS = [
  { name: "Attempt", number: true, phone: "title", cell: (attempt) => count(attempt.number) },
  { name: "Outcome", phone: "side", cell: (attempt) => sentence(attempt.outcome) || "Under way" },
  { name: "Node", cell: (attempt) => html`<${IdLink} to="node" id=${attempt.node} />` },
  { name: "Reserved", cell: (attempt) => html`<${Clock} ms=${attempt.reserved_ms} />` },
  { name: "Acknowledged", cell: (attempt) => html`<${Clock} ms=${attempt.acked_ms} />` },
  { name: "Ended", cell: (attempt) => html`<${Clock} ms=${attempt.ended_ms} />` },
  { name: "Detail", cell: (attempt) => attempt.detail || html`<span class="none">–</span>` },
];

/** @type {readonly Column<Step>[]} */
const STEP_COLUMNS = [
  {
    name: "Step",
    phone: "title",
    cell: (step) =>
      html`<span title=${wordOf(STEPS, step.kind).meaning}
        >${wordOf(STEPS, step.kind).label}</span
      >`,
  },
  { name: "Took", number: true, phone: "side", cell: (step) => microseconds(step.took_us) },
  {
    name: "Attempt",
    number: true,
    cell: (step) => (step.attempt === 0 ? "–" : count(step.attempt)),
  },
  { name: "Started", cell: (step) => html`<${Clock} ms=${step.started_us / 1000} />` },
  { name: "Node", cell: (step) => html`<${IdLink} to="node" id=${step.node} />` },
  { name: "Detail", cell: (step) => step.detail || html`<span class="none">–</span>` },
];

/** @param {{ document: JobDocument }} props */
export function Job({ document }) {
  const { job } = document;
  const trace = job.trace_url && safeUrl(job.trace_url);
  return html`<div class="page-head">
      <div>
        <p class="crumbs"><a href=${address("jobs")}>Jobs</a></p>
        <h1 tabindex="-1" class="id">${job.id}</h1>
        <p class="subtitle">
          <${JobState} job=${job} /> <${Direction} src=${job.src} tgt=${job.tgt} />
          ${
            trace &&
            html`<a href=${trace} target="_blank" rel="noopener noreferrer" data-role="trace"
              >Trace ${icons.outside()}</a
            >`
          }
        </p>
      </div>
      <${Actions} actions=${[cancelOf(job)]} />
    </div>
    ${job.failure && html`<${Failure} failure=${job.failure} />`}
    ${
      job.turn_broken &&
      html`<${Banner} title="The turn was broken" name="turn-broken">
        <p>Audio that another node held could not be joined: the sentence may be cut in two.</p>
      <//>`
    }
    <${Card} title="Where the time went" id="steps">
      ${
        job.steps.length === 0
          ? html`<${Empty} title="No steps are recorded yet." />`
          : html`<${Waterfall} steps=${job.steps} attempts=${job.attempt_list} />
              <details class="more">
                <summary>${`All ${job.steps.length} steps as a table`}</summary>
                <${Table}
                  label="Steps"
                  columns=${STEP_COLUMNS}
                  rows=${job.steps}
                  keyOf=${(/** @type {Step} */ step) => `${step.attempt}/${step.kind}/${step.started_us}/${step.detail}`}
                />
              </details>`
      }
    <//>
    <${Card} title=${`Attempts (${count(job.attempt_list.length)})`} id="attempts">
      ${
        job.attempt_list.length === 0
          ? html`<${Empty} title="No node has had it yet." />`
          : html`<${Table}
              label="Attempts"
              columns=${ATTEMPT_COLUMNS}
              rows=${job.attempt_list}
              keyOf=${(/** @type {Attempt} */ attempt) => String(attempt.number)}
            />`
      }
    <//>
    <${Card} title="Job" id="facts"><${Facts} rows=${factsOf(job)} /><//>`;
}

/** @param {{ failure: NonNullable<Details["failure"]> }} props */
function Failure({ failure }) {
  return html`<${Banner} tone="bad" title=${sentence(failure.reason)} name="failure">
    <p>${failure.explanation}</p>
    ${failure.message && html`<p class="muted">${failure.message}</p>`}
  <//>`;
}

/**
 * @param {Details} job
 * @returns {[string, Children][]}
 */
function factsOf(job) {
  /** @type {[string, Children][]} */
  const rows = [
    ["Session", html`<${IdLink} to="session" id=${job.session} />`],
    ["Utterance", count(job.utterance)],
    ["Tenant", job.tenant || "–"],
    [
      "Cut",
      html`<span title=${wordOf(CUTS, job.cut).meaning}>${wordOf(CUTS, job.cut).label}</span>`,
    ],
    ["Created", html`<${Ago} ms=${job.created_ms} />`],
    ["Last change", html`<${Ago} ms=${job.changed_ms} />`],
    ["Took", duration(job.took_ms)],
    ["Home", html`<span class="id">${job.home || "–"}</span>`],
  ];
  if (job.kind !== undefined) {
    rows.push(["Result", wordOf(RESULT_KINDS, job.kind).label]);
  }
  if (job.joined.length > 0) {
    rows.push(["Contains utterances", job.joined.join(", ")]);
  }
  return rows;
}

/**
 * @param {Details} job
 * @returns {import("./view-dialog.js").Action}
 */
function cancelOf(job) {
  const isOver = !["active", "retrying"].includes(job.state);
  return {
    name: "cancel",
    label: "Cancel job",
    title: "Cancel this job?",
    effects: [
      job.node === ""
        ? "It is not sent to any node."
        : `${job.node} is told to stop, and its slot becomes free.`,
      `The client gets no translation of utterance ${job.utterance}: it is reported as missing.`,
    ],
    undo: "This cannot be undone.",
    target: `jobs/${encodeURIComponent(job.id)}/cancel`,
    done: "The job is cancelled.",
    danger: true,
    asksWhy: true,
    unavailable: isOver && me.value !== null ? "The job is over: there is nothing to cancel." : "",
  };
}
