// @ts-check
/** The matrix source x target: how many slots of each direction are free. */

import { signal } from "@preact/signals";
import { Component } from "preact";

import { html } from "./html.js";
import { count, plural } from "./format.js";
import { directionName, languageName } from "./languages.js";
import { isRoomy, levelOf, matching, moved } from "./matrix.js";
import { address } from "./router.js";
import { route } from "./state.js";

/** @import { Overview } from "./types.js" */
/** @import { Cell } from "./matrix.js" */

/** @typedef {Overview["matrix"]} Matrix */

/** Which cell the Tab key reaches; arrow keys move it. */
const current = signal({ row: 0, column: 0 });

/** @param {{ matrix: Matrix }} props */
export function MatrixGrid({ matrix }) {
  const { src = "", tgt = "" } = route.value.query;
  const sources = matching(matrix.sources, src, languageName);
  const targets = matching(matrix.targets, tgt, languageName);
  if (sources.length === 0 || targets.length === 0) {
    return html`<p class="muted note" data-role="empty">
      ${matrix.sources.length === 0 ? "No node serves any direction yet." : "No language matches."}
    </p>`;
  }
  const size = { rows: sources.length, columns: targets.length };
  const at = {
    row: Math.min(current.value.row, size.rows - 1),
    column: Math.min(current.value.column, size.columns - 1),
  };
  return html`<div
    class="scroll matrix-box"
    role="region"
    aria-label="Matrix, scrollable"
    tabindex="-1"
  >
    <table
      class=${isRoomy(targets) ? "matrix roomy" : "matrix"}
      role="grid"
      aria-label="Free slots by source and target language"
      aria-rowcount=${size.rows + 1}
      aria-colcount=${size.columns + 1}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => move(event, at, size)}
    >
      <thead>
        <tr role="row">
          <th class="corner" scope="col"><span class="visually-hidden">from, to</span></th>
          ${targets.map(
            (code) =>
              html`<th key=${code} scope="col" title=${languageName(code)}>
                <span>${code}</span>
              </th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${sources.map(
          (code, row) =>
            html`<${MatrixRow}
              key=${code}
              source=${code}
              targets=${targets}
              cells=${matrix.cells}
              kind=${matrix.kind}
              tab=${row === at.row ? at.column : -1}
            />`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * @typedef {object} RowProps
 * @property {string} source
 * @property {readonly string[]} targets
 * @property {Matrix["cells"]} cells
 * @property {string} kind
 * @property {number} tab the column that the Tab key reaches; -1 if it is in another row.
 */

/**
 * Drawn again only if one of its cells has changed: there may be 6000 of them.
 *
 * @extends {Component<RowProps>}
 */
class MatrixRow extends Component {
  /** @override @param {Readonly<RowProps>} next */
  shouldComponentUpdate(next) {
    const { source, targets, cells, tab, kind } = this.props;
    return (
      next.tab !== tab ||
      next.kind !== kind ||
      next.targets.length !== targets.length ||
      next.targets.some(
        (code, index) =>
          code !== targets[index] ||
          !isSame(next.cells[`${source}:${code}`], cells[`${source}:${code}`]),
      )
    );
  }

  /** @override */
  render() {
    const { source, targets, cells, tab } = this.props;
    return html`<tr role="row">
      <th scope="row" title=${languageName(source)}>${source}</th>
      ${targets.map((target, column) =>
        cellOf({
          source,
          target,
          cell: cells[`${source}:${target}`],
          tabindex: column === tab ? 0 : -1,
        }),
      )}
    </tr>`;
  }
}

/** @param {{ source: string, target: string, cell: Cell | undefined, tabindex: number }} props */
function cellOf({ source, target, cell, tabindex }) {
  if (cell === undefined) {
    const text = `${directionName(source, target)}: no node`;
    return html`<td role="gridcell" key=${target}>
      <span
        class="cell none"
        tabindex=${tabindex}
        aria-label=${text}
        role="img"
        data-tip=${text}
      ></span>
    </td>`;
  }
  const [free, slots, nodes] = cell;
  const text = `${directionName(source, target)}: ${count(free)} of ${count(slots)} slots free, ${plural(nodes, "ready node")}`;
  return html`<td role="gridcell" key=${target}>
    <a
      class=${`cell level-${levelOf(cell)}`}
      href=${address("nodes", "", { src: source, tgt: target })}
      tabindex=${tabindex}
      aria-label=${text}
      data-tip=${text.replace(": ", "\n").replace(", ", "\n")}
      data-direction=${`${source}:${target}`}
      ><span class="cell-numbers">${count(free)}<small>/${count(slots)}</small></span></a
    >
  </td>`;
}

/**
 * @param {Cell | undefined} a
 * @param {Cell | undefined} b
 */
function isSame(a, b) {
  return (
    a === b || (a !== undefined && b !== undefined && a.every((value, index) => value === b[index]))
  );
}

/**
 * @param {KeyboardEvent} event
 * @param {{ row: number, column: number }} from
 * @param {{ rows: number, columns: number }} size
 */
function move(event, from, size) {
  const next = moved(from, event.key, size);
  if (next === null) {
    return;
  }
  event.preventDefault();
  current.value = next;
  const table = /** @type {Element} */ (event.currentTarget);
  const cell = table.querySelectorAll("tbody tr")[next.row]?.querySelectorAll(".cell")[next.column];
  if (cell instanceof HTMLElement) {
    cell.focus();
  }
}

/** What the colours mean. */
export function MatrixLegend() {
  const entries = [
    ["level-0", "no slots"],
    ["level-1", "none free"],
    ["level-2", "under 15%"],
    ["level-3", "under 50%"],
    ["level-4", "50% or more"],
  ];
  return html`<ul class="legend" aria-label="Legend">
    ${entries.map(
      ([level, text]) =>
        html`<li key=${level}>
          <span class=${`legend-cell ${level}`} aria-hidden="true"></span>${text}
        </li>`,
    )}
  </ul>`;
}
