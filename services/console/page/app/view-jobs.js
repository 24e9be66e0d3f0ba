// @ts-check
/** Recent jobs: table, search, filters. */

import { useEffect, useRef } from "preact/hooks";

import { html } from "./html.js";
import { activeFilters } from "./filters.js";
import { count, duration, exact, local } from "./format.js";
import { address, changed } from "./router.js";
import { navigate, now, route } from "./state.js";
import { ChoiceFilter, SetFilters, StateFilter, TextFilter } from "./view-filters.js";
import { NoMatch } from "./view-nodes.js";
import { Ago, Clock, Direction, Empty, IdLink, Pill } from "./view-parts.js";
import { ListBody } from "./view-refused.js";
import { Pager, Table } from "./view-table.js";
import { JOB_STATES, RESULT_KINDS, sentence } from "./words.js";

/** @import { JobRow, JobsDocument } from "./types.js" */
/** @import { Column } from "./view-table.js" */

const USUAL = { sort: "changed", desc: true };
const FILTERS = [
  ...["search", "state", "error", "src", "tgt", "node", "session", "tenant"],
  ...["from_ms", "to_ms"],
];
const MINUTE_MS = 60_000;

/** @type {readonly Column<JobRow>[]} */
export const JOB_COLUMNS = [
  {
    name: "Job",
    phone: "title",
    cell: (job) => html`<${IdLink} to="job" id=${job.id} short />`,
  },
  { name: "State", phone: "side", cell: (job) => html`<${JobState} job=${job} />` },
  { name: "Direction", cell: (job) => html`<${Direction} src=${job.src} tgt=${job.tgt} />` },
  {
    name: "Node",
    cell: (job) =>
      html`<${IdLink} to="node" id=${job.node} short />${
          job.attempts > 1 &&
          html` <span class="badge" title=${`${job.attempts} attempts: ${job.nodes.join(", ")}`}
            >×${job.attempts}</span
          >`
        }`,
  },
  {
    name: "Session",
    phone: "hide",
    cell: (job) =>
      html`<${IdLink} to="session" id=${job.session} short />${
          job.session && html` <span class="muted">#${job.utterance}</span>`
        }`,
  },
  {
    name: "Created",
    sort: "created",
    descFirst: true,
    phone: "hide",
    cell: (job) => html`<${Ago} ms=${job.created_ms} />`,
  },
  {
    name: "Changed",
    sort: "changed",
    descFirst: true,
    cell: (job) => html`<${Ago} ms=${job.changed_ms} />`,
  },
  {
    name: "Took",
    sort: "took",
    descFirst: true,
    number: true,
    cell: (job) =>
      job.took_ms === undefined ? html`<span class="none">–</span>` : duration(job.took_ms),
  },
];

/** @param {{ job: JobRow }} props */
export function JobState({ job }) {
  const isOdd = job.state === "done" && job.kind !== undefined && job.kind !== "TRANSLATED";
  return html`<span class="healths"
    ><${Pill} words=${JOB_STATES} value=${job.state} />${
      isOdd && html` <${Pill} words=${RESULT_KINDS} value=${job.kind} />`
    }${job.error && html` <span class="error-word" title=${job.error}>${sentence(job.error)}</span>`}</span
  >`;
}

/** @param {{ document: JobsDocument | undefined }} props */
export function Jobs({ document }) {
  const errors = Object.entries(document?.errors ?? {}).sort((a, b) => b[1] - a[1]);
  return html`<h1 tabindex="-1">Jobs</h1>
    <div class="tools">
      <${TextFilter}
        name="search"
        label="Search by job, session or node id"
        placeholder="Job, session or node id"
        main
      />
      <${ChoiceFilter}
        name="error"
        label="Reason"
        all="Any reason"
        options=${errors.map(([value, number]) => ({
          value,
          text: `${sentence(value)} (${count(number)})`,
        }))}
      />
      <${TextFilter} name="src" label="From" placeholder="en" />
      <${TextFilter} name="tgt" label="To" placeholder="es" />
      <${TimeFilter} />
      <${SetFilters} names=${["node", "session", "tenant"]} />
    </div>
    <${StateFilter} name="state" label="State" words=${JOB_STATES} counts=${document?.counts} />
    <${ListBody} document=${document}>${document && html`<${Rows} document=${document} />`}<//>`;
}

