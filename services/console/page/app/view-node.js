// @ts-check
/** One node: what it can do, what it does, what failed, and what an operator may do with it. */

import { html } from "./html.js";
import { count, percent, plural } from "./format.js";
import { languageName } from "./languages.js";
import { address } from "./router.js";
import { SlotsChart } from "./view-chart.js";
import { Actions } from "./view-dialog.js";
import { JOB_COLUMNS } from "./view-jobs.js";
import { NodeHealth } from "./view-nodes.js";
import { Ago, Card, Empty, Facts, IdLink, Pill, Since } from "./view-parts.js";
import { Table } from "./view-table.js";
import { sentence } from "./words.js";

/** @import { JobRow, NodeDetails, NodeDocument, NodeRow } from "./types.js" */
/** @import { Action } from "./view-dialog.js" */
/** @import { Column } from "./view-table.js" */

/** @typedef {NodeDocument["leases"][number]} Lease */
/** @typedef {NodeDocument["failures"][number]} Failure */

const LEASE_STATES = {
  running: { label: "Running", tone: "info", meaning: "The node has acknowledged it." },
  reserved: { label: "Reserved", tone: "quiet", meaning: "The node has not acknowledged it yet." },
};

/** @type {readonly Column<Lease>[]} */
const LEASE_COLUMNS = [
  {
    name: "Job",
    phone: "title",
    cell: (lease) => html`<${IdLink} to="job" id=${lease.job_id} />`,
  },
  {
    name: "State",
    phone: "side",
    cell: (lease) =>
      html`<${Pill} words=${LEASE_STATES} value=${lease.running ? "running" : "reserved"} />`,
  },
  { name: "Attempt", number: true, cell: (lease) => count(lease.attempt) },
  { name: "Lease ends", cell: (lease) => html`<${Ago} ms=${lease.ends_ms} />` },
];

/** @type {readonly Column<Failure>[]} */
const FAILURE_COLUMNS = [
  {
    name: "Job",
    phone: "title",
    cell: (failure) => html`<${IdLink} to="job" id=${failure.job_id} />`,
  },
  { name: "When", phone: "side", cell: (failure) => html`<${Ago} ms=${failure.at_ms} />` },
  { name: "Attempt", number: true, cell: (failure) => count(failure.attempt) },
  { name: "Outcome", cell: (failure) => sentence(failure.outcome) },
  { name: "Error", cell: (failure) => failure.error ?? html`<span class="none">–</span>` },
];

/** @param {{ document: NodeDocument }} props */
export function Node({ document }) {
  const { node, leases, jobs, failures, series } = document;
  return html`<div class="page-head">
      <div>
        <p class="crumbs"><a href=${address("nodes")}>Nodes</a></p>
        <h1 tabindex="-1" class="id">${node.id}</h1>
        <${NodeHealth} node=${node} />
      </div>
      <${Actions} actions=${actionsOf(node)} />
    </div>
    ${node.drain && html`<${Drain} drain=${node.drain} />`}
    <div class="columns">
      <${Card} title="Slots" id="slots">
        <${SlotsChart}
          series=${series}
          label=${`Slots in use over the last minutes; now ${node.used} of ${node.slots}`}
        />
      <//>
      <${Card} title="Node" id="facts"><${Facts} rows=${factsOf(node)} /><//>
    </div>
    <${Card} title=${`Running jobs (${count(leases.length)})`} id="leases">
      ${
        leases.length === 0
          ? html`<${Empty} title="It has no jobs now." />`
          : html`<${Table}
              label="Running jobs"
              columns=${LEASE_COLUMNS}
              rows=${leases}
              keyOf=${(/** @type {Lease} */ lease) => `${lease.job_id}/${lease.attempt}`}
              linkOf=${(/** @type {Lease} */ lease) => address("job", lease.job_id)}
            />`
      }
    <//>
    <${Capabilities} node=${node} />
    <${Card} title=${`Recent failures (${count(failures.length)})`} id="failures">
      ${
        failures.length === 0
          ? html`<${Empty} title="No attempt failed on it recently." />`
          : html`<${Table}
              label="Recent failures"
              columns=${FAILURE_COLUMNS}
              rows=${failures}
              keyOf=${(/** @type {Failure} */ failure) => `${failure.job_id}/${failure.attempt}`}
              linkOf=${(/** @type {Failure} */ failure) => address("job", failure.job_id)}
            />`
      }
    <//>
    <${Card}
      title="Recent jobs"
      id="jobs"
      tools=${html`<a href=${address("jobs", "", { node: node.id })}>All jobs of this node</a>`}
    >
      ${
        jobs.length === 0
          ? html`<${Empty} title="It has had no jobs recently." />`
          : html`<${Table}
              label="Recent jobs"
              columns=${JOB_COLUMNS}
              rows=${jobs}
              keyOf=${(/** @type {JobRow} */ job) => job.id}
              linkOf=${(/** @type {JobRow} */ job) => address("job", job.id)}
            />`
      }
    <//>`;
}

