// @ts-check
/** How the fleet is: key numbers, what is down, what is short, the matrix. */

import { html } from "./html.js";
import { NONE, count, duration, percent, plural, rate } from "./format.js";
import * as icons from "./icons.js";
import { address, changed } from "./router.js";
import { isLate, me, route } from "./state.js";
import { Sparkline } from "./view-chart.js";
import { TextFilter } from "./view-filters.js";
import { MatrixGrid, MatrixLegend } from "./view-matrix.js";
import { NoNodes } from "./view-nodes.js";
import { Ago, Banner, Card, Direction, Meter } from "./view-parts.js";
import { safeUrl } from "./view-shell.js";
import { HEALTHS, sentence, wordOf } from "./words.js";

/** @import { Overview as OverviewDocument } from "./types.js" */

/** Points of a sparkline: a quarter of an hour. */
const POINTS = 180;
/** A direction is short if a smaller share of its slots is free. */
const SHORT = 0.5;

/** @param {{ document: OverviewDocument }} props */
export function Overview({ document }) {
  const { totals, instances, shortages, matrix } = document;
  const nodes = Object.values(totals.nodes).reduce((sum, each) => sum + each, 0);
  const grafana = me.value?.links.grafana && safeUrl(me.value.links.grafana);
  return html`<div class="page-head">
      <h1 tabindex="-1">Overview</h1>
      <div class="actions">
        <${KindSwitch} />
        ${
          grafana &&
          html`<a
            class="button"
            href=${grafana}
            target="_blank"
            rel="noopener noreferrer"
            data-role="grafana"
            >Grafana ${icons.outside()}</a
          >`
        }
      </div>
    </div>
    <${Down} instances=${instances} />
    <${Numbers} document=${document} />
    ${nodes === 0 && html`<div class="card"><${NoNodes} /></div>`}
    <div class="columns uneven">
      <${Card} title="Shortages" id="shortages"
        ><${Shortages} shortages=${shortages} none=${nodes === 0}
      /><//>
      <${Card} title="Fleet" id="fleet"><${Fleet} document=${document} /><//>
    </div>
    <${Card} title="Slots by direction" id="matrix" tools=${html`<${MatrixLegend} />`} wide>
      <div class="tools compact">
        <${TextFilter} name="src" label="From" placeholder="all" />
        <${TextFilter} name="tgt" label="To" placeholder="all" />
        <p class="muted matrix-note">
          ${`${plural(matrix.sources.length, "source")}, ${plural(matrix.targets.length, "target")}; shortage first`}
          ${
            (matrix.left_out_nodes ?? 0) > 0 &&
            `; ${plural(matrix.left_out_nodes ?? 0, "node")} with too many directions left out`
          }
        </p>
      </div>
      <${MatrixGrid} matrix=${matrix} />
    <//>`;
}

function KindSwitch() {
  const kind = route.value.query["kind"] ?? "speech";
  return html`<nav class="segments" aria-label="Kind of jobs" aria-busy=${isLate.value}>
    ${["speech", "text"].map(
      (each) =>
        html`<a
          key=${each}
          href=${changed(route.value, { kind: each === "speech" ? undefined : each })}
          data-replace
          data-kind=${each}
          aria-current=${each === kind ? "true" : undefined}
          >${sentence(each)}</a
        >`,
    )}
  </nav>`;
}

/** @param {{ instances: OverviewDocument["instances"] }} props */
function Down({ instances }) {
  if (instances.down === 0) {
    return null;
  }
  return html`<${Banner}
    tone="bad"
    role="alert"
    name="down"
    title=${`${plural(instances.down, "instance is", "instances are")} down`}
    tools=${html`<a class="button" href=${address("instances")}>Instances</a>`}
  >
    <ul class="down-list">
      ${instances.down_list.map(
        ({ id, service, announced_ms: ms }) =>
          html`<li key=${id}>
            ${sentence(service)} <span class="id">${id}</span>, last heard <${Ago} ms=${ms} />
          </li>`,
      )}
      ${
        instances.down > instances.down_list.length &&
        html`<li>and ${count(instances.down - instances.down_list.length)} more</li>`
      }
    </ul>
  <//>`;
}