/** @param {{ document: JobsDocument }} props */
function Rows({ document }) {
  if (document.total === 0) {
    return activeFilters(route.value.query, FILTERS).length > 0
      ? html`<${NoMatch} />`
      : html`<${Empty} title="No jobs yet.">
          <p>Each utterance that somebody speaks becomes a job. To make one:</p>
          <pre
            tabindex="0"
            aria-label="Command"
          ><code>lingua speak talk.wav --from en --to es</code></pre>
        <//>`;
  }
  const rows = document.order.flatMap((id) => document.rows[id] ?? []);
  return html`<${Table}
      label="Jobs"
      columns=${JOB_COLUMNS}
      rows=${rows}
      usual=${USUAL}
      keyOf=${(/** @type {JobRow} */ job) => job.id}
      linkOf=${(/** @type {JobRow} */ job) => address("job", job.id)}
    />
    <${Pager} list=${document} what="jobs" />
    ${
      document.oldest_ms !== undefined &&
      html`<p class="muted note">
        ${"The console remembers jobs since "}<${Clock} ms=${document.oldest_ms} />${
          document.gap_ms !== undefined &&
          html`${"; it has missed changes at "}<${Clock} ms=${document.gap_ms} />`
        }${". An older one is found by its whole id."}
      </p>`
    }`;
}

const SPANS = [
  { text: "Last 5 minutes", ms: 5 * MINUTE_MS },
  { text: "Last 15 minutes", ms: 15 * MINUTE_MS },
  { text: "Last hour", ms: 60 * MINUTE_MS },
];

/** A moment, so that the address means the same tomorrow. */
function TimeFilter() {
  const { from_ms: from, to_ms: to } = route.value.query;
  const box = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  const close = () => box.current?.removeAttribute("open");
  useEffect(() => {
    // It lies over the table: whoever goes on elsewhere does not want to close it first.
    const pressed = (/** @type {Event} */ event) => {
      if (event.target instanceof Element && !box.current?.contains(event.target)) {
        close();
      }
    };
    addEventListener("pointerdown", pressed);
    return () => removeEventListener("pointerdown", pressed);
  }, []);
  /** @param {Record<string, string | undefined>} changes */
  const set = (changes) => navigate(changed(route.value, changes), { replace: true });
  /** @param {Record<string, string | undefined>} changes */
  const choose = (changes) => {
    set(changes);
    close();
    box.current?.querySelector("summary")?.focus();
  };
  const isSet = from !== undefined || to !== undefined;
  const label = isSet
    ? `${from ? local(Number(from)).replace("T", " ") : "…"} – ${to ? local(Number(to)).replace("T", " ") : "now"}`
    : "Any time";
  /** @param {string} name @param {string} text @param {string | undefined} value */
  const field = (name, text, value) =>
    html`<label class="field stacked">
      <span class="field-name">${text}</span>
      <input
        type="datetime-local"
        name=${name}
        value=${value === undefined ? "" : local(Number(value))}
        title=${value === undefined ? "" : exact(Number(value))}
        onChange=${(/** @type {Event} */ event) => {
          const time = Date.parse(/** @type {HTMLInputElement} */ (event.currentTarget).value);
          set({ [name]: Number.isNaN(time) ? undefined : String(time) });
        }}
      />
    </label>`;
  return html`<details
    class="time-filter"
    ref=${box}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") {
        close();
        box.current?.querySelector("summary")?.focus();
      }
    }}
  >
    <summary class=${isSet ? "set" : ""}>${label}</summary>
    <div class="time-box">
      ${SPANS.map(
        ({ text, ms }) =>
          html`<button
            key=${text}
            type="button"
            class="button"
            onClick=${() => choose({ from_ms: String(Math.floor(now.peek() - ms)), to_ms: undefined })}
          >
            ${text}
          </button>`,
      )}
      ${field("from_ms", "From", from)} ${field("to_ms", "Until", to)}
      <button
        type="button"
        class="button"
        disabled=${!isSet}
        onClick=${() => choose({ from_ms: undefined, to_ms: undefined })}
      >
        Any time
      </button>
    </div>
  </details>`;
}