/** @param {{ drain: NonNullable<NodeRow["drain"]> }} props */
function Drain({ drain }) {
  const { used_at_start: start, used_now: left, since_ms: sinceMs } = drain;
  const all = Math.max(start, left);
  const done = all - left;
  return html`<div class=${left === 0 ? "drain done" : "drain"} data-role="drain">
    <p>
      <b role="status"
        >${left === 0 ? "Drained: it is empty." : `Draining: ${plural(left, "job")} left.`}</b
      >
      ${" "}${
        left === 0
          ? "It can be stopped or removed."
          : all === left
            ? "None has finished yet."
            : `${count(done)} of ${count(all)} finished.`
      }${" It has been draining for "}<${Since} ms=${sinceMs} />${"."}
    </p>
    <progress
      aria-label="Progress of the drain"
      max=${Math.max(all, 1)}
      value=${all === 0 ? 1 : done}
    ></progress>
  </div>`;
}

/**
 * @param {NodeRow & NodeDetails} node
 * @returns {[string, import("./html.js").Children][]}
 */
function factsOf(node) {
  return [
    ["Slots in use", `${count(node.used)} of ${count(node.slots)}`],
    ["Load", percent(node.load)],
    ["Failures in a row", count(node.failures)],
    ["Last heartbeat", html`<${Ago} ms=${node.last_heartbeat_ms} />`],
    ["Dispatcher", html`<span class="id">${node.instance}</span>`],
    ["Its address", html`<span class="id">${node.address || "–"}</span>`],
    ["Owner", node.owner ?? "–"],
    ...cellOf(node),
    ["Connection (epoch)", html`<span class="id">${node.epoch}</span>`],
    ["Directions", count(node.directions_total)],
  ];
}

/**
 * @param {NodeRow} node
 * @returns {[string, import("./html.js").Children][]}
 */
function cellOf(node) {
  return node.cell === undefined ? [] : [["Cell", count(node.cell)]];
}

/** @param {{ node: NodeRow & NodeDetails }} props */
function Capabilities({ node }) {
  const { asr, semantic, tts, pairs, pairs_total: total, stages } = node.capabilities;
  const more = total - pairs.length;
  return html`<${Card} title="Capabilities" id="capabilities">
    <dl class="capabilities">
      <${Languages} name="Recognizes" codes=${asr} />
      <${Languages} name="Repairs" codes=${semantic} />
      <${Languages} name="Speaks" codes=${tts} none="nothing: text only" />
      <div>
        <dt>Translates</dt>
        <dd class="chips">
          ${
            total === 0
              ? "any to any"
              : pairs.map(
                  (pair) => html`<span class="chip" key=${pair}>${pair.replace(":", " → ")}</span>`,
                )
          }${more > 0 && html`<span class="muted">and ${count(more)} more</span>`}
        </dd>
      </div>
      ${
        stages.length > 0 &&
        html`<div>
          <dt>Further stages</dt>
          <dd class="chips">
            ${stages.map((stage) => html`<span class="chip" key=${stage}>${stage}</span>`)}
          </dd>
        </div>`
      }
    </dl>
  <//>`;
}

/** @param {{ name: string, codes: readonly string[], none?: string }} props */
function Languages({ name, codes, none = "nothing" }) {
  return html`<div>
    <dt>${name}${codes.length > 0 && html` <span class="muted">${count(codes.length)}</span>`}</dt>
    <dd class="chips">
      ${codes.length === 0 ? none : codes.map((code) => html`<span class="chip" key=${code} title=${languageName(code)}>${code}</span>`)}
    </dd>
  </div>`;
}

/**
 * @param {NodeRow} node
 * @returns {Action[]}
 */
export function actionsOf(node) {
  const target = `nodes/${encodeURIComponent(node.id)}`;
  const running =
    node.used === 0
      ? "It has no jobs now."
      : `It finishes the ${plural(node.used, "job")} that it has.`;
  const isDrained = node.drained || node.drain !== undefined;
  return [
    isDrained
      ? {
          name: "ready",
          label: "Make ready",
          title: `Make ${node.id} ready?`,
          effects: [
            "It ends the drain.",
            "The node gets new jobs again, unless it reports another health itself.",
          ],
          undo: "To undo it, drain the node again.",
          target: `${target}/ready`,
          done: `${node.id} is no longer drained.`,
        }
      : {
          name: "drain",
          label: "Drain",
          title: `Drain ${node.id}?`,
          effects: [
            "The node gets no new jobs.",
            running,
            "It stays connected, and its progress is shown here.",
          ],
          undo: "To undo it, make the node ready again.",
          target: `${target}/drain`,
          done: `${node.id} drains: it gets no new jobs.`,
          unavailable:
            node.health === "offline" ? "The node is offline: it gets no jobs anyway." : "",
        },
    {
      name: "remove",
      label: "Remove",
      title: `Remove ${node.id}?`,
      effects: [
        "The node is taken out of all pools and forgotten.",
        node.used === 0
          ? "It has no jobs now."
          : `Its ${plural(node.used, "job")} may be tried again on other nodes.`,
        "If it is still connected, its dispatcher registers it again: to keep it out, drain it.",
      ],
      undo: "This cannot be undone here; the node comes back only by connecting again.",
      target: `${target}/remove`,
      done: `${node.id} is removed.`,
      danger: true,
    },
  ];
}
