// @ts-check
/** Sorting and paging of lists, as parameters of their address. */

import { LIMIT, pageOf } from "./router.js";

/** @import { Query } from "./router.js" */

/**
 * How a list is sorted, and what a click on a column changes.
 *
 * @typedef {{ sort: string, desc: boolean }} Order
 */

/**
 * @param {Query} query
 * @param {Order} usual what the server does if nothing is asked.
 * @returns {Order}
 */
export function orderOf(query, usual) {
  const sort = query["sort"] ?? usual.sort;
  const desc = query["desc"];
  return { sort, desc: desc === undefined ? sort === usual.sort && usual.desc : desc === "1" };
}

/**
 * The parameters after a click on a column: the same column is reversed, another one starts with what
 * is usually looked for.
 *
 * @param {Order} order
 * @param {string} column
 * @param {boolean} descFirst
 */
export function sortedBy(order, column, descFirst) {
  const desc = order.sort === column ? !order.desc : descFirst;
  return { sort: column, desc: desc ? "1" : "0" };
}

/**
 * Which rows a page has, and which pages are beside it.
 *
 * @param {{ total: number, offset?: number, limit?: number }} list
 * @param {Query} query
 */
export function pageFacts({ total, offset, limit = LIMIT }, query) {
  const page = pageOf(query);
  const first = offset ?? (page - 1) * limit;
  return {
    from: total === 0 ? 0 : Math.min(first + 1, total),
    to: Math.min(first + limit, total),
    total,
    page,
    pages: Math.max(Math.ceil(total / limit), 1),
  };
}

/**
 * How many of the filters are set.
 *
 * @param {Query} query
 * @param {readonly string[]} names
 */
export function activeFilters(query, names) {
  return names.filter((name) => query[name] !== undefined);
}
