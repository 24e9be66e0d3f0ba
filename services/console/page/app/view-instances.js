// @ts-check
/** Every process, and the settings in force. */

import { html } from "./html.js";
import { count, plural } from "./format.js";
import { changed } from "./router.js";
import { route } from "./state.js";
import { commonVersion, countersOf, groupsOf } from "./settings.js";
import { TextFilter } from "./view-filters.js";
import { Ago, Card, Empty, Pill, Since } from "./view-parts.js";
import { Table } from "./view-table.js";
import { CELL_STATES, INSTANCE_HEALTHS, sentence } from "./words.js";

/** @import { CellRow, InstanceRow, InstancesDocument, Setting } from "./types.js" */
/** @import { Column } from "./view-table.js" */

/**
 * @param {string} usual the version of most instances.
 * @returns {readonly Column<InstanceRow>[]}
 */
function columnsOf(usual) {
  return [
    {
      name: "Service",
      phone: "title",
      cell: (instance) => html`<b>${sentence(instance.service)}</b>`,
    },
    {
      name: "Health",
      phone: "side",
      cell: (instance) => html`<${Pill} words=${INSTANCE_HEALTHS} value=${instance.health} />`,
    },
    {
      name: "Instance",
      cell: (instance) => html`<span class="id">${instance.id}</span>`,
    },
    {
      name: "Version",
      cell: (instance) =>
        html`<span
          class=${instance.version === usual ? "" : "differs"}
          title=${instance.version === usual ? "" : `Most instances have ${usual}`}
          >${instance.version}</span
        >`,
    },
    { name: "Up for", cell: (instance) => html`<${Since} ms=${instance.started_ms} />` },
    { name: "Last heard", cell: (instance) => html`<${Ago} ms=${instance.announced_ms} />` },
    {
      name: "Address",
      cell: (instance) => html`<span class="id">${instance.address || "–"}</span>`,
    },
    { name: "Counters", cell: (instance) => html`<${Counters} stats=${instance.stats} />` },
  ];
}

