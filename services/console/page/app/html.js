// @ts-check
/** Preact and htm, bound to each other. Texts become text nodes, never markup. */

import { h } from "preact";
import htm from "htm";

/** @typedef {import("preact").ComponentChildren} Children */
/** @typedef {import("preact").VNode<any>} Node */
/** @typedef {(strings: TemplateStringsArray, ...values: unknown[]) => Node} Html */

export const html = /** @type {Html} */ (/** @type {unknown} */ (htm.bind(h)));
