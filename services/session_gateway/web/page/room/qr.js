// @ts-check
/** A link as a QR code, which phones read with their camera. It is drawn here, by no service. */

import * as library from "../vendor/lean-qr.js";

const { generate } = /** @type {typeof import("lean-qr")} */ (/** @type {unknown} */ (library));

/** Modules of white around it, as the standard wants. */
const QUIET = 4;

/**
 * @param {string} text
 * @returns {{ size: number, path: string }} the length of a side, and the dark modules as an SVG path.
 */
export function qrCode(text) {
  const code = generate(text);
  let path = "";
  for (let y = 0; y < code.size; y += 1) {
    for (let x = 0; x < code.size; x += 1) {
      if (code.get(x, y)) {
        path += `M${x + QUIET} ${y + QUIET}h1v1h-1z`;
      }
    }
  }
  return { size: code.size + 2 * QUIET, path };
}
