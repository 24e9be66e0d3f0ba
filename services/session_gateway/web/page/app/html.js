// @ts-check
/** Preact and htm, with their types. Texts become text nodes, never markup. */

import htm from "../vendor/htm.js";
import * as preact from "../vendor/preact.js";

/** @typedef {import("preact").ComponentChildren} Children */
/** @typedef {import("preact").VNode<any>} Node */

export const { Component, Fragment, createRef, h, render } =
  /** @type {typeof import("preact")} */ (/** @type {unknown} */ (preact));

/** @typedef {(strings: TemplateStringsArray, ...values: unknown[]) => Node} Html */

export const html = /** @type {{ bind(create: typeof h): Html }} */ (
  /** @type {unknown} */ (htm)
).bind(h);
