// @ts-check
/** Tables with sorted columns, pages, and rows that arrow keys move through. */

import { html } from "./html.js";
import { orderOf, pageFacts, sortedBy } from "./filters.js";
import { count } from "./format.js";
import * as icons from "./icons.js";
import { changed } from "./router.js";
import { isLate, navigate, route } from "./state.js";

/** @import { Children } from "./html.js" */
/** @import { Order } from "./filters.js" */

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} name the header.
 * @property {(row: Row) => Children} cell
 * @property {string} [sort] the parameter, if the server can sort by it.
 * @property {boolean} [descFirst] whether the largest values are looked for.
 * @property {boolean} [number] aligned to the right.
 * @property {"title" | "side" | "small" | "hide"} [phone] its place on a narrow screen: the first
 *   line, the right end of the first line, a line with its name (the default), or nowhere.
 */

/**
 * @template Row
 * @typedef {object} TableProps
 * @property {string} label for those who do not see it.
 * @property {readonly Column<Row>[]} columns
 * @property {readonly Row[]} rows
 * @property {(row: Row) => string} keyOf
 * @property {(row: Row) => string} [linkOf] the address that a row opens.
 * @property {Order} [usual] how the server sorts if nothing is asked; without it nothing is sorted.
 * @property {(row: Row) => string} [toneOf] a class of the row.
 */

/** @param {TableProps<any>} props */
export function Table({ label, columns, rows, keyOf, linkOf, usual, toneOf }) {
  const order = usual && orderOf(route.value.query, usual);
  const isOld = usual !== undefined && isLate.value;
  return html`<div class=${isOld ? "table-box late" : "table-box"} aria-busy=${isOld}>
    ${order && html`<${SortChoice} columns=${columns} order=${order} />`}
    <table role="table" aria-label=${label}>
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map((column) => html`<${Head} key=${column.name} column=${column} order=${order} />`)}
        </tr>
      </thead>
      <tbody role="rowgroup" onKeyDown=${moveBetweenRows}>
        ${rows.map((row) => {
          const link = linkOf?.(row);
          return html`<tr
            role="row"
            key=${keyOf(row)}
            data-key=${keyOf(row)}
            class=${[link ? "opens" : "", toneOf?.(row) ?? ""].join(" ")}
            onClick=${link && ((/** @type {MouseEvent} */ event) => openRow(event, link))}
          >
            ${columns.map((column) => html`<${Cell} key=${column.name} column=${column} row=${row} />`)}
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}

/** @param {{ column: Column<any>, order: Order | undefined }} props */
function Head({ column, order }) {
  const { name, sort } = column;
  const classes = classesOf(column);
  if (order === undefined || sort === undefined) {
    return html`<th role="columnheader" scope="col" class=${classes}>${name}</th>`;
  }
  const isSorted = order.sort === sort;
  const to = changed(route.value, sortedBy(order, sort, column.descFirst ?? false));
  return html`<th
    role="columnheader"
    scope="col"
    class=${classes}
    aria-sort=${isSorted ? (order.desc ? "descending" : "ascending") : "none"}
  >
    <a href=${to} data-replace>${name}${isSorted && (order.desc ? icons.down() : icons.up())}</a>
  </th>`;
}

/** @param {{ column: Column<any>, row: any }} props */
function Cell({ column, row }) {
  return html`<td role="cell" class=${classesOf(column)} data-name=${column.name}>
    ${column.cell(row)}
  </td>`;
}

/** @param {Column<any>} column */
function classesOf({ number, phone }) {
  return [number ? "number" : "", phone ? `phone-${phone}` : ""].join(" ").trim();
}

/** Narrow screens have no headers to click. @param {{ columns: readonly Column<any>[], order: Order }} props */
function SortChoice({ columns, order }) {
  const options = columns.flatMap((column) =>
    column.sort === undefined
      ? []
      : [false, true].map((desc) => ({
          value: `${column.sort}:${desc ? 1 : 0}`,
          text: `${column.name}, ${desc ? "descending" : "ascending"}`,
        })),
  );
  const current = `${order.sort}:${order.desc ? 1 : 0}`;
  return html`<label class="sort-choice"
    >Sort by
    <select
      value=${current}
      onChange=${(/** @type {Event} */ event) => {
        const [sort, desc] = /** @type {HTMLSelectElement} */ (event.currentTarget).value.split(
          ":",
        );
        navigate(changed(route.value, { sort, desc }), { replace: true });
      }}
    >
      ${options.map(
        ({ value, text }) =>
          html`<option key=${value} value=${value} selected=${value === current}>${text}</option>`,
      )}
    </select>
  </label>`;
}

/**
 * @param {MouseEvent} event
 * @param {string} link
 */
function openRow(event, link) {
  const target = /** @type {Element} */ (event.target);
  const isOther = target.closest("a, button, summary, input, select") !== null;
  if (isOther || event.defaultPrevented || (getSelection()?.toString() ?? "") !== "") {
    return;
  }
  if (event.metaKey || event.ctrlKey) {
    open(link, "_blank", "noopener");
  } else {
    navigate(link);
  }
}

/** @param {KeyboardEvent} event */
function moveBetweenRows(event) {
  const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  const row = /** @type {Element} */ (event.target).closest("tr");
  if (step === 0 || row === null) {
    return;
  }
  const next = step === 1 ? row.nextElementSibling : row.previousElementSibling;
  const link = next?.querySelector("a");
  if (link instanceof HTMLElement) {
    event.preventDefault();
    link.focus();
  }
}

/** @param {{ list: { total: number, offset?: number, limit?: number }, what: string }} props */
export function Pager({ list, what }) {
  const { from, to, total, page, pages } = pageFacts(list, route.value.query);
  /** @param {number} number */
  const at = (number) => changed(route.value, { page: number > 1 ? number : undefined });
  return html`<nav class="pager" aria-label="Pages">
    <p data-role="range">
      ${total === 0 ? `No ${what}` : `${count(from)}–${count(to)} of ${count(total)} ${what}`}
    </p>
    ${
      pages > 1 &&
      html`<span class="pager-links">
        ${page > 1 ? html`<a href=${at(page - 1)} rel="prev">Previous</a>` : html`<span>Previous</span>`}
        <span class="pager-page">Page ${count(page)} of ${count(pages)}</span>
        ${page < pages ? html`<a href=${at(page + 1)} rel="next">Next</a>` : html`<span>Next</span>`}
      </span>`
    }
  </nav>`;
}
