// @ts-check
/** Who talks: sessions. */

import { html } from "./html.js";
import { activeFilters } from "./filters.js";
import { count } from "./format.js";
import { address } from "./router.js";
import { route } from "./state.js";
import { SetFilters, StateFilter, TextFilter } from "./view-filters.js";
import { NoMatch } from "./view-nodes.js";
import { Ago, Direction, Empty, IdLink, Pill } from "./view-parts.js";
import { ListBody } from "./view-refused.js";
import { Pager, Table } from "./view-table.js";
import { SESSION_STATES } from "./words.js";

/** @import { SessionRow, SessionsDocument } from "./types.js" */
/** @import { Column } from "./view-table.js" */

const USUAL = { sort: "opened", desc: true };
const FILTERS = ["search", "tenant", "state"];

/** @type {readonly Column<SessionRow>[]} */
const COLUMNS = [
  {
    name: "Session",
    phone: "title",
    cell: (session) => html`<${IdLink} to="session" id=${session.id} short />`,
  },
  {
    name: "State",
    phone: "side",
    cell: (session) =>
      html`<${Pill} words=${SESSION_STATES} value=${session.connected ? "connected" : "away"} />`,
  },
  { name: "Directions", cell: (session) => html`<${Directions} of=${session.directions} />` },
  { name: "Tenant", cell: (session) => session.tenant || html`<span class="none">–</span>` },
  {
    name: "Opened",
    sort: "opened",
    descFirst: true,
    cell: (session) => html`<${Ago} ms=${session.opened_ms} />`,
  },
  {
    name: "Last audio",
    sort: "last",
    descFirst: true,
    cell: (session) => html`<${Ago} ms=${session.last_chunk_ms} />`,
  },
  {
    name: "Utterances",
    sort: "utterances",
    descFirst: true,
    number: true,
    cell: (session) => count(session.utterances),
  },
  { name: "Waiting", number: true, cell: (session) => quiet(session.waiting, "") },
  {
    name: "Missing",
    sort: "missing",
    descFirst: true,
    number: true,
    cell: (session) => quiet(session.missing, "bad-text"),
  },
  {
    name: "Gateway",
    phone: "hide",
    cell: (session) =>
      html`<span class="id short" title=${session.gateway}>${session.gateway}</span>`,
  },
];

/**
 * A number that is of interest only if it is not zero.
 *
 * @param {number} value
 * @param {string} tone if it is not zero.
 */
export function quiet(value, tone) {
  return html`<span class=${value === 0 ? "none" : tone}>${count(value)}</span>`;
}

/** @param {{ of: readonly string[] }} props */
export function Directions({ of }) {
  if (of.length === 0) {
    return html`<span class="none">–</span>`;
  }
  return html`<span class="languages"
    >${of.slice(0, 3).map((each, index) => {
      const [src = "", tgt = ""] = each.split(":");
      return html`${index > 0 && ", "}<${Direction} key=${each} src=${src} tgt=${tgt} />`;
    })}${of.length > 3 && html` <span class="muted">+${of.length - 3}</span>`}</span
  >`;
}

/** @param {{ document: SessionsDocument | undefined }} props */
export function Sessions({ document }) {
  return html`<h1 tabindex="-1">Sessions</h1>
    <div class="tools">
      <${TextFilter} name="search" label="Search sessions by id" placeholder="Search by id" main />
      <${TextFilter} name="tenant" label="Tenant" placeholder="any" />
      <${SetFilters} names=${[]} />
    </div>
    <${StateFilter} name="state" label="State" words=${SESSION_STATES} />
    <${ListBody} document=${document}>${document && html`<${Rows} document=${document} />`}<//>`;
}

/** @param {{ document: SessionsDocument }} props */
function Rows({ document }) {
  if (document.total === 0) {
    return activeFilters(route.value.query, FILTERS).length > 0
      ? html`<${NoMatch} />`
      : html`<${Empty} title="Nobody talks now.">
          <p>A session appears here as soon as a client opens it.</p>
        <//>`;
  }
  const rows = document.order.flatMap((id) => document.rows[id] ?? []);
  return html`<${Table}
      label="Sessions"
      columns=${COLUMNS}
      rows=${rows}
      usual=${USUAL}
      keyOf=${(/** @type {SessionRow} */ session) => session.id}
      linkOf=${(/** @type {SessionRow} */ session) => address("session", session.id)}
    />
    <${Pager} list=${document} what="sessions" />
    ${
      document.partial &&
      html`<p class="muted note">
        There are more sessions than the console reads: this list has the newest ones.
      </p>`
    }`;
}