/** @param {{ document: OverviewDocument }} props */
function Numbers({ document }) {
  const { totals, rates, series } = document;
  const share = totals.slots > 0 ? totals.free / totals.slots : undefined;
  return html`<div class="numbers" data-role="numbers">
    <${Figure}
      name="Jobs per second"
      id="jobs-per-s"
      value=${rate(rates.jobs_per_s)}
      note=${`${count(totals.jobs)} under way`}
      values=${series.jobs_per_s}
      href=${address("jobs")}
    />
    <${Figure}
      name="Queue"
      id="queue"
      value=${count(totals.queue)}
      note="jobs wait for a slot"
      values=${series.queue}
      href=${address("jobs", "", { state: "active" })}
      tone=${totals.queue > 0 ? "warn" : ""}
    />
    <${Figure}
      name="Latency p50"
      id="p50"
      value=${duration(rates.p50_ms)}
      note="from cut to result"
      values=${series.p50_ms}
      href=${address("jobs", "", { sort: "took", desc: "1" })}
    />
    <${Figure}
      name="Latency p99"
      id="p99"
      value=${duration(rates.p99_ms)}
      note="from cut to result"
      values=${series.p99_ms}
      href=${address("jobs", "", { sort: "took", desc: "1" })}
    />
    <${Figure}
      name="Retries per second"
      id="retries"
      value=${rate(rates.retries_per_s)}
      note=${`${rate(rates.failed_per_s)} jobs/s failed`}
      values=${series.retries_per_s}
      href=${address("jobs", "", { state: "failed" })}
      tone=${rates.failed_per_s > 0 ? "warn" : ""}
    />
    <${Figure}
      name="Missing per second"
      id="missing"
      value=${rate(rates.missing_per_s)}
      note="utterances without a result"
      values=${series.missing_per_s}
      href=${address("sessions", "", { sort: "missing", desc: "1" })}
      tone=${rates.missing_per_s > 0 ? "bad" : ""}
    />
    <${Figure}
      name="Sessions"
      id="sessions"
      value=${count(totals.sessions)}
      note="clients connected"
      values=${series.sessions}
      href=${address("sessions")}
    />
    <${Figure}
      name="Free slots"
      id="free"
      value=${count(totals.free)}
      note=${`of ${count(totals.slots)}${share === undefined ? "" : `, ${percent(share)}`}`}
      values=${series.free}
      max=${Math.max(...series.slots, 0)}
      href=${address("nodes", "", { sort: "free", desc: "1" })}
      tone=${share !== undefined && share < 0.1 ? "warn" : ""}
    />
  </div>`;
}

/**
 * @typedef {object} FigureProps
 * @property {string} name
 * @property {string} id
 * @property {string} value
 * @property {string} note
 * @property {readonly number[] | undefined} values
 * @property {string} href
 * @property {string} [tone]
 * @property {number} [max]
 */

/** A number, and how it got there. @param {FigureProps} props */
function Figure({ name, id, value, note, values, href, tone = "", max = 0 }) {
  return html`<a class=${`figure ${tone}`} href=${href} data-figure=${id}>
    <span class="figure-name">${name}</span>
    <span class=${value === NONE ? "figure-value none" : "figure-value"}>${value}</span>
    <span class="figure-note">${note}</span>
    <${Sparkline} values=${values} points=${POINTS} max=${max} />
  </a>`;
}

/** @param {{ shortages: OverviewDocument["shortages"], none: boolean }} props */
function Shortages({ shortages, none }) {
  // The server sends the worst ones, however much room they have.
  const short = shortages.filter(({ free, slots }) => free < slots * SHORT || slots === 0);
  if (short.length === 0) {
    return html`<p class="muted note">
      ${none ? "No direction is served." : "No direction is short of slots."}
    </p>`;
  }
  return html`<ol class="shortages">
    ${short.map(({ src, tgt, free, slots }) => {
      const share = slots > 0 ? free / slots : 0;
      const tone = slots === 0 || free === 0 ? "bad" : share < 0.15 ? "warn" : "info";
      return html`<li key=${`${src}:${tgt}`}>
        <a href=${address("nodes", "", { src, tgt })}>
          <${Direction} src=${src} tgt=${tgt} />
          <${Meter} share=${slots > 0 ? 1 - share : 1} tone=${tone} />
          <span class=${`shortage-number ${tone}-text`}
            >${slots === 0 ? "no slots" : `${count(free)} of ${count(slots)} free`}</span
          >
        </a>
      </li>`;
    })}
  </ol>`;
}

/** @param {{ document: OverviewDocument }} props */
function Fleet({ document }) {
  const { totals, instances } = document;
  return html`<ul class="fleet">
    ${Object.keys(HEALTHS).map((health) => {
      const number = totals.nodes[health] ?? 0;
      const { label, tone } = wordOf(HEALTHS, health);
      return html`<li key=${health}>
        <a href=${address("nodes", "", { health })}>
          <span class=${`pill ${number === 0 ? "quiet" : tone}`}>${label}</span>
          <span class=${number === 0 ? "none" : ""}>${plural(number, "node")}</span>
        </a>
      </li>`;
    })}
    <li class="fleet-instances">
      <a href=${address("instances")}>
        <span
          >${`${plural(instances.serving, "instance")} serving`}${
            instances.draining > 0 && `, ${count(instances.draining)} draining`
          }${instances.down > 0 && html`, <span class="bad-text">${count(instances.down)} down</span>`}</span
        >
      </a>
    </li>
  </ul>`;
}
