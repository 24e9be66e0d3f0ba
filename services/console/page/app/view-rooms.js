// @ts-check
/** Rooms: where some speak and many listen. */

import { html } from "./html.js";
import { activeFilters } from "./filters.js";
import { count, duration } from "./format.js";
import { languageName } from "./languages.js";
import { address } from "./router.js";
import { route } from "./state.js";
import { SetFilters, TextFilter } from "./view-filters.js";
import { NoMatch } from "./view-nodes.js";
import { Ago, Empty, IdLink } from "./view-parts.js";
import { ListBody } from "./view-refused.js";
import { quiet } from "./view-sessions.js";
import { Pager, Table } from "./view-table.js";

/** @import { RoomRow, RoomsDocument } from "./types.js" */
/** @import { Column } from "./view-table.js" */

const USUAL = { sort: "created", desc: true };
const FILTERS = ["search", "tenant", "language"];
/** A listener notices it. */
const LATE_MS = 10_000;

/** @type {readonly Column<RoomRow>[]} */
const COLUMNS = [
  {
    name: "Room",
    phone: "title",
    cell: (room) => html`<${IdLink} to="room" id=${room.id} short />`,
  },
  {
    name: "Name",
    sort: "name",
    cell: (room) => room.name || html`<span class="none">–</span>`,
  },
  { name: "Tenant", cell: (room) => room.tenant || html`<span class="none">–</span>` },
  {
    name: "Created",
    sort: "created",
    descFirst: true,
    cell: (room) => html`<${Ago} ms=${room.created_ms} />`,
  },
  {
    name: "Speakers",
    sort: "speakers",
    descFirst: true,
    number: true,
    cell: (room) =>
      html`${quiet(room.speakers, "")}${
        room.spoken.length > 0 && html` <${Languages} of=${room.spoken} />`
      }`,
  },
  {
    name: "Listeners",
    sort: "listeners",
    descFirst: true,
    number: true,
    cell: (room) => quiet(room.listeners, ""),
  },
  {
    name: "Languages",
    cell: (room) => html`<${Languages} of=${room.languages} total=${room.languages_total} />`,
  },
  {
    name: "Utterances",
    number: true,
    phone: "hide",
    cell: (room) => count(room.utterances),
  },
  {
    name: "Waiting",
    sort: "waiting",
    descFirst: true,
    number: true,
    cell: (room) => quiet(room.waiting, ""),
  },
  {
    name: "Lag",
    sort: "lag",
    descFirst: true,
    number: true,
    cell: (room) => html`<${Lag} of=${room} />`,
  },
];

/** How long the oldest utterance waits. @param {{ of: { waiting: number, lag_ms: number } }} props */
export function Lag({ of }) {
  if (of.waiting === 0) {
    return html`<span class="none">–</span>`;
  }
  return html`<span class=${of.lag_ms >= LATE_MS ? "bad-text" : ""}>${duration(of.lag_ms)}</span>`;
}

/** @param {{ of: readonly string[], total?: number }} props */
export function Languages({ of, total = of.length }) {
  if (of.length === 0) {
    return html`<span class="none">–</span>`;
  }
  return html`<span class="languages"
    >${of.map(
      (code, index) =>
        html`${index > 0 && ", "}<span key=${code} title=${languageName(code)}>${code}</span>`,
    )}${total > of.length && html` <span class="muted">+${total - of.length}</span>`}</span
  >`;
}

/** @param {{ document: RoomsDocument | undefined }} props */
export function Rooms({ document }) {
  return html`<h1 tabindex="-1">Rooms</h1>
    <div class="tools">
      <${TextFilter}
        name="search"
        label="Search rooms by id or name"
        placeholder="Search by id or name"
        main
      />
      <${TextFilter} name="language" label="Language" placeholder="any" />
      <${TextFilter} name="tenant" label="Tenant" placeholder="any" />
      <${SetFilters} names=${[]} />
    </div>
    <${ListBody} document=${document}>${document && html`<${Rows} document=${document} />`}<//>`;
}

/** @param {{ document: RoomsDocument }} props */
function Rows({ document }) {
  if (document.total === 0) {
    return activeFilters(route.value.query, FILTERS).length > 0
      ? html`<${NoMatch} />`
      : html`<${Empty} title="There are no rooms now.">
          <p>A room appears here as soon as a client creates it.</p>
        <//>`;
  }
  const rows = document.order.flatMap((id) => document.rows[id] ?? []);
  return html`<${Table}
      label="Rooms"
      columns=${COLUMNS}
      rows=${rows}
      usual=${USUAL}
      keyOf=${(/** @type {RoomRow} */ room) => room.id}
      linkOf=${(/** @type {RoomRow} */ room) => address("room", room.id)}
    />
    <${Pager} list=${document} what="rooms" />
    ${
      document.partial &&
      html`<p class="muted note">There are more rooms than the console reads.</p>`
    }`;
}
