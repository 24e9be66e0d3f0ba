// @ts-check
/** All nodes: table, search, filters. */

import { html } from "./html.js";
import { activeFilters } from "./filters.js";
import { count, percent } from "./format.js";
import { languageName } from "./languages.js";
import { address, changed } from "./router.js";
import { route } from "./state.js";
import { StateFilter, TextFilter } from "./view-filters.js";
import { Ago, Empty, IdLink, Meter, Pill } from "./view-parts.js";
import { ListBody } from "./view-refused.js";
import { Pager, Table } from "./view-table.js";
import { HEALTHS } from "./words.js";

/** @import { NodeRow, NodesDocument } from "./types.js" */
/** @import { Column } from "./view-table.js" */

const USUAL = { sort: "id", desc: false };
const FILTERS = ["search", "health", "src", "tgt"];

/** @type {readonly Column<NodeRow>[]} */
const COLUMNS = [
  {
    name: "Node",
    sort: "id",
    phone: "title",
    cell: (node) => html`<${IdLink} to="node" id=${node.id} />`,
  },
  {
    name: "Health",
    sort: "health",
    phone: "side",
    cell: (node) => html`<${NodeHealth} node=${node} />`,
  },
  {
    name: "Slots used",
    sort: "used",
    descFirst: true,
    number: true,
    cell: (node) => html`<${Slots} used=${node.used} slots=${node.slots} />`,
  },
  {
    name: "Load",
    sort: "load",
    descFirst: true,
    number: true,
    cell: (node) => percent(node.load),
  },
  {
    name: "Failures",
    sort: "failures",
    descFirst: true,
    number: true,
    cell: (node) =>
      html`<span class=${node.failures > 0 ? "bad-text" : "none"}>${count(node.failures)}</span>`,
  },
  {
    name: "Languages",
    cell: (node) =>
      html`<span class="languages"
        ><${Codes} codes=${node.sources} total=${node.sources_total} /><span class="arrow"
          >${" → "}</span
        ><${Codes} codes=${node.targets} total=${node.targets_total}
      /></span>`,
  },
  {
    name: "Dispatcher",
    sort: "instance",
    phone: "hide",
    cell: (node) => html`<span class="id short" title=${node.instance}>${node.instance}</span>`,
  },
];

/** @type {Column<NodeRow>} */
const CELL = {
  name: "Cell",
  sort: "cell",
  number: true,
  phone: "hide",
  cell: (node) => (node.cell === undefined ? "–" : count(node.cell)),
};

/** @param {{ document: NodesDocument | undefined }} props */
export function Nodes({ document }) {
  const filters = activeFilters(route.value.query, FILTERS);
  return html`<h1 tabindex="-1">Nodes</h1>
    <div class="tools">
      <${TextFilter} name="search" label="Search nodes by id" placeholder="Search by id" main />
      <${TextFilter} name="src" label="From" placeholder="en" />
      <${TextFilter} name="tgt" label="To" placeholder="es" />
    </div>
    <${StateFilter} name="health" label="Health" words=${HEALTHS} counts=${document?.counts} />
    <${ListBody} document=${document}
      >${document && html`<${Rows} document=${document} filtered=${filters.length > 0} />`}<//
    >`;
}

/** @param {{ document: NodesDocument, filtered: boolean }} props */
function Rows({ document, filtered }) {
  if (document.total === 0) {
    return filtered ? html`<${NoMatch} />` : html`<${NoNodes} />`;
  }
  const rows = document.order.flatMap((id) => document.rows[id] ?? []);
  return html`<${Table}
      label="Nodes"
      columns=${rows.some((node) => node.cell !== undefined) ? [...COLUMNS, CELL] : COLUMNS}
      rows=${rows}
      usual=${USUAL}
      keyOf=${(/** @type {NodeRow} */ node) => node.id}
      linkOf=${(/** @type {NodeRow} */ node) => address("node", node.id)}
    />
    <${Pager} list=${document} what="nodes" />`;
}

/** Filters that leave nothing. */
export function NoMatch() {
  const none = Object.fromEntries(Object.keys(route.value.query).map((name) => [name, undefined]));
  return html`<${Empty} title="Nothing matches these filters.">
    <p><a href=${changed(route.value, none)}>Remove all filters</a></p>
  <//>`;
}

export function NoNodes() {
  return html`<${Empty} title="No nodes yet.">
    <p>A node connects to a dispatcher. To see some at work, start simulated ones:</p>
    <pre tabindex="0" aria-label="Command"><code>lingua sim-nodes --count 3</code></pre>
    <p>docs/nodes.md says how to write a real one. It appears here within two seconds.</p>
  <//>`;
}

/** An ejected node that would be ready gets no jobs: "ready" would mislead. @param {{ node: NodeRow }} props */
export function NodeHealth({ node }) {
  const { health, ejected, ejected_until_ms: until } = node;
  return html`<span class="healths"
    >${!(ejected && health === "ready") && html`<${Pill} words=${HEALTHS} value=${health} />`}${
      ejected &&
      html`<span class="pill bad" data-state="ejected" title=${HEALTHS["ejected"]?.meaning}
        ><span
          >Ejected${until !== undefined && html`${", ends "}<${Ago} ms=${until} />`}</span
        ></span
      >`
    }</span
  >`;
}

/** @param {{ used: number, slots: number }} props */
function Slots({ used, slots }) {
  const share = slots > 0 ? used / slots : 0;
  return html`<span class="slots"
    ><${Meter} share=${share} tone=${share >= 1 ? "warn" : "info"} /><span class="slots-number"
      >${count(used)} / ${count(slots)}</span
    ></span
  >`;
}

/** @param {{ codes: readonly string[], total: number }} props */
function Codes({ codes, total }) {
  const more = total - codes.length;
  return html`<span
    title=${codes.map(languageName).join(", ") + (more > 0 ? ` and ${more} more` : "")}
    >${codes.slice(0, 4).join(" ")}${total > 4 && html` <span class="muted">+${total - Math.min(codes.length, 4)}</span>`}</span
  >`;
}