/** @param {{ document: InstancesDocument }} props */
export function Instances({ document }) {
  const rows = document.order.flatMap((id) => document.rows[id] ?? []);
  return html`<h1 tabindex="-1" class="before-table">Instances and settings</h1>
    ${
      rows.length === 0
        ? html`<${Empty} title="No instance has announced itself yet.">
            <p>Each service does so every two seconds.</p>
          <//>`
        : html`<${Table}
            label="Instances"
            columns=${columnsOf(commonVersion(rows))}
            rows=${rows}
            keyOf=${(/** @type {InstanceRow} */ instance) => instance.id}
            toneOf=${(/** @type {InstanceRow} */ instance) => (instance.health === "down" ? "row-bad" : "")}
          />`
    }
    ${document.cells.length > 1 && html`<${Cells} cells=${document.cells} />`}
    <${Settings} document=${document} />`;
}

/** @type {readonly Column<CellRow>[]} */
const CELLS = [
  { name: "Cell", phone: "title", cell: (cell) => html`<b>${count(cell.number)}</b>` },
  {
    name: "State",
    phone: "side",
    cell: (cell) => html`<${Pill} words=${CELL_STATES} value=${cell.up ? cell.state : "away"} />`,
  },
  { name: "Nodes", number: true, cell: (cell) => known(cell.nodes) },
  {
    name: "Slots used",
    number: true,
    cell: (cell) => html`${known(cell.used)} / ${known(cell.slots)}`,
  },
  { name: "Sessions", number: true, cell: (cell) => known(cell.sessions) },
  { name: "Rooms", number: true, cell: (cell) => known(cell.rooms) },
  {
    name: "Redis",
    cell: (cell) => html`<span class="id" title=${cell.reason}>${cell.address}</span>`,
  },
];

/** @param {number | undefined} number */
function known(number) {
  return number === undefined ? "–" : count(number);
}

/** @param {{ cells: readonly CellRow[] }} props */
function Cells({ cells }) {
  return html`<section id="cells" aria-labelledby="cells-title">
    <h2 id="cells-title" class="section-title before-table">Cells</h2>
    <${Table}
      label="Cells"
      columns=${CELLS}
      rows=${cells}
      keyOf=${(/** @type {CellRow} */ cell) => `cell-${cell.number}`}
      toneOf=${(/** @type {CellRow} */ cell) => (cell.up ? "" : "row-bad")}
    />
  </section>`;
}

/** @param {{ stats: InstanceRow["stats"] }} props */
function Counters({ stats }) {
  const counters = countersOf(stats);
  if (counters.length === 0) {
    return html`<span class="none">–</span>`;
  }
  return html`<details class="counters">
    <summary>${plural(counters.length, "number")}</summary>
    <dl>
      ${counters.map(
        ({ name, value }) =>
          html`<div key=${name}>
            <dt>${name}</dt>
            <dd>${count(value)}</dd>
          </div>`,
      )}
    </dl>
  </details>`;
}

/** @param {{ document: InstancesDocument }} props */
function Settings({ document }) {
  const { query } = route.value;
  const differences = query["differences"] === "1";
  const groups = groupsOf(document.settings, { search: query["search"] ?? "", differences });
  const different = document.settings.filter((setting) => setting.differs).length;
  return html`<section id="settings" aria-labelledby="settings-title">
    <h2 id="settings-title" class="section-title">Settings</h2>
    <div class="tools">
      <${TextFilter}
        name="search"
        label="Search settings by name, value or description"
        placeholder="Search settings"
        main
      />
      <a
        class="toggle"
        role="switch"
        aria-checked=${differences}
        href=${changed(route.value, { differences: differences ? undefined : "1" })}
        data-replace
        data-action="differences"
        ><span class="toggle-mark" aria-hidden="true"></span>Differences only${" "}<span
          class=${different > 0 ? "states-count warn-text" : "states-count"}
          >${count(different)}</span
        ></a
      >
    </div>
    ${groups.length === 0 && html`<${NoSettings} differences=${differences} searched=${query["search"] !== undefined} />`}
    ${groups.map(
      ({ group, settings }) =>
        html`<${Card} key=${group} title=${sentence(group)} id=${`settings-${group}`}>
          <ul class="settings">
            ${settings.map((setting) => html`<${SettingRow} key=${setting.name} setting=${setting} />`)}
          </ul>
        <//>`,
    )}
  </section>`;
}

/** @param {{ differences: boolean, searched: boolean }} props */
function NoSettings({ differences, searched }) {
  if (searched) {
    return html`<${Empty} title="No setting matches.">
      <p>
        <a href=${changed(route.value, { search: undefined, differences: undefined })}
          >Show all settings</a
        >
      </p>
    <//>`;
  }
  return html`<${Empty}
    title=${differences ? "All instances have the same settings." : "No settings are known yet."}
  />`;
}

/** @param {{ setting: Setting }} props */
function SettingRow({ setting }) {
  return html`<li
    class=${setting.differs ? "setting setting-differs" : "setting"}
    data-setting=${setting.name}
    data-differs=${setting.differs}
  >
    <div class="setting-name">
      <b>${setting.name}</b>${setting.differs && html` <span class="pill warn">Differs</span>`}
      <code>${setting.variable}</code>
      <p class="muted">${setting.description}</p>
    </div>
    <ul class="setting-values">
      ${setting.values.map(
        ({ value, origin, instances }) =>
          html`<li key=${`${value}/${origin}`}>
            <code class="setting-value">${value === "" ? "(empty)" : value}</code>
            <span class="muted">${origin}</span>
            ${
              setting.values.length > 1 &&
              html`<span class="muted setting-instances" title=${instances.join(", ")}
                >${instances.length > 3 ? plural(instances.length, "instance") : instances.join(", ")}</span
              >`
            }
          </li>`,
      )}
    </ul>
  </li>`;
}
